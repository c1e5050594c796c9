"""Connections of Gloo process groups, which another thread can cut.

A rank that waits in a collective operation of Gloo for a healthy rank is freed neither by an exception nor by an abort of the
group. After a failure within the backward pass of DDP torch 2.15 keeps a group's connections open for as long as the process
lives. Cutting them ends the wait here and at the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

#: Function of torch that makes every process group, looked up by torch at each call.
_MAKER = "_new_process_group_helper"


class GroupSockets:
    """Sockets that were opened while process groups were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, str] = {}
        self._is_cut = False

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Records the sockets of all groups that are made meanwhile; nothing if torch is not imported or has another maker."""
        torch: Any = sys.modules.get("torch.distributed.distributed_c10d")
        maker = getattr(torch, _MAKER, None)
        if maker is None:
            yield
            return

        def make(*args: Any, **kwargs: Any) -> Any:
            before = _open_sockets()
            try:
                return maker(*args, **kwargs)
            finally:
                self._add({fd: name for fd, name in _open_sockets().items() if before.get(fd) != name})

        setattr(torch, _MAKER, make)
        try:
            yield
        finally:
            setattr(torch, _MAKER, maker)

    def _add(self, found: dict[int, str]) -> None:
        with self._lock:
            self._found.update(found)
            is_late = self._is_cut
        if is_late:
            self.cut()

    def cut(self) -> None:
        """Ends all recorded connections. The descriptors remain torch's."""
        with self._lock:
            self._is_cut = True
            found = list(self._found.items())
        for fd, name in found:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
                is_inet = copy.family in (socket.AF_INET, socket.AF_INET6)
                # Gloo aborts the process if a listening socket fails. A number that was closed may be another file by now.
                is_connection = is_inet and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_connection and _name_of(copy.fileno()) == name:
                    copy.shutdown(socket.SHUT_RDWR)


def _open_sockets() -> dict[int, str]:
    """Descriptors of all sockets, each with the kernel's name of it."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        name = _name_of(int(number))
        if name.startswith("socket:"):
            found[int(number)] = name
    return found


def _name_of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
