"""New optimizer moments from a checkpoint's description."""

from __future__ import annotations

import re
from typing import Any, Optional

import torch

from . import _arrays
from ._tree import PerRank, Ref
from ._wrapped import WrappedTensor

_PLACEMENT = re.compile(r"(R)|S\((\d+)\)")


def moment_layouts(place: str, moments: dict[str, Any], parameter: Any) -> dict[str, Any]:
    """Type, shape and placements of DTensor moments that are unlike their parameter, by key."""
    layouts = {}
    for key, value in moments.items():
        if isinstance(value, torch.Tensor) and hasattr(value, "placements"):
            alike = value.dtype == parameter.dtype and value.shape == parameter.shape
            if not alike or value.placements != getattr(parameter, "placements", None):
                dtype = str(value.dtype).rpartition(".")[2]
                layouts[str(key)] = [dtype, list(value.shape), [_text_of(f"{place}.{key}", it) for it in value.placements]]
    return layouts


def new_moment(place: str, key: Any, saved: Any, parameter: Any, group: dict[str, Any], layout: Optional[list[Any]]) -> Any:
    """A value of an optimizer's state: tensors are zeros of the saved type and shape, plain values are the saved ones.

    A tensor of the parameter's shape is placed as the parameter is, and others are whole on its device. A step count is on
    the CPU unless the group is ``capturable`` or ``fused``, as torch.optim has it.
    """
    if isinstance(saved, dict):
        return {name: new_moment(f"{place}.{name}", name, item, parameter, group, None) for name, item in saved.items()}
    if isinstance(saved, list):
        return [new_moment(f"{place}.{at}", key, item, parameter, group, None) for at, item in enumerate(saved)]
    if isinstance(saved, tuple):
        return tuple(new_moment(f"{place}.{at}", key, item, parameter, group, None) for at, item in enumerate(saved))
    if isinstance(saved, PerRank):
        raise _arrays.Unsavable(f"{place}: a value of one rank cannot be restored into an optimizer")
    if isinstance(saved, WrappedTensor):
        return saved.make(place, lambda name, item: new_moment(name, "", item, parameter, group, None))
    if not isinstance(saved, Ref):
        return saved
    if saved.kind == "part":
        return _new_part(place, parameter, layout)
    if saved.dtype is None or saved.shape is None:
        raise _arrays.Unsavable(f"{place}: the checkpoint has it without its shape; restore into an optimizer that has state")
    dtype = _arrays.torch_dtype(saved.dtype)
    whole = key in ("step", "lr")
    if not whole and tuple(saved.shape) == tuple(parameter.shape):
        return torch.zeros_like(parameter.detach(), dtype=dtype)
    on_device = not whole or group.get("capturable") or group.get("fused")
    return torch.zeros(saved.shape, dtype=dtype, device=parameter.device if on_device else "cpu")


def _new_part(place: str, parameter: Any, layout: Optional[list[Any]]) -> Any:
    if layout is None:
        return torch.zeros_like(parameter.detach())
    name, shape, placements = layout
    dtype = getattr(torch, name)
    if tuple(shape) == tuple(parameter.shape):
        return torch.zeros_like(parameter.detach(), dtype=dtype)
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return torch.zeros(shape, dtype=dtype, device=parameter.device)
    if mesh.ndim != len(placements):
        raise ValueError(
            f"cannot restore {place}: it was saved on a mesh of {len(placements)} dimensions and its parameter is on one of "
            f"{mesh.ndim}; restore on a mesh with the same dimensions"
        )
    from torch.distributed.tensor import zeros

    return zeros(*shape, dtype=dtype, device_mesh=mesh, placements=[_placement(place, text) for text in placements])


def _text_of(place: str, placement: Any) -> str:
    if placement.is_replicate():
        return "R"
    if placement.is_shard() and type(placement).__name__ == "Shard":
        return f"S({placement.dim})"
    raise _arrays.Unsavable(f"{place}: a moment placed as {placement} cannot be saved; only Shard and Replicate can")


def _placement(place: str, text: Any) -> Any:
    from torch.distributed.tensor import Replicate, Shard

    found = _PLACEMENT.fullmatch(str(text))
    if found is None:
        raise ValueError(
            f"cannot restore {place}: the checkpoint names the placement {text!r}, which this version does not know"
        )
    return Replicate() if found.group(1) else Shard(int(found.group(2)))
