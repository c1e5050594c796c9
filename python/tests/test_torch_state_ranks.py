"""`rankguard.torch.state` on several ranks: saved by two, gone on with by one and then three, with the same global batch."""

import pytest

import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ranks import spawn  # noqa: E402

pytestmark = pytest.mark.torch

OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
}


class Net(nn.Module):
    """Tied weights, a parameter without gradient, a frozen one, extents that no number of ranks divides."""

    def __init__(self):
        super().__init__()
        self.first, self.tied = nn.Linear(5, 7), nn.Linear(5, 7, bias=False)
        self.tied.weight = self.first.weight
        self.last = nn.Linear(7, 3)
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, inputs):
        return self.last(torch.tanh(self.first(inputs)) + self.tied(inputs)) * self.frozen


def make(kind, wrapper, ranks):
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    model = Net()
    if wrapper == "ddp":
        model = DistributedDataParallel(model, find_unused_parameters=True)
    elif wrapper == "fsdp2":
        mesh = init_device_mesh("cpu", (ranks,))
        fully_shard(model.last, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = OPTIMIZERS[kind](model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return model, optimizer, schedule


def train(model, optimizer, schedule, steps, rank=0, ranks=1):
    for n in steps:
        source = torch.Generator().manual_seed(n)
        inputs = torch.randn(12, 5, generator=source)[rank * (12 // ranks) : (rank + 1) * (12 // ranks)]
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        schedule.step()


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value.detach()


def phase(rank, ranks, folder, kind, wrapper, start, end):
    parts = make(kind, wrapper, ranks)
    rankguard.init(folder, job="ranks")
    state = rankguard.torch.state(*parts, losses=[0.5])
    restored = rankguard.restore(state)
    assert (restored and restored.step) == (start or None), restored
    assert restored is None or restored.kept == ["random"]
    model, optimizer, schedule = parts
    names = {id(parameter): name.removeprefix("module.") for name, parameter in model.named_parameters()}
    counts = {names[id(p)]: int(moments["step"]) for p, moments in optimizer.state.items() if "step" in moments}
    used = {"first.weight", "first.bias", "last.weight", "last.bias"}
    if kind != "momentum":
        assert counts == dict.fromkeys(used if start else (), start), counts
    if start:
        moments = {names[id(p)]: [v for k, v in it.items() if k != "step"] for p, it in optimizer.state.items()}
        assert set(moments) == used, set(moments)
        assert all(whole(value).abs().sum() > 0 for values in moments.values() for value in values)
    train(*parts, range(start + 1, end + 1), rank, ranks)
    rankguard.checkpoint(state, step=end)
    rankguard.done()

    torch.manual_seed(0)
    want, best, _ = expected = make(kind, "bare", 1)
    train(*expected, range(1, end + 1))
    bare = dict(want.named_parameters())
    for name, parameter in model.named_parameters():
        name = name.removeprefix("module.")
        torch.testing.assert_close(whole(parameter), bare[name].detach(), rtol=1e-9, atol=1e-12)
        live, other = optimizer.state.get(parameter, {}), best.state.get(bare[name], {})
        assert live.keys() == other.keys(), name
        for key, value in live.items():
            torch.testing.assert_close(whole(value), other[key], rtol=1e-9, atol=1e-12, check_dtype=False)
    assert schedule.last_epoch == end and optimizer.param_groups[0]["lr"] == best.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("kind", "wrapper"),
    [("momentum", "ddp"), ("adamw", "ddp"), ("adam", "fsdp2"), ("adamw", "fsdp2")],
)
def test_two_ranks_then_one_then_three_train_as_one_process(tmp_path, kind, wrapper):
    for ranks, start, end in ((2, 0, 3), (1, 3, 5), (3, 5, 8)):
        spawn(phase, ranks, str(tmp_path), kind, wrapper, start, end)


def test_ddp_is_gone_on_with_as_fsdp2_and_back(tmp_path):
    for ranks, wrapper, start, end in ((2, "ddp", 0, 3), (3, "fsdp2", 3, 5), (1, "ddp", 5, 6)):
        spawn(phase, ranks, str(tmp_path), "adamw", wrapper, start, end)


class Factored(torch.optim.Optimizer):
    """Moments unlike their parameter: rows in shards, columns on every rank, and a copy of 16 bits."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is None or parameter.dim() != 2:
                continue
            state = self.state[parameter]
            if not state:
                rows = torch.zeros(parameter.shape[0], 1, dtype=torch.float32)
                state["rows"] = distribute_tensor(rows, parameter.device_mesh, [Shard(0)])
                columns = torch.zeros(1, parameter.shape[1])
                state["columns"] = distribute_tensor(columns, parameter.device_mesh, [Replicate()])
                state["half"] = torch.zeros_like(parameter, dtype=torch.bfloat16)
                state["step"] = 0
            state["step"] += 1
            state["rows"] += parameter.grad.square().mean(1, keepdim=True).float()
            columns = parameter.grad.square().mean(0, keepdim=True)
            state["columns"] += columns.redistribute(placements=[Replicate()])
            state["half"].copy_(parameter.grad)
            parameter.sub_(parameter.grad, alpha=0.01)


def phase_of_factors(rank, ranks, folder, start, end):
    torch.manual_seed(1)
    model = nn.Linear(5, 7)
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = Factored(model.parameters())
    rankguard.init(folder, job="ranks")
    state = rankguard.torch.state(model, optimizer)
    restored = rankguard.restore(state)
    assert (restored and restored.step) == (start or None)
    moments = optimizer.state[model.weight] if restored else {}
    whole_of = {key: whole(value) for key, value in moments.items() if key != "step"}
    if restored:
        assert moments["step"] == start and moments["rows"].placements == (Shard(0),)
        assert moments["columns"].placements == (Replicate(),)
        torch.testing.assert_close(whole_of, torch.load(f"{folder}/moments.pt"), rtol=0, atol=0)
    for n in range(start, end):
        torch.manual_seed(n)
        optimizer.zero_grad()
        model(torch.randn(6, 5)).square().mean().backward()
        optimizer.step()
    rankguard.checkpoint(state, step=end)
    rankguard.done()
    values = {key: whole(value) for key, value in optimizer.state[model.weight].items() if key != "step"}
    if rank == 0:
        torch.save(values, f"{folder}/moments.pt")


def test_moments_unlike_their_parameter_keep_type_shape_and_placement(tmp_path):
    for ranks, start, end in ((2, 0, 2), (3, 2, 4), (1, 4, 5)):
        spawn(phase_of_factors, ranks, str(tmp_path), start, end)
