"""Tensors of torch, DTensors and DCP on one machine, gloo, CPU."""

import math
import pathlib
import subprocess
import sys

import pytest

import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402

import rankguard.dcp  # noqa: E402
import readme  # noqa: E402
from ranks import spawn  # noqa: E402

pytestmark = pytest.mark.torch

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.complex128,
]


def same(one, two):
    return one.dtype == two.dtype and torch.equal(
        one.contiguous().reshape(-1).view(torch.uint8), two.contiguous().reshape(-1).view(torch.uint8)
    )


def random(shape, dtype=torch.float32, seed=0):
    source = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 2, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8, generator=source)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_comes_back_bit_by_bit(session, dtype):
    state = {"one": random((3, 5), dtype, 1), "scalar": random((), dtype, 2), "none": torch.empty(0, 4, dtype=dtype)}
    session.checkpoint(state, step=1)
    session.wait()
    live = {name: torch.zeros_like(value) for name, value in state.items()}
    session.restore(live)
    assert all(same(state[name], live[name]) for name in state)


def test_strided_tensors_and_parameters_are_restored_in_place(session):
    base = random((6, 8), seed=1)
    state = {"t": base.t(), "every": base[:, ::3], "p": nn.Parameter(random((4,), seed=2))}
    wanted = {name: value.detach().clone() for name, value in state.items()}
    session.checkpoint(state, step=1)
    session.wait()
    live = torch.zeros(6, 8)
    places = {"t": live.t(), "every": torch.zeros(6, 8)[:, ::3], "p": nn.Parameter(torch.zeros(4))}
    session.restore(places)
    assert all(same(wanted[name], places[name].detach()) for name in wanted)
    assert same(live, base) and places["p"].requires_grad


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.zeros(3).to_sparse(), "sparse"),
        (torch.zeros(3, device="meta"), "meta"),
        (torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8), "quantized.*int_repr"),
        (torch.zeros(2, dtype=torch.complex32), "complex32"),
    ],
    ids=["sparse", "meta", "quantized", "complex32"],
)
def test_tensors_that_cannot_be_saved_are_refused_by_their_key(session, value, why):
    with pytest.raises(rankguard.Unsavable, match=f"^layer.w: .*{why}"):
        session.checkpoint({"layer": {"w": value}}, step=1)


def test_a_size_stays_a_size(session):
    size = torch.Size([2, 3])
    session.checkpoint({"shape": size, "own": rankguard.PerRank({"shape": size})}, step=1)
    session.wait()
    live = {"shape": torch.Size([1]), "own": rankguard.PerRank(None)}
    session.restore(live)
    for back in (live["shape"], live["own"].value["shape"], session.load().state["shape"]):
        assert type(back) is torch.Size and back == size


def test_a_model_and_its_optimizer_resume_to_the_last_bit(session):
    def make():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Linear(9, 2))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)

    def train(model, optimizer, steps):
        source = torch.Generator().manual_seed(3)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 5, generator=source)).square().mean().backward()
            optimizer.step()

    model, optimizer = make()
    train(model, optimizer, 4)
    session.checkpoint({"model": model, "optimizer": optimizer}, step=4)
    session.wait()
    other, moments = make()
    with pytest.raises(ValueError, match=r"no place for: optimizer.state.0"):
        session.restore({"model": other, "optimizer": moments})
    train(other, moments, 1)
    session.restore({"model": other, "optimizer": moments})
    train(model, optimizer, 3)
    train(other, moments, 3)
    for want, got in zip(model.state_dict().values(), other.state_dict().values()):
        assert same(want, got)


# Several ranks, each a process of its own.


def sharded(mesh, placements, zero=False):
    """Tensors of all manners of size, the same on every rank, spread over the mesh."""
    shapes = {"even": (12, 8), "uneven": (7, 5), "tiny": (1, 3), "vector": (11,)}
    state = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        whole = random(shape, seed=seed) if not zero else torch.zeros(shape)
        fitting = [place if not place.is_shard() or place.dim < len(shape) else Shard(0) for place in placements]
        state[name] = distribute_tensor(whole, mesh, fitting)
    return {"model": state, "extra": {"step": 0 if zero else 41, "betas": (0.9, 0.95), "names": ["a", "b"]}}


def check_whole(state):
    for seed, (name, tensor) in enumerate(state["model"].items()):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        assert same(whole, random(tuple(whole.shape), seed=seed)), name
    assert state["extra"] == {"step": 41, "betas": (0.9, 0.95), "names": ["a", "b"]}


def save_sharded(rank, ranks, folder, how):
    rankguard.init(folder, job="mesh")
    state = sharded(init_device_mesh("cpu", (ranks,)), [Shard(0)])
    if how == "checkpoint":
        rankguard.checkpoint(state, step=41)
    elif how == "dcp":
        dcp.save(state, storage_writer=rankguard.dcp.StorageWriter(step=41))
    else:
        future = dcp.async_save(state, storage_writer=rankguard.dcp.StorageWriter(step=41))
        # What was staged is safe from the next step.
        for tensor in state["model"].values():
            tensor.to_local().zero_()
        future.result()
    rankguard.done()


def load_sharded(rank, ranks, folder, how, mesh_shape, placements):
    rankguard.init(folder, job="mesh")
    state = sharded(init_device_mesh("cpu", mesh_shape), placements, zero=True)
    if how == "checkpoint":
        assert rankguard.restore(state).step == 41
    else:
        dcp.load(state, storage_reader=rankguard.dcp.StorageReader())
    check_whole(state)
    rankguard.done()


@pytest.mark.parametrize("how", ["checkpoint", "dcp", "dcp-async"])
def test_dtensors_saved_on_two_ranks_are_loaded_on_other_meshes(tmp_path, how):
    spawn(save_sharded, 2, str(tmp_path), how)
    spawn(load_sharded, 1, str(tmp_path), how, (1,), [Shard(0)])
    spawn(load_sharded, 3, str(tmp_path), how, (3,), [Shard(1)])
    spawn(load_sharded, 4, str(tmp_path), how, (2, 2), [Replicate(), Shard(0)])


def test_dcp_refuses_what_it_would_have_to_pickle(session):
    with pytest.raises(dcp.CheckpointException, match=r"thing: a .*object is neither"):
        dcp.save({"thing": object()}, storage_writer=rankguard.dcp.StorageWriter(step=1, session=session), no_dist=True)


def test_dcp_takes_the_step_from_the_end_of_the_id(session):
    state = {"w": torch.arange(5.0)}
    dcp.save(state, checkpoint_id="run/step-12", storage_writer=rankguard.dcp.StorageWriter(session=session), no_dist=True)
    state["w"].zero_()
    reader = rankguard.dcp.StorageReader(session=session)
    dcp.load(state, checkpoint_id="run/step-12", storage_reader=reader, no_dist=True)
    assert state["w"].tolist() == [0, 1, 2, 3, 4]


def test_no_pickle_stands_in_what_was_written(tmp_path):
    spawn(save_sharded, 2, str(tmp_path), "dcp")
    for path in pathlib.Path(tmp_path).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"torch" not in data and b"\x80\x02" not in data[:2], path


def test_dcp_says_that_there_is_nothing_to_load_and_what_is_of_another_schema(session):
    reader = rankguard.dcp.StorageReader(session=session)
    with pytest.raises(dcp.CheckpointException, match=r"there is no checkpoint to load"):
        dcp.load({"w": torch.zeros(2)}, storage_reader=reader, no_dist=True)
    session.checkpoint({"w": torch.zeros(2)}, step=1)
    session.wait()
    with pytest.raises(dcp.CheckpointException, match=r"restore it with rankguard.restore"):
        dcp.load({"w": torch.zeros(2)}, storage_reader=reader, no_dist=True)


def test_a_model_and_its_optimizer_are_loaded_without_ones_to_restore_into(session):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(2, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    session.checkpoint({"model": model, "optimizer": optimizer, "mine": rankguard.PerRank(torch.arange(3))}, step=6)
    session.wait()
    loaded = session.load()
    fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(torch.bfloat16)
    moments = torch.optim.AdamW(fresh.parameters(), lr=1.0)
    fresh.load_state_dict(loaded.state["model"])
    moments.load_state_dict(loaded.state["optimizer"])
    assert loaded.step == 6 and loaded.state["mine"].tolist() == [0, 1, 2]
    assert all(same(one, two) for one, two in zip(model.state_dict().values(), fresh.state_dict().values()))
    for one, two in zip(optimizer.state_dict()["state"].values(), moments.state_dict()["state"].values()):
        assert all(same(one[name], two[name]) for name in one)
    assert moments.param_groups[0]["lr"] == 0.01


def test_a_dtensor_is_loaded_as_a_whole(tmp_path):
    spawn(save_sharded, 2, str(tmp_path), "checkpoint")
    session = rankguard.connect(tmp_path, job="mesh", rank=0, world_size=1)
    assert session.load().state["model"]["even"].shape == (12, 8)
    session.done()


def test_the_example_of_the_package_resumes_to_the_last_bit(tmp_path):
    def ended(store, steps, start):
        program = readme.package_example(tmp_path / store, steps, start)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    whole = ended("whole", 6, None)
    first = ended("twice", 4, None)
    assert first != whole
    assert ended("twice", 6, 4) == whole
