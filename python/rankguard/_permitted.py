"""Tensors of which the restore of a program permits the first rank's for all ranks.

A checkpoint with other values on each rank is refused by another number of ranks, unless the program permits it (``replicate=``
of ``restore`` and ``load``). The controller places a job after a failure, before the program is asked: each save has the
names that the program permitted when it started.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Optional, Union

#: Names of tensors or values that are the same for all ranks, as ``restore`` and ``load`` take them.
Replicate = Union[bool, str, Iterable[str]]

#: Key of these names in the JSON of a rank.
REPLICATE_KEY = "replicate"

#: Stands for all tensors.
ALL_TENSORS = "*"


def listed_patterns(replicate: Replicate) -> Replicate:
    """The same, to be read more than once."""
    return replicate if isinstance(replicate, (bool, str)) else list(replicate or ())


class ReplicatedNames:
    """Names of tensors and values of which all ranks take what the first rank saved."""

    def __init__(self, replicate: Replicate, known: Iterable[str] = ()) -> None:
        patterns = [replicate] if isinstance(replicate, str) else [ALL_TENSORS] if replicate is True else replicate or []
        self.patterns = [str(pattern) for pattern in patterns]
        self._known = frozenset(known)

    def __contains__(self, name: str) -> bool:
        return name in self._known or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


class PermittedNames:
    """What the restores of a session have permitted."""

    def __init__(self) -> None:
        self._patterns: Optional[set[str]] = None
        self._names: set[str] = set()

    def add(self, replicate: Replicate, names: Iterable[str] = ()) -> None:
        """Adds the patterns of a restore, and names that it takes in any case."""
        self._patterns = (self._patterns or set()) | set(ReplicatedNames(replicate).patterns)
        self._names.update(names)

    def of(self, names: Iterable[str], known: Iterable[str] = ()) -> Optional[list[str]]:
        """The permitted ones of these names; ``None`` where nothing was restored, so that nothing is known."""
        if self._patterns is None:
            return None
        if ALL_TENSORS in self._patterns:
            return [ALL_TENSORS]
        permitted = ReplicatedNames(sorted(self._patterns), self._names.union(known))
        return sorted(name for name in names if name in permitted)
