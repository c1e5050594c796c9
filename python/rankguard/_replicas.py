"""Comparison of replicas while training runs: tensors that must be equal on several ranks and are not."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import _arguments, _arrays
from ._rankguard import RankguardError
from ._tree import Flat

#: What :func:`compare` does about a difference.
ON_DIFFERENCE = ("raise", "report")

#: Words (8 bytes) that are mixed at a time: within the cache of a processor, and enough work for a launch on a device.
_CPU_WORDS, _DEVICE_WORDS = 1 << 16, 1 << 21

#: Odd multipliers of 64-bit mixing functions (Steele, Lea and Flood, OOPSLA 2014; Stafford's variant 13), as signed integers.
_POSITION = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)

#: The positions' share of the mix, by device.
_positions: dict[Any, Any] = {}

#: Whether the warning that nothing is compared was given.
_warned_of_none = False


@dataclass(frozen=True)
class ReplicaDifference:
    """A tensor, or a part of one, with different contents on the ranks that hold it."""

    tensor: str
    #: Ranks with equal content, the largest group first.
    groups: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> list[int]:
        """The ranks that hold it."""
        return sorted(rank for group in self.groups for rank in group)

    @property
    def suspects(self) -> list[int]:
        """The ranks that differ from a majority of all; empty without a majority, as with two replicas."""
        if 2 * len(self.groups[0]) <= len(self.ranks):
            return []
        return sorted(rank for group in self.groups[1:] for rank in group)

    def __str__(self) -> str:
        listed = " ".join(map(str, self.ranks))
        if not self.suspects:
            return f"tensor {self.tensor} has {len(self.groups)} contents on ranks {listed}, and none has a majority"
        noun, verb = ("rank", "differs") if len(self.suspects) == 1 else ("ranks", "differ")
        return f"tensor {self.tensor} of {noun} {' '.join(map(str, self.suspects))} {verb} from the majority of ranks {listed}"


class ReplicasDiffer(RankguardError):
    """Tensors that must be equal on several ranks differ: a processor, a memory or a link gave a wrong result, or the program
    lets the ranks diverge."""

    def __init__(self, step: int, differences: list[ReplicaDifference], compared: int) -> None:
        self.step = step
        self.differences = differences
        super().__init__(_described(step, differences, compared))


def compare(
    state: Any,
    *,
    step: int,
    every: int = 1,
    group: Any = None,
    on_difference: str = "raise",
) -> list[ReplicaDifference]:
    """Compares the tensors of ``state`` with those of the other ranks; see :func:`rankguard.compare`."""
    step = _arguments.check_integer("step", step)
    every = _arguments.check_integer("every", every, low=1)
    if on_difference not in ON_DIFFERENCE:
        raise ValueError(f"on_difference is {on_difference!r}; give one of {', '.join(map(repr, ON_DIFFERENCE))}")
    if step % every != 0:
        return []
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise RankguardError(
            "rankguard.compare() exchanges digests through torch.distributed; call init_process_group() before it"
        )
    distributed = torch.distributed
    if distributed.get_rank(group) < 0:
        raise ValueError("this rank is not in group; call rankguard.compare() only on the ranks of the group")
    parts = list(_parts(state))
    digests = _digests(torch, [values for _, values in parts])
    layout = _hash(json.dumps([described for described, _ in parts]).encode())
    members = _gathered(torch, [layout, _hash(repr(digests).encode())], group)
    if len(members) > 1 and len({member[0] for member in members}) == len(members):
        _warn_of_none()
    if all(len({content for other, content in members if other == layout}) == 1 for layout, _ in members):
        return []
    names = [described[0] for described, _ in parts]
    differences = _differences(distributed, layout, names, digests, group)
    _report(distributed.get_rank(), step, differences, len(parts), on_difference)
    return differences


def _report(rank: int, step: int, differences: list[ReplicaDifference], compared: int, on_difference: str) -> None:
    # The others are healthy: an exception there would look like a failure of their own.
    suspects = {suspect for difference in differences for suspect in difference.suspects}
    holders = {holder for difference in differences for holder in difference.ranks}
    if on_difference == "raise" and rank in (suspects or holders):
        raise ReplicasDiffer(step, differences, compared)
    if on_difference == "report" and rank in (suspects or {min(holders)}):
        print(f"rankguard.compare: {_described(step, differences, compared)}", file=sys.stderr, flush=True)


def _described(step: int, differences: list[ReplicaDifference], compared: int) -> str:
    # The catalogue of failures reads this sentence.
    clearest = max(differences, key=lambda difference: bool(difference.suspects))
    text = f"replicas that must be equal differ at step {step}: {clearest}"
    if len(differences) > 1:
        text += f"; {len(differences)} of {compared} tensors differ"
    if not clearest.suspects and 2 * len(differences) > compared:
        text += "; if the ranks hold different parts on purpose, give rankguard.compare() the data-parallel group"
    return text


def _parts(state: Any) -> Iterable[tuple[list[Any], Any]]:
    """Name and place of each part that this rank holds, and its values as a tensor of torch."""
    import torch

    flat = Flat(state, ())
    for leaf in flat.leaves:
        # Wrappers take these from their first rank before each forward pass.
        if leaf.name in flat.replicated:
            continue
        value, whole, offset = leaf.value, None, None
        if isinstance(value, _arrays.Shard):
            value, whole, offset = value.array, list(value.global_shape), list(value.offset)
        if _arrays.is_dtensor(value):
            whole = list(value.shape)
            placed = _arrays.dtensor_part(leaf.name, value)
            if placed is None:
                continue
            value, offset, _ = placed
        if not _arrays.is_torch(value):
            import numpy

            value = torch.from_numpy(numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8))
        if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
            raise _arrays.Unsavable(f"{leaf.name}: only dense tensors with data can be compared")
        yield [leaf.name, str(value.dtype), whole or list(value.shape), offset or [], list(value.shape)], value


def _digests(torch: Any, tensors: list[Any]) -> list[int]:
    """A digest of 64 bits for each tensor's bytes; the order of additions on a device has no influence on it."""
    with torch.no_grad():
        parts = [_digest(torch, values) for values in tensors]
        # One transfer for all tensors of a device.
        by_device: dict[Any, list[int]] = {}
        for at, part in enumerate(parts):
            by_device.setdefault(part.device, []).append(at)
        digests = [0] * len(parts)
        for places in by_device.values():
            for at, digest in zip(places, torch.stack([parts[at] for at in places]).tolist()):
                digests[at] = digest
    return digests


def _digest(torch: Any, values: Any) -> Any:
    values = values.detach()
    if not values.numel():
        return torch.zeros((), dtype=torch.int64, device=values.device)
    if values.is_complex() and values.is_conj():
        values = values.resolve_conj()
    if values.is_neg():
        values = values.resolve_neg()
    data = values.contiguous().reshape(-1).view(torch.uint8)
    rest = data.numel() % 8
    if rest or data.storage_offset() % 8:
        data = torch.cat([data, data.new_zeros(8 - rest if rest else 0)])
    words = data.view(torch.int64)
    size = _CPU_WORDS if words.device.type == "cpu" else _DEVICE_WORDS
    positions = _positions.get(words.device)
    if positions is None:
        positions = _positions[words.device] = torch.arange(size, dtype=torch.int64, device=words.device) * _POSITION
    total = torch.full((), values.numel(), dtype=torch.int64, device=words.device)
    mixed, shifted = torch.empty_like(positions), torch.empty_like(positions)
    for start in range(0, words.numel(), size):
        some = words[start : start + size]
        one, other = mixed[: some.numel()], shifted[: some.numel()]
        torch.add(some, positions[: some.numel()], out=one)
        one.add_(_wrapped(start * _POSITION))
        for shift, factor in ((30, _FIRST), (27, _SECOND)):
            torch.bitwise_right_shift(one, shift, out=other)
            one.bitwise_xor_(other).mul_(factor)
        torch.bitwise_right_shift(one, 31, out=other)
        total += one.bitwise_xor_(other).sum()
    return total


def _wrapped(number: int) -> int:
    """The number as a signed one of 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


def _gathered(torch: Any, numbers: list[int], group: Any) -> list[tuple[int, ...]]:
    """The numbers of each rank of the group, in the order of its ranks."""
    distributed = torch.distributed
    backends = distributed.get_backend_config(group)
    device = "cpu" if "cpu:" in backends or ":" not in backends else backends.partition(":")[0]
    mine = torch.tensor(numbers, dtype=torch.int64, device=device)
    all_of = [torch.empty_like(mine) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(all_of, mine, group=group)
    return [tuple(one.tolist()) for one in all_of]


def _differences(distributed: Any, layout: int, names: list[str], digests: list[int], group: Any) -> list[ReplicaDifference]:
    """The tensors that differ among ranks that hold the same parts, in the order of the state."""
    everyone: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(everyone, (distributed.get_rank(), layout, names, digests), group=group)
    found: dict[tuple[str, tuple[int, ...]], ReplicaDifference] = {}
    for of in dict.fromkeys(layout for _, layout, _, _ in everyone):
        held = [(rank, names, digests) for rank, layout, names, digests in everyone if layout == of]
        for at, name in enumerate(held[0][1]):
            contents: dict[int, list[int]] = {}
            for rank, _, theirs in held:
                contents.setdefault(theirs[at], []).append(rank)
            if len(contents) > 1:
                groups = sorted((tuple(sorted(ranks)) for ranks in contents.values()), key=lambda one: (-len(one), one))
                difference = ReplicaDifference(name, tuple(groups))
                found[name, tuple(difference.ranks)] = difference
    return list(found.values())


def _warn_of_none() -> None:
    global _warned_of_none
    if not _warned_of_none:
        _warned_of_none = True
        print(
            "rankguard.compare: each rank holds other parts than all others, so nothing is compared (a fully sharded state has "
            "no replicas)",
            file=sys.stderr,
            flush=True,
        )
