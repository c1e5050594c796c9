"""Seconds from a SIGKILL below `torchrun --rdzv-backend=rankguard` to the first step of the next world, on loopback with gloo:

    RANKGUARD_BIN=target/release/rankguard python python/bench/rounds.py [RUNS]

The script of the job imports torch, which is part of every figure. Needs torch and the installed package.
"""

from __future__ import annotations

import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

from test_torchrun import LONG, Job, pids, states

from cluster import Cluster, until

# What is killed, and the options of the run.
CASES = {
    "a worker": "2:2",
    "a torchrun with its worker": "1:2",
    "the torchrun that serves the store, with its worker": "1:2",
    "the same, with a spare": "2:2",
}


def measure(case: str) -> float:
    """One run of a case."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster = Cluster(folder, slots=1, nodes=0)
        job = Job(folder, cluster.address, CASES[case])
        try:
            job.start("n1")
            job.start("n2")
            before = job.await_world("n1", "n2")
            if "spare" in case:
                job.start("n3")
                until("the spare", lambda: states(cluster).get("n3") == "spare" or None, LONG)
            host, other = sorted(before, key=lambda node: before[node]["rank"])
            begin = time.monotonic()
            if case == "a worker":
                os.kill(before[other]["pid"], signal.SIGKILL)
                left, world = host, 2
            elif case.startswith("a torchrun"):
                job.kill(other)
                left, world = host, 1
            else:
                job.kill(host)
                left, world = other, 2 if "spare" in case else 1
            old = pids(before)
            while not any(one["pid"] not in old and one["world"] == world for one in job.steps(left)):
                time.sleep(0.01)
            return time.monotonic() - begin
        finally:
            job.close()
            cluster.close()


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for case in CASES:
        seconds = [measure(case) for _ in range(runs)]
        print(f"{case}: {statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f}, {runs} runs)", flush=True)


if __name__ == "__main__":
    main()
