"""What the example jobs share and what is no part of the lesson: their arguments, their data, what they tell a test."""

import argparse
import json
import os

import torch


def arguments(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints, without an agent")
    parser.add_argument("--local-dir", help="where checkpoints go, without an agent")
    parser.add_argument("--step-ms", type=float, default=0.0, help="pause after each step")
    parser.add_argument("--out", help="folder for the losses of each rank")
    return parser.parse_args()


def batch(n: int, rank: int, world: int, width: int = 32, classes: int = 8) -> "tuple[torch.Tensor, torch.Tensor]":
    """What this rank sees in step n: of the step and the rank alone, so a resumed run sees it again."""
    source = torch.Generator().manual_seed(n * world + rank)
    inputs = torch.randn(16, width, generator=source)
    return inputs, (inputs[:, :classes] * 3).argmax(dim=1)


def tell(out: "str | None", rank: int, restored: "int | None", **told) -> None:
    """Writes what the rank computed and the step that it went on from, where the job was asked to."""
    if out:
        with open(os.path.join(out, f"losses-{rank}.json"), "w") as file:
            json.dump({**told, "restored": restored}, file)


def exact(losses: "list[float]") -> "list[str]":
    """Losses as text, bit by bit."""
    return [loss.hex() for loss in losses]
