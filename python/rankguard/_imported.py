"""The state of a checkpoint that ``rankguard checkpoint import`` made of files that others wrote.

Such files know no tree: what stands there is the name of each tensor and of each plain value, its path with dots between. A
live state has the tree, so its own paths are looked up; what the files do not name stays as it is.
"""

from __future__ import annotations

import json
from typing import Any, Optional

from . import _arrays
from ._tree import Flat, text_of


def named(states: dict[int, str]) -> Optional[dict[str, Any]]:
    """Plain values by name; ``None`` when the state was written by this package or by another writer that names a schema."""
    first = json.loads(states[min(states)])
    if first is None:
        return {}
    return first if isinstance(first, dict) and "schema" not in first else None


class Merge:
    """Puts plain values into a live state, by name."""

    def __init__(self, values: dict[str, Any], flat: Flat) -> None:
        self._values, self._states = values, flat.states()

    def into(self, live: Any, path: tuple[Any, ...] = ()) -> Any:
        """What belongs at this place."""
        if _arrays.is_array(live):
            return live
        name = text_of(path)
        if path and name in self._values:
            value = self._values[name]
            return tuple(value) if isinstance(live, tuple) and isinstance(value, list) else value
        if id(live) in self._states:
            self.into(self._states[id(live)], path)
        elif isinstance(live, dict):
            for key in live:
                live[key] = self.into(live[key], (*path, key))
        elif type(live) is list:
            live[:] = [self.into(item, (*path, at)) for at, item in enumerate(live)]
        return live
