"""Formats of others, with their own libraries: what `rankguard checkpoint export` writes and `import` reads."""

import subprocess

import pytest

import cluster
import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(cluster.program() is None, reason="there is no rankguard to test: cargo build"),
]


def program(*words):
    args = [cluster.program(), "checkpoint", *map(str, words)]
    told = subprocess.run(args, capture_output=True, text=True, env=cluster.clean(), timeout=60)
    assert told.returncode == 0, told.stderr
    return told


def trained():
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model(torch.randn(4, 5, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def test_the_library_of_safetensors_opens_an_export(tmp_path, session):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    model, _ = trained()
    session.checkpoint({"model": model.state_dict(), "scalar": torch.tensor(3.5), "none": torch.empty(0, 2)}, step=4)
    session.wait()
    program("export", "--dir", tmp_path / "store", "--out", tmp_path / "out.safetensors", 4)
    found = safetensors.load_file(tmp_path / "out.safetensors")
    want = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    want.update(scalar=torch.tensor(3.5), none=torch.empty(0, 2))
    assert found.keys() == want.keys()
    for name, weight in want.items():
        assert found[name].dtype == weight.dtype and torch.equal(found[name], weight), name


def test_a_file_of_the_library_of_safetensors_is_imported(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    weights = {name: weight.clone() for name, weight in trained()[0].state_dict().items()}
    safetensors.save_file(weights, tmp_path / "model.safetensors")
    program("import", "--dir", tmp_path / "store", "--job", "a", "--step", 1, "--ranks", 2, tmp_path / "model.safetensors")
    session = rankguard.connect(tmp_path / "store", job="a", rank=0, world_size=1)
    live = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    assert session.restore(live).world_size == 2
    assert all(torch.equal(live[name], weights[name]) for name in weights)
    session.done()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_goes_on_from_a_directory_of_dcp(tmp_path, ranks):
    model, optimizer = trained()
    weights, moments = get_state_dict(model, optimizer)
    rest = {"epoch": 4, "betas": (0.9, 0.95), "names": ["a", "b"], "nested": {"flag": True, "none": None}}
    dcp.save({"model": weights, "optimizer": moments, "rest": rest}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    program("import", "--dir", tmp_path / "store", "--job", "a", "--step", 9, "--ranks", ranks, tmp_path / "dcp")

    other, moved = trained()
    session = rankguard.connect(tmp_path / "store", job="a", rank=0, world_size=1)
    weights, moments = get_state_dict(other, moved)
    live = {"model": weights, "optimizer": moments}
    live["rest"] = {"epoch": 0, "betas": (0, 0), "names": [], "nested": {"flag": False, "none": 1}, "ours": "stays"}
    assert session.restore(live).step == 9
    set_state_dict(other, moved, model_state_dict=live["model"], optim_state_dict=live["optimizer"])
    assert live["rest"] == {**rest, "ours": "stays"}
    for one, two in zip(model.state_dict().values(), other.state_dict().values()):
        assert torch.equal(one, two)
    for one, two in zip(optimizer.state_dict()["state"].values(), moved.state_dict()["state"].values()):
        assert all(torch.equal(one[name], two[name]) for name in one)
    assert moved.param_groups[0]["lr"] == 3e-4
    with pytest.raises(rankguard.RankguardError, match="imported"):
        session.load()
    session.done()


def test_a_fresh_training_goes_on_from_a_directory_of_dcp(tmp_path):
    model, optimizer = trained()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    program("import", "--dir", tmp_path / "store", "--job", "a", "--step", 9, "--ranks", 1, tmp_path / "dcp")

    other = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).to(torch.bfloat16)
    moved = torch.optim.AdamW(other.parameters(), lr=1.0)
    session = rankguard.connect(tmp_path / "store", job="a", rank=0, world_size=1)
    assert session.restore(rankguard.torch.state(other, moved)).step == 9
    assert all(torch.equal(one, two) for one, two in zip(model.state_dict().values(), other.state_dict().values()))
    for one, two in zip(optimizer.state_dict()["state"].values(), moved.state_dict()["state"].values()):
        assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    assert moved.param_groups[0]["lr"] == 3e-4
    session.done()
