"""Lightning without any line of Rankguard; it saves and resumes by itself where --own is given."""

import os

import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

from lightning_parts import Batches, Classifier, trainer
from record import EVERY, arguments


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    saves = [ModelCheckpoint(args.own, every_n_train_steps=EVERY, save_last=True)] if args.own else []
    # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
    strategy = DDPStrategy(find_unused_parameters=True)
    chosen = trainer(args, strategy=strategy, callbacks=saves, enable_checkpointing=bool(saves))
    batches = Batches(args.steps, dist.get_rank(), dist.get_world_size())
    newest = os.path.join(args.own, "last.ckpt") if args.own else ""
    chosen.fit(Classifier(args), batches, ckpt_path=newest if os.path.exists(newest) else None)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
