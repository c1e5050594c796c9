"""Jobs without a checkpoint store, and which rank is blamed for a kill: real processes, gloo."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from cluster import ROOT, Cluster, program, ranks_of, until

pytestmark = pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")

STORELESS = """
import json, sys, warnings
import numpy
import rankguard
warnings.simplefilter("always")
rankguard.init()
saved = []
with warnings.catch_warnings(record=True) as caught:
    for n in range(1, 5):
        rankguard.step(n)
        saved.append(rankguard.checkpoint({"w": numpy.ones(4)}, step=n))
assert rankguard.begin({"w": numpy.ones(4)}, step=5).reason == saved[0].reason
assert rankguard.finish() is None
counts = rankguard.counts()
result = {"sealed": [it.sealed for it in saved], "reasons": sorted({it.reason for it in saved}), "counts": counts}
result["warnings"] = [str(it.message) for it in caught if issubclass(it.category, RuntimeWarning)]
with open(sys.argv[1], "w") as file:
    json.dump(result, file)
rankguard.done()
"""


def test_a_job_without_a_store_trains_on_and_ends(tmp_path: pathlib.Path) -> None:
    import json

    cluster = Cluster(tmp_path, slots=1)
    try:
        script, out = tmp_path / "storeless.py", tmp_path / "out.json"
        script.write_text(STORELESS)
        words = [
            program(),
            "run",
            "--controller",
            cluster.address,
            "--name",
            "storeless",
            "--",
            sys.executable,
            str(script),
            str(out),
        ]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr + cluster.log()
        result = json.loads(out.read_text())
        assert result["sealed"] == [False] * 4
        assert len(result["reasons"]) == 1 and "--checkpoint-dir" in result["reasons"][0]
        assert len(result["warnings"]) == 1 and "--checkpoint-dir" in result["warnings"][0], result["warnings"]
        assert (result["counts"]["sealed"], result["counts"]["skipped"]) == (0, 5)
        # Nothing is left on its way, which `run` would wait for.
        assert [job["saving"] for job in cluster.ask("status", "jobs")] == [None]
    finally:
        cluster.close()


@pytest.mark.torch
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_killed_rank_is_blamed(tmp_path: pathlib.Path, ranks: int) -> None:
    cluster = Cluster(tmp_path, slots=ranks)
    script = str(ROOT / "examples" / "ddp.py")
    try:
        command = [sys.executable, script, "--steps", "1000000", "--step-ms", "10"]
        follow = cluster.run("ddp", command, ranks, tmp_path / "store", 20, restarts=20)
        for victim in (0, ranks - 1):
            _running(cluster, script, ranks)
            known = {case["id"] for case in cluster.ask("cases")}
            os.kill(ranks_of(script, tmp_path)[victim], signal.SIGKILL)
            case = until("the verdict", lambda known=known: _verdict(cluster, known), 120)
            verdict = case["verdict"]
            assert (verdict["class"], verdict["blamed"].get("rank")) == ("killed-by-signal", victim), case["findings"]
        follow.send_signal(signal.SIGINT)
        follow.wait(60)
    finally:
        cluster.close()


def _running(cluster: Cluster, script: str, ranks: int) -> None:
    def look():
        return True if cluster.job("ddp").get("state") == "running" and len(ranks_of(script, cluster.folder)) == ranks else None

    until("the job to run", look, 240)


def _verdict(cluster: Cluster, known: set):
    new = [case for case in cluster.ask("cases") if case["id"] not in known and case["state"] != "open"]
    return new[-1] if new else None
