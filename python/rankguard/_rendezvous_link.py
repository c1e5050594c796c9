"""Connection of one torchrun process to the controller: a process of the program `rankguard` that speaks JSON lines.

The program has the identity, the settings and the retries. It ends when its standard input ends, so the death of torchrun ends
its connection, by which the controller learns of the death.
"""

from __future__ import annotations

import json
import logging
import secrets
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Optional

from ._rendezvous_options import RunOptions

_log = logging.getLogger(__name__)

# Wait before a program that ended unexpectedly is started again.
_RESTART_WAIT = 1.0
# Maximum wait for the program to report that the process leaves.
_LEAVE_LIMIT = 3.0


@dataclass(frozen=True)
class Round:
    """A round with its members in the order of their group ranks."""

    number: int
    rank: int
    members: list[dict[str, Any]]

    @property
    def store_host(self) -> str:
        """Address of the member that serves the store."""
        return str(self.members[0]["address"])

    @property
    def store_port(self) -> int:
        return int(self.members[0]["store_port"])


@dataclass
class LinkState:
    """What the controller has reported."""

    # Round that was received and not taken yet.
    round: Optional[Round] = None
    # Reason for which the round that was taken is over.
    over: Optional[str] = None
    wait_reason: Optional[str] = None
    # Kind and text of a refusal, after which nothing more is received.
    refusal: Optional[tuple[str, str]] = None
    run_finished: bool = False
    # Own address, once there was a contact.
    address: Optional[str] = None
    # Time and reason of the loss of the connection.
    lost: Optional[tuple[float, str]] = field(default_factory=lambda: (time.monotonic(), "no contact yet"))


class Link:
    """The program, its events, and the state that it states after a restart."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._member = secrets.randbits(63) | 1
        self.changed = threading.Condition()
        # Guarded by `changed`.
        self.state = LinkState()
        self._stated: dict[str, Any] = {}
        self._leaving = False
        self._process = self._start()
        self._reader = threading.Thread(target=self._read, name="rankguard-rendezvous", daemon=True)
        self._reader.start()

    def _start(self) -> subprocess.Popen[str]:
        # In a session of its own, so that a signal to the group of torchrun does not end it before torchrun has left.
        process = subprocess.Popen(
            self._options.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._write(process, {**self._options.join_line(self._member), **self._stated})
        return process

    def request(self, store_port: int) -> None:
        """Requests a round."""
        with self.changed:
            self.state.round = self.state.over = self.state.wait_reason = None
            self._stated.update(store_port=store_port, is_finished=False)
            self._write(self._process, {"input": "request", "store_port": store_port})

    def finish(self) -> None:
        """Reports that all workers ended with success."""
        with self.changed:
            self._stated["is_finished"] = True
            self._write(self._process, {"input": "finished"})

    def close_run(self) -> None:
        """Closes the run for all."""
        with self.changed:
            self._write(self._process, {"input": "close"})

    def leave(self, reason: str) -> bool:
        """Leaves the run; returns whether the controller knows it."""
        with self.changed:
            is_first = not self._leaving
            self._leaving = True
            process = self._process
            if is_first:
                self._write(process, {"input": "leave", "reason": reason})
        try:
            if process.stdin is not None:
                process.stdin.close()
            return process.wait(_LEAVE_LIMIT) == 0
        except (OSError, subprocess.TimeoutExpired):
            # A success is reported for some seconds more, by the program alone.
            return False

    def _write(self, process: subprocess.Popen[str], line: dict[str, Any]) -> None:
        try:
            if process.stdin is not None:
                process.stdin.write(json.dumps(line) + "\n")
                process.stdin.flush()
        except (OSError, ValueError):
            # It ended; the next one receives the whole state.
            pass

    def _read(self) -> None:
        while True:
            process = self._process
            assert process.stdout is not None
            for line in process.stdout:
                self._take(json.loads(line))
            code = process.wait()
            with self.changed:
                if self._leaving or self.state.refusal or self.state.run_finished:
                    return
                if self.state.address is None or code == 64:
                    program = " ".join(self._options.command())
                    self.state.refusal = ("denied", f"`{program}` ended with exit code {code}; its errors are above")
                    self.changed.notify_all()
                    return
            _log.warning("rankguard rendezvous ended with exit code %s; it is started again", code)
            time.sleep(_RESTART_WAIT)
            with self.changed:
                if self._leaving:
                    return
                self._process = self._start()

    def _take(self, event: dict[str, Any]) -> None:
        with self.changed:
            state = self.state
            kind = event["event"]
            if kind == "connected":
                state.address, state.lost = event["address"], None
            elif kind == "disconnected":
                if state.lost is None:
                    _log.warning("the connection to the controller is lost (%s); the job goes on", event["reason"])
                since = time.monotonic() if state.lost is None else state.lost[0]
                state.lost = (since, event["reason"])
            elif kind == "round":
                members = event["members"]
                rank = [seat["member"] for seat in members].index(self._member)
                state.round, state.over = Round(event["number"], rank, members), None
                self._stated.update(store_port=None, is_finished=False)
                self._stated["round"] = {"number": event["number"], "members": members}
            elif kind == "over":
                state.over = event["reason"]
            elif kind == "wait":
                state.wait_reason = event["reason"]
            elif kind == "refused":
                hint = f"; {event['hint']}" if event["hint"] else ""
                state.refusal = (event["kind"], event["reason"] + hint)
            elif kind == "finished":
                state.run_finished = True
            self.changed.notify_all()
