"""The states of the random numbers of this process, for the adapters of frameworks.

Those of Python, of numpy where it is loaded, of torch and of every CUDA device that torch has used. They differ from rank to
rank, so a state that has them is a :class:`rankguard.PerRank`.
"""

from __future__ import annotations

import random
import sys
from typing import Any


def states() -> dict[str, Any]:
    """What :func:`restore` wants."""
    found: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        found["numpy"] = numpy.random.get_state()
    if torch is not None:
        found["torch"] = torch.random.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore(found: dict[str, Any]) -> None:
    """Puts back what :func:`states` gave. A machine with other devices than the one that saved keeps what those have."""
    random.setstate(found["python"])
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in found:
        numpy.random.set_state(found["numpy"])
    if torch is not None and "torch" in found:
        torch.random.set_rng_state(found["torch"])
        cuda = found.get("cuda", [])
        if cuda and torch.cuda.is_available() and torch.cuda.device_count() == len(cuda):
            torch.cuda.set_rng_state_all(cuda)
