"""A small Lightning job (DDP) that loses nothing to a SIGKILL: gloo on CPUs, resumed within an epoch, bit by bit on the
same number of ranks.

    rankguard run --ranks-per-node 2 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/lightning_job.py
    torchrun --nproc-per-node 2 examples/lightning_job.py --local-dir STORE --every 5

Only the lines with `rankguard` are ours, and `find_unused_parameters=True`. Without it DDP orders its gradient buckets anew
after the first backward: from three ranks on, a restart then equals an undisturbed run up to rounding only (see ddp.py).
"""

import os
import time
import warnings

import torch
import torch.distributed as dist
from common import arguments, batch, exact, tell
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn

import rankguard
import rankguard.lightning


class Classifier(LightningModule):
    def __init__(self, step_ms: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))
        self.step_ms, self.losses = step_ms, []

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.layers(inputs), targets)
        self.losses.append(loss.item())
        time.sleep(self.step_ms / 1e3)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint):
        checkpoint["losses"] = self.losses

    def on_load_checkpoint(self, checkpoint):
        self.losses = checkpoint["losses"]


class Batches:
    """A loader that can say where it is, which Lightning wants of one that is to go on within an epoch."""

    def __init__(self, steps: int, rank: int, world: int) -> None:
        self.steps, self.rank, self.world, self.at = steps, rank, world, 0

    def __len__(self):
        return self.steps

    def __iter__(self):
        while self.at < self.steps:
            self.at += 1
            yield batch(self.at, self.rank, self.world)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def main() -> None:
    args = arguments(__doc__)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed_everything(7, verbose=False)
    model = Classifier(args.step_ms)

    rankguard.init(args.local_dir, checkpoint_every=args.every)
    checkpoints = rankguard.lightning.CheckpointIO()
    trainer = Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=world // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy=rankguard.lightning.DDPStrategy(find_unused_parameters=True),
        plugins=[checkpoints],
        callbacks=[rankguard.lightning.Callback(path=args.out and os.path.join(args.out, "newest.ckpt"))],
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    resume = checkpoints.newest()
    trainer.fit(model, Batches(args.steps, rank, world), ckpt_path=resume)

    restored = int(resume.rpartition(":")[2]) if resume else None
    tell(args.out, rank, restored, losses=exact(model.losses))
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
