"""The Trainer of Hugging Face transformers without any line of Rankguard, which saves and resumes by itself for --own."""

import os
import pathlib
from typing import Optional

import torch.distributed as dist
from transformers import Trainer

from record import EVERY, arguments
from trainer_parts import Steps, Table, network, settings


def newest_whole(folder: str) -> Optional[str]:
    """The newest checkpoint with its last file; `get_last_checkpoint` of transformers also returns one that a kill cut off."""
    states = pathlib.Path(folder).glob("checkpoint-*/trainer_state.json")
    whole = [state.parent for state in states if state.stat().st_size > 0]
    return str(max(whole, key=lambda path: int(path.name.rsplit("-", 1)[1]))) if whole else None


def main() -> None:
    args = arguments()
    model = network()
    own = args.own or args.out
    saves = "steps" if args.own else "no"
    chosen = settings(args, output_dir=own, save_strategy=saves, save_steps=EVERY, save_total_limit=2)
    trainer = Trainer(model=model, args=chosen, train_dataset=Table(), callbacks=[Steps(args, model)])
    trainer.train(resume_from_checkpoint=newest_whole(own) if os.path.isdir(own) else None)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
