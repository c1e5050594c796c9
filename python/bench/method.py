"""What a way to save is, to the benchmark, and how it sees a state.

A method saves one state again and again. ``save`` returns when the trainer may go on; ``finish`` returns when the method
itself says that the save is over. Where it does not sync what it wrote (``synced`` is false), the benchmark does, and counts
that into the time until the save is durable.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def local(value: Any) -> Any:
    """The part that this rank holds."""
    return value.to_local() if isinstance(value, DTensor) else value


def tensors(state: dict[str, Any], prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """The local tensors of a nested state, by name."""
    found = []
    for key, value in state.items():
        if isinstance(value, dict):
            found += tensors(value, f"{prefix}{key}.")
        elif isinstance(value, torch.Tensor):
            found.append((prefix + key, local(value)))
    return found


def localized(state: dict[str, Any]) -> dict[str, Any]:
    """The same with plain local tensors."""
    return {key: localized(value) if isinstance(value, dict) else local(value) for key, value in state.items()}


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes, without a copy."""
    return tensor.reshape(-1).view(torch.uint8)


class Method:
    """One way to save. ``path`` is a folder of this save alone, which is there already."""

    name = ""
    #: Whether the method syncs files and says "over" only after that.
    synced = True
    #: Whether its ranks run under an agent.
    under_agent = False
    #: A limit of the machine rather than somebody's way to save.
    limit = False

    def __init__(self, state: dict[str, Any], group: Any, root: str) -> None:
        self.state, self.group, self.root, self.rank = state, group, root, dist.get_rank()

    def save(self, path: str, step: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Returns when the save is over."""

    def settle(self) -> None:
        """Returns when nothing of the save goes on, so that the next method has the machine."""

    def load(self, path: str, into: dict[str, Any]) -> None:
        raise NotImplementedError

    def whole(self, path: str, into: dict[str, Any]) -> None:
        """The state of all ranks in one process, for methods that can load on another number of ranks."""
        raise NotImplementedError

    def over(self) -> bool:
        """Whether the save is over; asked beside the training."""
        return True

    def before_optimizer(self) -> None:
        """What the trainer must call before it changes its tensors."""

    def close(self) -> None:
        """Gives everything back."""
