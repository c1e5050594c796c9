"""What a restore will do, decided before anything is changed."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional

from . import _imported, _plain_state
from ._compare import StateComparison
from ._permitted import ReplicatedNames
from ._tree import Flat
from ._view import CheckpointView, StateMismatch, check_tensors, listed

_HINT = (
    "An optimizer makes its tensors in its first step: restore into rankguard.torch.state(model, optimizer), which makes "
    "them before. restore(..., strict=False) restores the rest, and Restored lists what it does not"
)


class RestorePlan:
    """A checkpoint, what of it goes into a live state, and what does not."""

    def __init__(
        self,
        view: CheckpointView,
        live: Any,
        flat: Flat,
        place: tuple[int, int],
        every_state: Callable[[], CheckpointView],
    ) -> None:
        self.view = view
        #: Whether values that belong to one rank are this rank's.
        self.own = view.is_own(place)
        #: Plain values by name, of a checkpoint that was imported.
        self.imported: Optional[dict[str, Any]] = _imported.named(view.states)
        #: The decoded state; tensors are references.
        self.saved: Any = None
        #: Tensors and plain values of which the first rank's are taken although ranks saved different ones.
        self.differing: list[str] = []
        self._place = place
        self._plain_differing: list[str] = []
        if self.imported is not None:
            self.comparison = _compare_names(view, flat)
            return
        if self.own:
            self.saved = view.own_state(place)
            self.comparison = StateComparison(live, self.saved, flat)
            if self.comparison.is_whole():
                return
        self._take_union(every_state(), live, flat)

    def _take_union(self, view: CheckpointView, live: Any, flat: Flat) -> None:
        """Compares with what all ranks saved, and takes that where this rank's own state does not fit."""
        union = view.union(self._place[0] if self.own else min(view.states))
        if self.own:
            try:
                comparison = StateComparison(live, union.state, flat)
            except ValueError:
                return
            if not comparison.is_whole():
                return
        else:
            comparison = StateComparison(live, union.state, flat)
        self.saved, self.comparison = union.state, comparison
        if not self.own:
            self._plain_differing = union.differing

    def check(self, flat: Flat, replicated: ReplicatedNames, strict: bool) -> None:
        """Refuses what is not exact, or notes it where that is allowed."""
        names = [leaf.name for leaf in flat.leaves]
        if strict:
            self._check_whole()
        if not self.own:
            if strict:
                check_tensors(self.view, names, replicated, self._place[1])
            self.differing = [name for name in names if name in self.view.differing]
            self._warn(replicated)

    def _check_whole(self) -> None:
        problems = []
        if self.comparison.missing:
            problems.append(f"the live state has no place for: {listed(self.comparison.missing)}")
        if self.comparison.unfilled:
            problems.append(f"the checkpoint does not have: {listed(self.comparison.unfilled)}")
        if problems:
            ranks = len(self.view.states)
            raise StateMismatch(f"cannot restore step {self.view.step}, saved by {ranks} ranks: {'; '.join(problems)}. {_HINT}")

    def _warn(self, replicated: ReplicatedNames) -> None:
        """Names what is taken of the first rank and was not said to be the same for all."""
        unnamed = [name for name in [*self.differing, *self._plain_differing] if name not in replicated]
        self.differing = [*self.differing, *self._plain_differing]
        if unnamed:
            warnings.warn(
                f"step {self.view.step} was saved by {len(self.view.states)} ranks with different values, and "
                f"{self._place[1]} ranks restore the first rank's: {listed(unnamed)}. Save values of one rank as PerRank, "
                "or name these in restore(..., replicate=[...])",
                RuntimeWarning,
                stacklevel=5,
            )


def _compare_names(view: CheckpointView, flat: Flat) -> StateComparison:
    """The comparison with a checkpoint that knows names alone."""
    comparison = StateComparison({}, {}, flat)
    saved = {name for name in view.names if not name.startswith(_plain_state.NAME_PREFIX)}
    live = [leaf.name for leaf in flat.leaves]
    comparison.missing = sorted(saved.difference(live))
    comparison.unfilled = [name for name in live if name not in saved]
    return comparison
