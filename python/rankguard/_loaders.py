"""Refusals of loaders that would change what a sampler yields, found when they begin to iterate."""

from __future__ import annotations

from types import FrameType
from typing import Optional

_BATCH_SAMPLERS = ("torch.utils.data.sampler", "torchdata.stateful_dataloader.sampler")


def problem_of(frame: FrameType) -> Optional[TypeError]:
    """The refusal of a caller of ``iter(sampler)`` that batches, splits or reorders batches again."""
    module = str(frame.f_globals.get("__name__", ""))
    if module in _BATCH_SAMPLERS:
        return TypeError(
            "cannot iterate: the sampler was passed as sampler=, and it yields whole batches of this rank; "
            "pass DataLoader(dataset, batch_sampler=sampler) without batch_size, shuffle and drop_last"
        )
    if module == "accelerate.data_loader" and type(frame.f_locals.get("self")).__name__ == "BatchSamplerShard":
        return TypeError(
            "cannot iterate: Accelerate distributes the batches of this rank over all ranks a second time; "
            "leave this loader out of accelerator.prepare()"
        )
    loader = frame.f_locals.get("loader")
    if loader is None or not getattr(loader, "num_workers", 0):
        return None
    if getattr(loader, "in_order", True) is False:
        return TypeError(
            "cannot iterate: with in_order=False the loader returns batches in the order in which its workers finish; "
            "leave in_order at True"
        )
    if getattr(loader, "snapshot_every_n_steps", 1) != 1:
        return TypeError(
            f"cannot iterate: with snapshot_every_n_steps={loader.snapshot_every_n_steps} the loader reads batches again "
            "that the sampler counts; leave snapshot_every_n_steps at 1"
        )
    return None


def reads_ahead(frame: FrameType) -> Optional[int]:
    """Batches that the loader that begins to iterate reads before they are asked for; ``None`` if no loader is known."""
    loader = frame.f_locals.get("loader")
    workers = getattr(loader, "num_workers", None)
    return None if workers is None else int(workers) * int(getattr(loader, "prefetch_factor", None) or 0)
