"""A small PyTorch DDP job that loses nothing to a SIGKILL: gloo on CPUs, resumed bit by bit on the same number of ranks.

    rankguard run --ranks-per-node 2 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/ddp.py --steps 60
    torchrun --nproc-per-node 2 examples/ddp.py --steps 60 --local-dir STORE --every 5

Only the lines with `rankguard` are ours, and `find_unused_parameters=True`. DDP orders its gradient buckets anew after the
first backward of a process. From three ranks on, the order of the sum depends on the place in a bucket, so the first step
after a restart differs in the last bits from that step of an undisturbed run. With the option the order never changes;
it costs a walk through the graph in each step. Leave it away where equal up to rounding is enough.
"""

import time

import torch
import torch.distributed as dist
from common import arguments, batch, exact, tell
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankguard


def main() -> None:
    args = arguments(__doc__)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))
    model = DistributedDataParallel(layers, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    rankguard.init(args.local_dir, checkpoint_every=args.every)
    # Weights, moments, the random numbers of each rank, and the losses.
    state = rankguard.torch.state(model, optimizer, losses=[])
    restored = rankguard.restore(state)
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
            rankguard.checkpoint(state, step=n)
        time.sleep(args.step_ms / 1e3)

    tell(args.out, rank, restored and restored.step, losses=exact(losses))
    # With a store of their own, all wait for the last commit before any goes; under an agent that is not theirs to wait for.
    rankguard.wait()
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
