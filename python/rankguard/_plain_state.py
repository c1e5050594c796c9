"""Large plain state as a tensor of its own.

The description of an image has room for names of tensors and little plain state. JSON beyond :data:`INLINE_BYTES_MAX` becomes
a tensor of bytes, one a rank, and a reference to it takes its place. Arenas, tiers, windows and deltas treat it as any tensor.
"""

from __future__ import annotations

import ctypes
import json
import warnings
from typing import Any, Optional

from . import _arrays
from ._permitted import REPLICATE_KEY

#: Names the encoding of the reference.
SCHEMA = "rankguard.plain-state/1"

#: Longest JSON that is kept in the description of an image.
INLINE_BYTES_MAX = 256 << 10

#: Longest JSON of one rank. Each save encodes all of it while the trainer waits.
STATE_BYTES_MAX = 256 << 20

#: Tensors with this beginning belong to the package.
NAME_PREFIX = "rankguard.plain-state."


class StateGrowth:
    """Watches the plain state of a run grow towards its limit."""

    def __init__(self) -> None:
        self._first: Optional[tuple[int, int]] = None
        self._warned_bytes = STATE_BYTES_MAX // 4

    def check(self, step: int, nbytes: int) -> None:
        """Refuses a state beyond the limit, and warns from half of it on, each time that it has doubled or more."""
        if self._first is None or self._first[0] > step:
            self._first = (step, nbytes)
        if nbytes > STATE_BYTES_MAX:
            raise _arrays.Unsavable(
                f"plain state: it has {_mib(nbytes)} of JSON at step {step}, more than {_mib(STATE_BYTES_MAX)}; "
                "keep long histories in a tensor or an array, or in a file of their own"
            )
        if nbytes >= 2 * self._warned_bytes:
            self._warned_bytes = nbytes
            warnings.warn(self._forecast(step, nbytes), RuntimeWarning, stacklevel=5)

    def _forecast(self, step: int, nbytes: int) -> str:
        text = f"plain state has {_mib(nbytes)} of JSON at step {step}; saves are refused beyond {_mib(STATE_BYTES_MAX)}"
        assert self._first is not None
        steps, grown = step - self._first[0], nbytes - self._first[1]
        if steps <= 0 or grown <= 0:
            return text + ". Keep long histories in a tensor or an array"
        full = step + (STATE_BYTES_MAX - nbytes) * steps // grown
        return f"{text}: at this growth from step {full} on. Keep long histories in a tensor or an array"


def packed(text: str, rank: int, replicated: Optional[list[str]] = None) -> tuple[str, Optional[_arrays.Box]]:
    """The JSON that is saved for a state, and the tensor that holds the state where it is large."""
    if len(text) <= INLINE_BYTES_MAX:
        return text, None
    data = bytearray(text, "utf-8")
    name = f"{NAME_PREFIX}{rank}"
    reference: dict[str, Any] = {"schema": SCHEMA, "tensor": name, "bytes": len(data)}
    if replicated is not None:
        reference[REPLICATE_KEY] = replicated
    return json.dumps(reference), _box(name, data)


def unpacking(text: str) -> Optional[tuple[_arrays.Box, bytearray]]:
    """The tensor that a reference names, and the memory for it; ``None`` for a state that is not a reference."""
    if SCHEMA not in text[: len(SCHEMA) + 200]:
        return None
    reference: Any = json.loads(text)
    if not isinstance(reference, dict) or reference.get("schema") != SCHEMA:
        return None
    nbytes = reference.get("bytes")
    if type(nbytes) is not int or not 0 < nbytes <= STATE_BYTES_MAX:
        raise ValueError(f"the plain state of the checkpoint is said to have {nbytes!r} bytes; want 1 to {STATE_BYTES_MAX}")
    data = bytearray(nbytes)
    return _box(str(reference.get("tensor")), data), data


def _box(name: str, data: bytearray) -> _arrays.Box:
    memory = (ctypes.c_ubyte * len(data)).from_buffer(data)
    return _arrays.Box(name, "U8", [len(data)], [0], [len(data)], ctypes.addressof(memory), len(data), memory)


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
