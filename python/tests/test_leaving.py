"""Exports of every format, read by plain torch in a process that cannot import rankguard."""

import pathlib
import subprocess
import sys

import pytest

import cluster
import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed.checkpoint as dcp  # noqa: E402

import rankguard.dcp  # noqa: E402
from ranks import spawn  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(cluster.program() is None, reason="there is no rankguard to test: cargo build"),
]

#: Loads an export and compares it with what was saved. `-I` and the finder keep this package away.
READER = """
import sys
class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rankguard":
            raise ImportError(name)
sys.meta_path.insert(0, Refusal())
import torch
kind, path, want = sys.argv[1:4]
want = torch.load(want, weights_only=False)
def zeros(value):
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: zeros(item) for key, item in value.items()}
    if isinstance(value, list):
        return [zeros(item) for item in value]
    return value if value is None else type(value)()
def same(one, two, path=""):
    if isinstance(two, torch.Tensor):
        assert one.dtype == two.dtype and one.shape == two.shape, (path, one, two)
        assert one.contiguous().flatten().view(torch.uint8).equal(two.contiguous().flatten().view(torch.uint8)), path
    elif isinstance(two, dict):
        assert type(one) is dict and set(one) == set(two), (path, one, two)
        for key in two:
            same(one[key], two[key], f"{path}.{key}")
    elif isinstance(two, (list, tuple)):
        assert type(one) is type(two) and len(one) == len(two), (path, one, two)
        for at, item in enumerate(two):
            same(one[at], item, f"{path}.{at}")
    else:
        assert type(one) is type(two) and repr(one) == repr(two), (path, one, two)
if kind == "torch":
    found = torch.load(path, weights_only=True)
    assert same(torch.load(path, weights_only=True, mmap=True), want) is None
elif kind == "dcp":
    import torch.distributed.checkpoint as dcp
    found = zeros(want)
    dcp.load(found, checkpoint_id=path, no_dist=True)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    dcp_to_torch_save(path, path + ".pt")
else:
    import safetensors.torch
    found = safetensors.torch.load_file(path)
same(found, want)
assert "rankguard" not in sys.modules
"""


def export(store, step, out, *words, code=0):
    args = [cluster.program(), "checkpoint", "export", str(step), "--dir", str(store), "--out", str(out), *words]
    ran = subprocess.run(args, capture_output=True, text=True, env=cluster.clean(), timeout=120)
    assert ran.returncode == code, ran.stderr
    return ran


def read_back(kind, out, want, folder):
    expected = folder / f"want-{kind}.saved"
    torch.save(want, expected)
    args = [sys.executable, "-I", "-c", READER, kind, str(out), str(expected)]
    ran = subprocess.run(args, capture_output=True, text=True, timeout=240, cwd=folder)
    assert ran.returncode == 0, ran.stderr


def state():
    shared = torch.randn(3, 4)
    tensors = {
        "w": shared,
        "tied": shared,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "half": torch.randn(5, dtype=torch.bfloat16),
        "small": torch.randn(6).to(torch.float8_e4m3fn),
        "smaller": torch.randn(6).to(torch.float8_e5m2),
        "wide": torch.tensor([2**40, -1]),
        "unsigned": torch.tensor([1, 65535], dtype=torch.uint16),
        "complex": torch.randn(2, dtype=torch.complex64),
        "flags": torch.tensor([[True], [False]]),
    }
    plain = {"epoch": 3, "lr": 1e-05, "betas": (0.9, 0.95), "names": ["a", "é"], "none": None, "flag": True, "raw": b"\0\xff"}
    return {"model": tensors, "plain": plain, "big": 2**70, "negative": -(2**70), "nan": float("nan"), "word": -(2**40)}


@pytest.mark.parametrize("kind, name", [("torch", "x.pt"), ("dcp", "x"), ("safetensors", "x.safetensors")])
def test_all_kinds_of_values_are_read_by_plain_torch(tmp_path, session, kind, name):
    saved = state()
    session.checkpoint(saved, step=4)
    session.wait()
    export(tmp_path / "store", 4, tmp_path / name, "--format", kind)
    want = saved if kind != "safetensors" else {f"model.{key}": value for key, value in saved["model"].items()}
    read_back(kind, tmp_path / name, want, tmp_path)


@pytest.mark.parametrize("kind, name", [("torch", "x.pt"), ("dcp", "x"), ("safetensors", "x.safetensors")])
def test_a_prefix_is_selected_and_stripped(tmp_path, session, kind, name):
    saved = {"model": {"layers.0.w": torch.randn(3), "head": torch.randn(2)}, "optimizer": {"m": torch.randn(3)}, "epoch": 1}
    session.checkpoint(saved, step=4)
    session.wait()
    export(tmp_path / "store", 4, tmp_path / name, "--format", kind, "--prefix", "model.", "--strip-prefix")
    read_back(kind, tmp_path / name, saved["model"], tmp_path)
    missing = export(tmp_path / "store", 4, tmp_path / f"no-{name}", "--format", kind, "--prefix", "modle.", code=2)
    assert "modle." in missing.stderr and "model" in missing.stderr
    assert not (tmp_path / f"no-{name}").exists()


def test_a_target_is_a_file_or_a_directory_as_its_format_wants(tmp_path, session):
    session.checkpoint({"w": torch.ones(2)}, step=4)
    session.wait()
    store = tmp_path / "store"
    export(store, 4, tmp_path / "x.pt")
    assert (tmp_path / "x.pt").is_file(), "the ending chooses the format"
    assert "--force" in export(store, 4, tmp_path / "x.pt", code=2).stderr
    export(store, 4, tmp_path / "x.pt", "--force")
    export(store, 4, tmp_path / "x.pt", "--format", "dcp", code=64)
    export(store, 4, tmp_path / "y.pt", "--format", "safetensors", code=64)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("text")
    assert "thesis.txt" in export(store, 4, tmp_path / "home", "--format", "dcp", "--force", code=2).stderr
    export(store, 4, tmp_path / "home", "--format", "torch", "--force", code=64)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "text"
    export(store, 4, tmp_path / "d", "--format", "dcp")
    export(store, 4, tmp_path / "d", "--format", "dcp", "--force")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"store", "x.pt", "home", "d"}, "nothing is left beside the targets"


def test_what_belongs_to_one_rank_is_a_dict_by_rank(tmp_path, session):
    session.checkpoint({"w": torch.ones(2), "rng": rankguard.PerRank({"t": torch.arange(4, dtype=torch.uint8)})}, step=4)
    session.wait()
    export(tmp_path / "store", 4, tmp_path / "x.pt")
    read_back("torch", tmp_path / "x.pt", {"w": torch.ones(2), "rng": {0: {"t": torch.arange(4, dtype=torch.uint8)}}}, tmp_path)


def _fsdp2(rank, ranks, folder):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(2, 5)).sum().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    saved = {"model": weights, "optimizer": moments, "epoch": 2}
    full = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    session = rankguard.connect(folder / "store", job="lines")
    session.checkpoint(saved, step=4)
    session.wait()
    session.done()
    session = rankguard.connect(folder / "dcp-store", job="dcp")
    dcp.save(saved, storage_writer=rankguard.dcp.StorageWriter(step=4, session=session))
    session.wait()
    session.done()
    if rank == 0:
        want = {"model": full[0], "optimizer": full[1], "epoch": 2}
        torch.save(want, folder / "want")


def test_two_sharded_ranks_leave_as_whole_tensors(tmp_path):
    spawn(_fsdp2, 2, tmp_path)
    want = torch.load(tmp_path / "want", weights_only=False)
    want["model"] = dict(want["model"])
    for store in ("store", "dcp-store"):
        for kind, name in (("torch", "x.pt"), ("dcp", "x")):
            folder = pathlib.Path(tmp_path / f"{store}-{kind}")
            folder.mkdir()
            export(tmp_path / store, 4, folder / name, "--format", kind)
            read_back(kind, folder / name, want, folder)
            found = rankguard.load(path=tmp_path / store)
            assert found.step == 4 and found.world_size == 2
            same(found.state, want)


def same(one, two):
    if isinstance(two, torch.Tensor):
        assert one.dtype == two.dtype and torch.equal(one, two)
    elif isinstance(two, dict):
        assert set(one) == set(two)
        for key in two:
            same(one[key], two[key])
    elif isinstance(two, (list, tuple)):
        assert len(one) == len(two)
        for a, b in zip(one, two):
            same(a, b)
    else:
        assert one == two


def test_a_folder_is_loaded_without_a_session(tmp_path, session):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    part = rankguard.Shard(numpy.arange(6.0).reshape(2, 3), (2, 3), (0, 0))
    session.checkpoint({"w": torch.ones(2), "part": part, "epoch": 3}, step=4)
    session.wait()
    (checkpoint,) = (tmp_path / "store" / "test").glob("*/MANIFEST")
    for path in (tmp_path / "store", tmp_path / "store" / "test", checkpoint.parent):
        found = rankguard.load(path=path)
        assert (found.step, found.world_size, found.state["epoch"]) == (4, 1, 3)
        assert torch.equal(found.state["w"], torch.ones(2)) and (found.state["part"] == part.array).all()
    assert rankguard.load(4, path=tmp_path / "store", job="test").step == 4
    for wrong in ({"job": "other"}, {"step": 9}):
        with pytest.raises((rankguard.RankguardError, ValueError)):
            rankguard.load(path=tmp_path / "store", **wrong)
    with pytest.raises(rankguard.RankguardError, match="no directory"):
        rankguard.load(path=tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
