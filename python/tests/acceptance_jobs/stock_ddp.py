"""A DDP script without any line of Rankguard, which saves and resumes with torch.save by itself where --own is given."""

import glob
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from record import EVERY, RankRecord, arguments, network, next_ids, samples


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
    model = DistributedDataParallel(network(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first, consumed = 1, 0
    files = sorted(glob.glob(os.path.join(args.own, "step-*.pt"))) if args.own else []
    if files:
        saved = torch.load(files[-1])
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, consumed = saved["step"] + 1, saved["consumed"]
    record = RankRecord(args.out, rank, world, first - 1)
    for n in range(first, args.steps + 1):
        ids, consumed = next_ids(consumed, rank, world)
        inputs, targets = samples(ids)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        record.step(n, ids, list(model.parameters()))
        if args.own and n % EVERY == 0 and rank == 0:
            saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": n, "consumed": consumed}
            file = os.path.join(args.own, f"step-{n:08}.pt")
            torch.save(saved, file + ".new")
            os.replace(file + ".new", file)
        time.sleep(args.step_ms / 1e3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
