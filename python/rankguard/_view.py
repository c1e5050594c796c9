"""What is known of a checkpoint before any tensor of it is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import _tree
from ._permitted import ReplicatedNames
from ._rankguard import RankguardError
from ._union import StateUnion


class StateMismatch(RankguardError, ValueError):
    """A checkpoint and a live state do not have the same tensors; the message names them. Nothing was changed."""


@dataclass(frozen=True)
class CheckpointView:
    """A checkpoint by its states and digests."""

    #: Steps completed when it was saved.
    step: int
    #: The JSON of each rank.
    states: dict[int, str]
    #: Tensors that differ from rank to rank, and what differs.
    differing: dict[str, str] = field(default_factory=dict)
    #: Names of all tensors, where the states do not list them.
    names: list[str] = field(default_factory=list)

    def is_own(self, place: tuple[int, int]) -> bool:
        """Whether as many ranks saved it as there are now, so that this rank has a state of its own in it."""
        rank, world_size = place
        return len(self.states) == world_size and rank in self.states

    def own_state(self, place: tuple[int, int]) -> Any:
        """The decoded state that this rank saved."""
        return _tree.decode(self.states[place[0]])

    def union(self, first: int) -> StateUnion:
        """The states of all ranks as one; that of rank ``first`` comes first."""
        texts = [self.states[rank] for rank in sorted(self.states, key=lambda rank: (rank != first, rank))]
        # Ranks with equal states are decoded once.
        return StateUnion(_tree.decode(text) for text in dict.fromkeys(texts))


def check_tensors(view: CheckpointView, names: Iterable[str], replicated: ReplicatedNames, world_size: int) -> None:
    """Refuses tensors that differ from rank to rank, for a rank of another world size."""
    found = [name for name in names if name in view.differing and name not in replicated]
    if found:
        shown = listed([f"{name} ({view.differing[name]})" for name in found])
        raise StateMismatch(
            f"cannot restore step {view.step}, saved by {len(view.states)} ranks, on {world_size}: ranks saved different "
            f"tensors under one name: {shown}. Save parts as Shard or DTensor and values of one rank as PerRank, or name "
            "tensors of which the first rank's are right for all: restore(..., replicate=[...]), or replicate=True"
        )


def listed(names: list[str], most: int = 5) -> str:
    """Names for a message."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
