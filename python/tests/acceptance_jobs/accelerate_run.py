"""Accelerate with the adapter of Rankguard; the samples that are consumed are a registered object."""

import time

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import nn

import rankguard
import rankguard.accelerate
from record import EVERY, RankRecord, arguments, network, next_ids, samples


class Place:
    """Samples of all ranks that are consumed."""

    def __init__(self) -> None:
        self.consumed = 0

    def state_dict(self) -> dict:
        return {"consumed": self.consumed}

    def load_state_dict(self, state: dict) -> None:
        self.consumed = state["consumed"]


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[ddp])
    rank, world = accelerator.process_index, accelerator.num_processes
    model = network()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    place = Place()
    accelerator.register_for_checkpointing(place)
    rankguard.init(args.local_dir, checkpoint_every=EVERY)
    restored = rankguard.accelerate.restore(accelerator)
    first = restored.step + 1 if restored else 1
    record = RankRecord(args.out, rank, world, first - 1)
    for n in range(first, args.steps + 1):
        ids, place.consumed = next_ids(place.consumed, rank, world)
        inputs, targets = samples(ids)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        record.step(n, ids, list(model.parameters()))
        rankguard.step(n, loss=loss.item())
        if rankguard.due():
            rankguard.accelerate.checkpoint(accelerator)
        time.sleep(args.step_ms / 1e3)
    accelerator.wait_for_everyone()
    rankguard.done()
    accelerator.end_training()


if __name__ == "__main__":
    main()
