"""Parts of a state by prefix: a restore of some keys alone.

A prefix is a key path with dots, as in the names of tensors, and selects whole components: ``model.layers.1`` selects
``model.layers.1.weight`` and not ``model.layers.10.weight``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import _plain_state, _tree
from ._view import CheckpointView

#: Stands for a place of which nothing is selected.
_NOTHING = object()


class _PartialState:
    """The selected part of an object with a state."""

    def __init__(self, owner: Any, whole: Any, picked: Any, part: Part) -> None:
        self._owner, self._whole, self._picked, self._part = owner, whole, picked, part

    def state_dict(self) -> Any:
        return self._picked

    def load_state_dict(self, state: Any) -> None:
        self._part.write_back()
        self._owner.load_state_dict(self._whole)


class Part:
    """The selected part of a live state."""

    def __init__(self, state: Any, only: Sequence[str]) -> None:
        if isinstance(only, str) or not all(isinstance(prefix, str) and prefix for prefix in only) or not len(only):
            raise TypeError(f"only is {only!r}; pass a list of key paths, such as ['model', 'optimizer.state']")
        self._prefixes = [prefix.rstrip(".") for prefix in only]
        self._views: list[tuple[dict[Any, Any], dict[Any, Any], list[Any]]] = []
        self._found: set[str] = set()
        #: A state with the selected keys alone. Tensors are those of the live state.
        self.view = self._pick(state, ())
        self._check_found("the state")

    def pruned(self, view: CheckpointView) -> CheckpointView:
        """The description of a checkpoint with the selected keys alone."""
        below = tuple(f"{prefix}." for prefix in self._prefixes)
        names = [name for name in view.names if name in self._prefixes or name.startswith(below)]
        return replace(view, states=self._prune_states(view.states, view.step), names=names)

    def _prune_states(self, states: dict[int, str], step: int) -> dict[int, str]:
        pruned, self._found = {}, set()
        for rank, text in states.items():
            outer = json.loads(text)
            if isinstance(outer, dict) and outer.get(_tree._SCHEMA_KEY) == _plain_state.SCHEMA:
                # A reference to a large state, which is read only where it is needed.
                pruned[rank] = text
                continue
            if not isinstance(outer, dict) or outer.get(_tree._SCHEMA_KEY) != _tree.SCHEMA:
                # Another writer's; whoever reads it refuses it, or looks names up.
                return states
            state = self._prune(outer[_tree._STATE_KEY], ())
            pruned[rank] = json.dumps({**outer, _tree._STATE_KEY: {} if state is _NOTHING else state})
        self._check_found(f"the checkpoint of step {step}")
        return pruned

    def write_back(self) -> None:
        """Brings values that were replaced in the view into the live state. May be called twice."""
        for live, view, keys in self._views:
            for key in keys:
                if key in view:
                    live[key] = view[key]
                else:
                    live.pop(key, None)

    def _selects(self, path: tuple[Any, ...]) -> bool:
        name = _tree.text_of(path) if path else ""
        found = [prefix for prefix in self._prefixes if path and (name == prefix or name.startswith(prefix + "."))]
        self._found.update(found)
        return bool(found)

    def _leads(self, path: tuple[Any, ...]) -> bool:
        return not path or any(prefix.startswith(_tree.text_of(path) + ".") for prefix in self._prefixes)

    def _pick(self, value: Any, path: tuple[Any, ...]) -> Any:
        if self._selects(path):
            return value
        if not self._leads(path):
            return _NOTHING
        if isinstance(value, dict):
            picked = {key: self._pick(item, (*path, key)) for key, item in value.items()}
            view = {key: item for key, item in picked.items() if item is not _NOTHING}
            self._views.append((value, view, [key for key in view if view[key] is value[key]]))
            return view or (_NOTHING if path else view)
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            whole = value.state_dict()
            picked = self._pick(whole, path)
            return _NOTHING if picked is _NOTHING else _PartialState(value, whole, picked, self)
        return _NOTHING

    def _prune(self, encoded: Any, path: tuple[Any, ...]) -> Any:
        if self._selects(path):
            return encoded
        if not self._leads(path) or not isinstance(encoded, dict):
            return _NOTHING
        kind = encoded.get("$")
        if kind is None:
            items = {key: self._prune(item, (*path, key)) for key, item in encoded.items()}
            return {key: item for key, item in items.items() if item is not _NOTHING}
        if kind == "dict":
            pairs = [[key, self._prune(item, (*path, _tree._decode(key)))] for key, item in encoded["v"]]
            return {**encoded, "v": [pair for pair in pairs if pair[1] is not _NOTHING]}
        if kind == "stateful":
            inner = self._prune(encoded["v"], path)
            return _NOTHING if inner is _NOTHING else {**encoded, "v": inner}
        return _NOTHING

    def _check_found(self, where: str) -> None:
        absent = [prefix for prefix in self._prefixes if prefix not in self._found]
        if absent:
            raise ValueError(
                f"only names {', '.join(map(repr, absent))}, and {where} has nothing there; prefixes end at a key of a dict "
                "(entries of lists and tuples are restored together)"
            )
