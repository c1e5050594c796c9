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
