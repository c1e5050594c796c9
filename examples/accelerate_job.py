"""A small Accelerate job that loses nothing to a SIGKILL: gloo on CPUs, resumed within an epoch, bit by bit on the same
number of ranks.

    rankguard run --ranks-per-node 2 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/accelerate_job.py
    torchrun --nproc-per-node 2 examples/accelerate_job.py --local-dir STORE --every 5

Only the lines with `rankguard` are ours, and `find_unused_parameters=True`. Without it DDP orders its gradient buckets anew
after the first backward: from three ranks on, a restart then equals an undisturbed run up to rounding only (see ddp.py).
"""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, set_seed
from common import arguments, exact, tell
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankguard
import rankguard.accelerate

STEPS_AN_EPOCH = 12


class Losses:
    """Registered with Accelerate, as anything with a state can be."""

    def __init__(self) -> None:
        self.values = []

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        self.values = state["values"]


def main() -> None:
    args = arguments(__doc__)
    torch.set_num_threads(1)
    # Only such a sampler can draw the order of any epoch again.
    loaders = DataLoaderConfiguration(use_seedable_sampler=True)
    buckets = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(cpu=True, dataloader_config=loaders, kwargs_handlers=[buckets])
    set_seed(7)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    inputs = torch.randn(STEPS_AN_EPOCH * 16 * accelerator.num_processes, 32)
    loader = DataLoader(TensorDataset(inputs, (inputs[:, :8] * 3).argmax(dim=1)), batch_size=16, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = Losses()
    accelerator.register_for_checkpointing(losses)

    rankguard.init(args.local_dir, checkpoint_every=args.every)
    restored = rankguard.accelerate.restore(accelerator)
    n = restored.step if restored else 0
    while n < args.steps:
        loader.set_epoch(n // STEPS_AN_EPOCH)
        skipped = n % STEPS_AN_EPOCH
        for inputs, targets in accelerator.skip_first_batches(loader, skipped):
            if restored and skipped and n == restored.step:
                # In the run that saved, the loader had drawn from them when the epoch began.
                restored.random()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.values.append(loss.item())
            n += 1
            rankguard.step(n, loss=losses.values[-1])
            if rankguard.due():
                rankguard.accelerate.checkpoint(accelerator)
            time.sleep(args.step_ms / 1e3)
            if n == args.steps:
                break

    tell(args.out, accelerator.process_index, restored and restored.step, losses=exact(losses.values))
    accelerator.wait_for_everyone()
    rankguard.done()
    accelerator.end_training()


if __name__ == "__main__":
    main()
