"""Rankguard beside its peers: one state, one machine, one run, in turns.

    python python/bench/peers.py --gib 2 --rounds 6 --out FOLDER

Every rank holds its part of a Llama-like state (bf16 weight, fp32 master and two moments a parameter) as DTensors. A turn is
a few methods and the limits of the machine in processes of their own: nothing that a method keeps is there in the next
turn. In each round of it every one of them saves once. The first round is shown apart and left out of the medians. Written
are `peers.csv` (every measurement), `peers.md` and `peers.svg`. What a method does not sync itself is synced by the
benchmark, files and folders, inside the time until durable. Loads are checked bit by bit. Rows that we lose stand where they
belong. With a `rankguard` (RANKGUARD_BIN, a build of this checkout, or in the path) the method under an agent runs, too.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
import ours  # noqa: E402
import torch  # noqa: E402

import cluster  # noqa: E402
import methods  # noqa: E402
import tables  # noqa: E402


def turns(chosen: list[Any], together: int) -> list[list[Any]]:
    """Methods that run side by side, the limits with each of them. Under an agent a job has one way to save."""
    limits = [one for one in chosen if one.limit]
    others = [one for one in chosen if not one.limit and not one.under_agent]
    found = [[*limits, *others[at : at + together]] for at in range(0, len(others), together)]
    found += [[*limits, one] for one in chosen if one.under_agent]
    return found or [limits]


def shared_memory() -> set[pathlib.Path]:
    """DLRover's segments."""
    return set(pathlib.Path("/dev/shm").glob("*_ckpt_shm_*"))


class Run:
    """All turns of one run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rows: list[dict[str, Any]] = []
        self.failed: dict[str, str] = {}
        self.bytes, self.tensors = 0, 0

    def take(self, turn: int, kinds: list[Any]) -> None:
        """One turn. If its ranks end before they have told anything, its methods are named in the table."""
        told = pathlib.Path(self.args.out, f"turn-{turn}.json")
        # Of a run that was ended from outside: its numbers would stand for a turn that failed.
        told.unlink(missing_ok=True)
        shutil.rmtree(self.args.scratch, ignore_errors=True)
        os.makedirs(self.args.scratch)
        start = self.under_agent if any(one.under_agent for one in kinds) else self.under_torchrun
        segments = shared_memory()
        problem = start(self.rank(turn, kinds, told))
        # DLRover leaves its copy of the state there, which is memory.
        for left in shared_memory() - segments:
            left.unlink(missing_ok=True)
        if told.exists():
            found = json.loads(told.read_text())
            told.unlink()
            self.rows += found["rows"]
            self.failed.update(found["failed"])
            self.bytes, self.tensors = found["bytes"], found["tensors"]
        else:
            self.failed.update({one.name: problem for one in kinds if not one.limit})
        shutil.rmtree(self.args.scratch, ignore_errors=True)

    def rank(self, turn: int, kinds: list[Any], told: pathlib.Path) -> list[str]:
        """The command of a rank."""
        args = self.args
        words = ["--gib", args.gib, "--rounds", args.rounds, "--matrix", args.matrix, "--turn", turn]
        words += ["--scratch", args.scratch, "--told", told, *(["--train"] if args.train else [])]
        words += ["--only", *(one.__name__ for one in kinds)]
        return [str(HERE / "rank.py"), *map(str, words)]

    def under_torchrun(self, rank: list[str]) -> str:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.args.ranks)]
        # What this run is started from may be a job itself.
        done = subprocess.run([*torchrun, *rank], env=cluster.clean())
        return f"the ranks ended with exit code {done.returncode}"

    def under_agent(self, rank: list[str]) -> str:
        if cluster.program() is None:
            return "there is no rankguard program; build one or name it in RANKGUARD_BIN"
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            with contextlib.closing(cluster.Cluster(pathlib.Path(folder), slots=self.args.ranks)) as daemons:
                command = [sys.executable, *rank, "--daemons", *map(str, daemons.pids)]
                store = pathlib.Path(self.args.scratch, ours.AGENT_STORE)
                keep = ["--keep", str(ours.AGENT_KEEP)]
                job = daemons.run(ours.AGENT_JOB, command, self.args.ranks, store, 1, *keep, restarts=0)
                code = job.wait()
                if code:
                    print(daemons.log(), file=sys.stderr)
        return f"`rankguard run` ended with exit code {code}"

    def write(self) -> None:
        """The measurements, the table and the plot."""
        with open(f"{self.args.out}/peers.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, ["method", "limit", "what", "turn", "round", "value"])
            writer.writeheader()
            writer.writerows(self.rows)
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        about = (
            f"{self.bytes / (1 << 30):.2f} GiB in {self.tensors} tensors on {self.args.ranks} ranks, "
            f"{self.args.rounds - 1} rounds after a first one that is shown apart, {self.args.together} methods at a time; "
            f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
            f"load average at the end {load}."
        )
        table = tables.Table(self.rows, self.failed, self.bytes)
        for name, text in (("peers.md", table.markdown(about)), ("peers.svg", table.svg())):
            pathlib.Path(self.args.out, name).write_text(text)
        print(table.markdown(about))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the state, over all ranks")
    parser.add_argument("--ranks", type=int, default=2, help="processes that hold it")
    parser.add_argument("--rounds", type=int, default=6, help="saves of each method; the first is shown apart")
    parser.add_argument("--out", default="peers", help="folder of the results")
    parser.add_argument("--scratch", help="where the folder of the saves is made, and removed [default: --out]")
    parser.add_argument("--together", type=int, default=3, help="methods that take turns, beside the limits")
    parser.add_argument("--only", nargs="*", help="names of classes in methods.py and ours.py")
    parser.add_argument("--train", action="store_true", help="measure the training time lost to a save too")
    parser.add_argument("--matrix", type=int, default=768, help="size of the product that is a step")
    args = parser.parse_args()
    args.out = os.path.abspath(args.out)
    # A folder of our own in it: it is removed again and again.
    args.scratch = os.path.abspath(f"{args.scratch or args.out}/scratch")
    os.makedirs(args.out, exist_ok=True)
    chosen = [one for one in methods.ALL if not args.only or one.__name__ in args.only]
    run = Run(args)
    for turn, kinds in enumerate(turns(chosen, args.together)):
        run.take(turn, kinds)
    run.write()


if __name__ == "__main__":
    main()
