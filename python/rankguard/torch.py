"""The state of a torch training, right on a first start, after a restart, and on another number of ranks.

    import rankguard

    rankguard.init()
    state = rankguard.torch.state(model, optimizer, scheduler, losses=[])
    restored = rankguard.restore(state)
    for n in range(restored.step + 1 if restored else 1, steps + 1):
        ...
        if rankguard.due():
            rankguard.checkpoint(state)

Parameters have the names of the bare model, whatever wraps it (DDP, ``torch.compile``, activation checkpointing, FSDP2).
Optimizer state is by parameter name. A first start changes nothing: no step is made and no moment is allocated, so losses
and weights are those of a training without these lines. A restore allocates the moments that the checkpoint describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch

from . import _random
from ._modules import ModuleState
from ._optimizer import OptimizerState
from ._target import SavedDescription
from ._tree import PerRank

__all__ = ["TrainingState", "state"]

_Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]

#: Entries of their own, and the argument that each belongs to.
_PARTS = ("model", "optimizer", "scheduler", "scaler", "ema")
_RANDOM = "random"


def state(
    model: torch.nn.Module,
    optimizer: Optional[_Optimizers] = None,
    scheduler: Any = None,
    *,
    scaler: Any = None,
    ema: Any = None,
    random: bool = True,
    **extra: Any,
) -> TrainingState:
    """A state for ``checkpoint``, ``begin`` and ``restore``, made once.

    ``optimizer`` and ``scheduler`` may be lists. ``ema`` is a module (``AveragedModel``) or has ``state_dict``. With
    ``random`` each rank saves its random numbers (Python, numpy, torch, CUDA); another number of ranks keeps its own.
    ``extra`` are entries of the caller: containers are restored in place, other values are read as ``state["epoch"]``.
    """
    return TrainingState(model, optimizer, scheduler, scaler=scaler, ema=ema, random=random, extra=extra)


class TrainingState:
    """What :func:`state` gives."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Optional[_Optimizers],
        scheduler: Any,
        *,
        scaler: Any,
        ema: Any,
        random: bool,
        extra: dict[str, Any],
    ) -> None:
        module = ModuleState(model)
        self._parts: dict[str, Any] = {"model": module}
        if optimizer is not None:
            several = isinstance(optimizer, (list, tuple))
            self._parts["optimizer"] = OptimizerState(module, list(optimizer) if several else [optimizer])  # type: ignore[list-item,arg-type]
        if scheduler is not None:
            several = isinstance(scheduler, (list, tuple))
            self._parts["scheduler"] = list(scheduler) if several else scheduler
        if scaler is not None:
            self._parts["scaler"] = scaler
        if ema is not None:
            self._parts["ema"] = ModuleState(ema, "ema") if isinstance(ema, torch.nn.Module) else ema
        self._with_random = random
        self._extra = dict(extra)
        self._absent: frozenset[str] = frozenset()
        self._live_random: Optional[PerRank] = None
        self._restored_random: Optional[dict[str, Any]] = None

    def __getitem__(self, name: str) -> Any:
        if name not in self._extra:
            raise KeyError(f"{name}: no extra entry of this state; they are {sorted(self._extra)}")
        return self._extra[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in _PARTS or name == _RANDOM:
            raise KeyError(f"{name}: an entry of its own; give it to rankguard.torch.state()")
        self._extra[name] = value

    def state_dict(self) -> dict[str, Any]:
        """The parts as objects with a state of their own, random numbers as of now, and the extra entries."""
        tree = {name: part for name, part in self._parts.items() if name not in self._absent}
        if self._with_random:
            self._live_random = PerRank(_random.states())
            tree[_RANDOM] = self._live_random
        return {**tree, **self._extra}

    def load_state_dict(self, tree: dict[str, Any]) -> None:
        """Takes the extra entries and the random numbers; the parts have loaded their own."""
        self._extra.update({name: value for name, value in tree.items() if name not in _PARTS and name != _RANDOM})
        saved = tree.get(_RANDOM)
        if isinstance(saved, PerRank) and saved is not self._live_random:
            self._restored_random = saved.value
        self._live_random = None
        self.restore_random()

    def restore_random(self) -> bool:
        """Puts the random numbers of the checkpoint back once more, for a loader that draws when it begins.

        Does nothing and gives ``False`` on a first start and where another number of ranks saved.
        """
        if self._restored_random is None or not self._with_random:
            return False
        _random.restore(self._restored_random)
        return True

    def begin_restore(self, saved: SavedDescription, strict: bool) -> None:
        """Gives the parts their descriptions; refuses a checkpoint with other parts by the argument's name."""
        tree = saved.tree()
        if isinstance(tree, dict):
            self._check_parts(tree, saved.step, strict)
        for name, part in self._parts.items():
            if name not in self._absent and hasattr(type(part), "begin_restore"):
                part.begin_restore(saved.at(name), strict)

    def end_restore(self) -> None:
        """Ends the restore of the parts."""
        self._absent = frozenset()
        for part in self._parts.values():
            if hasattr(type(part), "end_restore"):
                part.end_restore()

    def _check_parts(self, tree: dict[str, Any], step: int, strict: bool) -> None:
        for name in _PARTS:
            if strict and name in tree and name not in self._parts:
                raise ValueError(
                    f"cannot restore: the checkpoint of step {step} has {name!r} and this state has none; give {name}= to "
                    "rankguard.torch.state(), or leave it away with restore(..., strict=False)"
                )
            if strict and name in self._parts and name not in tree:
                raise ValueError(
                    f"cannot restore: this state has {name!r} and the checkpoint of step {step} has none; start it anew with "
                    "restore(..., strict=False)"
                )
        self._absent = frozenset(name for name in self._parts if name not in tree)
