"""Checkpoints that a SIGKILL cannot take, for trainers in Python.

Under ``rankguard run`` the agent of the node owns the memory that images are sealed in, makes them durable, and the
controller commits; without an agent, ``init(local_dir=...)`` does the same inside the trainer, with less safety::

    import rankguard

    rankguard.init()
    state = rankguard.torch.state(model, optimizer, epoch=0)
    restored = rankguard.restore(state)
    for n in range(restored.step + 1 if restored else 1, steps + 1):
        loss = train_one(...)
        rankguard.step(n, loss=loss)
        if rankguard.due():
            rankguard.checkpoint(state)
    rankguard.done()

:class:`Sampler` gives a loader the same samples in the same global order at any sequence of world sizes.

Nothing is pickled. numpy, torch and JAX are looked for among the modules that are loaded, never imported; only
:mod:`rankguard.torch` imports torch, when it is used. Without torch a state is a dict of tensors and plain values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Optional, Union

from . import _replicas
from ._arrays import Shard, Unsavable
from ._connect import WhenFull, connect
from ._elastic import GenerationEnded, elastic
from ._ledger import LedgerInterval, SampleLedger
from ._permitted import Replicate
from ._rankguard import RankguardError, __version__
from ._replicas import ReplicaDifference, ReplicasDiffer
from ._sampler import Sampler
from ._session import Counts, Loaded, Restored, Saved, Session, load_path
from ._shares import BatchShare
from ._tree import SCHEMA, PerRank
from ._view import StateMismatch

__all__ = [
    "SCHEMA",
    "BatchShare",
    "Counts",
    "GenerationEnded",
    "LedgerInterval",
    "Loaded",
    "PerRank",
    "RankguardError",
    "ReplicaDifference",
    "ReplicasDiffer",
    "Restored",
    "SampleLedger",
    "Sampler",
    "Saved",
    "Session",
    "Shard",
    "StateMismatch",
    "Unsavable",
    "__version__",
    "begin",
    "checkpoint",
    "checkpoint_every",
    "compare",
    "connect",
    "counts",
    "done",
    "due",
    "elastic",
    "finish",
    "idle",
    "init",
    "load",
    "newest",
    "restore",
    "session",
    "step",
    "wait",
]

_current: Optional[Session] = None


def init(
    local_dir: Optional[Union[str, os.PathLike[str]]] = None,
    *,
    checkpoint_every: int = 0,
    job: Optional[str] = None,
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    generation: Optional[int] = None,
    slots: int = 1,
    when_full: Optional[WhenFull] = None,
    wait_s: Optional[float] = None,
    commit_within_s: float = 600.0,
    keep: int = 0,
) -> Session:
    """Begins: with the agent of this node, else with a store in ``local_dir``.

    Call it after ``torch.distributed.init_process_group`` where there is one: without an agent, rank 0 then chooses the
    generation for all. Options of a local store: ``checkpoint_every`` (steps, for :func:`due`; 0 for none), ``job``,
    ``rank``, ``world_size``, ``generation``, ``slots`` (images in memory at a time, 1 to 3), ``when_full`` (``"wait"``,
    ``"replace-oldest"``, ``"skip"``), ``wait_s``, ``commit_within_s``, ``keep`` (committed checkpoints, 0 for all). Under
    an agent, ``when_full`` and ``wait_s`` alone have a meaning; what the agent is set to holds unless one of them is given.
    """
    global _current
    if _current is not None and not _current.closed and not _current.is_fork:
        raise RankguardError("rankguard.init() was called already; call done() before another")
    _current = connect(
        local_dir,
        checkpoint_every=checkpoint_every,
        job=job,
        rank=rank,
        world_size=world_size,
        generation=generation,
        slots=slots,
        when_full=when_full,
        wait_s=wait_s,
        commit_within_s=commit_within_s,
        keep=keep,
    )
    return _current


def session() -> Session:
    """The session of this process."""
    if _current is None:
        raise RankguardError("call rankguard.init() first")
    return _current


def step(n: int, loss: Any = None, grad_norm: Any = None, waited_s: Optional[float] = None) -> None:
    """See :meth:`Session.step`."""
    session().step(n, loss, grad_norm, waited_s)


def due(step: Optional[int] = None) -> bool:
    """See :meth:`Session.due`."""
    return session().due(step)


def checkpoint_every() -> int:
    """See :attr:`Session.checkpoint_every`."""
    return session().checkpoint_every


def checkpoint(state: Any, step: Optional[int] = None) -> Saved:
    """See :meth:`Session.checkpoint`."""
    return session().checkpoint(state, step)


def begin(state: Any, step: Optional[int] = None) -> Optional[Saved]:
    """See :meth:`Session.begin`."""
    return session().begin(state, step)


def finish() -> Optional[Saved]:
    """See :meth:`Session.finish`."""
    return session().finish()


def restore(
    state: Any,
    step: Optional[int] = None,
    strict: bool = True,
    replicate: Replicate = (),
    *,
    only: Optional[Sequence[str]] = None,
    cast: bool = False,
) -> Optional[Restored]:
    """See :meth:`Session.restore`."""
    return session().restore(state, step, strict, replicate, only=only, cast=cast)


def load(
    step: Optional[int] = None,
    replicate: Replicate = (),
    *,
    path: Optional[Union[str, os.PathLike[str]]] = None,
    job: Optional[str] = None,
) -> Optional[Loaded]:
    """The checkpoint as a new state, full tensors on the CPU; see :meth:`Session.load`.

    With ``path`` it needs no :func:`init` and reads only, for notebooks and tools: a store (``--checkpoint-dir``,
    ``local_dir``), the folder of a job in it, or that of one checkpoint. ``job`` chooses where a store has several; ``step``
    is the newest without it.
    """
    if path is not None:
        return load_path(path, job, step, replicate)
    if job is not None:
        raise ValueError("cannot load by job: job chooses among the jobs of path, which is absent; name path too")
    return session().load(step, replicate)


def newest() -> Optional[int]:
    """See :meth:`Session.newest`."""
    return session().newest()


def wait(seconds: float = 600.0) -> Optional[int]:
    """See :meth:`Session.wait`."""
    return session().wait(seconds)


def idle() -> bool:
    """See :meth:`Session.idle`."""
    return session().idle()


def compare(
    state: Any,
    every: int = 1,
    *,
    step: Optional[int] = None,
    group: Any = None,
    on_difference: Literal["raise", "report"] = "raise",
) -> list[ReplicaDifference]:
    """Compares the tensors of ``state`` with those of the other ranks that hold the same parts, every ``every`` steps.

    Data-parallel ranks hold equal parameters and, after the reduction, equal gradients, to the last bit. A difference is a
    wrong result of a processor, a memory or a link (silent data corruption), or ranks that the program lets diverge. All
    ranks of ``group`` (all of the job without it) must call this after the same steps: each computes a digest of 64 bits of
    every tensor where the tensor lies, and the ranks exchange one digest of all. ``step`` is that of :func:`step` without it.
    Buffers that DistributedDataParallel broadcasts and values of one rank (:class:`PerRank`) are left out.

    Raises :class:`ReplicasDiffer` on the ranks that differ from a majority, and on all that hold the tensor without one; it
    names tensor and ranks. The other ranks get the differences, and lose their peer. With ``on_difference="report"`` the rank
    prints the same sentence instead.
    """
    step = session().last_step if step is None else step
    return _replicas.compare(state, step=step, every=every, group=group, on_difference=on_difference)


def counts() -> Counts:
    """See :meth:`Session.counts`."""
    return session().counts()


def done() -> None:
    """See :meth:`Session.done`."""
    session().done()


def __getattr__(name: str) -> Any:
    """``rankguard.torch`` imports torch when it is first used."""
    if name == "torch":
        import importlib

        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
