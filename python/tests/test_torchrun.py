"""torchrun with the back end `rankguard` and a script that knows nothing of it: real processes, gloo on CPUs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Optional

import pytest

from cluster import Cluster, clean, program, until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)"),
]

# Importing torch takes seconds, and many of these tests run at the same time.
LONG = 240

# Trains until the file `stop` is there; writes each step.
SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
folder = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
facts = {"node": os.environ["NODE"], "pid": os.getpid(), "torchrun": os.getppid(), "rank": rank, "world": world}
facts["start"] = os.environ["TORCHELASTIC_RESTART_COUNT"]
with open(os.path.join(folder, os.environ["NODE"] + ".steps"), "a") as log:
    for step in range(100_000):
        stop = torch.tensor([float(os.path.exists(os.path.join(folder, "stop")))])
        dist.all_reduce(stop)
        log.write(json.dumps({**facts, "step": step}) + "\\n")
        log.flush()
        if stop.item() == world:
            break
        time.sleep(0.05)
dist.destroy_process_group()
"""


class Job:
    """Torchruns of one run."""

    def __init__(self, folder: pathlib.Path, address: str, nodes: str, script: str = SCRIPT, restarts: int = 20) -> None:
        self.folder = folder
        self._script = folder / "train.py"
        self._script.write_text(script)
        self._words = [f"--rdzv-endpoint={address}", "--rdzv-id=job", f"--nnodes={nodes}", f"--max-restarts={restarts}"]
        self.torchruns: dict[str, subprocess.Popen] = {}

    def start(self, node: str) -> None:
        """Starts a torchrun with one worker on a node."""
        conf = f"--rdzv-conf=node={node},last_call_timeout=3"
        words = [*self._words, conf, "--nproc-per-node=1", "--rdzv-backend=rankguard"]
        command = [sys.executable, "-m", "torch.distributed.run", *words, str(self._script), str(self.folder)]
        env = {**clean(), "RANKGUARD_BIN": str(program()), "NODE": node, "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"torchrun-{node}.log", "a") as log:
            self.torchruns[node] = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)

    def steps(self, node: str) -> list[dict[str, Any]]:
        """What the workers of a node wrote, oldest first."""
        try:
            lines = (self.folder / f"{node}.steps").read_text().splitlines(keepends=True)
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def newest(self, node: str) -> dict[str, Any]:
        steps = self.steps(node)
        return steps[-1] if steps else {}

    def await_world(self, *nodes: str, after: Optional[set[int]] = None) -> dict[str, dict[str, Any]]:
        """Returns when these nodes train in one world of workers that are not among those of before."""

        def look() -> Optional[dict[str, dict[str, Any]]]:
            self.check()
            newest = {node: self.newest(node) for node in nodes}
            ranks = sorted(one.get("rank", -1) for one in newest.values())
            fits = all(one.get("world") == len(nodes) and one["pid"] not in (after or ()) for one in newest.values())
            return newest if fits and ranks == list(range(len(nodes))) else None

        found = until(f"a world of {', '.join(nodes)}", look, LONG)
        self.await_progress(*nodes)
        return found

    def await_progress(self, *nodes: str) -> None:
        """Returns when each of these nodes has made five more steps with the worker that it has."""
        before = {node: self.newest(node) for node in nodes}
        for node, was in before.items():
            enough = lambda: self.newest(node)["step"] >= was["step"] + 5 or None  # noqa: E731, B023
            until(f"progress of {node}", enough, LONG)
            assert self.newest(node)["pid"] == was["pid"], f"the worker of {node} was started again\n{self.log()}"

    def check(self) -> None:
        for node, torchrun in self.torchruns.items():
            assert torchrun.poll() is None, f"torchrun of {node} ended with {torchrun.returncode}\n{self.log()}"

    def kill(self, node: str) -> None:
        """SIGKILL of a torchrun and its worker, as when a node is lost."""
        worker = self.newest(node).get("pid")
        torchrun = self.torchruns.pop(node)
        torchrun.kill()
        if worker is not None:
            os.kill(worker, signal.SIGKILL)
        torchrun.wait(30)

    def finish(self) -> None:
        """Lets the training end; every torchrun ends with success."""
        (self.folder / "stop").touch()
        for node, torchrun in self.torchruns.items():
            try:
                code = torchrun.wait(LONG)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"torchrun of {node} does not end\n{self.log()}") from None
            assert code == 0, f"torchrun of {node} ended with {code}\n{self.log()}"

    def log(self) -> str:
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')}" for file in files)[-20_000:]

    def close(self) -> None:
        for torchrun in self.torchruns.values():
            if torchrun.poll() is None:
                torchrun.kill()
                torchrun.wait(30)


def pids(world: dict[str, dict[str, Any]]) -> set[int]:
    return {one["pid"] for one in world.values()}


def run_of(cluster: Cluster, name: str = "job") -> dict[str, Any]:
    return next((run for run in cluster.ask("status", "torchruns") if run["run"] == name), {})


def states(cluster: Cluster) -> dict[str, str]:
    return {member["node"]: member["state"] for member in run_of(cluster).get("members", [])}


def test_the_package_names_the_back_end() -> None:
    points = importlib.metadata.entry_points(group="torchrun.handlers")
    assert [point.value for point in points if point.name == "rankguard"] == ["rankguard.torchrun:handler_factory"]


def test_a_spare_waits_and_replaces_and_a_lost_controller_is_not_noticed(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=0)
    job = Job(tmp_path, cluster.address, "2:2")
    try:
        job.start("n1")
        job.start("n2")
        first = job.await_world("n1", "n2")
        job.start("n3")
        until("the spare", lambda: states(cluster).get("n3") == "spare" or None, LONG)
        job.await_progress("n1", "n2")
        assert run_of(cluster)["round"] == 1

        # The controller is away, and comes back.
        cluster.kill_controller()
        time.sleep(1)
        job.await_progress("n1", "n2")
        cluster.return_controller()
        all_are_back = lambda: sorted(states(cluster).values()) == ["running", "running", "spare"] or None  # noqa: E731
        until("the members", all_are_back, LONG)
        job.await_progress("n1", "n2")
        assert pids({node: job.newest(node) for node in ("n1", "n2")}) == pids(first)
        assert run_of(cluster)["round"] == 1

        # A worker is killed: both nodes go on in a new round, and the spare is still one.
        os.kill(job.newest("n2")["pid"], signal.SIGKILL)
        second = job.await_world("n1", "n2", after=pids(first))
        assert run_of(cluster)["round"] == 2 and states(cluster)["n3"] == "spare"

        # The torchrun that serves the store is killed with its worker: the spare takes its place.
        host = next(node for node, one in second.items() if one["rank"] == 0)
        job.kill(host)
        (left,) = {"n1", "n2"} - {host}
        third = job.await_world(left, "n3", after=pids(second))
        assert third["n3"]["rank"] == 0 and run_of(cluster)["round"] == 3
        job.start("n4")
        until("another spare", lambda: states(cluster).get("n4") == "spare" or None, LONG)
        shown = subprocess.run([str(program()), "status", "--controller", cluster.address], capture_output=True, text=True)
        assert "torchrun job on node n4: this node is a spare: the run has 2 nodes" in shown.stdout + shown.stderr
        # The spare ends with success as well.
        job.finish()
        until("the end of the run", lambda: run_of(cluster).get("ended_at"))
    finally:
        job.close()
        cluster.close()


def test_a_smaller_round_goes_on_and_grows_again_and_leaves_a_cordoned_node(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=2)
    job = Job(tmp_path, cluster.address, "1:2")
    try:
        job.start("n1")
        job.start("n2")
        first = job.await_world("n1", "n2")

        # A node is lost: the other goes on alone, without a wait for it.
        job.kill("n2")
        second = job.await_world("n1", after=pids(first))
        assert "n2" in run_of(cluster)["reason"]

        # It returns.
        job.start("n2")
        third = job.await_world("n1", "n2", after=pids(first) | pids(second))

        # Its node is cordoned: the job leaves it.
        cluster.ask_nothing("node", "cordon", "n2", "--reason", "drill")
        fourth = job.await_world("n1", after=pids(third))
        until("the cordoned node", lambda: states(cluster).get("n2") == "spare" or None, LONG)
        members = {member["node"]: member for member in run_of(cluster)["members"]}
        assert members["n2"]["reason"] == "node n2 is cordoned: drill"

        # It is uncordoned: the job takes it back.
        cluster.ask_nothing("node", "uncordon", "n2")
        job.await_world("n1", "n2", after=pids(fourth))
        # No loss of a node has consumed a restart of n1 beyond the failures of its own worker.
        job.finish()
    finally:
        job.close()
        cluster.close()


# Writes steps as SCRIPT does, without torch and without collectives. The worker of n1 ends when the file `early` is there, with
# the code in it.
ALONE = """
import json, os, sys, time
folder = sys.argv[1]
node = os.environ["NODE"]
facts = {"node": node, "pid": os.getpid(), "rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"])}
with open(os.path.join(folder, node + ".steps"), "a") as log:
    for step in range(100_000):
        log.write(json.dumps({**facts, "step": step}) + "\\n")
        log.flush()
        if os.path.exists(os.path.join(folder, "stop")):
            break
        if node == "n1" and os.path.exists(os.path.join(folder, "early")):
            sys.exit(int(open(os.path.join(folder, "early")).read()))
        time.sleep(0.05)
"""


def test_a_node_that_finishes_early_disturbs_no_other(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=0)
    job = Job(tmp_path, cluster.address, "1:2", ALONE)
    try:
        job.start("n1")
        job.start("n2")
        world = job.await_world("n1", "n2")
        (tmp_path / "early").write_text("0")
        until("the success", lambda: states(cluster).get("n1") == "finished" or None, LONG)
        # Its torchrun waits for the others, and is killed.
        early = job.torchruns.pop("n1")
        early.kill()
        early.wait(30)
        until("its end", lambda: "n1" not in states(cluster) or None, LONG)
        job.await_progress("n2")
        assert job.newest("n2")["pid"] == world["n2"]["pid"] and run_of(cluster)["state"] == "running"
        job.finish()
    finally:
        job.close()
        cluster.close()


def test_a_torchrun_that_is_terminated_leaves_the_run_to_the_others(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=0)
    job = Job(tmp_path, cluster.address, "1:2", ALONE, restarts=0)
    try:
        job.start("n1")
        job.start("n2")
        world = job.await_world("n1", "n2")
        gone = job.torchruns.pop("n1")
        gone.terminate()
        # No restart of n2 is used up, as it has none.
        job.await_world("n2", after=pids(world))
        assert gone.wait(60) != 0
        job.finish()
    finally:
        job.close()
        cluster.close()


def test_a_script_that_fails_for_good_ends_all_torchruns(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1, nodes=0)
    job = Job(tmp_path, cluster.address, "2:2", ALONE, restarts=0)
    try:
        job.start("n1")
        job.start("n2")
        job.await_world("n1", "n2")
        (tmp_path / "early").write_text("3")
        # Far below join_timeout: the other does not wait for a node that gave up.
        codes = {node: torchrun.wait(LONG) for node, torchrun in job.torchruns.items()}
        assert codes == {"n1": 1, "n2": 1}, job.log()
        log = (tmp_path / "torchrun-n2.log").read_text()
        assert "RendezvousClosedError: run job: no further round is possible: 1 of at least 2 nodes remain" in log, log
    finally:
        job.close()
        cluster.close()


# In-process handlers: what would need luck or long waits with torchruns.


def handler(address: str, nodes: str, node: str, run: str = "job", conf: Optional[dict[str, str]] = None) -> Any:
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    least, most = map(int, nodes.split(":"))
    config = {"timeout": 900, "last_call_timeout": "1", "node": node, **(conf or {})}
    return get_rendezvous_handler(RendezvousParameters("rankguard", address, run, least, most, **config))


class Waiting:
    """A call of next_rendezvous on a thread."""

    def __init__(self, handler: Any) -> None:
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self._handler = handler
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._handler.next_rendezvous()
        except BaseException as error:
            self.error = error

    def wait(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive(), "next_rendezvous does not return"
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Any:
    cluster = Cluster(tmp_path_factory.mktemp("handlers"), slots=1, nodes=0)
    yield cluster
    cluster.close()


@pytest.fixture
def handlers(controller: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RANKGUARD_BIN", str(program()))
    made = []

    def make(nodes: str, node: str, run: str, **conf: str) -> Any:
        made.append(handler(controller.address, nodes, node, run, conf))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


def test_a_member_that_finished_leaves_the_others_undisturbed(controller: Cluster, handlers: Any) -> None:
    first, second = handlers("1:2", "n1", "early"), handlers("1:2", "n2", "early")
    waiting = Waiting(first)
    infos = [Waiting(second).wait(), waiting.wait()]
    assert sorted(info.rank for info in infos) == [0, 1] and {info.world_size for info in infos} == {2}
    assert second.use_agent_store and infos[0].bootstrap_store_info.master_port > 0
    assert first.shutdown()
    time.sleep(1)
    assert second.num_nodes_waiting() == 0 and not second.is_closed()
    members = run_of(controller, "early")["members"]
    assert [(member["node"], member["state"]) for member in members] == [("n2", "running")]
    # A failure of its own worker starts it again, alone.
    info = Waiting(second).wait()
    assert (info.rank, info.world_size) == (0, 1)


def test_workers_may_have_a_store_of_their_own(handlers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    both = [handlers("2:2", node, "own") for node in ("n1", "n2")]
    waits = [Waiting(one) for one in both]
    ports = {wait.wait().bootstrap_store_info.master_port for wait in waits}
    (host,) = (one for one in both if one._server is not None)
    assert len(ports) == 1 and ports != {host._server.port} and not host.use_agent_store


def test_a_loss_during_the_exchange_of_ranks_does_not_end_the_others(handlers: Any) -> None:
    from torch.distributed.elastic.agent.server.api import _RoleInstanceInfo

    first, second = handlers("1:2", "n1", "window"), handlers("1:2", "n2", "window")
    waiting = Waiting(first)
    infos = {"second": Waiting(second).wait(), "first": waiting.wait()}
    host, other = (first, second) if infos["first"].rank == 0 else (second, first)
    host_info = min(infos.values(), key=lambda info: info.rank)
    # The first one waits for what the second writes, as torch's agent does, and the second is killed before.
    host_info.store.set("torchelastic/role_info/0", _RoleInstanceInfo("default", 0, 4).serialize())
    other._link._process.kill()
    other._link._leaving = True
    values = host_info.store.multi_get([f"torchelastic/role_info/{rank}" for rank in range(2)])
    assert [json.loads(value) for value in values][1] == {"role": "default", "rank": 1, "local_world_size": 4}
    assert host.num_nodes_waiting() == 1
    assert Waiting(host).wait().world_size == 1


def test_a_loss_of_the_host_of_the_store_during_the_exchange_does_not_end_the_others(handlers: Any) -> None:
    from torch.distributed.elastic.agent.server.api import _RoleInstanceInfo

    first, second = handlers("1:2", "n1", "host"), handlers("1:2", "n2", "host")
    waits = [Waiting(first), Waiting(second)]
    infos = {"first": waits[0].wait(), "second": waits[1].wait()}
    host, other = (first, second) if infos["first"].rank == 0 else (second, first)
    info = max(infos.values(), key=lambda info: info.rank)
    info.store.set("torchelastic/role_info/1", _RoleInstanceInfo("default", 1, 4).serialize())
    # The store goes with its process.
    host._link._process.kill()
    host._link._leaving = True
    host._server = waits[0].result = waits[1].result = None
    infos.clear()
    assert json.loads(info.store.get("torchelastic/assigned_ranks/1")) == [4, 8, 4, 8]
    assert Waiting(other).wait().world_size == 1


def test_the_program_may_be_killed(controller: Cluster, handlers: Any) -> None:
    one = handlers("1:1", "n1", "program")
    Waiting(one).wait()
    process = one._link._process
    process.kill()
    until("another program", lambda: one._link._process is not process or None)
    is_back = lambda: [m["state"] for m in run_of(controller, "program").get("members", [])] == ["running"]  # noqa: E731
    until("the member", lambda: is_back() or None)
    assert one.num_nodes_waiting() == 0


def test_the_end_of_a_run_ends_its_spares(handlers: Any) -> None:
    one, spare = handlers("1:1", "n1", "done"), handlers("1:1", "n2", "done")
    Waiting(one).wait()
    waiting = Waiting(spare)
    until("the spare", lambda: spare._link.state.wait_reason)
    assert one.shutdown()
    with pytest.raises(SystemExit) as ended:
        waiting.wait()
    assert ended.value.code == 0


def test_a_member_that_gives_up_closes_a_run_that_cannot_go_on(handlers: Any) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousClosedError

    first, second = handlers("2:2", "n1", "failed"), handlers("2:2", "n2", "failed")
    waiting = Waiting(first)
    Waiting(second).wait()
    waiting.wait()
    try:
        raise ValueError("as torchrun raises when the workers have failed too often")
    except ValueError:
        assert first.shutdown()
    until("the end of the round", lambda: second.num_nodes_waiting() or None)
    with pytest.raises(RendezvousClosedError, match=r"1 of at least 2 nodes remain .*torchrun on node n1 gave up"):
        Waiting(second).wait()
    assert second.is_closed()


def test_errors_state_what_to_do(controller: Cluster, handlers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousTimeoutError

    alone = handlers("2:2", "n1", "alone", join_timeout="1")
    with pytest.raises(RendezvousTimeoutError, match=r"1 of at least 2 nodes were ready after 1 s.*start torchrun on more"):
        Waiting(alone).wait()
    Waiting(handlers("1:2", "n1", "terms")).wait()
    with pytest.raises(RendezvousConnectionError, match="the run has --nnodes 1:2, this torchrun 2:2"):
        Waiting(handlers("2:2", "n2", "terms")).wait()
    with pytest.raises(ValueError, match="unknown option is_host; --rdzv-backend=rankguard takes join_timeout"):
        handlers("1:2", "n1", "wrong", is_host="1")
    with pytest.raises(ValueError, match="join_timeout=soon is not a number of seconds"):
        handlers("1:2", "n1", "wrong", join_timeout="soon")
    with pytest.raises(ValueError, match="--rdzv-id is required"):
        handlers("1:2", "n1", "none")
    with pytest.raises(ValueError, match="expected the address of the controller, HOST:PORT"):
        handler("host", "1:2", "n1")
    gone = handler("127.0.0.1:1", "1:2", "n1", conf={"connect_timeout": "1"})
    with pytest.raises(RendezvousConnectionError, match=r"no contact with the controller at 127\.0\.0\.1:1 for 1 s"):
        gone.next_rendezvous()
    gone.shutdown()
    monkeypatch.setenv("RANKGUARD_BIN", "/nowhere/rankguard")
    with pytest.raises(ValueError, match="RANKGUARD_BIN=/nowhere/rankguard is not a program"):
        handlers("1:2", "n1", "wrong")


def test_torchrun_shows_why_it_cannot_begin(tmp_path: pathlib.Path) -> None:
    words = ["--rdzv-backend=rankguard", "--rdzv-endpoint=127.0.0.1:1", "--rdzv-id=job", "--rdzv-conf=connect_timeout=1"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "--nnodes=1:2", "train.py"]
    env = {**clean(), "RANKGUARD_BIN": str(program())}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, env=env, cwd=tmp_path)
    assert ran.returncode == 1
    assert "no contact with the controller at 127.0.0.1:1 for 1 s (connect_timeout): " in ran.stderr
