"""A state of a checkpoint, decoded, brought back into Python: merged into a live one, or made anew."""

from __future__ import annotations

from typing import Any

from . import _arrays, _kinds, _wrapped
from ._compare import has_objects
from ._tree import Flat, PerRank, Ref, refs, text_of


class Merge:
    """Puts the plain state of a checkpoint into a live state; tensors are left where they are."""

    def __init__(self, own: bool, flat: Flat) -> None:
        #: Whether the state is this rank's own; another rank's says nothing of what belongs to one rank.
        self.own = own
        self.kept: list[str] = []
        self._states = flat.states()

    def into(self, live: Any, saved: Any, path: tuple[Any, ...] = ()) -> Any:
        """What belongs at this place: ``live`` itself where it can be changed in place, else a value for it."""
        if isinstance(saved, _wrapped.WrappedTensor):
            saved.check(text_of(path), live)
            return live
        if isinstance(saved, Ref) or _arrays.is_array(live):
            if isinstance(saved, Ref) and _arrays.is_array(live):
                return live
            raise ValueError(f"{text_of(path)}: a tensor stands on one side and plain state on the other")
        if isinstance(live, PerRank) or isinstance(saved, PerRank):
            return self._per_rank(live, saved, path)
        if id(live) in self._states:
            self.into(self._states[id(live)], saved, path)
            return live
        if isinstance(live, dict) and isinstance(saved, dict):
            self._remove_absent(live, saved, path)
            for key, item in saved.items():
                if key in live:
                    live[key] = self.into(live[key], item, (*path, key))
                elif isinstance(item, PerRank) and not self.own:
                    self.kept.append(text_of((*path, key)))
                elif not any(True for _ in refs(item)):
                    live[key] = self._adopted(item, (*path, key))
            return live
        if type(live) is list and isinstance(saved, list):
            if len(live) == len(saved):
                for at, item in enumerate(saved):
                    live[at] = self.into(live[at], item, (*path, at))
            elif has_objects(live, self._states) or any(True for _ in refs(saved)):
                raise ValueError(f"{text_of(path)}: {len(live)} entries here, {len(saved)} in the checkpoint")
            else:
                live[:] = self._adopted(saved, path)
            return live
        if isinstance(saved, _kinds.EnumMember):
            return _kinds.adopt_member(live, saved, text_of(path))
        if isinstance(saved, _kinds.NamedValues):
            _kinds.check_named(live, saved, text_of(path))
            fields = zip(saved.fields, live, saved.values)
            return type(live)._make(self.into(one, two, (*path, field)) for field, one, two in fields)
        if (
            isinstance(live, tuple)
            and isinstance(saved, tuple)
            and (len(live) == len(saved) or has_objects(live, self._states))
        ):
            if len(live) != len(saved):
                raise ValueError(f"{text_of(path)}: {len(live)} entries here, {len(saved)} in the checkpoint")
            items = (self.into(one, two, (*path, at)) for at, (one, two) in enumerate(zip(live, saved)))
            return _kinds.like_tuple(saved, items)
        return self._adopted(saved, path)

    def _remove_absent(self, live: dict[Any, Any], saved: dict[Any, Any], path: tuple[Any, ...]) -> None:
        """Removes plain values that the checkpoint does not have."""
        for key in [key for key in live if key not in saved]:
            if isinstance(live[key], PerRank):
                self.kept.append(text_of((*path, key)))
            elif not has_objects(live[key], self._states):
                del live[key]

    def _adopted(self, saved: Any, path: tuple[Any, ...]) -> Any:
        """A plain value of the checkpoint; values that belong to another rank become ``None``."""
        if self.own:
            return _kinds.check_made(saved, text_of(path))
        if _has_per_rank(saved):
            self.kept.append(text_of(path))
        return replaced(_kinds.check_made(saved, text_of(path)), {}, False)

    def _per_rank(self, live: Any, saved: Any, path: tuple[Any, ...]) -> Any:
        if self.own and isinstance(saved, PerRank):
            return saved
        self.kept.append(text_of(path))
        return live


def replaced(state: Any, made: dict[str, Any], own: bool) -> Any:
    """A decoded state with arrays in the places of its tensors; what belongs to another rank alone becomes ``None``."""
    if isinstance(state, Ref):
        return made[state.name]
    if isinstance(state, _wrapped.WrappedTensor):
        return state.make("state", lambda _, item: replaced(item, made, own))
    if isinstance(state, PerRank):
        return state.value if own else None
    _kinds.check_shallow(state)
    if isinstance(state, dict):
        return _kinds.like(state, [(key, replaced(item, made, own)) for key, item in state.items()])
    if isinstance(state, list):
        return [replaced(item, made, own) for item in state]
    if isinstance(state, tuple):
        return _kinds.like_tuple(state, (replaced(item, made, own) for item in state))
    return state


def _has_per_rank(state: Any) -> bool:
    if isinstance(state, dict):
        return any(_has_per_rank(item) for item in state.values())
    if isinstance(state, (list, tuple)):
        return any(_has_per_rank(item) for item in state)
    return isinstance(state, PerRank)
