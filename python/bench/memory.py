"""How much memory something took at its most, of this process and its children."""

from __future__ import annotations

import glob
import os
import threading
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """While it is entered, looks every 20 ms; :attr:`extra` is then the most over what there was before, in bytes.

    Of a child or a daemon only what it shares with nobody counts: a segment that both have mapped is this process's already.
    """

    extra = 0

    def __init__(self, daemons: list[int]) -> None:
        self._daemons = [str(pid) for pid in daemons]

    def __enter__(self) -> Watch:
        self._before, self._over = used(self._daemons), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.extra = max(self.extra, used(self._daemons) - self._before)


def used(daemons: list[str]) -> int:
    """Bytes in memory now."""
    resident, _ = _statm("self")
    own = 0
    # A daemon's children may be the ranks.
    for one in [*daemons, *(below for pid in _children("self") for below in (pid, *_children(pid)))]:
        held, shared = _statm(one)
        own += held - shared
    return (resident + own) * PAGE


def _statm(pid: str) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:
        return 0, 0
    return int(resident), int(shared)


def _children(pid: str) -> list[str]:
    found: list[str] = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                found += file.read().split()
        except OSError:
            continue
    return found
