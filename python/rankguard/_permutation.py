"""Keyed permutations of the samples of an epoch, with random access in both directions and constant memory.

``feistel-splitmix64/1`` is a balanced Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from
pseudorandom functions", 1988) of eight rounds over the smallest even number of bits that holds the samples, at least
:data:`_MIN_BITS`. Values beyond the samples pass through the network again until one is in range: cycle walking (Black and
Rogaway, "Ciphers with arbitrary finite domains", 2002). The domain is less than four times the samples, or 256 values, so
the mean number of passes is small. The round function is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast
splittable pseudorandom number generators", 2014) of half and round key. The eight round keys are the SHA-512 digest of
seed, epoch and number of samples.

The order is for training and not for secrets. A kind that was released never changes: its name is in every saved state, and
another algorithm is another kind, so a running job keeps its order.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Protocol

#: Largest number of samples: a half of the network fits 32 bits.
MAX_SAMPLES = 1 << 62

_WORD = (1 << 64) - 1
#: The factors of SplitMix64's finaliser.
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: Networks over fewer bits reach too few of the orders of few samples.
_MIN_BITS = 8
#: Positions from which on arrays of numpy are faster than a loop.
_ARRAY_FROM = 24


class SampleOrder(Protocol):
    """The order of the samples of one epoch."""

    def index(self, position: int) -> int:
        """Sample at a position."""
        ...

    def position(self, index: int) -> int:
        """Position of a sample: the inverse of :meth:`index`."""
        ...

    def indices(self, start: int, stop: int) -> list[int]:
        """Samples at the positions from ``start`` to before ``stop``."""
        ...


class SequentialOrder:
    """Samples in the order of the dataset, in every epoch."""

    KIND = "sequential/1"

    def __init__(self, samples: int, seed: int, epoch: int) -> None:
        self._samples = samples

    def index(self, position: int) -> int:
        return _in_range("position", position, self._samples)

    def position(self, index: int) -> int:
        return _in_range("index", index, self._samples)

    def indices(self, start: int, stop: int) -> list[int]:
        _check_span(start, stop, self._samples)
        return list(range(start, stop))


class FeistelOrder:
    """A pseudorandom order of its own for each seed and epoch."""

    #: Part of the keys too, so another version has other keys.
    KIND = "feistel-splitmix64/1"

    def __init__(self, samples: int, seed: int, epoch: int) -> None:
        bits = max((samples - 1).bit_length(), _MIN_BITS)
        self._samples = samples
        self._half = (bits + 1) // 2
        self._mask = (1 << self._half) - 1
        text = f"{self.KIND} seed={seed} epoch={epoch} samples={samples}"
        digest = hashlib.sha512(text.encode("ascii")).digest()
        self._keys = [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 64, 8)]

    def index(self, position: int) -> int:
        value = _in_range("position", position, self._samples)
        while True:
            value = self._forward(value)
            if value < self._samples:
                return value

    def position(self, index: int) -> int:
        value = _in_range("index", index, self._samples)
        while True:
            value = self._backward(value)
            if value < self._samples:
                return value

    def indices(self, start: int, stop: int) -> list[int]:
        _check_span(start, stop, self._samples)
        numpy = sys.modules.get("numpy")
        if numpy is not None and stop - start >= _ARRAY_FROM:
            return self._array(numpy, start, stop)
        return [self.index(position) for position in range(start, stop)]

    def _forward(self, value: int) -> int:
        half, mask = self._half, self._mask
        left, right = value >> half, value & mask
        for key in self._keys:
            # Written out: a call for each round takes as long as the round.
            word = (right + key) & _WORD
            word = ((word ^ (word >> 30)) * _FIRST) & _WORD
            word = ((word ^ (word >> 27)) * _SECOND) & _WORD
            left, right = right, left ^ ((word ^ (word >> 31)) & mask)
        return left << half | right

    def _backward(self, value: int) -> int:
        half, mask = self._half, self._mask
        left, right = value >> half, value & mask
        for key in reversed(self._keys):
            left, right = right ^ (_mixed((left + key) & _WORD) & mask), left
        return left << half | right

    def _array(self, numpy: Any, start: int, stop: int) -> list[int]:
        """The same on arrays; 64-bit words of numpy wrap as the network requires."""
        word = numpy.uint64
        half, mask, samples = word(self._half), word(self._mask), word(self._samples)
        found = numpy.arange(start, stop, dtype=word)
        pending = numpy.arange(stop - start)
        while pending.size:
            value = found[pending]
            left, right = value >> half, value & mask
            for key in self._keys:
                mixed = right + word(key)
                mixed = (mixed ^ (mixed >> word(30))) * word(_FIRST)
                mixed = (mixed ^ (mixed >> word(27))) * word(_SECOND)
                left, right = right, left ^ ((mixed ^ (mixed >> word(31))) & mask)
            value = left << half | right
            found[pending] = value
            pending = pending[value >= samples]
        listed: list[int] = found.tolist()
        return listed


def _mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def _in_range(name: str, value: int, samples: int) -> int:
    if not 0 <= value < samples:
        raise IndexError(f"{name} is {value}; it can be 0 to {samples - 1}")
    return value


def _check_span(start: int, stop: int, samples: int) -> None:
    if not 0 <= start <= stop <= samples:
        raise IndexError(f"positions are {start} to {stop}; they can be 0 to {samples}")


#: Every kind that a saved state may name. Kinds are added and never changed or removed.
KINDS: dict[str, Any] = {kind.KIND: kind for kind in (FeistelOrder, SequentialOrder)}
#: Kinds of new samplers.
SHUFFLED, SEQUENTIAL = FeistelOrder.KIND, SequentialOrder.KIND


def make(kind: str, samples: int, seed: int, epoch: int) -> SampleOrder:
    """The order of an epoch, of a kind in :data:`KINDS`."""
    order: SampleOrder = KINDS[kind](samples, seed, epoch)
    return order


def family(kind: str) -> str:
    """The name of a kind without its version."""
    return kind.partition("/")[0]
