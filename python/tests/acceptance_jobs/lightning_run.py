"""Lightning with the plugin, strategy and callback of Rankguard."""

import os

import torch
import torch.distributed as dist

import rankguard
import rankguard.lightning
from lightning_parts import Batches, Classifier, trainer
from record import EVERY, arguments


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Classifier(args)
    rankguard.init(args.local_dir, checkpoint_every=EVERY)
    checkpoints = rankguard.lightning.CheckpointIO()
    chosen = trainer(
        args,
        # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
        strategy=rankguard.lightning.DDPStrategy(find_unused_parameters=True),
        plugins=[checkpoints],
        callbacks=[rankguard.lightning.Callback(path=os.path.join(args.out, "newest.ckpt"))],
        enable_checkpointing=False,
    )
    batches = Batches(args.steps, dist.get_rank(), dist.get_world_size())
    chosen.fit(model, batches, ckpt_path=checkpoints.newest())
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
