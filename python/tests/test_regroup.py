"""Functions of `rankguard.elastic`: the processes of ranks that did not fail go on in the next generation."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Optional

import pytest

from cluster import SETTINGS, Cluster, clean, program, until

pytestmark = pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")

#: A job waits for its nodes for longer than a test.
PATIENT = SETTINGS.replace("pending_ms = 2_000", "pending_ms = 600_000")

#: Records each call of the function with its process, and makes steps until there is a file for its end.
JOB = """
import json, os, pathlib, signal, subprocess, sys, time
import rankguard
calls = 0
child = None

@rankguard.elastic
def train():
    global calls, child
    calls += 1
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    generation = int(os.environ["RANKGUARD_GENERATION"])
    session = rankguard.init()
    if WITH_CHILD:
        child = subprocess.Popen(["sleep", "600"])
    facts = {"pid": os.getpid(), "calls": calls, "world": world, "local": os.environ["LOCAL_RANK"]}
    facts["child"] = child and child.pid
    pathlib.Path(f"call-{generation}-{rank}").write_text(json.dumps(facts))
    print(f"rank {rank} of generation {generation} works", flush=True)
    n = 0
    while not pathlib.Path(f"end-{generation}").exists():
        n += 1
        rankguard.step(n, loss=1.0 / n)
        try:
            time.sleep(0.01)
        except rankguard.GenerationEnded:
            if not SWALLOWS:
                raise
            time.sleep(600)
        if pathlib.Path(f"raise-{generation}-{rank}").exists():
            raise ValueError("the loss is no number")
        if pathlib.Path(f"reset-{generation}").exists():
            raise ConnectionResetError("connection reset by peer")
    rankguard.done()

train()
"""


def job(folder: pathlib.Path, with_child: bool = False, swallows: bool = False) -> list[str]:
    """Writes the script; returns its command."""
    text = JOB.replace("WITH_CHILD", str(with_child)).replace("SWALLOWS", str(swallows))
    (folder / "train.py").write_text(text)
    return [sys.executable, "train.py"]


def calls(folder: pathlib.Path, generation: int, count: int) -> list[dict]:
    """The calls of a generation by rank, once all have begun."""

    def found() -> Optional[list[dict]]:
        paths = [folder / f"call-{generation}-{rank}" for rank in range(count)]
        texts = [path.read_text() for path in paths if path.exists()]
        return [json.loads(text) for text in texts] if len(texts) == count and all(texts) else None

    return until(f"the calls of generation {generation}", found, 60)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_other_processes_go_on_when_a_rank_is_killed(tmp_path: pathlib.Path) -> None:
    """Twice: a process of generation 1 is a rank of generation 3, and one that was started in between, too."""
    cluster = Cluster(tmp_path, nodes=2)
    try:
        run = cluster.run("kept", job(tmp_path, with_child=True), 2, None, 0, "--nodes", "2")
        first = calls(tmp_path, 1, 4)
        os.kill(first[3]["pid"], signal.SIGKILL)
        second = calls(tmp_path, 2, 4)
        assert [call["pid"] for call in second[:3]] == [call["pid"] for call in first[:3]], cluster.log()
        assert [call["calls"] for call in second] == [2, 2, 2, 1]
        assert [call["local"] for call in second] == [call["local"] for call in first] == ["0", "1", "0", "1"]
        # What a rank had started belongs to its generation.
        assert not any(is_alive(call["child"]) for call in first)
        os.kill(second[0]["pid"], signal.SIGKILL)
        third = calls(tmp_path, 3, 4)
        assert [call["pid"] for call in third[1:]] == [call["pid"] for call in second[1:]], cluster.log()
        assert [call["calls"] for call in third] == [1, 3, 3, 2]
        (tmp_path / "end-3").touch()
        assert run.wait(60) == 0, cluster.log()
        assert not any(is_alive(call["pid"]) or is_alive(call["child"]) for call in third)
        # Each generation has output of its own.
        log = subprocess.run(
            [str(program()), "logs", "kept", "--rank", "1", "--controller", cluster.address],
            capture_output=True,
            text=True,
            env=clean(),
            timeout=60,
        ).stdout
        assert "rank 1 of generation 3 works" in log and "generation 2 works" not in log, log
        verdicts = [case["verdict"] for case in cluster.ask("cases")]
        assert [(it["class"], it["root_rank"]) for it in verdicts] == [("killed-by-signal", 0), ("killed-by-signal", 3)]
    finally:
        cluster.close()


def test_the_processes_of_a_node_go_on_when_the_other_node_is_lost(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, nodes=2)
    try:
        run = cluster.run("shrunk", job(tmp_path), 2, None, 0, "--nodes", "1:2")
        first = calls(tmp_path, 1, 4)
        cluster.kill_agent("n2")
        second = calls(tmp_path, 2, 2)
        numbers = [call["pid"] for call in second]
        assert numbers in ([call["pid"] for call in first[:2]], [call["pid"] for call in first[2:]]), cluster.log()
        assert [(call["calls"], call["world"]) for call in second] == [(2, 2), (2, 2)]
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
    finally:
        cluster.close()


def test_a_process_that_does_not_leave_is_replaced(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        run = cluster.run("stuck", job(tmp_path, swallows=True), 2, None, 0)
        first = calls(tmp_path, 1, 2)
        os.kill(first[1]["pid"], signal.SIGKILL)
        second = calls(tmp_path, 2, 2)
        assert not {call["pid"] for call in first} & {call["pid"] for call in second}
        assert not is_alive(first[0]["pid"])
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
    finally:
        cluster.close()


def test_an_exception_of_one_rank_is_blamed_and_its_process_ends(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        run = cluster.run("wrong", job(tmp_path), 2, None, 0)
        first = calls(tmp_path, 1, 2)
        (tmp_path / "raise-1-1").touch()
        second = calls(tmp_path, 2, 2)
        assert second[0]["pid"] == first[0]["pid"] and second[1]["pid"] != first[1]["pid"], cluster.log()
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
        verdicts = [case["verdict"] for case in cluster.ask("cases")]
        assert [it["root_rank"] for it in verdicts] == [1]
        text = json.dumps(cluster.ask("cases"))
        assert "the loss is no number" in text
    finally:
        cluster.close()


def leave_two_waiting(cluster: Cluster, name: str) -> tuple[subprocess.Popen, list[int]]:
    """Starts a job on two nodes, loses one and lets the ranks of the other fail as collective operations do.

    Returns the run and the processes that have left, which wait: the job cannot start again.
    """
    folder = cluster.folder
    run = cluster.run(name, job(folder), 2, None, 0, "--nodes", "2")
    first = calls(folder, 1, 4)
    cluster.kill_agent("n2")
    (folder / "reset-1").touch()
    until("the job to wait", lambda: cluster.job(name).get("state") == "pending" or None, 60)
    until("the ranks to leave", lambda: cluster.log().count("leaves its generation") == 2 or None, 60)
    waiting = [call["pid"] for call in first if is_alive(call["pid"])]
    assert len(waiting) == 2, cluster.log()
    return run, waiting


def test_a_waiting_process_ends_before_another_job_starts(tmp_path: pathlib.Path) -> None:
    """The first job is stopped, because no restart is allowed."""
    cluster = Cluster(tmp_path)
    probe = "import pathlib, sys; print([pathlib.Path(f'/proc/{pid}').exists() for pid in sys.argv[1:]])"
    try:
        run = cluster.run("first", job(tmp_path), 2, None, 0, restarts=0)
        first = calls(tmp_path, 1, 2)
        (tmp_path / "reset-1").touch()
        until("the ranks to leave", lambda: cluster.log().count("leaves its generation") == 2 or None, 60)
        assert run.wait(60) == 3, cluster.log()
        pids = [str(call["pid"]) for call in first]
        other = cluster.run("other", [sys.executable, "-c", probe, *pids], 1, None, 0, "--output")
        assert other.wait(60) == 0, cluster.log()
        assert "[False, False]" in (tmp_path / "run-other.log").read_text(), cluster.log()
    finally:
        cluster.close()


def test_a_waiting_process_ends_with_its_job(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, nodes=2, settings=PATIENT)
    try:
        run, waiting = leave_two_waiting(cluster, "gone")
        # 1: the lost node has not confirmed the end of its ranks. The other one has.
        assert cluster.cancel("gone").returncode in (0, 1)
        assert not any(map(is_alive, waiting)), cluster.log()
        run.wait(60)
    finally:
        cluster.close()


def test_a_process_waits_for_half_a_minute(tmp_path: pathlib.Path) -> None:
    """It may hold the memory of a GPU. The job goes on to wait, and starts anew when its node has returned."""
    cluster = Cluster(tmp_path, nodes=2, settings=PATIENT)
    try:
        run, waiting = leave_two_waiting(cluster, "late")
        until("the end of the processes", lambda: not any(map(is_alive, waiting)) or None, 120)
        assert cluster.job("late")["state"] == "pending", cluster.log()
        cluster.return_agent("n2")
        second = calls(tmp_path, 2, 4)
        assert [call["calls"] for call in second] == [1] * 4
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
    finally:
        cluster.close()


def test_a_waiting_process_is_used_when_the_node_returns(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, nodes=2, settings=PATIENT)
    try:
        run, waiting = leave_two_waiting(cluster, "soon")
        cluster.return_agent("n2")
        second = calls(tmp_path, 2, 4)
        assert sorted(call["calls"] for call in second) == [1, 1, 2, 2]
        assert {call["pid"] for call in second if call["calls"] == 2} == set(waiting)
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
    finally:
        cluster.close()


#: A module that standby processes import, once there is a file.
MODULE = "import pathlib, time\nwhile not pathlib.Path('import').exists():\n    time.sleep(0.01)\n"

GROWING = SETTINGS + "grow_ms = 200\n"


def test_a_job_grows_in_the_same_processes_and_works_on_while_a_node_imports(tmp_path: pathlib.Path) -> None:
    """The node joins, is lost and returns. Its ranks are standby processes that were started ahead of the plan."""
    cluster = Cluster(tmp_path, settings=GROWING)
    try:
        (tmp_path / "slow.py").write_text(MODULE)
        options = ["--nodes", "1:2", "--standby", "auto", "--standby-import", "slow"]
        run = cluster.run("grown", job(tmp_path), 2, None, 0, *options)
        first = calls(tmp_path, 1, 2)
        cluster.return_agent("n2")
        prepares = lambda: "import its modules on n2" in (cluster.job("grown").get("reason") or "") or None  # noqa: E731
        until("n2 to prepare", prepares)
        step = cluster.job("grown")["step"]
        until("further steps", lambda: cluster.job("grown")["step"] > step + 10 or None)
        assert prepares() and not (tmp_path / "call-2-0").exists(), cluster.log()
        (tmp_path / "import").touch()
        second = calls(tmp_path, 2, 4)
        assert [call["calls"] for call in second] == [2, 2, 1, 1]
        assert [call["pid"] for call in second[:2]] == [call["pid"] for call in first], cluster.log()
        assert [is_from_standby(call) for call in second] == [False, False, True, True], cluster.log()
        cluster.kill_agent("n2")
        third = calls(tmp_path, 3, 2)
        assert [call["pid"] for call in third] == [call["pid"] for call in first], cluster.log()
        cluster.return_agent("n2")
        fourth = calls(tmp_path, 4, 4)
        assert [call["calls"] for call in fourth] == [4, 4, 1, 1]
        assert [call["pid"] for call in fourth[:2]] == [call["pid"] for call in first], cluster.log()
        assert [is_from_standby(call) for call in fourth] == [False, False, True, True], cluster.log()
        (tmp_path / "end-4").touch()
        assert run.wait(60) == 0, cluster.log()
        assert len(cluster.ask("cases")) == 1, "that of the lost node"
    finally:
        cluster.close()


def test_the_node_that_replaces_a_lost_one_has_imported_before(tmp_path: pathlib.Path) -> None:
    """The spare node has no rank of the job until then. The processes of the other node go on."""
    cluster = Cluster(tmp_path, nodes=3)
    try:
        (tmp_path / "counted.py").write_text("import os\nopen('imports', 'a').write(f'{os.getpid()}\\n')\n")
        options = ["--nodes", "2", "--standby", "auto", "--standby-import", "counted"]
        run = cluster.run("spared", job(tmp_path), 2, None, 0, *options)
        first = calls(tmp_path, 1, 4)
        counted = tmp_path / "imports"
        imports = lambda: counted.read_text().splitlines() if counted.exists() else []  # noqa: E731
        until("two processes on each of the three nodes", lambda: len(imports()) >= 6 or None)
        cluster.kill_agent("n2")
        second = calls(tmp_path, 2, 4)
        assert [call["pid"] for call in second[:2]] == [call["pid"] for call in first[:2]], cluster.log()
        assert [is_from_standby(call) for call in second] == [False, False, True, True], cluster.log()
        assert {str(call["pid"]) for call in second[2:]} <= set(imports()), cluster.log()
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
    finally:
        cluster.close()


def is_from_standby(call: dict) -> bool:
    """Whether the process waited before it was a rank: its interpreter was started with a text."""
    return "-c" in pathlib.Path(f"/proc/{call['pid']}/cmdline").read_text().split("\0")


def test_without_an_agent_the_function_is_called_once(tmp_path: pathlib.Path) -> None:
    script = "import rankguard\n@rankguard.elastic\ndef train(a, b=2):\n    return a + b\nprint(train(1, b=4))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=clean(), timeout=60)
    assert (ran.stdout, ran.returncode) == ("5\n", 0), ran.stderr


TORCH_JOB = """
import json, os, pathlib, time
import torch
import torch.distributed as dist
import rankguard
calls = 0

@rankguard.elastic
def train():
    global calls
    calls += 1
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    generation = int(os.environ["RANKGUARD_GENERATION"])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    sums = torch.tensor([float(rank + 1)])
    dist.all_reduce(sums)
    pathlib.Path(f"call-{generation}-{rank}").write_text(json.dumps({"pid": os.getpid(), "calls": calls, "sum": sums.item()}))
    while True:
        model(torch.ones(2, 4)).sum().backward()
        stop = torch.tensor([float(pathlib.Path(f"end-{generation}").exists())])
        dist.all_reduce(stop)
        if stop.item():
            break
    dist.destroy_process_group()

train()
"""


@pytest.mark.torch
def test_gloo_groups_are_made_anew_in_the_same_processes(tmp_path: pathlib.Path) -> None:
    """Ranks are killed within collective operations of DDP; the last one is rank 0, which holds the store."""
    pytest.importorskip("torch", reason="torch is not installed")
    cluster = Cluster(tmp_path, nodes=2)
    try:
        (tmp_path / "train.py").write_text(TORCH_JOB)
        run = cluster.run("gloo", [sys.executable, "train.py"], 2, None, 0, "--nodes", "2")
        before = until("the ranks", lambda: calls_of_torch(tmp_path, 1), 300)
        for generation, victim in ((2, 2), (3, 1), (4, 0)):
            os.kill(before[victim]["pid"], signal.SIGKILL)
            after = until(f"generation {generation}", lambda g=generation: calls_of_torch(tmp_path, g), 300)
            same = [one["pid"] == other["pid"] for one, other in zip(before, after)]
            assert same == [rank != victim for rank in range(4)], cluster.log()
            assert [call["sum"] for call in after] == [10.0] * 4
            before = after
        (tmp_path / "end-4").touch()
        assert run.wait(120) == 0, cluster.log()
    finally:
        cluster.close()


def calls_of_torch(folder: pathlib.Path, generation: int) -> Optional[list[dict]]:
    """The calls of all four ranks, if they have begun."""
    paths = [folder / f"call-{generation}-{rank}" for rank in range(4)]
    texts = [path.read_text() for path in paths if path.exists()]
    return [json.loads(text) for text in texts] if len(texts) == 4 and all(texts) else None


def test_a_rank_below_a_wrapper_is_started_anew(tmp_path: pathlib.Path) -> None:
    """The supervisor knows the wrapper's process only."""
    cluster = Cluster(tmp_path)
    try:
        words = " ".join(job(tmp_path))
        run = cluster.run("wrapped", ["sh", "-c", f"{words}; exit $?"], 2, None, 0)
        first = calls(tmp_path, 1, 2)
        os.kill(first[1]["pid"], signal.SIGKILL)
        second = calls(tmp_path, 2, 2)
        assert [call["calls"] for call in second] == [1, 1]
        assert not any(is_alive(call["pid"]) for call in first)
        (tmp_path / "end-2").touch()
        assert run.wait(60) == 0, cluster.log()
    finally:
        cluster.close()
