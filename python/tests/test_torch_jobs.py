"""Real DDP and FSDP2 jobs under `rankguard run`, with ranks killed in the middle: the losses are those of a run that
nobody disturbed, to the last bit."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import cluster
import pytest

pytestmark = pytest.mark.torch

STEPS = 60
EXAMPLES = cluster.ROOT / "examples"


@pytest.fixture
def running(tmp_path):
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    running = cluster.Cluster(tmp_path)
    yield running
    running.close()


def losses(folder: pathlib.Path, ranks: int = 2):
    return [json.loads((folder / f"losses-{rank}.json").read_text()) for rank in range(ranks)]


def undisturbed(example: str, folder: pathlib.Path, ranks: int = 2):
    """The same job under torchrun, without an agent."""
    out = folder / "undisturbed"
    out.mkdir()
    args = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    args += [str(EXAMPLES / example), f"--steps={STEPS}", f"--out={out}", f"--local-dir={folder / 'other-store'}", "--every=20"]
    subprocess.run(args, check=True, timeout=300, env={**cluster.clean(), "OMP_NUM_THREADS": "1"}, capture_output=True)
    return losses(out, ranks)


@pytest.mark.parametrize("example", ["ddp.py", "fsdp2.py"])
def test_a_job_whose_ranks_are_killed_trains_as_if_nothing_had_happened(running, tmp_path, example):
    script, store, out = str(EXAMPLES / example), tmp_path / "store", tmp_path / "out"
    store.mkdir()
    out.mkdir()
    command = [sys.executable, script, f"--steps={STEPS}", f"--out={out}", "--step-ms=100"]
    job = running.run("train", command, 2, store, 5)
    try:
        for victim, after in ((0, 10), (1, 30)):
            seen = cluster.until(
                f"a checkpoint of step {after}",
                lambda: (steps := cluster.committed(store, "train")) and steps[-1] >= after and steps or None,
                120,
            )
            assert job.poll() is None, running.log()
            pids = cluster.until("both ranks", lambda: (p := cluster.ranks_of(script)) and len(p) == 2 and p or None)
            os.kill(pids[victim], signal.SIGKILL)
            assert seen
        assert job.wait(timeout=240) == 0, running.log()
    except BaseException:
        print(running.log())
        raise
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    disturbed = losses(out)
    assert all(rank["restored"] >= 30 for rank in disturbed)
    for rank, (got, want) in enumerate(zip(disturbed, undisturbed(example, tmp_path))):
        assert want["restored"] is None
        assert got["losses"] == want["losses"], f"rank {rank}"
    assert len(disturbed[0]["losses"]) == STEPS


@pytest.mark.parametrize("example", ["ddp.py", "fsdp2.py"])
def test_without_an_agent_a_killed_job_resumes_from_its_directory(tmp_path, example):
    store, out = tmp_path / "store", tmp_path / "out"
    out.mkdir()
    args = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=0"]
    args += [str(EXAMPLES / example), f"--steps={STEPS}", f"--out={out}", f"--local-dir={store}", "--every=5"]
    env = {**cluster.clean(), "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([*args, "--step-ms=100"], env=env, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        cluster.until("a checkpoint", lambda: [step for step in _steps(store) if step >= 10] or None, 120)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    subprocess.run(args, check=True, timeout=300, env=env, capture_output=True)
    resumed = losses(out)
    assert all(rank["restored"] >= 10 for rank in resumed)
    for got, want in zip(resumed, undisturbed(example, tmp_path)):
        assert got["losses"] == want["losses"]


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
        subprocess.run(args, check=True, timeout=300, env=env, capture_output=True)
        told = losses(out, ranks)
        assert all(rank["restored"] == (steps - 5 if kept else None) for rank in told)
        if kept:
            assert told[0]["losses"][: len(kept)] == kept
        kept = told[0]["losses"]
    shutil.rmtree(store)
