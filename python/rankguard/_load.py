"""Loads checkpoints as new states: full tensors on the CPU, also of parts and of DCP, also without a session."""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from . import _arrays, _imported, _merge, _tree
from ._rankguard import Local, RankguardError

#: Schema of states that the DCP writer saves; ``rankguard.dcp`` imports torch, so the name stands here too.
DCP_SCHEMA = "rankguard.dcp/1"

#: Fills boxes from the chosen checkpoint.
Fill = Callable[[list[_arrays.Box]], object]


@dataclass(frozen=True)
class Source:
    """A store, a job of it, and a step where one is chosen."""

    store: pathlib.Path
    job: str
    step: Optional[int]


def assemble(step: int, saved: Any, is_own: bool, fill: Fill) -> Any:
    """A new state; every tensor is whole, also where ranks saved parts. ``is_own`` keeps values of one rank."""
    made: dict[str, Any] = {}
    for ref in _tree.refs(saved):
        kind = ref.part_of if ref.kind == "part" else ref.kind
        if ref.dtype is None or ref.shape is None or kind is None:
            raise _arrays.Unsavable(
                f"{ref.name}: cannot load it as a whole: an earlier version saved it without its type and shape; "
                f"use restore() with a state to fill, or `rankguard checkpoint export {step} --dir STORE --out x.pt`"
            )
        made[ref.name] = _arrays.empty(kind, ref.dtype, ref.shape)
    boxes = [_arrays.box_of(name, array, writable=True) for name, array in made.items()]
    fill([box for box in boxes if box is not None])
    return _merge.replaced(saved, made, is_own)


def dcp_state(states: dict[int, str]) -> Optional[Any]:
    """The nested state of a checkpoint of DCP, with references to tensors; ``None`` for a checkpoint of another kind."""
    opened = [json.loads(text) for _, text in sorted(states.items())]
    if not all(isinstance(outer, dict) and outer.get("schema") == DCP_SCHEMA for outer in opened):
        return None
    values: dict[str, Any] = {}
    paths: dict[str, list[Any]] = {}
    for outer in opened:
        shard = outer["state"]
        paths.update(shard["paths"])
        for name, (dtype, shape, _) in shard["tensors"].items():
            values.setdefault(name, _tree.Ref(name, dtype, shape, "torch"))
        for name, value in shard["objects"].items():
            values.setdefault(name, _tree.decode_plain(value))
    root: dict[Any, Any] = {}
    for name, value in values.items():
        _put(root, paths.get(name) or [name], value)
    return _listed(root)


class _Items(dict[Any, Any]):
    """A list by place, until all its places are known."""


def _put(root: dict[Any, Any], path: list[Any], value: Any) -> None:
    at = root
    for key, below in zip(path, path[1:]):
        at = at.setdefault(key, _Items() if isinstance(below, int) else {})
    at[path[-1]] = value


def _listed(value: Any) -> Any:
    if isinstance(value, _Items):
        return [_listed(value[place]) for place in sorted(value)]
    if type(value) is dict:
        return {key: _listed(item) for key, item in value.items()}
    return value


def open_path(path: Union[str, os.PathLike[str]], job: Optional[str], step: Optional[int]) -> tuple[Local, Optional[int]]:
    """The store and the step that a path names."""
    source = _source(pathlib.Path(path), job, step)
    return Local(source.store, job=source.job, rank=0, world_size=1), source.step


def refuse_imported(step: int, states: dict[int, str]) -> None:
    """Refuses a checkpoint that was imported: its files have no containers."""
    if _imported.named(states) is not None:
        raise RankguardError(f"step {step} was imported and knows names alone; use restore() with a state to fill")


def _source(path: pathlib.Path, job: Optional[str], step: Optional[int]) -> Source:
    """Takes a store, the folder of a job in it, or the folder of a checkpoint."""
    if not path.is_dir():
        raise RankguardError(f"cannot load {path}: it is no directory; name the folder of --checkpoint-dir or local_dir")
    if (path / "MANIFEST").is_file():
        named = int(path.name.split("-")[0])
        if step not in (None, named):
            raise RankguardError(f"cannot load step {step}: {path} is the folder of step {named}")
        return Source(path.resolve().parents[1], path.resolve().parent.name, named)
    if next(path.glob("*/MANIFEST"), None) is not None:
        return Source(path.resolve().parent, path.resolve().name, step)
    jobs = sorted({manifest.parents[1].name for manifest in path.glob("*/*/MANIFEST")})
    if job is None and len(jobs) == 1:
        job = jobs[0]
    if job is None or job not in jobs:
        there = f"jobs with committed checkpoints: {', '.join(jobs)}" if jobs else "it has no committed checkpoint"
        wanted = "name one with job=" if job is None else f"job {job!r} is not among them"
        raise RankguardError(f"cannot load from {path}: {there}; {wanted}")
    return Source(path, job, step)
