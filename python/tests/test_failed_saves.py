"""Saves that look good: values of each rank under one name, and a rank that has ended with 0 while the others save on."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from typing import Any

import pytest

from cluster import Cluster, committed, program, ranks_of, until

pytestmark = pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")

EARLY = """
import json, os, sys, time, warnings
import numpy
import rankguard

rank = int(os.environ["RANK"])
rankguard.init()
state = {"w": numpy.zeros(100)}
assert rankguard.restore(state) is None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for n in range(1, 7):
        rankguard.step(n)
        if n % 2 == 0:
            rankguard.checkpoint(state)
        if rank == 1 and n == 3:
            sys.exit(0)
        time.sleep(0.3)
    end = time.monotonic() + 60
    while rankguard.counts()["failed"] < 2 and time.monotonic() < end:
        time.sleep(0.05)
    counts = rankguard.counts()
    rankguard.done()
result = {"counts": counts, "reason": counts.last_failure}
result["warnings"] = [str(it.message) for it in caught if issubclass(it.category, RuntimeWarning)]
with open(sys.argv[1], "w") as file:
    json.dump(result, file)
"""

OWN = """
import pathlib, sys, time
import numpy
import rankguard

rankguard.init()
state = {"w": numpy.random.default_rng().random(200_000)}
restored = rankguard.restore(state)
first = restored.step + 1 if restored else 1
print("restored", restored and restored.step, state["w"][:3].tolist(), flush=True)
for n in range(first, 7):
    rankguard.step(n)
    if n % 2 == 0:
        rankguard.checkpoint(state)
        print("saved", n, state["w"][:3].tolist(), flush=True)
    # The test lets the last steps begin.
    while n == 4 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
rankguard.done()
"""


def test_saves_without_a_rank_that_has_ended_are_failed_in_every_view(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=2)
    try:
        script, out, store = tmp_path / "early.py", tmp_path / "out.json", tmp_path / "store"
        script.write_text(EARLY)
        run = cluster.run("early", [sys.executable, str(script), str(out)], 2, store, 2)
        assert run.wait(120) == 0, cluster.log()
        result = json.loads(out.read_text())
        assert committed(store, "early") == [2], cluster.log()
        reason = "rank 1 ended with exit code 0 before it had saved this step"
        assert (result["counts"]["sealed"], result["counts"]["failed"]) == (3, 2), result
        assert result["reason"] == f"step 6: {reason}", result
        assert len(result["warnings"]) == 1 and reason in result["warnings"][0], result
        counts = cluster.job("early")["checkpoint_counts"]
        assert (counts["committed"], counts["void"], counts["newest_void"]["step"]) == (1, 2, 6), counts
        output = (tmp_path / "run-early.log").read_text()
        assert reason in output and "last commit step 2 of 6" in output, output
    finally:
        cluster.close()


def test_values_of_each_rank_are_no_silent_data_corruption(tmp_path: pathlib.Path) -> None:
    """Each rank starts at random: all checkpoints are usable, and a killed rank is a killed rank."""
    cluster = Cluster(tmp_path, slots=2)
    try:
        script, go, store = tmp_path / "own.py", tmp_path / "go", tmp_path / "store"
        script.write_text(OWN)
        run = cluster.run("own", [sys.executable, str(script), str(go)], 2, store, 2, "--output")
        until("the second commit", lambda: committed(store, "own") == [2, 4] or None)
        os.kill(ranks_of(str(script), tmp_path)[0], signal.SIGKILL)
        until("the restart", lambda: cluster.job("own")["generation"] == 2 or None, 120)
        go.touch()
        assert run.wait(120) == 0, cluster.log()
        output = (tmp_path / "run-own.log").read_text()
        for rank in range(2):
            saved = _values(output, rank, "saved 4 ")
            assert _values(output, rank, "restored 4 ") == saved, output
        assert "tensor w differs from rank to rank" in output, output
        view = cluster.job("own")
        assert (view["checkpoint_counts"]["void"], len(view["per_rank_tensors"])) == (0, 1), view
        classes = [case["verdict"]["class"] for case in cluster.ask("cases", "list")]
        assert "silent-data-corruption" not in classes and len(classes) == 1, classes
    finally:
        cluster.close()


def _values(output: str, rank: int, what: str) -> list[Any]:
    """The first values of a rank's tensor in the line of this kind."""
    for line in output.splitlines():
        before, found, values = line.partition(what)
        if found and f"rank {rank}]" in before:
            return json.loads(values)
    raise AssertionError(f"rank {rank} has no line with {what!r}: {output}")


FLIPS = """
import os, time
import numpy
import rankguard

rank, generation = int(os.environ["RANK"]), int(os.environ["RANKGUARD_GENERATION"])
rankguard.init()
state = {"w": numpy.zeros(400_000), "b": numpy.zeros(1_000)}
restored = rankguard.restore(state)
first = restored.step + 1 if restored else 1
print("restored", restored and restored.step, state["w"][:3].tolist(), flush=True)
for n in range(first, 9):
    state["w"] += 1.0
    if generation == 1 and rank == 1 and n == 6:
        state["w"][7] += 1e-9
    rankguard.step(n)
    if n % 2 == 0:
        rankguard.checkpoint(state)
    while generation == 1 and n == 6:
        time.sleep(0.1)
    time.sleep(0.05)
rankguard.done()
"""


def test_a_job_restarts_from_the_commit_before_a_save_that_was_refused_for_one_value(tmp_path: pathlib.Path) -> None:
    """RG-1: no reader of the store finds the save of step 6, and no rank trains on with its values."""
    cluster = Cluster(tmp_path, slots=2)
    try:
        script, store = tmp_path / "flips.py", tmp_path / "store"
        script.write_text(FLIPS)
        run = cluster.run("flips", [sys.executable, str(script)], 2, store, 2, "--output")
        assert run.wait(120) == 0, cluster.log()
        output = (tmp_path / "run-flips.log").read_text()
        for rank in range(2):
            assert _values(output, rank, "restored 4 ") == [4.0, 4.0, 4.0], output
        view = cluster.job("flips")
        assert (view["generation"], view["state"]) == (2, "finished"), view
        assert committed(store, "flips")[-1] == 8 and not list((store / "flips").glob("000000000006-g1/MANIFEST"))
        assert view["checkpoint_counts"]["void"] == 1, view["checkpoint_counts"]
        classes = [case["verdict"]["class"] for case in cluster.ask("cases", "list")]
        assert classes == ["silent-data-corruption"], classes
        assert "replicas that must be equal are not: tensor w differs between ranks 0 and 1" in output, output
    finally:
        cluster.close()


ABSENT = """
import os, pathlib, sys, time
import numpy
import rankguard

go, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
rankguard.init(when_full="wait", wait_s=60)
state = {"w": numpy.zeros(1_000)}
assert rankguard.restore(state) is None
saves = 0
while not go.exists():
    saves += 1
    state["w"] += 1.0
    rankguard.step(saves)
    assert rankguard.checkpoint(state).sealed
    (out / f"saves-{os.environ['RANK']}").write_text(str(saves))
    # The ranks of both nodes save the same steps.
    while any(int(p.read_text() or 0) < saves for p in out.glob("saves-*")) or len(list(out.glob("saves-*"))) < 2:
        if go.exists():
            break
        time.sleep(0.01)
    time.sleep(0.15)
rankguard.done()
"""


def test_saves_during_an_absence_of_the_controller_are_committed_or_counted(tmp_path: pathlib.Path) -> None:
    """RG-5: each save is a checkpoint, or is counted with its reason."""
    cluster = Cluster(tmp_path, slots=1, nodes=2)
    try:
        script, go, store = tmp_path / "absent.py", tmp_path / "go", tmp_path / "store"
        script.write_text(ABSENT)
        saves = lambda: max((int(path.read_text() or 0) for path in tmp_path.glob("saves-*")), default=0)  # noqa: E731
        command = [sys.executable, str(script), str(go), str(tmp_path)]
        run = cluster.run("absent", command, 1, store, 1, "--nodes", "2", "--keep", "3")
        until("two commits", lambda: len(committed(store, "absent")) >= 2 or None)
        cluster.kill_controller()
        before = saves()
        until("saves without a controller", lambda: saves() >= before + 6 or None)
        cluster.return_controller()
        known = lambda: cluster.job("absent")["checkpoint_counts"]  # noqa: E731
        until("a later commit", lambda: (known()["newest_committed"] or 0) > before + 6 or None)
        go.touch()
        assert run.wait(120) == 0, cluster.log()
        counts = until("all saves", lambda: ((found := known())["committed"] + found["void"] >= saves() and found) or None)
        assert counts["committed"] + counts["void"] == saves(), (counts, saves())
        # One agent reports its saves before the other; the last step may be saved by one rank alone.
        overtaken = [reason for reason in counts["reasons"] if "later steps took its place" in reason]
        assert all("the controller was restarted at" in reason for reason in overtaken), counts
    finally:
        cluster.close()
