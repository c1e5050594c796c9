"""Real DDP and FSDP2 jobs, and those of Lightning, Accelerate and transformers, under `rankguard run`, with ranks killed in
the middle: the losses (or weights) are those of an undisturbed run on as many ranks, bit by bit."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import cluster

pytestmark = pytest.mark.torch

STEPS = 60
EXAMPLES = cluster.ROOT / "examples"


LONG = pytest.mark.long


def wants(framework: str, *marks: pytest.MarkDecorator):
    """The job of a framework, skipped where that is not installed."""
    missing = importlib.util.find_spec(framework) is None
    reason = f"{framework} is not installed (python/tests/torch_env.sh makes an environment)"
    return pytest.param(f"{framework}_job.py", marks=[pytest.mark.skipif(missing, reason=reason), *marks])


# Each landing kills ranks of the frameworks in the acceptance table; they take up to ten seconds of processor time to import.
JOBS = ["ddp.py", "fsdp2.py", wants("lightning", LONG), wants("accelerate", LONG), wants("transformers", LONG)]


@pytest.fixture
def running(tmp_path):
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    running = cluster.Cluster(tmp_path)
    yield running
    running.close()


def told(folder: pathlib.Path, ranks: int = 2):
    return [json.loads((folder / f"losses-{rank}.json").read_text()) for rank in range(ranks)]


def undisturbed(example: str, folder: pathlib.Path, ranks: int = 2, steps: int = STEPS):
    """The same job under torchrun, without an agent."""
    out = folder / "undisturbed"
    out.mkdir()
    args = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    args += [str(EXAMPLES / example), f"--steps={steps}", f"--out={out}", f"--local-dir={folder / 'other-store'}", "--every=20"]
    subprocess.run(args, check=True, timeout=400, env={**cluster.clean(), "OMP_NUM_THREADS": "1"}, capture_output=True)
    return told(out, ranks)


def newest(store: pathlib.Path) -> int:
    return max(cluster.committed(store, "train"), default=0)


def same_but_restored(got, want, steps=STEPS):
    """Losses of every step, or the weights at the end, rank by rank."""
    assert all(rank.pop("restored") is None for rank in want)
    for rank in got:
        rank.pop("restored")
        assert rank and len(rank.get("losses", range(steps))) == steps
    assert got == want


@LONG
@pytest.mark.parametrize("example", JOBS)
def test_a_job_whose_ranks_are_killed_trains_as_if_nothing_had_happened(running, tmp_path, example):
    script, store, out = str(EXAMPLES / example), tmp_path / "store", tmp_path / "out"
    store.mkdir()
    out.mkdir()
    command = [sys.executable, script, f"--steps={STEPS}", f"--out={out}", "--step-ms=100"]
    job = running.run("train", command, 2, store, 5)
    try:
        for victim, after in ((0, 10), (1, 30)):
            cluster.until(f"a checkpoint of step {after}", lambda least=after: newest(store) >= least or None, 300)
            assert job.poll() is None, running.log()
            pids = cluster.until(
                "both ranks", lambda: ((p := cluster.ranks_of(script, running.folder)) and len(p) == 2 and p) or None
            )
            os.kill(pids[victim], signal.SIGKILL)
        assert job.wait(timeout=400) == 0, running.log()
    except BaseException:
        print(running.log())
        raise
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    disturbed = told(out)
    assert all(rank["restored"] >= 30 for rank in disturbed)
    same_but_restored(disturbed, undisturbed(example, tmp_path))


@pytest.mark.parametrize(("ranks", "steps"), [pytest.param(2, STEPS, marks=LONG), (3, 20), pytest.param(4, 20, marks=LONG)])
@pytest.mark.parametrize("example", JOBS)
def test_without_an_agent_a_killed_job_resumes_from_its_directory(tmp_path, example, ranks, steps):
    """Three and four ranks, since a sum of two is the same in either order."""
    store, out = tmp_path / "store", tmp_path / "out"
    out.mkdir()
    args = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=0"]
    args += [str(EXAMPLES / example), f"--steps={steps}", f"--out={out}", f"--local-dir={store}", "--every=5"]
    env = {**cluster.clean(), "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([*args, "--step-ms=200"], env=env, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        cluster.until("a checkpoint", lambda: [step for step in _steps(store) if step >= 10] or None, 300)
    finally:
        # torchrun starts each rank in a session of its own: one that lived on would write its results over the resumed ones.
        pids = children_of(first.pid)
        for pid in (*pids, first.pid):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        cluster.until("the end of the ranks", lambda: not any(map(is_alive, pids)) or None)
    subprocess.run(args, check=True, timeout=400, env=env, capture_output=True)
    resumed = told(out, ranks)
    assert all(rank["restored"] >= 10 for rank in resumed)
    same_but_restored(resumed, undisturbed(example, tmp_path, ranks, steps), steps)


def children_of(pid: int) -> list[int]:
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether it runs still; one that is dead and that nobody has waited for yet does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _steps(store: pathlib.Path):
    return sorted(int(path.parent.name.split("-")[0]) for path in store.glob("*/*/MANIFEST"))


def test_fsdp2_saved_by_two_ranks_is_loaded_by_three_and_by_one(tmp_path):
    """Another number of ranks sees other batches, so the losses before the restore are what is compared."""
    store = tmp_path / "store"
    kept = None
    for ranks, steps in ((2, 10), (3, 15), (1, 20)):
        out = tmp_path / f"out-{ranks}"
        out.mkdir()
        args = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        args += [str(EXAMPLES / "fsdp2.py"), f"--steps={steps}", f"--out={out}", f"--local-dir={store}", "--every=5"]
        env = {**cluster.clean(), "OMP_NUM_THREADS": "1"}
        subprocess.run(args, check=True, timeout=400, env=env, capture_output=True)
        ranks_told = told(out, ranks)
        assert all(rank["restored"] == (steps - 5 if kept else None) for rank in ranks_told)
        if kept:
            assert ranks_told[0]["losses"][: len(kept)] == kept
        kept = ranks_told[0]["losses"]
    shutil.rmtree(store)
