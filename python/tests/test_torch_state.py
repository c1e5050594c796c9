"""`rankguard.torch.state` in one process: a first start changes nothing, and a restart at any step goes on bit by bit."""

import pathlib
import re

import pytest

import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.torch

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw-amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
    "adamw-tensor-lr": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.01), capturable=False, foreach=False),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, centered=True),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3, history_size=4),
}
STEPS = 6


class Training:
    """A small training with dropout, batch statistics, a schedule, and random numbers of torch."""

    def __init__(self, kind, with_state):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Dropout(0.2), nn.Linear(9, 2))
        self.optimizer = OPTIMIZERS[kind](self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.state = rankguard.torch.state(self.model, self.optimizer, self.schedule, losses=[]) if with_state else None
        self.losses = self.state["losses"] if self.state else []

    def step(self):
        inputs = torch.randn(8, 6)

        def closure():
            self.optimizer.zero_grad()
            loss = self.model(inputs).square().mean()
            loss.backward()
            return loss

        self.losses.append(self.optimizer.step(closure).item().hex())
        self.schedule.step()

    def outcome(self):
        moments = self.optimizer.state_dict()
        return [list(self.losses), hexes(self.model.state_dict()), hexes(moments), self.schedule.state_dict()]


def hexes(value):
    """A state with tensors as their type, device and bytes."""
    if isinstance(value, dict):
        return {key: hexes(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [hexes(item) for item in value]
    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return str(value.dtype), str(value.device), tuple(value.shape), bytes(flat.tolist()).hex()
    return value


def undisturbed(kind):
    training = Training(kind, with_state=False)
    for _ in range(STEPS):
        training.step()
    return training.outcome()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_first_start_and_saves_at_every_step_change_nothing(session, kind):
    training = Training(kind, with_state=True)
    before = hexes(training.optimizer.state_dict())
    assert session.restore(training.state) is None
    assert hexes(training.optimizer.state_dict()) == before and not training.optimizer.state
    for n in range(1, STEPS + 1):
        training.step()
        session.checkpoint(training.state, step=n)
    assert training.outcome() == undisturbed(kind)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_restart_at_every_step_goes_on_bit_by_bit(session, kind):
    training = Training(kind, with_state=True)
    # Also at step 0, where no moment exists.
    for n in range(STEPS):
        if n:
            training.step()
        session.checkpoint(training.state, step=n + 1)
        session.wait()
    want = undisturbed(kind)
    for n in range(STEPS):
        again = Training(kind, with_state=True)
        torch.manual_seed(99)
        assert session.restore(again.state, step=n + 1).step == n + 1
        again.losses = again.state["losses"]
        assert len(again.losses) == n
        for _ in range(n, STEPS):
            again.step()
        assert again.outcome() == want, n


def saved_and_restored(session, saved, live, **options):
    session.checkpoint(saved, step=1)
    session.wait()
    return session.restore(live, **options)


def trained(model, optimizer, steps=2, width=6):
    for n in range(steps):
        optimizer.zero_grad()
        model(torch.full((4, width), 0.5 + n)).square().mean().backward()
        optimizer.step()


class TestNames:
    """Names of the bare model, tied tensors once."""

    class Tied(nn.Module):
        def __init__(self, tied=True):
            super().__init__()
            self.wte, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            if tied:
                self.head.weight = self.wte.weight

    @staticmethod
    def names(state):
        return [leaf.name for leaf in rankguard._tree.Flat(state).leaves]

    def test_compiled_and_recomputed_modules_have_the_names_of_the_bare_one(self, session):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        make = lambda: nn.Sequential(nn.Linear(6, 5), nn.Sequential(nn.Linear(5, 2)))  # noqa: E731
        bare, wrapped = make(), make()
        wrapped[1] = checkpoint_wrapper(wrapped[1])
        wrapped = torch.compile(nn.Sequential(*wrapped), backend="eager")
        optimizers = [torch.optim.Adam(model.parameters()) for model in (bare, wrapped)]
        trained(bare, optimizers[0])
        states = [rankguard.torch.state(*pair) for pair in zip((bare, wrapped), optimizers)]
        assert self.names(states[1]) == ["model.0.weight", "model.0.bias", "model.1.0.weight", "model.1.0.bias"]
        saved_and_restored(session, *states)
        assert self.names(states[0]) == self.names(states[1])
        assert hexes(list(bare.parameters())) == hexes(list(wrapped.parameters()))
        assert hexes(optimizers[0].state_dict()) == hexes(optimizers[1].state_dict())

    def test_a_tied_tensor_is_saved_once_with_its_moments(self, session):
        models = [self.Tied(), self.Tied()]
        optimizers = [torch.optim.Adam(model.parameters()) for model in models]
        models[0].head(models[0].wte(torch.tensor([1, 2]))).sum().backward()
        optimizers[0].step()
        states = [rankguard.torch.state(*pair) for pair in zip(models, optimizers)]
        names = [name for name in self.names(states[0]) if not name.startswith("optimizer")]
        assert names == ["model.wte.weight"]
        saved_and_restored(session, *states)
        assert models[1].head.weight is models[1].wte.weight
        assert hexes(models[0].state_dict()) == hexes(models[1].state_dict())

    def test_a_tied_module_takes_two_equal_names_and_refuses_different_ones(self, session):
        untied, live = self.Tied(tied=False), self.Tied()
        state = rankguard.torch.state(live, random=False)
        with pytest.raises(ValueError, match=r"cannot restore model.head.weight: the module ties it"):
            saved_and_restored(session, rankguard.torch.state(untied, random=False), state)
        untied.head.weight.data.copy_(untied.wte.weight.data)
        session.checkpoint(rankguard.torch.state(untied, random=False), step=2)
        session.wait()
        session.restore(state)
        assert hexes(live.state_dict()) == hexes(untied.state_dict())

    def test_fsdp1_and_zero_are_refused_with_what_serves_instead(self):
        class FullyShardedDataParallel(nn.Linear):
            __module__ = "torch.distributed.fsdp"

        with pytest.raises(rankguard.Unsavable, match=r"model.0: a FullyShardedDataParallel cannot be saved: .*fully_shard"):
            rankguard.torch.state(nn.Sequential(FullyShardedDataParallel(1, 1)))


class TestGroups:
    """Parameter groups, optimizers, parameters without state."""

    @staticmethod
    def layers():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(3, 1))

    def test_frozen_parameters_and_two_groups_with_changed_rates(self, session):
        def make():
            model = self.layers()
            model[1].requires_grad_(False)
            groups = [
                {"params": model[0].parameters()},
                {"params": [*model[1].parameters(), *model[2].parameters()], "lr": 0.3},
            ]
            return model, torch.optim.AdamW(groups, lr=0.1)

        (model, optimizer), (other, moments) = make(), make()
        trained(model, optimizer)
        optimizer.param_groups[1]["lr"] = 0.7
        # A parameter that is not to have state has none after the restore.
        other[1].requires_grad_(True)
        trained(other, moments, 1)
        saved_and_restored(session, rankguard.torch.state(model, optimizer), rankguard.torch.state(other, moments))
        assert hexes(moments.state_dict()) == hexes(optimizer.state_dict())
        assert moments.param_groups[1]["lr"] == 0.7 and other[1].weight not in moments.state

    def test_groups_in_another_order_get_their_own_options(self, session):
        def make(order):
            model = self.layers()
            return model, torch.optim.SGD([{"params": model[at].parameters(), "lr": 1.0} for at in order], momentum=0.9)

        (model, optimizer), (other, moments) = make([0, 1, 2]), make([2, 0, 1])
        for at, group in enumerate(optimizer.param_groups):
            group["lr"] = 0.1 * at
        trained(model, optimizer)
        saved_and_restored(session, rankguard.torch.state(model, optimizer), rankguard.torch.state(other, moments))
        assert [group["lr"] for group in moments.param_groups] == [0.2, 0.0, 0.1]
        for one, two in zip(model.parameters(), other.parameters()):
            assert hexes(optimizer.state[one]) == hexes(moments.state[two])

    def test_a_group_that_was_added_later_is_added_by_the_restore(self, session):
        model, other = self.layers(), self.layers()
        optimizer, moments = [torch.optim.Adam(it[0].parameters(), lr=0.1) for it in (model, other)]
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.5})
        trained(model, optimizer)
        saved_and_restored(session, rankguard.torch.state(model, optimizer), rankguard.torch.state(other, moments))
        assert hexes(moments.state_dict()) == hexes(optimizer.state_dict())
        trained(model, optimizer)
        trained(other, moments)
        assert hexes(model.state_dict()) == hexes(other.state_dict())

    def test_two_optimizers_and_a_list_of_schedules(self, session):
        def make():
            model = self.layers()
            optimizers = [
                torch.optim.Adam(model[0].parameters(), lr=0.1),
                torch.optim.SGD([*model[1].parameters(), *model[2].parameters()], lr=0.2, momentum=0.5),
            ]
            schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) for optimizer in optimizers]
            return model, optimizers, schedules

        (model, optimizers, schedules), (other, moments, others) = make(), make()
        for optimizer, schedule in zip(optimizers, schedules):
            trained(model, optimizer)
            schedule.step()
        saved_and_restored(
            session, rankguard.torch.state(model, optimizers, schedules), rankguard.torch.state(other, moments, others)
        )
        assert [hexes(it.state_dict()) for it in moments] == [hexes(it.state_dict()) for it in optimizers]
        assert [it.state_dict() for it in others] == [it.state_dict() for it in schedules]

    @pytest.mark.parametrize(
        ("saved", "live", "why"),
        [
            ([0], [0, 1], r"cannot restore optimizer: parameter 1.weight is in no group of the checkpoint of step 1; add it"),
            ([0, 1], [0], None),
        ],
    )
    def test_a_parameter_that_one_side_lacks_is_named(self, session, saved, live, why):
        def make(layers):
            model = self.layers()
            return model, torch.optim.Adam([p for at in layers for p in model[at].parameters()], lr=0.1)

        (model, optimizer), (other, moments) = make(saved), make(live)
        trained(model, optimizer)
        if why is None:
            why = r"state of parameter 1.weight, and no group of the optimizer has it"
        before = hexes([other.state_dict(), moments.state_dict()])
        state = rankguard.torch.state(other, moments)
        with pytest.raises(ValueError, match=why):
            saved_and_restored(session, rankguard.torch.state(model, optimizer), state)
        # Refused before anything changed.
        assert hexes([other.state_dict(), moments.state_dict()]) == before
        session.restore(state, strict=False)
        assert hexes(other.state_dict()) == hexes(model.state_dict())
        assert hexes(moments.state[other[0].weight]) == hexes(optimizer.state[model[0].weight])

    def test_parameters_of_others_and_steps_of_a_parameter_in_two_optimizers_are_refused(self):
        model, other = self.layers(), self.layers()
        with pytest.raises(rankguard.Unsavable, match=r"parameter 0 of group 0, shape \[4, 6\], is not in the model"):
            rankguard.torch.state(model, torch.optim.SGD(other.parameters()))
        twice = [torch.optim.SGD(model[0].parameters()), torch.optim.SGD(model.parameters())]
        with pytest.raises(rankguard.Unsavable, match=r"parameter 0.weight is in two optimizers"):
            rankguard.torch.state(model, twice)


class TestParts:
    """Scaler, average, random numbers, entries of the caller."""

    def make(self):
        torch.manual_seed(2)
        model = nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        average = torch.optim.swa_utils.AveragedModel(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        state = rankguard.torch.state(model, optimizer, scaler=scaler, ema=average, losses=[1.5], seen={"samples": 3}, epoch=4)
        return model, average, scaler, state

    def test_all_come_back(self, session):
        model, average, scaler, state = self.make()
        model.weight.data.fill_(2.0)
        average.update_parameters(model)
        scaler.scale(torch.ones(1))
        scaler.update(32.0)
        state["losses"].append(0.25)
        state["epoch"] = 5
        session.checkpoint(state, step=1)
        session.wait()
        want = torch.rand(3)

        other, again, scale, live = self.make()
        losses = live["losses"]
        torch.manual_seed(50)
        assert session.restore(live).kept == []
        assert torch.equal(torch.rand(3), want) and live.restore_random() and torch.equal(torch.rand(3), want)
        assert losses is live["losses"] and losses == [1.5, 0.25] and live["epoch"] == 5 and live["seen"] == {"samples": 3}
        assert hexes([other.state_dict(), again.state_dict()]) == hexes([model.state_dict(), average.state_dict()])
        assert scale.get_scale() == 32.0

    def test_a_part_that_one_side_lacks_is_named_by_its_argument(self, session):
        model, _, _, state = self.make()
        session.checkpoint(state, step=1)
        session.wait()
        bare = rankguard.torch.state(model)
        with pytest.raises(ValueError, match=r"has 'optimizer' and this state has none; give optimizer= to"):
            session.restore(bare)
        assert session.restore(bare, strict=False).step == 1
        session.checkpoint(bare, step=2)
        session.wait()
        with pytest.raises(ValueError, match=r"this state has 'optimizer' and the checkpoint of step 2 has none"):
            session.restore(state)
        with pytest.raises(KeyError, match="optimizer"):
            state["optimizer"] = 1
        with pytest.raises(KeyError, match="no extra entry"):
            state["nothing"]


def test_a_checkpoint_in_the_layout_of_torch_is_restored(session):
    """As earlier versions of the examples saved it, with get_state_dict."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    one, two = Training("adamw-foreach", True), Training("adamw-foreach", True)
    one.step()
    weights, moments = get_state_dict(one.model, one.optimizer)
    session.checkpoint({"model": weights, "optimizer": moments}, step=1)
    session.wait()
    session.restore(rankguard.torch.state(two.model, two.optimizer))
    assert hexes(two.optimizer.state_dict()) == hexes(one.optimizer.state_dict())


def test_a_checkpoint_by_numbers_is_refused_with_what_to_do(session):
    one, two = Training("adam", True), Training("adam", True)
    one.step()
    session.checkpoint({"model": one.model, "optimizer": one.optimizer}, step=1)
    session.wait()
    with pytest.raises(ValueError, match=r"has parameters by number"):
        session.restore(rankguard.torch.state(two.model, two.optimizer))


def test_importing_the_package_imports_no_torch():
    import subprocess
    import sys

    code = "import sys, rankguard; assert 'torch' not in sys.modules; rankguard.torch.state; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_snippet_of_the_readme_runs(session, monkeypatch):
    text = (pathlib.Path(__file__).resolve().parents[1] / "README.md").read_text()
    snippet = next(it for it in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "rankguard.torch.state" in it)
    monkeypatch.setattr(rankguard, "_current", session)
    training = Training("adamw-foreach", with_state=False)
    given = {"rankguard": rankguard, "model": training.model, "optimizer": training.optimizer}
    given.update(scheduler=training.schedule, scaler=torch.amp.GradScaler("cpu"))
    exec(snippet, given)
    assert given["restored"] is None and given["losses"] == []
    training.step()
    given["losses"].append(0.5)
    session.checkpoint(given["state"], step=1)
    session.wait()
    exec(snippet, given)
    assert given["restored"].step == 1 and given["losses"] == [0.5]
