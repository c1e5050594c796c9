"""A rank that dies while the others of its node restore: the next generation has all its room for images."""

from __future__ import annotations

import pathlib
import sys

import pytest

from cluster import Cluster, committed, program

pytestmark = pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")

EVERY = 35
FIRST, STEPS = 40, 150

RANK = """
import os, signal, sys, time
import numpy
import rankguard

rankguard.init()
generation, rank = int(os.environ["RANKGUARD_GENERATION"]), int(os.environ["RANK"])
steps, dies = int(sys.argv[1]), sys.argv[2] == "dies"
state = {"weights": numpy.zeros(2_000)}
if dies and generation == 2 and rank == 1:
    # Rank 0 needs the same bytes, and its agent waits up to 3 s for this rank.
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
found = rankguard.restore(state)
for n in range(found.step + 1 if found else 1, steps + 1):
    state["weights"] += 1
    time.sleep(0.1)
    rankguard.step(n)
    if rankguard.due():
        rankguard.checkpoint(state)
rankguard.done()
"""


def test_a_rank_that_dies_in_a_restore_takes_no_room_from_the_next_generation(tmp_path: pathlib.Path) -> None:
    script, store = tmp_path / "rank.py", tmp_path / "store"
    script.write_text(RANK)
    store.mkdir()
    cluster = Cluster(tmp_path, slots=2, nodes=1)

    def train(name: str, steps: int, how: str, *words: str) -> None:
        command = [sys.executable, str(script), str(steps), how]
        run = cluster.run(name, command, 2, store, EVERY, "--keep", "100", *words, restarts=5)
        assert run.wait(180) == 0, cluster.log()

    try:
        train("first", FIRST, "lives")
        # Another job has no image in memory, so its ranks read together. Its first generation is the second of the run.
        train("second", STEPS, "dies", "--resume-from", "first")
        assert cluster.job("second")["generation"] == 3, cluster.log()
        kept = committed(store, "second")
        assert kept == list(range(EVERY, STEPS, EVERY)), (kept, cluster.log())
    finally:
        cluster.close()
