"""torchft's own managers and clients with the controller as their lighthouse: real processes and threads, gloo on CPUs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Optional

import pytest

from cluster import SETTINGS, Cluster, clean, program, until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)"),
    pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="torchft is not installed (torch_env.sh)"),
]

LONG = 240
SECONDS = timedelta(seconds=60)
JOIN_MS, HEARTBEAT_MS = 3_000, 2_000


def settings(min_replicas: int = 1) -> str:
    lighthouse = f'[controller]\ntorchft_listen = "127.0.0.1:0"\ntorchft_min_replicas = {min_replicas}\n'
    return f"{lighthouse}torchft_join_timeout_ms = {JOIN_MS}\ntorchft_heartbeat_timeout_ms = {HEARTBEAT_MS}\n{SETTINGS}"


def address_of(folder: pathlib.Path) -> str:
    return "http://" + until("the lighthouse", lambda: _text(folder / "controller-1" / "torchft.addr"))


def _text(path: pathlib.Path) -> Optional[str]:
    return path.read_text().strip() if path.exists() else None


# Trains with torchft's Manager: the update depends on the ranks that take part. Writes each committed step.
REPLICA = """
import json, os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
name, folder = sys.argv[1], sys.argv[2]
torch.set_num_threads(1)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
weights = torch.zeros(64, dtype=torch.float64)

def load(state):
    weights.copy_(state["weights"])

manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
    load_state_dict=load,
    state_dict=lambda: {"weights": weights.clone()},
    min_replica_size=1,
    timeout=timedelta(seconds=20),
    quorum_timeout=timedelta(seconds=20),
    replica_id=name + "_",
    rank=0,
    world_size=1,
    store_addr="127.0.0.1",
    store_port=store.port,
    hostname="127.0.0.1",
)
with open(os.path.join(folder, name + ".steps"), "a", buffering=1) as log:
    while True:
        manager.start_quorum()
        gradient = torch.full((64,), 1.0 + manager.current_step(), dtype=torch.float64)
        manager.allreduce(gradient).wait()
        if manager.should_commit():
            weights.add_(gradient)
            step, world, quorum = manager.current_step(), manager.num_participants(), manager._quorum_id
            facts = {"pid": os.getpid(), "step": step, "world": world, "quorum": quorum, "sum": weights.sum().item()}
            log.write(json.dumps(facts) + "\\n")
        time.sleep(0.02)
"""


class Replicas:
    """Replica groups of one process each."""

    def __init__(self, folder: pathlib.Path, lighthouse: str) -> None:
        self._folder, self._lighthouse = folder, lighthouse
        self._processes: dict[str, subprocess.Popen] = {}
        (folder / "replica.py").write_text(REPLICA)

    def start(self, name: str) -> None:
        # The managers wait for a lighthouse that is away.
        env = {**clean(), "TORCHFT_LIGHTHOUSE": self._lighthouse, "TORCHFT_QUORUM_RETRIES": "40", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(self._folder / "replica.py"), name, str(self._folder)]
        with open(self._folder / f"replica-{name}.log", "a") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait(30)

    def steps(self, name: str) -> list[dict[str, Any]]:
        text = _text(self._folder / f"{name}.steps") or ""
        lines = []
        for line in text.splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
        return lines

    def await_quorum(self, *names: str, above: int) -> int:
        """Returns the id of a quorum above this one in which exactly these replicas have committed five steps."""

        def look() -> Optional[int]:
            for name, process in self._processes.items():
                assert process.poll() is None, f"replica {name} ended\n{self.log()}"
            newest = [self.steps(name)[-5:] for name in names]
            ids = {line["quorum"] for lines in newest for line in lines}
            worlds = {line["world"] for lines in newest for line in lines}
            is_whole = all(len(lines) == 5 for lines in newest) and worlds == {len(names)} and len(ids) == 1
            return min(ids) if is_whole and min(ids) > above else None

        try:
            return until(f"a quorum of {', '.join(names)} above {above}", look, LONG)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def log(self) -> str:
        files = [*sorted(self._folder.glob("replica-*.log")), self._folder / "controller.log"]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-4_000:]}" for file in files)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)


def test_a_killed_replica_leaves_and_joins_again_and_ids_grow_over_a_new_controller(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=0, settings=settings())
    replicas = Replicas(tmp_path, address_of(tmp_path))
    try:
        replicas.start("a")
        replicas.start("b")
        first = replicas.await_quorum("a", "b", above=0)

        replicas.kill("b")
        second = replicas.await_quorum("a", above=first)

        replicas.start("b")
        third = replicas.await_quorum("a", "b", above=second)

        # The controller is killed and returns: no replica ends, and no id is used again.
        cluster.kill_controller()
        cluster.return_controller()
        replicas.await_quorum("a", "b", above=third)
        sums: dict[int, float] = {}
        shared = 0
        for name in ("a", "b"):
            for line in replicas.steps(name):
                if line["world"] == 2:
                    shared += line["step"] in sums
                    assert sums.setdefault(line["step"], line["sum"]) == line["sum"], line
        assert shared > 10, "few steps were taken together, so little was compared"
    finally:
        replicas.close()
        cluster.close()


class Manager:
    """torchft's manager server and client of a replica group of one rank, on threads of this process."""

    def __init__(self, name: str, lighthouse: str) -> None:
        from torchft.coordination import ManagerClient, ManagerServer

        interval = timedelta(milliseconds=100)
        # The host in the address is the node. Nothing connects to it here.
        self._server = ManagerServer(name, lighthouse, name, "127.0.0.1:0", f"{name}:1", 1, interval, SECONDS, 0)
        self._client = ManagerClient(f"http://127.0.0.1:{self._server.address().rsplit(':', 1)[1]}", SECONDS)
        self.answer: Any = None
        self.error: Optional[BaseException] = None
        self._thread: Optional[threading.Thread] = None

    def request(self, step: int = 1, shrink_only: bool = False, failures: int = 0, seconds: float = 60) -> None:
        """Requests a quorum on a thread."""
        self.answer = self.error = None

        def call() -> None:
            limit = timedelta(seconds=seconds)
            try:
                self.answer = self._client._quorum(0, step, "metadata", shrink_only, True, failures, limit, "handle")
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=call, daemon=True)
        self._thread.start()

    def wait(self) -> Any:
        assert self._thread is not None
        self._thread.join(90)
        assert not self._thread.is_alive(), "the quorum does not begin"
        if self.error is not None:
            raise self.error
        return self.answer

    def is_waiting(self, seconds: float = 1.0) -> bool:
        assert self._thread is not None
        self._thread.join(seconds)
        return self._thread.is_alive()

    def shutdown(self) -> None:
        self._server.shutdown()


@contextlib.contextmanager
def managers(lighthouse: str, *names: str) -> Iterator[dict[str, Manager]]:
    made: dict[str, Manager] = {}
    try:
        for name in names:
            made[name] = Manager(name, lighthouse)
        yield made
    finally:
        for manager in made.values():
            manager.shutdown()


@pytest.fixture(params=["rankguard", "torchft"])
def lighthouse(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[str]:
    """Address of a lighthouse: the controller, and torchft's own as the model."""
    if request.param == "torchft":
        from torchft.coordination import LighthouseServer

        server = LighthouseServer("127.0.0.1:0", 1, JOIN_MS, 100, HEARTBEAT_MS)
        yield f"http://127.0.0.1:{server.address().rsplit(':', 1)[1]}"
        server.shutdown()
        return
    cluster = Cluster(tmp_path, slots=1, nodes=0, settings=settings())
    yield address_of(tmp_path)
    cluster.close()


def assemble(members: dict[str, Manager]) -> None:
    """Gets one quorum of all: before the lighthouse has heard one that starts slowly, quorums begin without it."""
    missing = dict(members)
    for manager in missing.values():
        manager.request()
    while missing:
        for name, manager in list(missing.items()):
            if manager.is_waiting(0.05):
                continue
            if list(manager.wait().replica_ids) == sorted(members):
                del missing[name]
            else:
                manager.request()


def together(members: dict[str, Manager], **options: Any) -> int:
    """All request, and get one quorum; returns its id."""
    for manager in members.values():
        manager.request(**options)
    answers = [manager.wait() for manager in members.values()]
    names = sorted(members)
    for answer in answers:
        assert list(answer.replica_ids) == names and answer.replica_world_size == len(names)
        # A field that the lighthouse does not know passes through.
        assert list(answer.reconfigure_handles) == ["handle"] * len(names)
    (quorum,) = {answer.quorum_id for answer in answers}
    return quorum


def test_quorums_follow_the_rules_of_torchft(lighthouse: str) -> None:
    with managers(lighthouse, "a", "b") as both:
        assemble(both)
        first = together(both)
        assert together(both, step=2) == first, "the same members keep the id"
        second = together(both, step=3, failures=1)
        assert second > first, "a failed commit changes the id"
        # A third replica that only sends heartbeats does not hold up the two.
        with managers(lighthouse, "c") as third:
            assert together(both, step=4) == second
            # It may not join a quorum that must not grow, and joins the next one.
            third["c"].request()
            assert third["c"].is_waiting()
            assert together(both, step=5, shrink_only=True) == second
            assert third["c"].is_waiting()
            for manager in both.values():
                manager.request(step=6)
            grown = [manager.wait() for manager in (*both.values(), *third.values())]
            assert {answer.quorum_id for answer in grown} == {second + 1}
            assert {answer.max_step for answer in grown} == {6} and grown[2].heal
        # It is gone: after heartbeat_timeout the others go on without it.
        assert together(both, step=7) == second + 2
        # A replica that lives and does not request is awaited until join_timeout.
        both["a"].request(step=8)
        with managers(lighthouse, "d") as fourth:
            fourth["d"].request(step=8)
            answer = both["a"].wait()
            assert list(answer.replica_ids) == ["a", "d"] and answer.quorum_id == second + 3
            assert fourth["d"].wait().quorum_id == second + 3


def test_the_low_level_client_gets_what_it_sent(lighthouse: str) -> None:
    from torchft.coordination import LighthouseClient

    client = LighthouseClient(lighthouse, SECONDS)
    client.heartbeat("one")
    quorum = client.quorum("one", SECONDS, "http://h:1", "h:2", 7, 3, False, {"key": [1, "two"]})
    (member,) = quorum.participants
    assert (member.replica_id, member.address, member.store_address) == ("one", "http://h:1", "h:2")
    assert (member.step, member.world_size, member.shrink_only) == (7, 3, False)
    assert member.data == {"key": [1, "two"]}
    assert quorum.created.seconds > 1_700_000_000


def test_a_replica_on_a_cordoned_node_is_left_out_until_the_node_is_back(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=3, settings=settings(min_replicas=2))
    try:
        with managers(address_of(tmp_path), "n1", "n2", "n3") as all_:
            first = together(all_)
            cluster.ask_nothing("node", "cordon", "n2", "--reason", "drill")
            rest = {name: all_[name] for name in ("n1", "n3")}
            # The cordon takes a moment to arrive at the lighthouse.
            all_["n2"].request()

            def smaller() -> Optional[int]:
                for manager in rest.values():
                    manager.request(seconds=30)
                answers = [manager.wait() for manager in rest.values()]
                if not all_["n2"].is_waiting(0.01):
                    all_["n2"].request()
                    return None
                return answers[0].quorum_id if list(answers[0].replica_ids) == ["n1", "n3"] else None

            second = until("a quorum without n2", smaller)
            assert second > first and all_["n2"].is_waiting()
            cluster.ask_nothing("node", "uncordon", "n2")

            def whole() -> Optional[int]:
                for manager in rest.values():
                    manager.request(seconds=30)
                answers = [manager.wait() for manager in rest.values()]
                return answers[0].quorum_id if len(answers[0].replica_ids) == 3 else None

            assert until("a quorum with n2", whole) > second
            all_["n2"].wait()
    finally:
        cluster.close()


def test_a_lighthouse_on_all_addresses_is_refused(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "all.toml"
    config.write_text('[controller]\ntorchft_listen = "0.0.0.0:0"\n')
    words = [str(program()), "--config", str(config), "controller", "--listen", "127.0.0.1:0"]
    words += ["--state-dir", str(tmp_path / "s")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, env={**clean(), "RUST_LOG": "info"})
    assert ran.returncode == 2 and "torchft has neither TLS nor authentication" in ran.stderr, ran.stderr
    assert os.path.exists(tmp_path / "s" / "torchft.addr") is False
