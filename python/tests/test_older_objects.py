"""Collection of the objects of one generation."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from rankguard._older_objects import OlderObjects


class Node:
    """Refers to itself: only a collection ends it."""

    def __init__(self) -> None:
        self.link = self


def cycle() -> weakref.ref:
    return weakref.ref(Node())


@pytest.fixture(autouse=True)
def _no_automatic_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def test_only_newer_objects_are_collected_and_later_all() -> None:
    older = cycle()
    objects = OlderObjects()
    newer = cycle()
    objects.end_newer()
    assert newer() is None and older() is not None
    gc.collect()
    assert older() is None


def test_a_newer_object_that_an_older_one_holds_remains() -> None:
    holder = Node()
    objects = OlderObjects()
    holder.link = Node()
    objects.end_newer()
    assert isinstance(holder.link, Node) and holder.link.link is holder.link


def test_a_function_that_ends_without_a_collection_releases_the_older_objects() -> None:
    older = cycle()
    objects = OlderObjects()
    objects.release()
    gc.collect()
    assert older() is None
