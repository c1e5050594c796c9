"""`rankguard.compare`: replicas that differ while training runs, and the case that follows."""

import sys
import textwrap

import numpy
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed (python/tests/torch_env.sh makes an environment)")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402

import cluster  # noqa: E402
import rankguard  # noqa: E402
import ranks  # noqa: E402

KINDS = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64]


def values(dtype, count=1_003):
    """The same values on every rank, of a length that no word divides."""
    numbers = torch.arange(count) * 7 % 251
    return numbers.to(dtype) if dtype is not torch.bool else numbers % 2 == 0


def flip(tensor, at, bit):
    """Flips one bit of the tensor's memory."""
    data = tensor.reshape(-1).view(torch.uint8)
    data[at // 8 if at >= 8 * data.numel() else at] ^= 1 << bit


def test_the_digest_depends_on_every_bit_and_on_nothing_else():
    digest = lambda tensor: rankguard._replicas._digest(torch, tensor).item()  # noqa: E731
    large = torch.arange(3 * (1 << 16) + 5, dtype=torch.int64)
    for tensor in [values(dtype) for dtype in KINDS] + [large, torch.tensor(1.5), torch.zeros(0), torch.zeros(9)]:
        before = digest(tensor)
        assert digest(tensor.clone()) == before
        # Not contiguous, and not at a multiple of 8 bytes.
        assert digest(torch.stack([tensor, tensor], dim=-1)[..., 0]) == before
        assert digest(torch.cat([tensor.reshape(-1)[:1], tensor.reshape(-1)])[1:]) == before or tensor.numel() == 0
        size = tensor.numel() * tensor.element_size()
        for at in {0, size // 2, size - 1} if size else ():
            for bit in range(8) if tensor.dtype is not torch.bool else (0,):
                other = tensor.clone()
                flip(other, at, bit)
                assert digest(other) != before, (tensor.dtype, at, bit)
    # Changes that a sum of products does not see: signs of several numbers, and an exchange.
    signs = torch.ones(64, dtype=torch.float64)
    flipped = signs.clone()
    flipped[[3, 40]] = -1.0
    exchanged = large.clone()
    exchanged[[1, 1 << 16]] = large[[1 << 16, 1]]
    assert digest(flipped) != digest(signs) and digest(exchanged) != digest(large)
    assert digest(torch.zeros(8)) != digest(torch.zeros(16))


def _one_differs(rank, world, out):
    model = {"w": values(torch.float32), "b": values(torch.bfloat16), "n": numpy.arange(5), "none": torch.zeros(0)}
    state = {"model": model, "own": rankguard.PerRank(torch.tensor(rank)), "lr": 0.1}
    assert rankguard.compare(state, step=1) == []
    if rank == 2:
        flip(state["model"]["w"], 100, 6)
    assert rankguard.compare(state, every=10, step=5) == []
    [found] = rankguard.compare(state, every=10, step=20, on_difference="report")
    assert found.tensor == "model.w" and found.groups == ((0, 1, 3), (2,)) and found.suspects == [2]
    if rank != 2:
        # Only the rank that differs raises.
        assert rankguard.compare(state, step=21) == [found]
        return
    with pytest.raises(
        rankguard.ReplicasDiffer, match=r"differ at step 21: tensor model\.w of rank 2 differs from the majority"
    ):
        rankguard.compare(state, step=21)


def test_the_rank_that_differs_from_the_majority_is_named():
    ranks.spawn(_one_differs, 4, None)


def _two_replicas(rank, world, out):
    state = {"w": torch.full((3,), float(rank)), "same": torch.ones(2), "x": torch.ones(1)}
    text = "tensor w has 2 contents on ranks 0 1, and none has a majority$"
    with pytest.raises(rankguard.ReplicasDiffer, match=text) as problem:
        rankguard.compare(state, step=3)
    assert problem.value.step == 3 and problem.value.differences[0].suspects == []
    # The ranks hold different parts under one name.
    with pytest.raises(rankguard.ReplicasDiffer, match="if the ranks hold different parts on purpose"):
        rankguard.compare({"w": torch.full((3,), float(rank))}, step=3)
    alone = [dist.new_group([one]) for one in range(world)][rank]
    assert rankguard.compare(state, step=3, group=alone) == []


def test_two_replicas_have_no_majority():
    ranks.spawn(_two_replicas, 2, None)


def _parts(rank, world, out):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    sharded = distribute_tensor(torch.arange(40.0).reshape(10, 4), mesh, [Replicate(), Shard(0)])
    full = distribute_tensor(torch.arange(6.0), mesh, [Replicate(), Replicate()])
    state = {"sharded": sharded, "full": full}
    assert rankguard.compare(state, step=1) == []
    if rank == 3:
        sharded.to_local()[0, 0] += 1
    # Ranks 1 and 3 hold the same half; the other half is equal on ranks 0 and 2.
    found = rankguard.compare(state, step=2, on_difference="report")
    assert [(one.tensor, one.groups) for one in found] == [("sharded", ((1,), (3,)))]


def test_parts_of_dtensors_are_compared_with_their_replicas_only():
    ranks.spawn(_parts, 4, None)


def test_a_call_without_a_group_or_with_a_bad_argument_says_what_to_do():
    with pytest.raises(rankguard.RankguardError, match="call init_process_group"):
        rankguard.compare({"w": torch.ones(1)}, step=1)
    with pytest.raises(ValueError, match="every"):
        rankguard.compare({}, every=0, step=1)
    with pytest.raises(ValueError, match="on_difference is 'ignore'"):
        rankguard.compare({}, step=1, on_difference="ignore")
    with pytest.raises(rankguard.RankguardError, match=r"rankguard\.init"):
        rankguard.compare({})


JOB = """
import sys, time, pathlib
import torch, torch.distributed as dist
import rankguard

torch.set_num_threads(1)
dist.init_process_group("gloo")
rankguard.init()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
state = rankguard.torch.state(model, optimizer)
restored = rankguard.restore(state)
marker = pathlib.Path(sys.argv[1])
for n in range(restored.step + 1 if restored else 1, 61):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    if n == 25 and dist.get_rank() == 2 and not marker.exists():
        marker.touch()
        with torch.no_grad():
            model.module.weight.view(-1).view(torch.int32)[17] ^= 1 << 22
    rankguard.step(n)
    if rankguard.due():
        rankguard.checkpoint(state)
    rankguard.compare(state, every=3)
    time.sleep(0.05)
rankguard.done()
dist.destroy_process_group()
"""


def test_a_wrong_bit_on_one_rank_stops_the_attempt_and_the_case_names_the_rank(tmp_path):
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    script, store = tmp_path / "job.py", tmp_path / "store"
    script.write_text(textwrap.dedent(JOB))
    store.mkdir()
    running = cluster.Cluster(tmp_path, slots=2, nodes=3)
    try:
        job = running.run("train", [sys.executable, str(script), str(tmp_path / "flipped")], 2, store, 10, "--nodes", "2")
        assert job.wait(300) == 0, running.log()
        cases = running.ask("cases")
        # The checkpoint of that step may show the difference as well, a moment before or after.
        verdicts = {(case["verdict"]["class"], case["verdict"]["root_rank"]) for case in cases}
        assert verdicts == {("silent-data-corruption", 2)}, cases
    finally:
        running.close()
