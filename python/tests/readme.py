"""The snippet of the README as a program."""

import pathlib
import re

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
