"""Tensor subclasses that are made of other tensors: saved, restored in place, made anew; nested tensors are refused."""

import pytest

import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.torch


class Scaled(torch.Tensor):
    """Codes of 8 bits and a scale for each row."""

    @staticmethod
    def __new__(cls, codes, scale, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, strides=codes.stride(), dtype=dtype)

    def __init__(self, codes, scale, dtype):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], {"dtype": self.dtype, "signed": True, "sizes": (8, 2.5)}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        assert context["signed"] and context["sizes"] == (8, 2.5)
        return cls(inner["codes"], inner["scale"], context["dtype"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale, args[0].dtype)
        raise NotImplementedError(str(function))


class OfRows(Scaled):
    """Another class."""


def scaled(seed=0, kind=Scaled, rows=3, dtype=torch.float32):
    source = torch.Generator().manual_seed(seed)
    return kind(torch.randint(-9, 9, (rows, 4), dtype=torch.int8, generator=source), torch.rand(rows, generator=source), dtype)


def inner(value):
    return value.codes.tolist(), value.scale.tolist(), value.dtype, tuple(value.shape)


def test_inner_tensors_are_restored_in_place(session):
    state = {"layers": [{"w": scaled(1)}], "twice": (scaled(2), 7)}
    session.checkpoint(state, step=1)
    session.wait()
    live = {"layers": [{"w": scaled(3)}], "twice": (scaled(4), 0)}
    codes = live["layers"][0]["w"].codes
    session.restore(live)
    assert inner(live["layers"][0]["w"]) == inner(state["layers"][0]["w"]) and live["layers"][0]["w"].codes is codes
    assert inner(live["twice"][0]) == inner(state["twice"][0]) and live["twice"][1] == 7


def test_it_is_loaded_as_a_new_one_and_may_belong_to_a_rank(session):
    state = {"w": scaled(1), "mine": rankguard.PerRank([scaled(2)])}
    session.checkpoint(state, step=1)
    session.wait()
    loaded = session.load().state
    assert type(loaded["w"]) is Scaled and inner(loaded["w"]) == inner(state["w"])
    assert inner(loaded["mine"][0]) == inner(state["mine"].value[0])


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (lambda: scaled(2, OfRows), r"cannot restore a.w: its class is .*:OfRows here and .*:Scaled in the checkpoint"),
        (lambda: scaled(2, dtype=torch.float64), r"cannot restore a.w: its context is .*float64.* here and .*float32"),
    ],
)
def test_another_class_or_context_is_refused_by_name(session, live, why):
    session.checkpoint({"a": {"w": scaled(1)}}, step=1)
    session.wait()
    with pytest.raises(ValueError, match=why):
        session.restore({"a": {"w": live()}})


def test_a_class_that_is_not_imported_is_not_imported_for_a_checkpoint(session, monkeypatch):
    monkeypatch.setattr(Scaled, "__module__", "os_of_an_attacker")
    session.checkpoint({"w": scaled(1)}, step=1)
    session.wait()
    with pytest.raises(ValueError, match=r"no such class is imported; import os_of_an_attacker before"):
        session.load()


def test_contexts_that_are_no_plain_values_and_nested_tensors_are_refused_by_name(session, monkeypatch):
    monkeypatch.setattr(Scaled, "__tensor_flatten__", lambda self: (["codes"], [object()]))
    with pytest.raises(rankguard.Unsavable, match=r"^a.w: the context of its class has a object"):
        session.checkpoint({"a": {"w": scaled(1)}}, step=1)
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    for layout, advice in ((torch.jagged, r"values\(\) and offsets\(\)"), (torch.strided, r"unbind\(\)")):
        with pytest.raises(rankguard.Unsavable, match=rf"^x: a nested tensor cannot be saved; .*{advice}"):
            session.checkpoint({"x": torch.nested.nested_tensor(parts, layout=layout)}, step=1)


class ScaledMomentum(torch.optim.Optimizer):
    """Keeps its momentum as a wrapper."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state["momentum"] = Scaled(
                    torch.zeros_like(parameter, dtype=torch.int8), torch.ones(len(parameter)), parameter.dtype
                )
            momentum = state["momentum"]
            momentum.codes.add_((parameter.grad * 20).to(torch.int8))
            momentum.scale.mul_(0.9)
            parameter.sub_(momentum.codes.float() * momentum.scale.unsqueeze(1), alpha=0.01)


def trained(model, optimizer, steps):
    for n in steps:
        optimizer.zero_grad()
        inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(n))
        model(inputs).square().mean().backward()
        optimizer.step()
    return [value.tolist() for value in model.state_dict().values()]


def check_goes_on(session, make):
    whole, (model, optimizer), (other, moments) = make(), make(), make()
    want = trained(*whole, range(6))
    state, live = rankguard.torch.state(model, optimizer), rankguard.torch.state(other, moments)
    assert session.restore(state) is None and not optimizer.state
    trained(model, optimizer, range(3))
    session.checkpoint(state, step=3)
    session.wait()
    session.restore(live)
    assert trained(other, moments, range(3, 6)) == want


def test_an_optimizer_with_wrapped_moments_goes_on_bit_by_bit(session):
    def make():
        torch.manual_seed(1)
        model = nn.Linear(64, 16, bias=False)
        return model, ScaledMomentum(model.parameters())

    check_goes_on(session, make)


@pytest.mark.filterwarnings("ignore")
def test_8_bit_adam_of_torchao_goes_on_bit_by_bit(session):
    optim = pytest.importorskip("torchao.optim", reason="torchao is not installed (python/tests/torch_env.sh installs it)")

    def make():
        torch.manual_seed(1)
        model = nn.Linear(64, 128)
        return model, optim.AdamW8bit(model.parameters(), lr=1e-2)

    check_goes_on(session, make)
