"""The course of one framework through the acceptance table, and the judgement of what its ranks recorded."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional

import cluster

JOBS = pathlib.Path(__file__).resolve().parent / "acceptance_jobs"
#: Steps between checkpoints, as `record.EVERY`.
EVERY = 5
STEPS = 150
STEP_MS = 30
# Longest wait for a step: importing torch in twelve processes on two cores took over two minutes.
WAIT_S = 420
SETTINGS = """
[controller]
silence_limit_ms = 8_000
[controller.policy]
gather_ms = 20_000
pending_ms = 120_000
settle_ms = 300
user_retries = 5
grow_ms = 500
[agent.intervals]
arenas_kept_ms = 0
"""


@dataclass(frozen=True)
class Framework:
    """One row of the table."""

    name: str
    script: str
    module: str = "torch"
    options: tuple[str, ...] = ()
    #: Files of a script without Rankguard that are there when one of its own checkpoints is whole: a pattern below the folder
    #: that the script is given, with the step in the name. None for a script that saves to the store of Rankguard.
    own: Optional[str] = None
    #: Whether a sample is consumed once in each epoch at another world size. The Trainer counts batches, not samples.
    counts_samples: bool = True
    #: Ranks on each of the two nodes. One where the framework takes ten seconds of processor time to import.
    slots: int = 2

    @property
    def path(self) -> str:
        return str(JOBS / self.script)

    @property
    def has_store(self) -> bool:
        return self.own is None


#: The rows that each landing runs, by test; `just test-all` runs the whole table. Each framework is in one at least. The rows
#: of a test come where a framework does it in a way of its own: how a run finds its state, and samples and shards in another
#: world. A table of all rows takes more than half an hour of two cores, most of it for imports.
EACH_LANDING = {
    "test_rank_kill": {
        "stock-ddp",
        "stock-fsdp2",
        "ddp-lines",
        "fsdp2-dcp-save",
        "fsdp2-dcp-async",
        "transformers",
        "lightning",
        "accelerate",
    },
    "test_node_kill_and_growth": {"stock-fsdp2", "stock-trainer", "ddp-lines", "fsdp2-dcp-async"},
    "test_stop_and_resume": {"ddp-lines", "stock-lightning"},
    "test_new_controller_on_an_old_store": {"ddp-lines", "fsdp2-dcp-save"},
}

FRAMEWORKS = [
    Framework("stock-ddp", "stock_ddp.py", own="step-*.pt"),
    Framework("stock-fsdp2", "stock_fsdp2.py", own="step-*/.metadata"),
    Framework(
        "stock-trainer",
        "stock_trainer.py",
        "transformers",
        own="checkpoint-*/trainer_state.json",
        counts_samples=False,
        slots=1,
    ),
    Framework("stock-lightning", "stock_lightning.py", "lightning", own="*-step=*.ckpt", slots=1),
    Framework("ddp-lines", "ddp_lines.py"),
    Framework("fsdp2-dcp-save", "fsdp2_dcp.py"),
    Framework("fsdp2-dcp-async", "fsdp2_dcp.py", options=("--async-save",)),
    Framework("transformers", "trainer_run.py", "transformers", counts_samples=False, slots=1),
    Framework("lightning", "lightning_run.py", "lightning", slots=1),
    Framework("accelerate", "accelerate_run.py", "accelerate"),
]


@dataclass(frozen=True)
class StepLine:
    """One step of one rank."""

    generation: int
    rank: int
    world: int
    step: int
    ids: tuple[int, ...]
    digest: str


def read_records(folder: pathlib.Path) -> list[StepLine]:
    """All steps that ranks took, in the order of generations; the line that a killed rank did not finish is left out."""
    lines = []
    for file in sorted(folder.glob("*.jsonl")):
        for text in file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                line = json.loads(text)
                if "step" in line:
                    lines.append(StepLine(**{**line, "ids": tuple(line["ids"])}))
    return sorted(lines, key=lambda line: (line.generation, line.step, line.rank))


def effective_steps(lines: list[StepLine]) -> dict[int, list[StepLine]]:
    """The steps that the final state consists of: of each step, what the newest generation did that has taken it.

    Steps of an earlier generation behind the last one of the newest are no part of it.
    """
    newest = lines[-1].generation
    last = max(line.step for line in lines if line.generation == newest)
    lines = [line for line in lines if line.step <= last]
    steps: dict[int, list[StepLine]] = {}
    for line in lines:
        known = steps.get(line.step)
        if known is None or line.generation > known[0].generation:
            steps[line.step] = [line]
        elif line.generation == known[0].generation:
            known.append(line)
    return steps


def repeated_steps(lines: list[StepLine]) -> dict[int, int]:
    """By generation, how many steps of earlier ones it took again."""
    repeated: dict[int, int] = {}
    reached = 0
    for generation in sorted({line.generation for line in lines}):
        taken = {line.step for line in lines if line.generation == generation}
        repeated[generation] = max(0, reached - min(taken) + 1)
        reached = max(taken)
    return repeated


class Course:
    """A cluster of two nodes, and the runs of one framework on it."""

    def __init__(self, framework: Framework, folder: pathlib.Path) -> None:
        self.framework = framework
        self.folder = folder
        self.cluster = cluster.Cluster(folder, slots=framework.slots, nodes=2, settings=SETTINGS)
        self._followers: list[subprocess.Popen] = []

    def start(self, name: str, nodes: str, *options: str, steps: int = STEPS, job: Optional[str] = None) -> subprocess.Popen:
        """`rankguard run`, followed; `job` is the name of the job where it is not that of the run's folders."""
        self.out(name).mkdir(exist_ok=True)
        command = [sys.executable, self.framework.path, *self.framework.options, f"--steps={steps}", f"--step-ms={STEP_MS}"]
        command += [f"--out={self.out(name)}"]
        if not self.framework.has_store:
            command += [f"--own={self.own(name)}"]
        store = self.store(name) if self.framework.has_store else None
        attempt = f"ACCEPTANCE_ATTEMPT={len(self._followers)}"
        words = ("--nodes", nodes, "--env", "OMP_NUM_THREADS=1", "--env", attempt, *options)
        follower = self.cluster.run(job or name, command, self.framework.slots, store, EVERY, *words)
        self._followers.append(follower)
        return follower

    def out(self, name: str) -> pathlib.Path:
        return self.folder / f"out-{name}"

    def store(self, name: str) -> pathlib.Path:
        store = self.folder / f"store-{name}"
        store.mkdir(exist_ok=True)
        return store

    def own(self, name: str) -> pathlib.Path:
        folder = self.folder / f"own-{name}"
        folder.mkdir(exist_ok=True)
        return folder

    def saved(self, name: str) -> int:
        """Step of the newest checkpoint; 0 for none."""
        if self.framework.own is None:
            return max(cluster.committed(self.store(name), name), default=0)
        files = self.own(name).glob(self.framework.own)
        return max((_step_of(file.relative_to(self.own(name))) for file in files), default=0)

    def await_saved(self, name: str, step: int) -> int:
        """Waits for a checkpoint of at least this step; fails at once when the job is over before."""

        def look() -> Optional[int]:
            saved = self.saved(name)
            if saved >= step:
                return saved
            assert self._followers[-1].poll() is None, f"the run ended before a checkpoint of step {step}\n{self.output(name)}"
            return None

        return cluster.until(f"a checkpoint of step {step} of {name}", look, WAIT_S)

    def await_world(self, name: str, world: int, above: int) -> list[StepLine]:
        """Waits until ranks of a generation above this one have taken a step in such a world."""

        def look() -> Optional[list[StepLine]]:
            lines = [line for line in self.records(name) if line.generation > above and line.world == world]
            assert lines or self._followers[-1].poll() is None, f"the run ended\n{self.output(name)}"
            return lines or None

        return cluster.until(f"{world} ranks of {name} above generation {above}", look, WAIT_S)

    def records(self, name: str) -> list[StepLine]:
        return read_records(self.out(name))

    def generation(self, name: str) -> int:
        return max((line.generation for line in self.records(name)), default=0)

    def kill_rank(self, index: int) -> None:
        pids = cluster.ranks_of(self.framework.path, self.folder)
        os.kill(pids[index], signal.SIGKILL)

    def output(self, name: str) -> str:
        """Everything that `rankguard run` wrote for the job."""
        return (self.folder / f"run-{name}.log").read_text(errors="replace")

    def cases(self, name: str) -> list[dict[str, Any]]:
        return self.cluster.ask("cases", "list", "--job", name)

    def cancel(self, name: str) -> None:
        """Cancels and waits for the end of the follower."""
        done = self.cluster.cancel(name)
        assert done.returncode == 0, done.stderr
        self._followers[-1].wait(timeout=120)
        assert not cluster.ranks_of(self.framework.path, self.folder)

    def interrupt(self, name: str) -> None:
        """Ctrl-C at the follower, which cancels the job and waits for its end."""
        self._followers[-1].send_signal(signal.SIGINT)
        assert self._followers[-1].wait(timeout=120) != 0, self.output(name)
        assert f"SIGINT: cancelling job {name}" in self.output(name)
        assert not cluster.ranks_of(self.framework.path, self.folder)

    def resume(self, name: str) -> subprocess.Popen:
        """Starts a run that goes on from the job's store; a stock script finds its own file, under any name."""
        if self.framework.has_store:
            return self.start(name, "2", "--resume-from", name)
        return self.start(name, "2", job=f"{name}-again")

    def close(self) -> None:
        for follower in self._followers:
            if follower.poll() is None:
                follower.kill()
            follower.wait()
        self.cluster.close()


def _step_of(checkpoint: pathlib.Path) -> int:
    """Of the first part of the path; Lightning adds a version where the same step was saved before."""
    found = re.match(r".*(?:step|checkpoint)[-=](\d+)", checkpoint.parts[0])
    assert found is not None, checkpoint
    return int(found[1])


@contextlib.contextmanager
def course_of(framework: Framework, folder: pathlib.Path) -> Iterator[Course]:
    with contextlib.closing(Course(framework, folder)) as course:
        yield course


def undisturbed(framework: Framework, folder: pathlib.Path) -> list[StepLine]:
    """The records of the same script under torchrun, with as many ranks as the nodes have together."""
    out = folder / "undisturbed"
    out.mkdir()
    args = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={2 * framework.slots}",
        framework.path,
    ]
    args += [*framework.options, f"--steps={STEPS}", f"--out={out}", f"--local-dir={folder / 'undisturbed-store'}"]
    env = {**cluster.clean(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(args, timeout=2 * WAIT_S, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4_000:]
    lines = read_records(out)
    wanted = {(step, rank) for step in range(1, STEPS + 1) for rank in range(2 * framework.slots)}
    assert {(line.step, line.rank) for line in lines} == wanted, done.stderr[-4_000:]
    return lines
