"""Forks and signals of a rank that an agent serves."""

import sys

import pytest

import cluster

pytestmark = pytest.mark.skipif(cluster.program() is None, reason="there is no rankguard to test: cargo build")

EACH_STEP = """
import os, pathlib, time
import numpy, rankguard

rank, generation = int(os.environ["RANK"]), os.environ["RANKGUARD_GENERATION"]
rankguard.init()
state = {"w": numpy.zeros(1000), "step": 0}
rankguard.restore(state)

def barrier(n):
    pathlib.Path(f"{generation}-{n}-{rank}").touch()
    while not pathlib.Path(f"{generation}-{n}-{1 - rank}").exists():
        time.sleep(0.001)

for n in range(state["step"] + 1, 100_000):
    state["step"] = n
    barrier(n)
    rankguard.step(n)
    rankguard.checkpoint(state)
"""

RANK = """
import multiprocessing, os, signal, socket, sys, threading, time
import numpy, rankguard

session = rankguard.init()
state = {"w": numpy.zeros(1000)}
assert rankguard.restore(state) is None

def sockets():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink("/proc/self/fd/" + name))
        except OSError:
            pass
    maps = open("/proc/self/maps").read()
    return {one for one in found if one.startswith("socket:")}, maps.count("memfd:")

def refused(call):
    try:
        call()
    except rankguard.RankguardError as problem:
        assert "is a fork of the rank's process" in str(problem), problem
        return True
    return False

def worker(n):
    return all(map(refused, [lambda: rankguard.step(900), lambda: rankguard.checkpoint(state, step=900), rankguard.finish]))

mine, arenas = sockets()
assert mine and arenas, (mine, arenas)
child = os.fork()
if child == 0:
    theirs, maps = sockets()
    assert not mine & theirs and maps == 0, (mine, theirs, maps)
    assert worker(0) and refused(lambda: rankguard.init())
    rankguard.done()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(worker, range(4)) == [True] * 4
for n in range(1, 4):
    state["w"] += 1
    rankguard.step(n)
    saved = rankguard.checkpoint(state)
    assert saved.sealed or n > 1, saved
    time.sleep(0.2)
rankguard.done()
"""


def test_forks_of_a_rank_keep_nothing_of_its_session_and_do_not_speak_for_it(tmp_path):
    import sys

    script = tmp_path / "rank.py"
    script.write_text(RANK)
    store = tmp_path / "store"
    running = cluster.Cluster(tmp_path)
    try:
        job = running.run("forks", [sys.executable, str(script)], 1, store, 1, restarts=0)
        assert job.wait(120) == 0, running.log()
        cluster.until("a commit", lambda: cluster.committed(store, "forks") or None)
        steps = cluster.committed(store, "forks")
        assert steps and set(steps) <= {1, 2, 3}, running.log()
    finally:
        running.close()


def test_a_job_that_saves_each_step_commits_on_after_its_agent_was_killed(tmp_path) -> None:
    site = cluster.Cluster(tmp_path)
    try:
        script, store = tmp_path / "each.py", tmp_path / "store"
        script.write_text(EACH_STEP)
        run = site.run("each", [sys.executable, str(script)], 2, store, 1, "--keep", "5")

        def newest() -> int:
            return max(cluster.committed(store, "each"), default=0)

        def await_commits(count: int) -> None:
            start = newest()
            cluster.until(f"{count} more commits", lambda: newest() >= start + count or None, 20)

        for _ in range(3):
            await_commits(10)
            site.kill_agent("n1")
            site.return_agent("n1")
        await_commits(20)
        assert run.poll() is None
        site.cancel("each")
        run.wait(60)
    finally:
        site.close()
