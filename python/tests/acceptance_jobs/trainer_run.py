"""The Trainer of Hugging Face transformers with the callback of Rankguard; everything else is a stock script."""

import torch.distributed as dist
from transformers import Trainer

import rankguard
import rankguard.transformers
from record import EVERY, arguments
from trainer_parts import Steps, Table, network, settings


def main() -> None:
    args = arguments()
    model = network()
    chosen = settings(args, output_dir=args.out, save_strategy="no")
    rankguard.init(args.local_dir, checkpoint_every=EVERY)
    callback = rankguard.transformers.Callback()
    trainer = Trainer(model=model, args=chosen, train_dataset=Table(), callbacks=[Steps(args, model), callback])
    trainer.train(resume_from_checkpoint=callback.resume())
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
