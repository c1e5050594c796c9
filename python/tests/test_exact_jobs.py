"""State that differs from rank to rank and plain state that grows, through real agents and kills."""

import json
import sys

import pytest

import cluster

SCRIPT = """
import glob, json, os, signal, sys, time
import numpy as np
import rankguard

store, out = sys.argv[1:]
rank, generation = int(os.environ["RANK"]), int(os.environ["RANKGUARD_GENERATION"])

def expected(n):
    losses = [1 / (1 + at) for at in range(4_000 * n)]
    return {"w": np.full(1000, n), "bn": {"mean": np.full(100_000, 10.0 * n + rank)}, "losses": losses, "seen": rank}

rankguard.init()
state = {"w": np.zeros(1000, dtype=np.int64), "bn": {"mean": np.zeros(100_000)}, "losses": [], "seen": -1}
restored = rankguard.restore(state)
if restored is not None:
    want = expected(restored.step)
    assert state["losses"] == want["losses"] and state["seen"] == rank, "plain state"
    assert np.array_equal(state["w"], want["w"]) and np.array_equal(state["bn"]["mean"], want["bn"]["mean"]), "tensors"
    with open(f"{out}/restored-{rank}.json", "w") as file:
        json.dump(restored.step, file)
for n in range(restored.step + 1 if restored else 1, 13):
    rankguard.step(n)
    if rankguard.due():
        rankguard.checkpoint(expected(n), step=n)
    while generation == 1 and n == 8 and rank == 1 and not glob.glob(f"{store}/train/*/MANIFEST"):
        time.sleep(0.02)
    if generation == 1 and n == 8 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
rankguard.done()
"""


@pytest.mark.parametrize("options", [(), ("--checkpoint-window", "1")], ids=["whole", "window"])
def test_each_rank_gets_its_own_after_a_kill(tmp_path, options):
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    script, store, out = tmp_path / "job.py", tmp_path / "store", tmp_path / "out"
    store.mkdir()
    out.mkdir()
    script.write_text(SCRIPT)
    running = cluster.Cluster(tmp_path)
    try:
        job = running.run("train", [sys.executable, str(script), str(store), str(out)], 2, store, 2, *options)
        try:
            assert job.wait(timeout=400) == 0, running.log()
        finally:
            job.kill()
            job.wait()
    finally:
        running.close()
    steps = [json.loads((out / f"restored-{rank}.json").read_text()) for rank in (0, 1)]
    assert steps[0] == steps[1] >= 2
    assert cluster.committed(store, "train")[-1] == 12


ELASTIC = """
import os, sys, time
import numpy as np
import rankguard

stop, replicate = sys.argv[1], sys.argv[2:]
rank = int(os.environ["RANK"])
rankguard.init()
state = {"w": np.zeros(1000), "bn": {"mean": np.zeros(50_000)}}
restored = rankguard.restore(state, replicate=replicate)
print("restored", restored and restored.step, "of", os.environ["WORLD_SIZE"], flush=True)
n = restored.step if restored else 0
while not os.path.exists(stop):
    n += 1
    state["w"] += 1
    state["bn"]["mean"][:] = 10.0 * n + rank
    rankguard.step(n)
    rankguard.checkpoint(state)
    time.sleep(0.2)
rankguard.done()
"""


def test_an_elastic_job_keeps_the_ranks_that_alone_can_restore_its_checkpoint(tmp_path):
    """A lost node is awaited; with ``replicate=`` the same job goes on with the ranks that are left."""
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    script, stop, store = tmp_path / "job.py", tmp_path / "stop", tmp_path / "store"
    store.mkdir()
    script.write_text(ELASTIC)
    settings = cluster.SETTINGS.replace("pending_ms = 2_000", "pending_ms = 60_000")
    running = cluster.Cluster(tmp_path, slots=1, nodes=2, settings=settings)
    commits = lambda name: len(cluster.committed(store, name)) >= 2 or None  # noqa: E731
    state = lambda name: running.job(name)["state"]  # noqa: E731
    try:
        command = [sys.executable, str(script), str(stop)]
        job = running.run("own", command, 1, store, 1, "--nodes", "1:2")
        cluster.until("two commits", lambda: commits("own"))
        running.kill_agent("n2")
        cluster.until("the wait for a node", lambda: state("own") == "pending" or None)
        view = running.job("own")
        assert "because tensor bn.mean differs from rank to rank" in view["reason"], view["reason"]
        assert "can be restored by 2 ranks only" in view["reason"], view["reason"]
        case = running.ask("cases", "list")[-1]
        shrink = next(option for option in case["recovery"]["options"] if option["kind"] == "shrink")
        assert shrink["outcome"] == "unavailable" and "tensor bn.mean" in shrink["reason"], shrink
        running.return_agent("n2")
        again = lambda: (found := running.job("own"))["generation"] > 1 and found["state"] == "running"  # noqa: E731
        cluster.until("the restart on two nodes", lambda: again() or None)
        assert len(running.job("own")["placements"]) == 2
        stop.touch()
        assert job.wait(timeout=120) == 0, running.log()
        stop.unlink()

        job = running.run("first", [*command, "bn.*"], 1, store, 1, "--nodes", "1:2")
        cluster.until("two commits", lambda: commits("first"))
        running.kill_agent("n2")
        cluster.until("the restart on one node", lambda: len(running.job("first")["placements"]) == 1 or None)
        cluster.until("its steps", lambda: state("first") == "running" or None)
        stop.touch()
        assert job.wait(timeout=120) == 0, running.log()
    finally:
        running.close()
