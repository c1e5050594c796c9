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
