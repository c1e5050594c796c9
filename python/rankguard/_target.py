"""Restore targets: objects that read a checkpoint's description before their tensors are filled.

A restore fills tensors that exist. An object with ``begin_restore(saved, strict)`` and ``end_restore()`` receives the decoded
description first, and its ``state_dict()`` returns, until ``end_restore()``, the tree that the checkpoint describes. Nothing
of the live objects changes before ``load_state_dict``, so a refused restore leaves them untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional

from . import _imported, _tree

if TYPE_CHECKING:
    from ._session import Session

_Path = tuple[Any, ...]


class SavedDescription:
    """The decoded states of a checkpoint's ranks, at one path; ranks are decoded when they are needed."""

    def __init__(self, step: int, states: dict[int, str], rank: Optional[int], path: _Path = ()) -> None:
        #: Steps completed when the checkpoint was saved.
        self.step = step
        #: Whether this rank saved one of the states itself, in a group of the same size.
        self.own = rank is not None
        #: Whether the checkpoint was imported: it then holds names and tensors, and describes no tree.
        self.imported = _imported.named(states) is not None
        self._texts = states
        first = min(states) if rank is None else rank
        self._order = [first, *(other for other in sorted(states) if other != first)]
        self._decoded: dict[int, Any] = {}
        self.path = path

    def at(self, key: Any) -> SavedDescription:
        """The description of one entry."""
        child = SavedDescription.__new__(SavedDescription)
        child.__dict__.update(self.__dict__, path=(*self.path, key))
        return child

    def trees(self) -> Iterator[Any]:
        """This path in the state of each rank: of this rank first, else of the lowest. ``None`` where a rank has no entry."""
        for rank in self._order:
            if rank not in self._decoded:
                self._decoded[rank] = _tree.decode(self._texts[rank])
            yield _entry(self._decoded[rank], self.path)

    def tree(self) -> Any:
        """The first of :meth:`trees`; ``None`` for an imported checkpoint."""
        return None if self.imported else next(self.trees())


@contextmanager
def described(session: Session, state: Any, step: Optional[int], strict: bool) -> Iterator[Optional[int]]:
    """Gives the restore targets in ``state`` the checkpoint's description; yields the step to restore."""
    targets = list(_targets(state, ()))
    given = session.restore_boxes([], step) if targets else None
    if given is None:
        yield step
        return
    from ._session import place

    found, states = given
    rank, world_size = place()
    saved = SavedDescription(found, states, rank if len(states) == world_size and rank in states else None)
    begun = []
    try:
        for path, target in targets:
            begun.append(target)
            description = saved
            for key in path:
                description = description.at(key)
            target.begin_restore(description, strict)
        # The description and the tensors are of one checkpoint, even if another is committed meanwhile.
        yield None if session.under_agent else found
    finally:
        for target in begun:
            target.end_restore()


def _targets(state: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    if isinstance(state, dict):
        for key, item in state.items():
            yield from _targets(item, (*path, key))
    elif isinstance(state, (list, tuple)):
        for at, item in enumerate(state):
            yield from _targets(item, (*path, at))
    elif callable(getattr(type(state), "begin_restore", None)):
        yield path, state


def _entry(tree: Any, path: _Path) -> Any:
    for key in path:
        if isinstance(tree, dict):
            tree = tree.get(key)
        elif isinstance(tree, (list, tuple)) and type(key) is int and key < len(tree):
            tree = tree[key]
        else:
            return None
    return tree
