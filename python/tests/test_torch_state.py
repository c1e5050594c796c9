"""`rankguard.torch.state` in one process: a first start changes nothing, and a restart at any step goes on bit by bit."""

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
