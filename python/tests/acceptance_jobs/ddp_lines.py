"""DDP with the lines of Rankguard."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankguard
from record import EVERY, RankRecord, arguments, network, next_ids, samples


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
    model = DistributedDataParallel(network(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    rankguard.init(args.local_dir, checkpoint_every=EVERY)
    state = rankguard.torch.state(model, optimizer, consumed=0)
    restored = rankguard.restore(state)
    first = restored.step + 1 if restored else 1
    record = RankRecord(args.out, rank, world, first - 1)
    for n in range(first, args.steps + 1):
        ids, state["consumed"] = next_ids(state["consumed"], rank, world)
        inputs, targets = samples(ids)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        record.step(n, ids, list(model.parameters()))
        rankguard.step(n, loss=loss.item())
        if rankguard.due(n):
            rankguard.checkpoint(state, step=n)
        time.sleep(args.step_ms / 1e3)
    rankguard.wait()
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
