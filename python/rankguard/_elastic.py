"""Training functions that a process calls again after the loss of other ranks, without a restart of the process.

A rank that fails ends its generation: all other ranks are ended, and the next generation starts new processes. With
:func:`elastic` the processes of the other ranks remain. Each leaves its training function, reports that to the agent, waits for
its new rank and calls the function again. Imports, compiled code and what the program keeps outside of the function stay.

A process that does not leave within two seconds is killed and started anew, as without :func:`elastic`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Optional, TypeVar

from ._group_sockets import GroupSockets
from ._older_objects import OlderObjects
from ._rankguard import Departure, RankguardError

_Result = TypeVar("_Result")

#: Words in the texts of exceptions that the failure of another rank causes, in lower case.
_OTHER_RANKS = ("gloo", "nccl", "c10d", "process group", "processgroup", "tcpstore", "connection closed", "connection reset")

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
    ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``, ``RANKGUARD_GENERATION``). What depends on the ranks belongs into it:
    process groups, wrapped models, optimizers, data loaders, the session of :func:`rankguard.init`. Process groups and the
    session are closed after it. Its children are ended; threads that it starts must end with it. ``LOCAL_RANK`` never changes.
    Import torch before the call: of groups whose module was imported within it the connections are not known.

    After an exception that the failure of another rank may have caused (of ``torch.distributed``, Gloo, NCCL or a connection)
    the process waits for its next rank, too. Any other exception ends it as usual. Without an agent the function is called
    once.
    """

    @functools.wraps(train)
    def run(*args: Any, **kwargs: Any) -> _Result:
        if threading.current_thread() is not threading.main_thread():
            raise RankguardError(f"cannot run {train.__name__}: a function of rankguard.elastic is called in the main thread")
        while True:
            departure = _connect()
            if departure is None:
                return train(*args, **kwargs)
            generation = _Generation(departure)
            ended, result = generation.call(lambda: train(*args, **kwargs))
            if not ended:
                generation.close()
                return result  # type: ignore[return-value]
            generation.leave()

    return run


class _Generation:
    """One call of the training function."""

    def __init__(self, departure: Departure) -> None:
        self._departure = departure
        self._asked = threading.Event()
        #: Set once the agent has answered that this process may wait, or is gone.
        self._answered = threading.Event()
        self._lock = threading.Lock()
        self._sockets = GroupSockets()
        self._objects = OlderObjects()
        self._may_raise = True
        self._main = threading.get_ident()

    def call(self, train: Callable[[], _Result]) -> tuple[bool, Optional[_Result]]:
        """Calls the function; returns whether the generation ended, else its result."""
        watcher = threading.Thread(target=self._watch, name="rankguard-generation", daemon=True)
        watcher.start()
        try:
            try:
                with self._sockets.record():
                    return False, train()
            except Exception as problem:
                if not self._asked.is_set() and not _may_follow(problem):
                    raise
                traceback.print_exc()
                # The frames hold the process groups of the generation.
                traceback.clear_frames(problem.__traceback__)
            finally:
                self._stop_raising()
        except GenerationEnded:
            pass
        except BaseException:
            self.close()
            raise
        return True, None

    def close(self) -> None:
        """Ends the connection to the agent of a process that is a rank no more."""
        self._objects.release()
        self._departure.close()

    def leave(self) -> None:
        """Ends everything of the generation, waits for the next rank of this process and takes its environment."""
        self._stop_raising()
        self._sockets.cut()
        before = f"rank {os.environ.get('RANK')} of generation {os.environ.get('RANKGUARD_GENERATION')}"
        _end_groups()
        _end_session()
        self._objects.end_newer()
        # A handler of torch raises an exception at the end of a data loader's worker.
        on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _note(f"{before} leaves its generation; this process waits for its next rank")
        self._departure.leave()
        self._answered.wait()
        number = self._departure.take_socket()
        self._departure.close()
        if number is None:
            # The agent is gone, or does not keep the process: no handler of the program may act for a rank that is no more.
            os._exit(1)
        with socket.socket(fileno=number) as link:
            _become_rank(link)
        signal.signal(signal.SIGCHLD, on_child or signal.SIG_DFL)
        _note(
            f"this process was {before} and is rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')}, "
            f"generation {os.environ.get('RANKGUARD_GENERATION')}"
        )

    def _watch(self) -> None:
        """Receives what the agent sends; at its request :class:`GenerationEnded` is raised in the main thread."""
        try:
            while True:
                news = self._departure.receive(_WAIT_S)
                if news == "leave":
                    self._interrupt()
                elif news == "kept":
                    return
        except RankguardError:
            # The function has ended, or the agent: then the supervisor ends this process.
            pass
        finally:
            self._answered.set()

    def _interrupt(self) -> None:
        self._asked.set()
        with self._lock:
            if not self._may_raise:
                return
            _raise_in(self._main, GenerationEnded)
        self._sockets.cut()
        _abort_groups()

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


def _may_follow(problem: BaseException) -> bool:
    """Whether the failure of another rank may have caused an exception, or one from which it was raised."""
    distributed = sys.modules.get("torch.distributed")
    kinds = (ConnectionError, *filter(None, [getattr(distributed, "DistError", None)]))
    link: Optional[BaseException] = problem
    seen = 0
    while link is not None and seen < 16:
        is_runtime = type(link) is RuntimeError and any(word in str(link).lower() for word in _OTHER_RANKS)
        if isinstance(link, kinds) or is_runtime:
            return True
        link, seen = link.__cause__ or link.__context__, seen + 1
    return False


def _connect() -> Optional[Departure]:
    """Connects to the agent; ``None`` if there is none, or if the process cannot outlive its generation."""
    try:
        return Departure.connect()
    except RankguardError as problem:
        _note(f"this process ends with its generation: {problem}")
        return None


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
    """Frees a main thread that waits for a collective operation of NCCL."""
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
    current = package._current
    if current is not None and not current.closed:
        current.leave()


def _become_rank(link: socket.socket) -> None:
    """Waits for the values of the next rank and sets environment and output. The process ends if none comes."""
    data, files, _, _ = socket.recv_fds(link, 1 << 16, 4, socket.MSG_CMSG_CLOEXEC)
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
