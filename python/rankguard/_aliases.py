"""Live arrays that share memory, such as tied weights: what is restored into one shows in the others.

Each of them is restored into memory of its own first. After all were copied to their places, every place must hold what the
checkpoint has for it; the checkpoint of a state with other ties is refused by name and not mixed.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

from . import _arrays


class SharedMemory:
    """The boxes of one restore whose arrays share memory."""

    def __init__(self, leaves: list[tuple[str, Any, _arrays.Box]]) -> None:
        self._shared: list[tuple[str, Any, Any]] = []
        for name, value, box in self._overlapping(leaves):
            self._redirect(name, value, box)

    def check(self) -> None:
        """Refuses arrays that do not hold what was restored into them, because another was restored over them."""
        for name, value, restored in self._shared:
            if not _equal(value, restored):
                others = _arrays_listed([other for other, _, _ in self._shared if other != name])
                raise ValueError(
                    f"{name}: it shares memory with another tensor of the live state ({others}), and the checkpoint has "
                    "different content for them; tie the tensors as they were when it was saved"
                )

    @staticmethod
    def _overlapping(leaves: list[tuple[str, Any, _arrays.Box]]) -> list[tuple[str, Any, _arrays.Box]]:
        extents = []
        for name, value, box in leaves:
            extent = _extent(name, value)
            if extent is not None:
                extents.append((extent, name, value, box))
        extents.sort(key=lambda entry: entry[0])
        found: dict[str, tuple[str, Any, _arrays.Box]] = {}
        end: tuple[str, int] = ("", -1)
        last: Optional[tuple[str, Any, _arrays.Box]] = None
        for (device, first, behind), name, value, box in extents:
            leaf = (name, value, box)
            if last is not None and device == end[0] and first < end[1]:
                found[last[0]], found[name] = last, leaf
            if last is None or device != end[0] or behind > end[1]:
                end, last = (device, behind), leaf
        return list(found.values())

    def _redirect(self, name: str, value: Any, box: _arrays.Box) -> None:
        value = _local_part(value)
        if is_torch(value):
            torch = sys.modules["torch"]
            restored = torch.empty(tuple(value.shape), dtype=value.dtype)
            box.address, box.owner = (restored.data_ptr() if box.nbytes else 0), restored

            def after() -> None:
                with torch.no_grad():
                    value.detach().copy_(restored)
        else:
            numpy = sys.modules["numpy"]
            restored = numpy.empty(value.shape, dtype=value.dtype)
            box.address, box.owner = restored.__array_interface__["data"][0], restored

            def after() -> None:
                value[...] = restored

        box.after = after
        self._shared.append((name, value, restored))


def _extent(name: str, value: Any) -> Optional[tuple[str, int, int]]:
    """Device and bytes in which an array lies; ``None`` where it has no memory of this process or no bytes."""
    value = _local_part(value)
    if is_torch(value):
        shape, size = tuple(value.shape), value.element_size()
        strides, address, device = [stride * size for stride in value.stride()], value.data_ptr(), str(value.device)
    elif _arrays._is_numpy(value):
        shape, size, strides = value.shape, value.itemsize, list(value.strides)
        address, device = value.__array_interface__["data"][0], "cpu"
    else:
        return None
    if 0 in shape:
        return None
    if any(extent > 1 and stride == 0 for extent, stride in zip(shape, strides)):
        raise _arrays.Unsavable(f"{name}: an expanded array has one memory for several elements; restore into a copy of it")
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides)]
    first = address + sum(step for step in reach if step < 0)
    return device, first, address + sum(step for step in reach if step > 0) + size


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _local_part(value: Any) -> Any:
    """The array of this process in a part of something larger."""
    value = value.array if isinstance(value, _arrays.Shard) else value
    return value.to_local() if _arrays.is_dtensor(value) else value


def _equal(value: Any, restored: Any) -> bool:
    """Whether two arrays have the same bytes."""
    if is_torch(value):
        torch = sys.modules["torch"]
        # A copy: the strides of a contiguous view may say anything where a dimension has one element.
        copies = (torch.clone(each.detach(), memory_format=torch.contiguous_format).reshape(-1) for each in (value, restored))
        one, other = (copy.cpu().view(torch.uint8) for copy in copies)
        return bool(torch.equal(one, other))
    return bool(value.tobytes() == restored.tobytes())


def _arrays_listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
