"""A state of 100,000 tensors: saved at once, committed and restored, with an agent and without one."""

from __future__ import annotations

import json
import pathlib
import sys
import time

import pytest

from cluster import Cluster, committed, program

numpy = pytest.importorskip("numpy", reason="numpy is not installed")

TENSORS = 100_000
#: Longest time of a save or restore, seconds, in a debug build on a busy machine of 2 cores.
LIMIT_S = 120.0

RANK = """
import json, os, pathlib, signal, sys, time
import numpy
import rankguard

tensors, out, store = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
rankguard.init(when_full="wait", wait_s=60)
state = {"tensors": {f"layers.{n}.weight": numpy.zeros(1, dtype="int64") for n in range(tensors)}}
began = time.monotonic()
restored = rankguard.restore(state)
took = time.monotonic() - began
if restored is None:
    for n, tensor in enumerate(state["tensors"].values()):
        tensor[:] = n
    rankguard.step(1)
    began = time.monotonic()
    saved = rankguard.checkpoint(state)
    assert saved.sealed, saved
    pathlib.Path(out, "save.json").write_text(json.dumps(time.monotonic() - began))
    while not list(store.glob("many/*/MANIFEST")):
        counts = rankguard.counts()
        assert counts["failed"] == 0, counts.last_failure
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
assert restored.step == 1
wrong = [name for n, (name, tensor) in enumerate(state["tensors"].items()) if tensor[0] != n]
pathlib.Path(out, "restore.json").write_text(json.dumps([took, len(state["tensors"]), wrong[:5]]))
rankguard.done()
"""


@pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")
def test_a_rank_that_is_killed_has_all_of_them_again(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, slots=1)
    try:
        script, store = tmp_path / "rank.py", tmp_path / "store"
        script.write_text(RANK)
        command = [sys.executable, str(script), str(TENSORS), str(tmp_path), str(store)]
        run = cluster.run("many", command, 1, store, 1)
        assert run.wait(300) == 0, cluster.log()
        assert committed(store, "many") == [1]
        assert json.loads((tmp_path / "save.json").read_text()) < LIMIT_S
        took, count, wrong = json.loads((tmp_path / "restore.json").read_text())
        assert took < LIMIT_S and (count, wrong) == (TENSORS, []), (took, count, wrong)
    finally:
        cluster.close()


def test_a_local_store_has_all_of_them_again(tmp_path: pathlib.Path) -> None:
    import rankguard

    state = {f"layers.{n}.weight": numpy.full(1, n, dtype="int64") for n in range(TENSORS)}
    session = rankguard.connect(tmp_path / "store", job="many", rank=0, world_size=1)
    began = time.monotonic()
    assert session.checkpoint(state, step=1).sealed and session.wait() == 1
    saved_s = time.monotonic() - began
    live = {name: numpy.zeros(1, dtype="int64") for name in state}
    began = time.monotonic()
    restored = session.restore(live)
    restored_s = time.monotonic() - began
    session.done()
    assert restored is not None and restored.step == 1
    assert all(live[name][0] == n for n, name in enumerate(state))
    assert saved_s < LIMIT_S and restored_s < LIMIT_S, (saved_s, restored_s)
