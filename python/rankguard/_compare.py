"""What of a checkpoint has a place in a live state, found before anything is changed."""

from __future__ import annotations

from typing import Any

from . import _arrays
from ._kinds import NamedValues
from ._tree import Flat, PerRank, Ref, refs, text_of
from ._wrapped import WrappedTensor


class StateComparison:
    """Compares a decoded state with a live one. Raises where their structures exclude each other."""

    def __init__(self, live: Any, saved: Any, flat: Flat) -> None:
        #: Tensors of the checkpoint that the live state has no place for.
        self.missing: list[str] = []
        #: Tensors, and objects with a ``state_dict``, of the live state that the checkpoint does not have.
        self.unfilled: list[str] = []
        #: Plain values of the checkpoint that go with tensors that have no place.
        self.dropped: list[str] = []
        #: Plain values of the live state that the checkpoint does not have.
        self.removed: list[str] = []
        self._states = flat.states()
        self._walk(live, saved, ())

    def is_whole(self) -> bool:
        """Whether everything has its counterpart."""
        return not (self.missing or self.unfilled or self.dropped)

    def _walk(self, live: Any, saved: Any, path: tuple[Any, ...]) -> None:
        if isinstance(saved, WrappedTensor):
            saved.check(text_of(path), live)
            return
        ref, array = isinstance(saved, Ref), _arrays.is_array(live)
        if ref and array:
            return
        if ref or array:
            raise ValueError(f"{text_of(path)}: a tensor stands on one side and plain state on the other")
        if isinstance(live, PerRank) or isinstance(saved, PerRank):
            return
        if id(live) in self._states:
            self._walk(self._states[id(live)], saved, path)
        elif isinstance(live, dict) and isinstance(saved, dict):
            self._walk_dicts(live, saved, path)
        elif isinstance(saved, NamedValues) and isinstance(live, tuple):
            for field, one, two in zip(saved.fields, live, saved.values):
                self._walk(one, two, (*path, field))
        elif not self._has_objects(live) and not any(True for _ in refs(saved)):
            return
        elif type(live) is type(saved) and isinstance(live, (list, tuple)):
            if len(live) != len(saved):
                raise ValueError(f"{text_of(path)}: {len(live)} entries here, {len(saved)} in the checkpoint")
            for at, (one, two) in enumerate(zip(live, saved)):
                self._walk(one, two, (*path, at))
        else:
            kinds = type(live).__name__, type(saved).__name__
            raise ValueError(f"{text_of(path)}: a {kinds[0]} here, a {kinds[1]} in the checkpoint, with tensors in one of them")

    def _walk_dicts(self, live: dict[Any, Any], saved: dict[Any, Any], path: tuple[Any, ...]) -> None:
        for key, item in live.items():
            if key in saved:
                self._walk(item, saved[key], (*path, key))
            elif isinstance(item, PerRank):
                continue
            elif self._has_objects(item):
                self._note_unfilled(item, (*path, key))
            else:
                self.removed.append(text_of((*path, key)))
        for key, item in saved.items():
            if key not in live and any(True for _ in refs(item)):
                self.missing.extend(ref.name for ref in refs(item))
                self._note_dropped(item, (*path, key))

    def _has_objects(self, live: Any) -> bool:
        return has_objects(live, self._states)

    def _note_unfilled(self, live: Any, path: tuple[Any, ...]) -> None:
        before = len(self.unfilled)
        self._note_tensors(live, path)
        if len(self.unfilled) == before:
            self.unfilled.append(text_of(path))

    def _note_tensors(self, live: Any, path: tuple[Any, ...]) -> None:
        if _arrays.is_array(live):
            self.unfilled.append(text_of(path))
            return
        state = self._states.get(id(live), live)
        items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else ()
        for key, item in items:
            self._note_tensors(item, (*path, key))

    def _note_dropped(self, saved: Any, path: tuple[Any, ...]) -> None:
        if isinstance(saved, Ref):
            return
        if isinstance(saved, dict) or (isinstance(saved, (list, tuple)) and any(True for _ in refs(saved))):
            for key, item in saved.items() if isinstance(saved, dict) else enumerate(saved):
                self._note_dropped(item, (*path, key))
            return
        self.dropped.append(text_of(path))


def has_objects(live: Any, states: dict[int, Any]) -> bool:
    """Whether there are tensors, or objects that were asked for their state."""
    if id(live) in states or _arrays.is_array(live):
        return True
    if isinstance(live, dict):
        return any(has_objects(item, states) for item in live.values())
    if isinstance(live, (list, tuple)):
        return any(has_objects(item, states) for item in live)
    return False
