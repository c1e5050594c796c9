"""Ledger of consumed samples: which positions of the sample stream each generation has consumed.

The stream is the sequence of all epochs: position ``p`` of epoch ``e`` is place ``e * samples of an epoch + p``. Adjacent
intervals of one generation and world size are merged, so a run without restarts needs one interval, and its ledger grows
with restarts and not with steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from ._arguments import check_integer
from ._rankguard import RankguardError

#: Largest place: MAX_SAMPLES in each of 2^63 epochs.
MAX_PLACE = 1 << 125
#: Problems that an error lists; the rest is counted.
_LISTED = 5


class LedgerInterval(NamedTuple):
    """Places from ``start`` to before ``stop``, consumed by one generation."""

    generation: int
    world_size: int
    start: int
    stop: int


class SampleLedger:
    """Intervals in the order in which they were recorded.

    A :class:`rankguard.Sampler` records each step itself, and restores the ledger with its position: steps after the restored
    checkpoint are in no ledger, since no weight has them. A ledger may also be filled from other records, such as logs of
    ranks, and checked.
    """

    def __init__(self, intervals: Iterable[LedgerInterval] = ()) -> None:
        self._intervals: list[LedgerInterval] = []
        for interval in intervals:
            self.record(*interval[2:], generation=interval[0], world_size=interval[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SampleLedger) and self._intervals == other._intervals

    def __repr__(self) -> str:
        return f"SampleLedger({self._intervals!r})"

    @property
    def intervals(self) -> list[LedgerInterval]:
        """The merged intervals, in the order of their record."""
        return list(self._intervals)

    def record(self, start: int, stop: int, *, generation: int, world_size: int) -> None:
        """Adds the places from ``start`` to before ``stop``; overlaps are recorded too, for :meth:`problems` to report."""
        start, stop = check_integer("start", start, 0, MAX_PLACE), check_integer("stop", stop, 0, MAX_PLACE)
        generation = check_integer("generation", generation)
        world_size = check_integer("world_size", world_size, 1)
        if stop < start:
            raise ValueError(f"cannot record the interval {start} to {stop}: it ends before it starts; pass start <= stop")
        self._extend(start, stop, generation, world_size)

    def _extend(self, start: int, stop: int, generation: int, world_size: int) -> None:
        """Adds an interval of checked values."""
        if stop == start:
            return
        last = self._intervals[-1] if self._intervals else None
        if last is not None and last[:2] == (generation, world_size) and last.stop == start:
            self._intervals[-1] = LedgerInterval(generation, world_size, last.start, stop)
        else:
            self._intervals.append(LedgerInterval(generation, world_size, start, stop))

    def by_generation(self) -> dict[int, list[tuple[int, int]]]:
        """The places of each generation as sorted intervals without adjacent or overlapping ones."""
        found: dict[int, list[tuple[int, int]]] = {}
        for interval in sorted(self._intervals, key=lambda interval: (interval.generation, interval.start, interval.stop)):
            spans = found.setdefault(interval.generation, [])
            if spans and interval.start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], interval.stop))
            else:
                spans.append((interval.start, interval.stop))
        return found

    def problems(self, stop: Optional[int] = None) -> list[str]:
        """Gaps and overlaps from the begin of the stream to ``stop``, without it to the last place recorded; in order."""
        found: list[str] = []
        reached, last_by = 0, 0
        for interval in sorted(self._intervals, key=lambda interval: (interval.start, interval.stop)):
            if interval.start > reached:
                found.append(f"no generation consumed the places {reached} to {interval.start}")
            elif interval.start < reached:
                until = min(reached, interval.stop)
                found.append(
                    f"generations {last_by} and {interval.generation} both consumed the places {interval.start} to {until}"
                )
            if interval.stop > reached:
                reached, last_by = interval.stop, interval.generation
        if stop is not None and reached < stop:
            found.append(f"no generation consumed the places {reached} to {stop}")
        if stop is not None and reached > stop:
            found.append(f"the places {stop} to {reached} are beyond the end, {stop}")
        return found

    def check(self, stop: Optional[int] = None) -> None:
        """Raises :class:`RankguardError` if a place is missing or was consumed twice."""
        found = self.problems(stop)
        if found:
            more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            raise RankguardError(f"the sample ledger is not exact: {'; '.join(found[:_LISTED])}{more}")

    def state(self) -> list[list[int]]:
        """The intervals as plain values, for a checkpoint."""
        return [list(interval) for interval in self._intervals]

    @classmethod
    def of_state(cls, state: Any) -> SampleLedger:
        """The ledger that :meth:`state` described."""
        if not isinstance(state, (list, tuple)) or not all(isinstance(row, (list, tuple)) and len(row) == 4 for row in state):
            raise ValueError("the ledger is no list of [generation, world_size, start, stop]")
        return cls(
            LedgerInterval(*(check_integer("an entry of the ledger", entry, 0, MAX_PLACE) for entry in row)) for row in state
        )
