"""The Trainer of Hugging Face transformers without any line of Rankguard, which saves and resumes by itself for --own."""

import os

import torch.distributed as dist
from transformers import Trainer
from transformers.trainer_utils import get_last_checkpoint

from record import EVERY, arguments
from trainer_parts import Steps, Table, network, settings


def main() -> None:
    args = arguments()
    model = network()
    own = args.own or args.out
    saves = "steps" if args.own else "no"
    chosen = settings(args, output_dir=own, save_strategy=saves, save_steps=EVERY, save_total_limit=2)
    trainer = Trainer(model=model, args=chosen, train_dataset=Table(), callbacks=[Steps(args, model)])
    newest = get_last_checkpoint(own) if os.path.isdir(own) else None
    trainer.train(resume_from_checkpoint=newest)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
