"""A small PyTorch DDP job that loses nothing to a SIGKILL: gloo on CPUs, resumed to the last bit.

    rankguard run --ranks-per-node 2 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/ddp.py --steps 60
    torchrun --nproc-per-node 2 examples/ddp.py --steps 60 --local-dir STORE --every 5

Only the lines with `rankguard` are ours.
"""

import time

import torch
import torch.distributed as dist
from common import arguments, batch, exact, tell
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import rankguard


def main() -> None:
    args = arguments(__doc__)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    rankguard.init(args.local_dir, checkpoint_every=args.every)
    weights, moments = get_state_dict(model, optimizer)
    # Random numbers differ from rank to rank, so they are the rank's own.
    state = {"model": weights, "optimizer": moments, "rng": rankguard.PerRank(torch.get_rng_state()), "losses": []}
    restored = rankguard.restore(state)
    if restored is not None:
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        torch.set_rng_state(state["rng"].value)
    losses = state["losses"]

    for n in range(restored.step + 1 if restored else 1, args.steps + 1):
        inputs, targets = batch(n, rank, world)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        rankguard.step(n, loss=losses[-1], grad_norm=norm)
        if rankguard.due(n):
            weights, moments = get_state_dict(model, optimizer)
            rng = rankguard.PerRank(torch.get_rng_state())
            rankguard.checkpoint({"model": weights, "optimizer": moments, "rng": rng, "losses": losses}, step=n)
        time.sleep(args.step_ms / 1e3)

    tell(args.out, rank, restored and restored.step, losses=exact(losses))
    # With a store of their own, all wait for the last commit before any goes; under an agent that is not theirs to wait for.
    rankguard.wait()
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
