"""Real gloo processes: gradients are those of the global batch, and with virtual ranks every bit is the same at every sequence
of world sizes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import acceptance  # noqa: E402
import cluster  # noqa: E402
import ranks  # noqa: E402
from rankguard import RankguardError, Sampler  # noqa: E402

EXAMPLE = str(cluster.ROOT / "examples" / "elastic_ddp.py")
SAMPLES, BATCH = 26, 10


def net_and_data():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    return net, torch.randn(SAMPLES, 5, dtype=torch.float64), torch.randn(SAMPLES, 3, dtype=torch.float64)


def losses_of(net, inputs, targets):
    """The loss of each sample."""
    return (net(inputs) - targets).square().sum(dim=1)


def compare_with_one_process(rank, world, wrapper, virtual_ranks):
    """Three steps, the last with what is left of the epoch; mean and sum, and each factor."""
    net, inputs, targets = net_and_data()
    reference, _, _ = net_and_data()
    if wrapper == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(net)
    else:
        from torch.distributed.fsdp import fully_shard

        wrapped = fully_shard(net)
    whole = Sampler(SAMPLES, BATCH, seed=1, rank=0, world_size=1)
    for kind in ("mean", "sum"):
        sampler = Sampler(SAMPLES, BATCH, seed=1, virtual_ranks=virtual_ranks)
        assert (sampler.rank, sampler.world_size) == (rank, world)
        whole.load_state_dict({**sampler.state_dict(), "virtual_ranks": None})
        for _ in range(3):
            ids = whole.indices(whole.share)
            whole.advance()
            reference.zero_grad()
            losses_of(reference, inputs[ids], targets[ids]).mean().backward()
            wrapped.zero_grad()
            for share in sampler.shares:
                ids = sampler.indices(share)
                losses = losses_of(wrapped, inputs[ids], targets[ids])
                scaled = losses.mean() * share.mean_scale if kind == "mean" else losses.sum() * share.sum_scale
                scaled.backward()
            sampler.advance()
            for own, right in zip(wrapped.parameters(), reference.parameters()):
                found = own.grad.full_tensor() if wrapper == "fsdp2" else own.grad
                torch.testing.assert_close(found, right.grad, rtol=1e-12, atol=1e-13)
        assert sampler.epoch == 1


@pytest.mark.parametrize(
    ("wrapper", "world", "virtual_ranks"), [("ddp", 3, None), ("ddp", 4, None), ("ddp", 2, 7), ("fsdp2", 3, None)]
)
def test_gradients_are_those_of_the_global_batch(wrapper, world, virtual_ranks):
    """The shares of 10 samples on 3 and 4 ranks differ, and the last batch of 6 leaves none for some virtual ranks of 7."""
    ranks.spawn(compare_with_one_process, world, wrapper, virtual_ranks)


def group_comes_later(rank, world, store):
    """As it is where a launcher sets no environment and the sampler is made before the group."""
    dist.barrier()
    dist.destroy_process_group()
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    sampler = Sampler(SAMPLES, BATCH)
    assert (sampler.rank, sampler.world_size) == (0, 1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    with pytest.raises(RankguardError, match=rf"as rank 0 of 1: this process is rank {rank} of {world} now; make the sampler"):
        next(iter(sampler))
    sampler = Sampler(SAMPLES, BATCH)
    assert (sampler.rank, sampler.world_size) == (rank, world)
    # A part of a mesh is named.
    assert len(next(iter(Sampler(SAMPLES, BATCH, rank=0, world_size=1)))) == BATCH


def test_a_sampler_made_before_the_process_group_is_refused(tmp_path):
    ranks.spawn(group_comes_later, 2, tmp_path / "store")


def run_example(folder, store, world, steps):
    """The example on so many ranks up to a step; what each rank reported at its end."""
    out = folder / f"{store}-{world}-{steps}"
    out.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", EXAMPLE]
    command += [f"--steps={steps}", f"--local-dir={folder / store}", "--every=4", f"--out={out}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env={**cluster.clean(), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = [json.loads((out / f"losses-{rank}.json").read_text()) for rank in range(world)]
    assert all(rank == found[0] for rank in found)
    return found[0]


def test_losses_and_weights_are_equal_bit_by_bit_at_every_sequence_of_world_sizes(tmp_path):
    """One rank without a restart, against 3, 2 and 4 ranks in turn, each from the newest checkpoint of the one before."""
    undisturbed = run_example(tmp_path, "one", 1, 22)
    for restored, world, steps in ((None, 3, 9), (8, 2, 16), (16, 4, 22)):
        found = run_example(tmp_path, "several", world, steps)
        assert found["restored"] == restored
        assert found["losses"] == undisturbed["losses"][:steps]
    assert found["weights"] == undisturbed["weights"]
    # 13 steps an epoch, the last one of 20 samples.
    assert found["ledger"] == [[0, 3, 0, 320], [1, 2, 320, 620], [2, 4, 620, 860]]
    assert len(set(undisturbed["losses"])) == 22


@pytest.fixture
def running(tmp_path):
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    running = cluster.Cluster(tmp_path, slots=1, nodes=3, settings=acceptance.SETTINGS)
    yield running
    running.close()


def test_a_node_that_is_lost_and_returns_changes_no_bit(running, tmp_path):
    """Under the real program: three ranks, two after a node was killed, three again, with the steps that were lost."""
    steps, store, out = 250, tmp_path / "store", tmp_path / "out"
    store.mkdir()
    out.mkdir()
    command = [sys.executable, EXAMPLE, f"--steps={steps}", f"--out={out}", "--step-ms=100"]
    job = running.run("train", command, 1, store, 4, "--nodes", "1:3", "--env", "OMP_NUM_THREADS=1")
    output = lambda: (tmp_path / "run-train.log").read_text(errors="replace")  # noqa: E731

    def await_saved(step):
        def look():
            assert job.poll() is None, running.log()
            return max(cluster.committed(store, "train"), default=0) >= step or None

        cluster.until(f"a checkpoint of step {step}", look, 180)

    try:
        await_saved(8)
        running.kill_agent("n3")
        cluster.until("two ranks", lambda: "world size 3 -> 2" in output() or None, 180)
        await_saved(max(cluster.committed(store, "train")) + 8)
        running.return_agent("n3")
        cluster.until("three ranks", lambda: "world size 2 -> 3" in output() or None, 180)
        assert job.wait(timeout=400) == 0, running.log()
    finally:
        if job.poll() is None:
            job.kill()
        job.wait()
    found = json.loads((out / "losses-0.json").read_text())
    assert [world for _, world, _, _ in found["ledger"]] == [3, 2, 3], found["ledger"]
    generations = [generation for generation, _, _, _ in found["ledger"]]
    assert generations == sorted(set(generations))
    undisturbed = run_example(tmp_path, "one", 1, steps)
    assert found["losses"] == undisturbed["losses"]
    assert found["weights"] == undisturbed["weights"]
