"""Training functions that a process calls again after the loss of other ranks, without a restart of the process.

A rank that fails ends its generation: all other ranks are ended, and the next generation starts new processes. With
:func:`elastic` the processes of the other ranks remain. Each leaves its training function, reports that to the agent, waits for
its new rank and calls the function again. Imports, compiled code and whatever the program keeps outside of the function stay.

A process that does not leave within two seconds is killed and started anew, as without :func:`elastic`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Optional, TypeVar

from ._rankguard import Departure, RankguardError

_Result = TypeVar("_Result")

#: Longest wait after an exception for the end of the generation, seconds: the failure of another rank causes exceptions here.
_GRACE_S = 1.0

#: Slice of the wait for the agent, seconds.
_WAIT_S = 3600.0


class GenerationEnded(BaseException):
    """The generation of this rank has ended. Raised within a function of :func:`elastic`, between two lines of Python.

    Let it pass: ``finally`` and ``with`` may clean up, nothing may catch it. It is no ``Exception``.
    """


def elastic(train: Callable[..., _Result]) -> Callable[..., _Result]:
    """Wraps a training function, so that the process outlives the failure of other ranks::

        @rankguard.elastic
        def train():
            torch.distributed.init_process_group("gloo")
            rankguard.init()
            model = DistributedDataParallel(Model())
            ...
            rankguard.done()

        train()

    The function is called once for each generation, in the main thread, with the environment of its rank (``RANK``,
    ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``, ``RANKGUARD_GENERATION``). What depends on the ranks belongs into it: process
    groups, wrapped models, optimizers, data loaders, the session of :func:`rankguard.init`. Process groups and the session are
    closed after it. Its children are ended; threads that it starts must end with it. ``LOCAL_RANK`` never changes.

    An exception of the function ends the process as usual, but up to one second later: it may be a consequence of another rank's
    failure. Without an agent the function is called once. With several calls of such functions in one program, only the one
    that runs is called again.
    """

    @functools.wraps(train)
    def run(*args: Any, **kwargs: Any) -> _Result:
        if threading.current_thread() is not threading.main_thread():
            raise RankguardError(f"cannot run {train.__name__}: a function of rankguard.elastic is called in the main thread")
        while True:
            departure = Departure.connect()
            if departure is None:
                return train(*args, **kwargs)
            generation = _Generation(departure)
            ended, result = generation.call(lambda: train(*args, **kwargs))
            if not ended:
                return result  # type: ignore[return-value]
            generation.leave()

    return run


class _Generation:
    """One call of the training function."""

    def __init__(self, departure: Departure) -> None:
        self._departure = departure
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._may_raise = True
        self._main = threading.get_ident()
        self._reason = ""

    def call(self, train: Callable[[], _Result]) -> tuple[bool, Optional[_Result]]:
        """Calls the function; returns whether the generation ended, else its result."""
        watcher = threading.Thread(target=self._watch, name="rankguard-generation", daemon=True)
        watcher.start()
        try:
            try:
                return False, train()
            except Exception as problem:
                if not self._asked.wait(_GRACE_S):
                    raise
                self._reason = "".join(traceback.format_exception_only(type(problem), problem)).split("\n", 1)[0]
                # The frames hold the process groups of the generation.
                traceback.clear_frames(problem.__traceback__)
            finally:
                self._stop_raising()
                if not self._asked.is_set():
                    self._departure.close()
        except GenerationEnded:
            pass
        return True, None

    def leave(self) -> None:
        """Ends everything of the generation, waits for the next rank of this process and takes its environment."""
        self._stop_raising()
        before = f"rank {os.environ.get('RANK')} of generation {os.environ.get('RANKGUARD_GENERATION')}"
        _end_groups()
        _end_session()
        gc.collect()
        # A handler of torch raises an exception at the end of a data loader's worker.
        on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _note(f"{before} left its generation" + (f" after {self._reason}" if self._reason else ""))
        with socket.socket(fileno=self._departure.leave()) as link:
            self._departure.close()
            _become_rank(link)
        signal.signal(signal.SIGCHLD, on_child or signal.SIG_DFL)
        _note(
            f"this process was {before} and is rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')}, "
            f"generation {os.environ.get('RANKGUARD_GENERATION')}"
        )

    def _watch(self) -> None:
        """Waits for the request to leave, and raises :class:`GenerationEnded` in the main thread."""
        try:
            while not self._departure.wait(_WAIT_S):
                pass
        except RankguardError:
            # The function has ended, or the agent: then the supervisor ends this process.
            return
        self._asked.set()
        _abort_groups()
        with self._lock:
            if self._may_raise:
                _raise_in(self._main, GenerationEnded)

    def _stop_raising(self) -> None:
        while True:
            try:
                with self._lock:
                    self._may_raise = False
                    _raise_in(self._main, None)
                return
            except GenerationEnded:
                # It was on its way.
                self._asked.set()


def _raise_in(thread: int, kind: Optional[type[BaseException]]) -> None:
    """Raises an exception in a thread, or revokes the one that has not been raised yet."""
    exception = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


def _distributed() -> Any:
    """Returns ``torch.distributed`` if the program has a process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _abort_groups() -> None:
    """Frees a main thread that waits for a collective operation of NCCL. That of Gloo fails when the other ranks leave."""
    distributed = _distributed()
    if distributed is None:
        return
    abort = getattr(distributed.distributed_c10d, "_abort_process_group", None)
    try:
        if abort is not None and "nccl" in str(distributed.get_backend()):
            abort()
    except Exception as problem:
        _note(f"cannot abort the process groups: {problem}")


def _end_groups() -> None:
    distributed = _distributed()
    if distributed is None:
        return
    try:
        distributed.destroy_process_group()
    except Exception as problem:
        _note(f"a process group ended with {type(problem).__name__}: {problem}")


def _end_session() -> None:
    package = sys.modules[__package__]
    current = package._current  # type: ignore[attr-defined]
    if current is not None and not current.closed:
        current.leave()


def _become_rank(link: socket.socket) -> None:
    """Waits for the values of the next rank and sets environment and output. The process ends if none comes."""
    data, notes, _, _ = link.recvmsg(1 << 16, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
    files: list[int] = []
    for level, kind, payload in notes:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.extend(memoryview(payload[: len(payload) // 4 * 4]).cast("i").tolist())
    if not data or len(files) != 3:
        # No handler of the program may act for a rank that is no more.
        os._exit(0)
    with os.fdopen(files[0], "rb") as text:
        text.seek(0)
        values = json.load(text)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    for number, new in ((1, files[1]), (2, files[2])):
        os.dup2(new, number)
        os.close(new)
    for name, value in values["environment"].items():
        os.environb[name.encode("utf-8")] = value.encode("utf-8")
    link.send(b'"Taken"')


def _note(text: str) -> None:
    """Writes a line into the output of the rank."""
    if sys.stderr is not None:
        print(f"rankguard: {text}", file=sys.stderr, flush=True)
