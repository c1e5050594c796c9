"""A checkpoint store on a disk that is really full: what the trainer, `run` and `status` report, and what stays intact."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster, clean, committed, program, until

pytestmark = pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")

STEPS = 30
#: A rank's image is 320,000 bytes; a few checkpoints of two ranks fit.
DISK_BYTES = 3 << 20

RANK = """
import json, os, pathlib, sys, time, warnings
import numpy
import rankguard

steps, out, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
rankguard.init(when_full="wait", wait_s=30)
state = {"weights": numpy.zeros(40_000)}
assert rankguard.restore(state) is None
source = numpy.random.default_rng(7)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for n in range(1, steps + 1):
        state["weights"][:] = source.random(40_000)
        rankguard.step(n)
        assert rankguard.checkpoint(state).sealed
        time.sleep(0.05)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        counts = rankguard.counts()
        if counts["failed"] + len(list(pathlib.Path(store).glob("full/*/MANIFEST"))) == counts["sealed"]:
            break
        time.sleep(0.05)
    rankguard.done()
found = {"counts": counts, "last_failure": counts.last_failure}
found["warnings"] = [str(it.message) for it in caught if issubclass(it.category, RuntimeWarning)]
with open(f"{out}/rank-{os.environ['RANK']}.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of a few MiB of its own."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        reason = f"no file system can be mounted here ({mounted.stderr.strip()}), so a full disk is not tested"
        warnings.warn(f"SKIPPED: {reason}", stacklevel=1)
        pytest.skip(reason)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("nodes", [1, 2], ids=["both ranks on one node", "each rank on its own node"])
def test_void_checkpoints_are_counted_with_their_reason(tmp_path, small_disk, nodes: int) -> None:
    cluster = Cluster(tmp_path, slots=2 // nodes, nodes=nodes)
    try:
        script, store = tmp_path / "rank.py", small_disk / "store"
        script.write_text(RANK)
        store.mkdir()
        command = [sys.executable, str(script), str(STEPS), str(tmp_path), str(store)]
        run = cluster.run("full", command, 2 // nodes, store, 1, "--nodes", str(nodes), "--keep", "100", restarts=0)
        assert run.wait(120) == 0, cluster.log()
        kept = committed(store, "full")
        assert 0 < len(kept) < STEPS, cluster.log()
        for rank in range(2):
            found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
            counts = found["counts"]
            assert counts["sealed"] == STEPS, counts
            assert counts["failed"] == STEPS - len(kept), (counts, kept)
            assert "no space for" in found["last_failure"], found
            assert len(found["warnings"]) == 1, found["warnings"]
            assert "is void" in found["warnings"][0] and "no space for" in found["warnings"][0], found["warnings"]
        last = f"last commit step {kept[-1]} of {STEPS}"
        output = (tmp_path / "run-full.log").read_text()
        assert "no space for" in output, output
        # Removed attempts make room, so the last checkpoint can be committed.
        ends_without = kept[-1] < STEPS
        assert (last in output) == ends_without, output
        assert (last in _status(cluster)) == ends_without, _status(cluster)
        view = cluster.job("full")
        assert (view["state"], view["generation"]) == ("finished", 1), view
        found = view["checkpoint_counts"]
        assert (found["committed"], found["void"]) == (len(kept), STEPS - len(kept)), found
        # What was committed is whole; the others are torn, and say so.
        verified = [program(), "checkpoint", "verify", "--dir", str(store), "--format", "json"]
        done = subprocess.run(verified, capture_output=True, text=True, env=clean(), timeout=60)
        states = [line["state"] for line in json.loads(done.stdout)]
        assert states.count("intact") == len(kept) and "damaged" not in states, done.stdout
    finally:
        cluster.close()


SAVES_ON = """
import sys, time
import numpy
import rankguard

rankguard.init(when_full="wait", wait_s=30)
state = {"weights": numpy.zeros(40_000)}
restored = rankguard.restore(state)
source = numpy.random.default_rng(7)
for n in range(restored.step + 1 if restored else 1, 100_000):
    state["weights"][:] = source.random(40_000)
    rankguard.step(n)
    rankguard.checkpoint(state)
    time.sleep(0.2)
"""


def test_what_an_ended_generation_left_does_not_fill_the_store_for_good(tmp_path, small_disk) -> None:
    cluster = Cluster(tmp_path, slots=2)
    try:
        script, store = tmp_path / "rank.py", small_disk / "store"
        script.write_text(SAVES_ON)
        store.mkdir()
        cluster.run("left", [sys.executable, str(script)], 2, store, 1, "--keep", "2")
        until("a commit", lambda: committed(store, "left") or None, 120)
        # As much as two agents write while no controller commits, of a generation before this one and newer than its commits.
        left = store / "left" / "000000900000-g0"

        def fill() -> bool | None:
            """Takes the room of all but two checkpoints; others are removed meanwhile, and this one may be."""
            shard = left / "rank-00000.shard"
            try:
                left.mkdir(exist_ok=True)
                with open(shard, "ab", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            except OSError:
                return (shard.exists() and shard.stat().st_size > 1_500_000) or None

        until("a full store", fill, 120)
        before = committed(store, "left")[-1]
        until("commits after it", lambda: committed(store, "left")[-1] > before + 5 or None, 120)
        assert not left.exists()
    finally:
        cluster.close()


ALTERNATING = """
import os, sys, time
import numpy
import rankguard

rankguard.init()
state = {"weights": numpy.zeros(8)}
rankguard.restore(state)
for n in range(1, 26):
    rankguard.step(n)
    if n % 2 == int(os.environ["RANK"]):
        rankguard.checkpoint(state)
    time.sleep(0.02)
rankguard.done()
"""


def test_checkpoints_that_one_rank_leaves_out_are_reported(tmp_path) -> None:
    cluster = Cluster(tmp_path, slots=2)
    try:
        script = tmp_path / "rank.py"
        script.write_text(ALTERNATING)
        run = cluster.run("odd", [sys.executable, str(script)], 2, tmp_path / "store", 1, restarts=0)
        assert run.wait(120) == 0, cluster.log()
        output = (tmp_path / "run-odd.log").read_text()
        assert "no checkpoint was committed" in output and "saved step" in output, output
        view = cluster.job("odd")
        assert view["checkpoint_counts"]["committed"] == 0 and view["checkpoint_counts"]["void"] > 5, view
    finally:
        cluster.close()


def test_a_local_store_counts_them_too(small_disk: pathlib.Path) -> None:
    numpy: Any = pytest.importorskip("numpy")
    import rankguard

    session = rankguard.connect(small_disk / "store", job="full", rank=0, world_size=1)
    source = numpy.random.default_rng(7)
    assert session.counts().last_failure is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 16):
            session.checkpoint({"weights": source.random(40_000)}, step=n)
            until("the end of the write", lambda: session.idle() or None)
        counts = session.counts()
        with pytest.raises(rankguard.RankguardError, match="step 15 was not made durable: no space for"):
            session.done()
    kept = committed(small_disk / "store", "full")
    assert 0 < len(kept) < 15
    # Each with a warning of a save, its own if the write ended first; the last is an error of `done` as well.
    reported = [text for text in (str(warning.message) for warning in caught) if "was not made durable" in text]
    assert counts["failed"] == 15 - len(kept), (counts, reported)
    assert len(reported) in (counts["failed"] - 1, counts["failed"]), (counts, reported)
    assert "no space for" in counts.last_failure
    # It is named by its step.
    assert counts.last_failure.startswith("step 15: ")


def _status(cluster: Cluster) -> str:
    args = [program(), "status", "--all", "--controller", cluster.address]
    return subprocess.run(args, check=True, capture_output=True, text=True, env=clean(), timeout=60).stdout
