"""FSDP2 without any line of Rankguard, which saves with dcp.save and resumes by itself where --own is given."""

import glob
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from record import EVERY, RankRecord, arguments, network, next_ids, samples


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first, consumed = 1, 0
    # DCP writes .metadata last, so that a save that was cut off has none.
    whole = sorted(glob.glob(os.path.join(args.own, "step-*", ".metadata"))) if args.own else []
    if whole:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": 0, "consumed": 0}
        dcp.load(state, checkpoint_id=os.path.dirname(whole[-1]))
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        first, consumed = state["step"] + 1, state["consumed"]
    record = RankRecord(args.out, rank, world, first - 1)
    for n in range(first, args.steps + 1):
        ids, consumed = next_ids(consumed, rank, world)
        inputs, targets = samples(ids)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        record.step(n, ids, [weight.to_local() for weight in model.parameters()])
        if args.own and n % EVERY == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": n, "consumed": consumed}
            dcp.save(state, checkpoint_id=os.path.join(args.own, f"step-{n:08}"))
        time.sleep(args.step_ms / 1e3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
