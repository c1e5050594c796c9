"""Samples, model and record that the acceptance jobs share; no part of any framework."""

import argparse
import hashlib
import json
import os
import pathlib
import time

import torch
from torch import nn

SAMPLES = 240
BATCH = 2
EVERY = 5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument("--out", required=True, help="folder of the records")
    parser.add_argument("--own", help="folder for the checkpoints that a stock script makes itself")
    parser.add_argument("--local-dir", help="store, without an agent")
    parser.add_argument("--async-save", action="store_true")
    return parser.parse_args()


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 24), nn.GELU(), nn.Linear(24, 4))


def sample(index: int) -> "tuple[torch.Tensor, torch.Tensor]":
    """Inputs and target of one sample; of its id alone."""
    inputs = torch.randn(16, generator=torch.Generator().manual_seed(index))
    return inputs, inputs[:4].argmax()


def samples(ids: "list[int]") -> "tuple[torch.Tensor, torch.Tensor]":
    inputs, targets = zip(*(sample(index) for index in ids))
    return torch.stack(inputs), torch.stack(targets)


def epoch_order(epoch: int) -> "list[int]":
    return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1_000 + epoch)).tolist()


def next_ids(consumed: int, rank: int, world: int) -> "tuple[list[int], int]":
    """Ids for this rank after so many samples of all epochs, and the samples that are consumed with them."""
    epoch, at = divmod(consumed, SAMPLES)
    ids = epoch_order(epoch)[at : at + BATCH * world]
    # The rest of an epoch is a multiple of 4 samples, which 1, 2 and 4 ranks can share evenly.
    return ids[rank::world], consumed + len(ids)


def digest(tensors: "list[torch.Tensor]") -> str:
    """Of the bits of the tensors."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()[:32]


class RankRecord:
    """One line a step: generation, samples, digest of the weights after it. Each process has a file of its own.

    Generations of a later `rankguard run` count above those of an earlier one, whatever the controller calls them.
    """

    def __init__(self, out: str, rank: int, world: int, restored: int) -> None:
        attempt = int(os.environ.get("ACCEPTANCE_ATTEMPT", "0"))
        self._generation = 1_000 * attempt + int(os.environ.get("RANKGUARD_GENERATION", "0"))
        self._start = {"generation": self._generation, "rank": rank, "world": world}
        path = pathlib.Path(out) / f"g{self._generation:06}-r{rank}-{os.getpid()}.jsonl"
        self._file = open(path, "w", buffering=1)
        self._write(restored=restored, began=time.time_ns())

    def step(self, n: int, ids: "list[int]", weights: "list[torch.Tensor]") -> None:
        self._write(step=n, ids=ids, digest=digest(weights))

    def _write(self, **content: object) -> None:
        self._file.write(json.dumps({**self._start, **content}) + "\n")
