"""FSDP2 that saves and loads with DCP through the storage writer and reader of Rankguard; it reports no steps."""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import rankguard
import rankguard.dcp
from record import EVERY, RankRecord, arguments, network, next_ids, samples


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    rankguard.init(args.local_dir, checkpoint_every=EVERY)
    first, consumed = 1, 0
    if rankguard.newest() is not None:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": 0, "consumed": 0}
        dcp.load(state, storage_reader=rankguard.dcp.StorageReader())
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        first, consumed = state["step"] + 1, state["consumed"]
    record = RankRecord(args.out, rank, world, first - 1)
    # The thread that saves must not mix its messages with those of the training.
    saving, saving_group = None, dist.new_group()
    for n in range(first, args.steps + 1):
        ids, consumed = next_ids(consumed, rank, world)
        inputs, targets = samples(ids)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        record.step(n, ids, [weight.to_local() for weight in model.parameters()])
        if n % EVERY == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": n, "consumed": consumed}
            writer = rankguard.dcp.StorageWriter(step=n)
            if args.async_save:
                if saving is not None:
                    saving.result()
                saving = dcp.async_save(state, storage_writer=writer, process_group=saving_group)
            else:
                dcp.save(state, storage_writer=writer)
        time.sleep(args.step_ms / 1e3)
    if saving is not None:
        saving.result()
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
