"""The states of all ranks as one, for a restore at another number of ranks."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from ._tree import PerRank, Ref, text_of
from ._wrapped import WrappedTensor


class StateUnion:
    """One state from those of all ranks; where plain values differ, that of the first rank."""

    def __init__(self, states: Iterable[Any]) -> None:
        #: Paths of plain values that differ from rank to rank, or that some ranks do not have.
        self.differing: list[str] = []
        merged: Any = None
        for nth, state in enumerate(states):
            merged = state if nth == 0 else self._join(merged, state, ())
        self.state = merged

    def _join(self, one: Any, other: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(one, PerRank) and isinstance(other, PerRank):
            return one
        if isinstance(one, (Ref, WrappedTensor)) and type(one) is type(other):
            # Their content is compared by digest.
            return one
        if isinstance(one, dict) and isinstance(other, dict):
            return self._join_dicts(one, other, path)
        if isinstance(one, (list, tuple)) and type(one) is type(other) and not (is_plain(one) and is_plain(other)):
            if len(one) == len(other):
                joined = [self._join(a, b, (*path, at)) for at, (a, b) in enumerate(zip(one, other))]
                return joined if isinstance(one, list) else tuple(joined)
            self._note(path)
            return one if len(one) > len(other) else other
        if not same(one, other):
            self._note(path)
        return one

    def _join_dicts(self, one: dict[Any, Any], other: dict[Any, Any], path: tuple[Any, ...]) -> dict[Any, Any]:
        joined = copy.copy(one)
        for key, item in other.items():
            if key in one:
                joined[key] = self._join(one[key], item, (*path, key))
            elif not isinstance(item, PerRank):
                joined[key] = item
        for key, item in joined.items():
            shared = key in one and key in other
            if not shared and is_plain(item):
                self._note((*path, key))
        return joined

    def _note(self, path: tuple[Any, ...]) -> None:
        name = text_of(path)
        if name not in self.differing:
            self.differing.append(name)


def is_plain(state: Any) -> bool:
    """Whether a decoded state has neither tensors nor values of one rank."""
    if isinstance(state, dict):
        return all(map(is_plain, state.values()))
    if isinstance(state, (list, tuple)):
        return all(map(is_plain, state))
    return not isinstance(state, (Ref, PerRank, WrappedTensor))


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal in type and to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(item, other[key]) for key, item in one.items())
    if hasattr(one, "tobytes") and hasattr(one, "dtype"):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return bool(one == other)
