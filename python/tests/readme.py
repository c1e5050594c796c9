"""The snippet of the README, and the example of the package, as programs."""

import pathlib
import re
import textwrap

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def program(store: pathlib.Path, steps: int, start: "int | None") -> str:
    """The first block of Python, with what it takes as given, on a store of its own; fails if it starts anywhere else."""
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return f"""
import rankguard

init = rankguard.init
rankguard.init = lambda: init({str(store)!r}, checkpoint_every=2)


class optimizer:
    step = staticmethod(lambda: None)


steps, weights, moments, loss, norm = {steps}, {{"w": [1.0]}}, {{"m": [2.0]}}, 0.5, 1.0
{found.group(1)}
assert (restored and restored.step) == {start} and n == steps, (restored, n)
"""


def package_example(store: pathlib.Path, steps: int, start: "int | None") -> str:
    """The example of the package's docstring with a small model; prints a digest of the trained model.

    Fails if it starts anywhere else.
    """
    text = (README.parent / "rankguard" / "__init__.py").read_text()
    found = re.search(r"::\n\n(    import rankguard\n.*?done\(\)\n)", text, re.DOTALL)
    assert found is not None
    return f"""
import hashlib

import torch

import rankguard

init = rankguard.init
rankguard.init = lambda: init({str(store)!r}, checkpoint_every=2)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters())
steps = {steps}


def train_one(_):
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


{textwrap.dedent(found.group(1))}
assert (restored and restored.step) == {start} and n == steps, (restored, n)
print(hashlib.sha256(b"".join(part.detach().numpy().tobytes() for part in model.parameters())).hexdigest())
"""
