"""A small GPT-2 under the Trainer of transformers that loses nothing to a SIGKILL: gloo on CPUs, resumed bit by
bit on the same number of ranks.

    rankguard run --ranks-per-node 2 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/transformers_job.py
    torchrun --nproc-per-node 2 examples/transformers_job.py --local-dir STORE --every 5

Only the lines with `rankguard` are ours. Unless gradients are recomputed, the Trainer itself sets `find_unused_parameters` of
DDP, which keeps the order of its gradient buckets (see ddp.py).
"""

import hashlib
import tempfile
import time

import torch
import torch.distributed as dist
from common import arguments, tell
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import rankguard
import rankguard.transformers


class Pause(TrainerCallback):
    """Steps of a length."""

    def __init__(self, step_ms: float) -> None:
        self.step_ms = step_ms

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(self.step_ms / 1e3)


def main() -> None:
    args = arguments(__doc__)
    torch.set_num_threads(1)
    set_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    texts = torch.randint(0, 64, (100, 16))
    # Makes the process group too.
    settings = TrainingArguments(
        output_dir=args.out or tempfile.gettempdir(),
        max_steps=args.steps,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    rankguard.init(args.local_dir, checkpoint_every=args.every)
    callback = rankguard.transformers.Callback()
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=[{"input_ids": text, "labels": text} for text in texts],
        callbacks=[callback, Pause(args.step_ms)],
    )
    resume = callback.resume()
    restored = rankguard.session().last_step if resume else None
    trainer.train(resume_from_checkpoint=resume)

    weights = b"".join(weight.numpy().tobytes() for weight in model.state_dict().values())
    tell(args.out, settings.process_index, restored, weights=hashlib.sha256(weights).hexdigest())
    if dist.is_initialized():
        dist.barrier()
    rankguard.done()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
