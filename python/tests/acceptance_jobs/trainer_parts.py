"""Data, model, settings and record of the jobs that use the Trainer of Hugging Face transformers."""

import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, TrainerCallback, TrainingArguments

from record import BATCH, SAMPLES, RankRecord, sample


class Table(Dataset):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict:
        inputs, target = sample(index)
        return {"inputs": inputs, "labels": target, "index": index}


class Network(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        self.ids = []
        self.post_init()

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor, index: torch.Tensor) -> dict:
        self.ids = index.tolist()
        return {"loss": nn.functional.cross_entropy(self.layers(inputs), labels)}


class Steps(TrainerCallback):
    """Records steps, and gives them a length."""

    def __init__(self, args, model: Network) -> None:
        self.args, self.model, self.record = args, model, None

    def on_train_begin(self, args, state, control, **kwargs):
        self.record = RankRecord(self.args.out, args.process_index, args.world_size, state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        self.record.step(state.global_step, self.model.ids, list(self.model.parameters()))
        time.sleep(self.args.step_ms / 1e3)


def network() -> Network:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    return Network(PretrainedConfig())


def settings(args, **saves: object) -> TrainingArguments:
    """Makes the process group too."""
    return TrainingArguments(
        max_steps=args.steps,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        # Without it DDP orders its buckets anew after the first step of each start, and sums differ in their last bits.
        ddp_find_unused_parameters=True,
        **saves,
    )
