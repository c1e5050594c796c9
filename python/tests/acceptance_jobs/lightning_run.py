"""Lightning with the plugin, strategy and callback of Rankguard."""

import os
import time
import warnings

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer
from torch import nn

import rankguard
import rankguard.lightning
from record import EVERY, RankRecord, arguments, network, next_ids, samples


class Classifier(LightningModule):
    def __init__(self, args) -> None:
        super().__init__()
        self.layers, self.args, self.record, self.ids = network(), args, None, []

    def training_step(self, batch, batch_idx):
        inputs, targets, self.ids = batch
        return nn.functional.cross_entropy(self.layers(inputs), targets)

    def on_train_start(self):
        self.record = RankRecord(self.args.out, dist.get_rank(), dist.get_world_size(), self.global_step)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.record.step(self.global_step, self.ids, list(self.layers.parameters()))
        time.sleep(self.args.step_ms / 1e3)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


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


def main() -> None:
    args = arguments()
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Classifier(args)
    rankguard.init(args.local_dir, checkpoint_every=EVERY)
    checkpoints = rankguard.lightning.CheckpointIO()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = Trainer(
        accelerator="cpu",
        devices=local,
        num_nodes=world // local,
        # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
        strategy=rankguard.lightning.DDPStrategy(find_unused_parameters=True),
        plugins=[checkpoints],
        callbacks=[rankguard.lightning.Callback(path=os.path.join(args.out, "newest.ckpt"))],
        max_steps=args.steps,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, Batches(args.steps, rank, world), ckpt_path=checkpoints.newest())
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
