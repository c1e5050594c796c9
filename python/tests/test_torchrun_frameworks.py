"""Stock scripts of the acceptance table under `torchrun --rdzv-backend=rankguard`: killed worker, lost node, its return.

The scripts have no line of Rankguard; each resumes from its own checkpoints. Every row holds the same promises: one round for
each failure, the newest checkpoint never goes back, little more than an interval is repeated, and with the same number of
ranks a repeated step gives the same weights, bit by bit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

import pytest
from test_acceptance import REPEATED_MAX, assert_samples_once
from test_torchrun import LONG, run_of

import acceptance
from acceptance import EVERY, FRAMEWORKS, STEP_MS, Framework, StepLine, effective_steps, repeated_steps
from cluster import Cluster, clean, program, until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.acceptance,
    pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)"),
]

STOCK = [framework for framework in FRAMEWORKS if framework.own is not None]


class Course:
    """Torchruns of one worker each on the nodes of a run, with a stock script."""

    def __init__(self, framework: Framework, folder: pathlib.Path) -> None:
        self.framework = framework
        self.cluster = Cluster(folder, slots=1, nodes=0)
        self._folder = folder
        self._torchruns: dict[str, subprocess.Popen] = {}
        self._own, self._out = folder / "own", folder / "out"
        self._own.mkdir()
        self._out.mkdir()

    def start(self, node: str) -> None:
        words = [f"--rdzv-endpoint={self.cluster.address}", "--rdzv-id=job", "--nnodes=1:2", "--max-restarts=5"]
        words += ["--rdzv-backend=rankguard", f"--rdzv-conf=node={node},last_call_timeout=3", "--nproc-per-node=1"]
        words += [self.framework.path, "--steps=100000", f"--step-ms={STEP_MS}", f"--out={self._out}", f"--own={self._own}"]
        command = [sys.executable, "-m", "torch.distributed.run", *words]
        env = {**clean(), "RANKGUARD_BIN": str(program()), "OMP_NUM_THREADS": "1"}
        with open(self._folder / f"torchrun-{node}.log", "a") as log:
            self._torchruns[node] = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)

    def records(self) -> list[StepLine]:
        """All steps, with the number of the start among those of the world in the place of a generation.

        The workers of a round start when those of the round before have ended.
        """
        starts = []
        for file in self._out.glob("*.jsonl"):
            lines = []
            for text in file.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    lines.append(json.loads(text))
            steps = [StepLine(**{**line, "ids": tuple(line["ids"])}) for line in lines if "step" in line]
            if steps:
                starts.append((lines[0]["began"], steps))
        found: list[StepLine] = []
        generation, members = 0, set[tuple[int, int]]()
        for _, steps in sorted(starts, key=lambda start: start[0]):
            rank, world = steps[0].rank, steps[0].world
            if not members or any(known[0] == rank or known[1] != world for known in members):
                generation, members = generation + 1, set()
            members.add((rank, world))
            found += [replace(line, generation=generation) for line in steps]
        return sorted(found, key=lambda line: (line.generation, line.step, line.rank))

    def saved(self) -> int:
        """Step of the newest checkpoint; 0 for none."""
        files = self._own.glob(str(self.framework.own))
        return max((acceptance._step_of(file.relative_to(self._own)) for file in files), default=0)

    def await_world(self, world: int, above: int, steps: int) -> int:
        """Waits until workers of a later start have taken so many steps in such a world; returns the number of the start."""

        def look() -> Optional[int]:
            for node, torchrun in self._torchruns.items():
                assert torchrun.poll() is None, f"torchrun of {node} ended with {torchrun.returncode}\n{self.log()}"
            lines = [line for line in self.records() if line.generation > above]
            enough = len({line.step for line in lines}) >= steps and all(line.world == world for line in lines)
            return lines[-1].generation if enough else None

        try:
            return until(f"a world of {world} above start {above}", look, LONG)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def await_save(self, above: int) -> int:
        """Waits for a checkpoint after this step, and for a step or two behind it: a kill inside a save is another matter."""

        def look() -> Optional[int]:
            saved = self.saved()
            newest = self.records()[-1].step
            return saved if saved > above and newest % EVERY in (1, 2) else None

        return until(f"a checkpoint after step {above}", look, LONG)

    def kill_worker(self) -> None:
        _kill(_children(self._torchruns["n2"].pid)[-1])

    def kill_node(self) -> None:
        torchrun = self._torchruns.pop("n2")
        children = _children(torchrun.pid)
        torchrun.kill()
        for child in children:
            _kill(child)
        torchrun.wait(30)

    def log(self) -> str:
        files = [*sorted(self._folder.glob("torchrun-*.log")), self._folder / "controller.log"]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-8_000:]}" for file in files)

    def close(self) -> None:
        for torchrun in self._torchruns.values():
            children = _children(torchrun.pid)
            torchrun.kill()
            for child in children:
                _kill(child)
            torchrun.wait(30)
        self.cluster.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """Children of a process, oldest first: of torchrun its helper process and its worker."""
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextlib.contextmanager
def course_of(framework: Framework, folder: pathlib.Path) -> Iterator[Course]:
    with contextlib.closing(Course(framework, folder)) as course:
        yield course


@pytest.mark.parametrize(
    "framework",
    # Nothing of torchrun differs with the others, and they take longer to import.
    [pytest.param(one, id=one.name, marks=[pytest.mark.long] * (one.name != "stock-ddp")) for one in STOCK],
)
def test_a_stock_script_goes_on_from_its_own_checkpoint(framework: Framework, tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec(framework.module) is None:
        pytest.skip(f"{framework.module} is not installed (python/tests/torch_env.sh makes an environment)")
    with course_of(framework, tmp_path) as course:
        course.start("n1")
        course.start("n2")
        first = course.await_world(2, 0, EVERY)
        before_kill = course.await_save(EVERY)

        course.kill_worker()
        second = course.await_world(2, first, EVERY)
        assert course.saved() >= before_kill
        before_loss = course.await_save(before_kill + EVERY)

        course.kill_node()
        third = course.await_world(1, second, EVERY)
        assert course.saved() >= before_loss
        before_growth = course.await_save(before_loss + EVERY)

        course.start("n2")
        fourth = course.await_world(2, third, EVERY)
        assert course.saved() >= before_growth
        course.await_save(before_growth + EVERY)
        assert (first, second, third, fourth) == (1, 2, 3, 4), course.log()
        assert run_of(course.cluster)["round"] == 4, course.log()
        lines = course.records()

    repeated = repeated_steps(lines)
    print(f"{framework.name}: steps repeated by start: {repeated}")
    assert max(repeated.values()) <= REPEATED_MAX, repeated
    one = {(line.step, line.rank): line for line in lines if line.generation == first}
    again = [line for line in lines if line.generation == second and (line.step, line.rank) in one]
    assert again, "no step was repeated with the same number of ranks, so nothing was compared"
    for line in again:
        known = one[line.step, line.rank]
        assert (line.digest, line.ids) == (known.digest, known.ids), f"step {line.step} of rank {line.rank} differs"
    steps = effective_steps(lines)
    assert sorted(steps) == list(range(1, max(steps) + 1)), "steps without a record"
    if framework.counts_samples:
        assert_samples_once(lines)
