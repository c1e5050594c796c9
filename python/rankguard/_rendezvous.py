"""Rendezvous handler of torchrun that takes its rounds from the controller."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable, Optional, Union

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.utils.distributed import get_free_port

from ._rendezvous_link import Link, Round
from ._rendezvous_options import BACKEND, RunOptions

_log = logging.getLogger(__name__)

# Longest sleep of a wait: signals are handled between two.
_SLICE = 1.0
# Maximum wait for the store of a round, and for the other nodes to write what a node reads from it.
_STORE_LIMIT = 60.0
# Wait of an agent for keys of the store.
_STORE_TIMEOUT = timedelta(seconds=300)
# A wait is logged when it has lasted this long.
_NOTE_AFTER = 5.0
# Keys of torch's elastic agent.
_ROLE = "torchelastic/role_info/"
_RANKS = "torchelastic/assigned_ranks/"
_EXIT_BARRIER = "torchelastic/agent/terminal_state"


class _RoundOver(Exception):
    """The round ended before this process had joined it."""


class RoundStore(PrefixStore):
    """Store of a round for the agent.

    A node may be lost after the round began and before all nodes have exchanged their ranks through the store, which torch's
    agent does not survive. Then this store answers with the ranks that equal nodes have: the round is over, so the workers
    that start with them are stopped at once.
    """

    def __init__(self, link: Link, round_: Round, store: TCPStore) -> None:
        super().__init__(f"rankguard/{round_.number}", store)
        self._link = link
        self._round = round_
        self._role: dict[str, Any] = {}

    def is_over(self) -> bool:
        """Whether the round is over."""
        with self._link.changed:
            return self._link.state.over is not None

    def set(self, key: str, value: Union[str, bytes]) -> None:
        if key.startswith(_ROLE):
            self._role = json.loads(value)
        self._unless_over(lambda: PrefixStore.set(self, key, value))  # type: ignore[arg-type]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        self._unless_over(lambda: PrefixStore.multi_set(self, keys, values))  # type: ignore[attr-defined]

    def get(self, key: str) -> bytes:
        if self.await_keys([key]):
            return bytes(super().get(key))
        if not key.startswith(_RANKS):
            raise _RoundOver
        size, rank = int(self._role["local_world_size"]), self._round.rank
        world = size * len(self._round.members)
        return json.dumps([size * rank, world, size * rank, world]).encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if self.await_keys(keys):
            return list(super().multi_get(keys))
        if not all(key.startswith(_ROLE) for key in keys):
            raise _RoundOver
        return [json.dumps({**self._role, "rank": int(key[len(_ROLE) :])}).encode() for key in keys]

    def add(self, key: str, amount: int) -> int:
        # The agent enters its exit barrier when all of its workers ended with success.
        if key.startswith(_EXIT_BARRIER):
            self._link.finish()
        return int(super().add(key, amount))

    def await_keys(self, keys: list[str]) -> bool:
        """Waits for keys; false if the round is over."""
        end = time.monotonic() + _STORE_LIMIT
        while True:
            try:
                self.wait(keys, timedelta(seconds=_SLICE))
                return True
            except RuntimeError:
                if self.is_over():
                    return False
                if time.monotonic() > end:
                    raise
                # A connection that broke fails at once.
                time.sleep(0.05)

    def _unless_over(self, write: Callable[[], None]) -> None:
        """Writes; a store that is gone may fail once the round is over, of which the controller learns a little later."""
        end = time.monotonic() + _STORE_LIMIT
        while True:
            try:
                return write()
            except RuntimeError:
                if self.is_over():
                    return None
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


class RankguardRendezvous(RendezvousHandler):
    """Handler of one torchrun process."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._link = Link(options)
        # Serves the store of the round if this process has group rank 0.
        self._server: Optional[TCPStore] = None
        self._closed = False

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._options.run_id

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the store of the round, which is a new one in each round."""
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Waits for a round with this process in it."""
        while True:
            self._server = None
            # No worker of an earlier round can read it: port and store are new.
            server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=_STORE_TIMEOUT)
            self._link.request(server.port)
            round_ = self._await_round()
            try:
                return self._enter(round_, server)
            except _RoundOver:
                _log.warning("round %s of %s was over before it began", round_.number, self._options.run_id)

    def _enter(self, round_: Round, server: TCPStore) -> RendezvousInfo:
        tcp_store = server if round_.rank == 0 else self._connect(round_)
        if round_.rank == 0:
            self._server = server
        store = RoundStore(self._link, round_, tcp_store)
        bootstrap = RendezvousStoreInfo(round_.store_host, round_.store_port)
        if not self.use_agent_store:
            key = RendezvousStoreInfo.MASTER_PORT_KEY
            if round_.rank == 0:
                store.set(key, str(get_free_port()))  # type: ignore[no-untyped-call]
            bootstrap = RendezvousStoreInfo(round_.store_host, int(store.get(key)))
        size = len(round_.members)
        _log.info("round %s of %s: group rank %s of %s", round_.number, self._options.run_id, round_.rank, size)
        return RendezvousInfo(store, round_.rank, size, bootstrap)

    def _connect(self, round_: Round) -> TCPStore:
        """Connects to the store of the round."""
        host, port = round_.store_host, round_.store_port
        end = time.monotonic() + _STORE_LIMIT
        while True:
            try:
                store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))
                store.set_timeout(_STORE_TIMEOUT)
                return store
            except RuntimeError as problem:
                with self._link.changed:
                    if self._link.state.over is not None:
                        raise _RoundOver from problem
                if time.monotonic() > end:
                    node = round_.members[0]["node"]
                    raise RendezvousConnectionError(
                        f"cannot reach the store of node {node} at {host}:{port}: set --local-addr on that node to an address "
                        f"that the others reach, and check its firewall ({problem})"
                    ) from problem

    def _await_round(self) -> Round:
        options, link = self._options, self._link
        began = time.monotonic()
        noted = None
        while True:
            with link.changed:
                state = link.state
                if state.round is not None:
                    round_, state.round = state.round, None
                    return round_
                if state.refusal is not None:
                    raise self._refused(*state.refusal)
                if state.run_finished:
                    _log.warning("the run %s finished without this spare, which ends with success", options.run_id)
                    # RendezvousGracefulExitError would end torchrun with an error.
                    raise SystemExit(0)
                now = time.monotonic()
                if state.lost is not None:
                    limit = options.connect_timeout if state.address is None else options.join_timeout
                    since, reason = state.lost
                    if now > max(since, began) + limit:
                        name = "connect_timeout" if state.address is None else "join_timeout"
                        at = f" at {options.controller}" if options.controller else ""
                        raise RendezvousConnectionError(
                            f"no contact with the controller{at} for {limit:g} s ({name}): {reason}; check that `rankguard "
                            "controller` runs there, and that --rdzv-endpoint is its address"
                        )
                if state.wait_reason != noted and now > began + _NOTE_AFTER:
                    noted = state.wait_reason
                    _log.warning("run %s waits: %s", options.run_id, noted)
                link.changed.wait(_SLICE)

    def _refused(self, kind: str, reason: str) -> RendezvousError:
        text = f"run {self._options.run_id}: {reason}"
        if kind == "closed":
            self._closed = True
            return RendezvousClosedError(text)
        if kind == "timed-out":
            return RendezvousTimeoutError(f"{text}; start torchrun on more nodes, or raise --rdzv-conf=join_timeout")
        return RendezvousConnectionError(text)

    def num_nodes_waiting(self) -> int:
        """1 if the round is over; the agent then stops its workers and calls :meth:`next_rendezvous`."""
        with self._link.changed:
            over = self._link.state.over
        if over is None:
            return 0
        _log.warning("run %s: the round is over: %s", self._options.run_id, over)
        return 1

    def is_closed(self) -> bool:
        with self._link.changed:
            refusal = self._link.state.refusal
        return self._closed or (refusal is not None and refusal[0] == "closed")

    def set_closed(self) -> None:
        self._closed = True
        self._link.close_run()

    def shutdown(self) -> bool:
        """Leaves the run, which goes on for the others. torchrun calls it while an error passes, if there is one."""
        error = sys.exc_info()[1]
        has_failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        if isinstance(error, RendezvousError):
            return self._link.leave("ended")
        return self._link.leave("failed" if has_failed else "finished")
