"""Hugging Face Accelerate: what ``Accelerator.save_state`` saves, saved through Rankguard.

    import rankguard.accelerate as rga

    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    rankguard.init()
    restored = rga.restore(accelerator)
    ...
        rankguard.step(n, loss=loss)
        if rankguard.due():
            rga.checkpoint(accelerator)
    rankguard.done()

Models, optimizers, schedules, the gradient scaler, stateful loaders, registered objects
(``Accelerator.register_for_checkpointing``), the count of gathered gradients, and the random numbers of each rank; on any
number of ranks later. One process and DDP are tested, FSDP2 is not. The hooks of ``save_state`` are no place for this: they
run before Accelerate writes files of its own and cannot keep it from that. So these two functions stand in its place, and
such hooks are not called.

As with ``load_state``, the place in an epoch is the trainer's: ``accelerator.skip_first_batches(loader, n)``. Random numbers
are those of the save when :func:`restore` returns. A loader draws one more when it begins, so with dropout a run that goes
on within an epoch is the same bit by bit if it restores them once more after that: ``restored.random()``. From three ranks
on this wants ``DistributedDataParallelKwargs(find_unused_parameters=True)``, else it is equal up to rounding. The order of
an epoch can be drawn again with ``DataLoaderConfiguration(use_seedable_sampler=True)``. Absent: DeepSpeed and Megatron, which
keep the state themselves; they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

import accelerate
import torch

from . import _random, _session
from ._modules import ModuleState
from ._optimizer import OptimizerState
from ._tree import PerRank


@dataclass(frozen=True)
class Restored:
    """What a restore gave."""

    #: Steps completed when it was saved.
    step: int
    #: Ranks that saved it.
    world_size: int
    #: Puts the random numbers of the save back once more; nothing if another number of ranks saved.
    random: Callable[[], None]


def checkpoint(
    accelerator: accelerate.Accelerator, step: Optional[int] = None, session: Optional[_session.Session] = None
) -> _session.Saved:
    """Saves all that was prepared and registered; when it returns, training may go on. To be called on every rank."""
    return _session.given(session).checkpoint(_state(accelerator), step)


def restore(
    accelerator: accelerate.Accelerator, step: Optional[int] = None, session: Optional[_session.Session] = None
) -> Optional[Restored]:
    """Restores in place; ``None`` for a fresh start. After ``prepare``, with the same things prepared in the same order."""
    live = _state(accelerator)
    restored = _session.given(session).restore(live, step, replicate=True)
    if restored is None:
        return None
    loaders = live["loaders"].value
    for at, loader in enumerate(_stateful_loaders(accelerator)):
        loader.load_state_dict(loaders[at])
    accelerator.step = live["step"]
    saved_random = None if restored.kept else live["random"].value

    def random() -> None:
        if saved_random is not None:
            _random.restore(saved_random)

    random()
    return Restored(restored.step, restored.world_size, random)


def _state(accelerator: accelerate.Accelerator) -> dict[str, Any]:
    if str(accelerator.distributed_type).endswith(("DEEPSPEED", "MEGATRON_LM")):
        raise ValueError(f"rankguard.accelerate does not serve {accelerator.distributed_type}, which keeps the state itself")
    models = ModuleState(_models(accelerator), "models")
    return {
        "models": models,
        "optimizers": OptimizerState(models, _optimizers(accelerator), "optimizers"),
        "schedules": list(accelerator._schedulers),
        "scaler": accelerator.scaler,
        "registered": list(accelerator._custom_objects),
        "step": accelerator.step,
        "loaders": PerRank([loader.state_dict() for loader in _stateful_loaders(accelerator)]),
        "random": PerRank(_random.states()),
    }


def _models(accelerator: accelerate.Accelerator) -> torch.nn.Module:
    """All that were prepared, as one: each optimizer may then have parameters of any."""
    return torch.nn.ModuleList(accelerator._models)


def _optimizers(accelerator: accelerate.Accelerator) -> list[torch.optim.Optimizer]:
    """Without Accelerate's wrapper, which does not step when gradients are being gathered."""
    return [getattr(optimizer, "optimizer", optimizer) for optimizer in accelerator._optimizers]


def _stateful_loaders(accelerator: accelerate.Accelerator) -> list[Any]:
    return [loader for loader in accelerator._dataloaders if getattr(loader, "use_stateful_dataloader", False)]
