"""Model, loader, record and trainer of the jobs that use Lightning."""

import os
import time
import warnings

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from record import RankRecord, network, next_ids, samples


class Classifier(LightningModule):
    def __init__(self, args) -> None:
        super().__init__()
        self.layers, self.args, self.ids = network(), args, []

    def training_step(self, batch, batch_idx):
        inputs, targets, self.ids = batch
        return nn.functional.cross_entropy(self.layers(inputs), targets)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        time.sleep(self.args.step_ms / 1e3)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Steps(Callback):
    """Records steps before a callback behind it saves them: a rank that ends in between has recorded what is saved."""

    def on_train_start(self, trainer, module):
        self.record = RankRecord(module.args.out, dist.get_rank(), dist.get_world_size(), trainer.global_step)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.record.step(trainer.global_step, module.ids, list(module.layers.parameters()))


class Batches:
    """A loader with a state: samples of all ranks that are consumed."""

    def __init__(self, steps: int, rank: int, world: int) -> None:
        self.steps, self.rank, self.world, self.consumed = steps, rank, world, 0

    def __len__(self) -> int:
        return self.steps

    def __iter__(self):
        while True:
            ids, self.consumed = next_ids(self.consumed, self.rank, self.world)
            yield (*samples(ids), ids)

    def state_dict(self) -> dict:
        return {"consumed": self.consumed}

    def load_state_dict(self, state: dict) -> None:
        self.consumed = state["consumed"]


def trainer(args, callbacks: "list[Callback]", **parts: object) -> Trainer:
    warnings.filterwarnings("ignore", module="lightning")
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return Trainer(
        accelerator="cpu",
        devices=local,
        num_nodes=int(os.environ["WORLD_SIZE"]) // local,
        max_steps=args.steps,
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Steps(), *callbacks],
        **parts,
    )
