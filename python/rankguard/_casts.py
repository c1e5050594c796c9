"""Element types that a restore may convert into each other, when the caller asks for it."""

from __future__ import annotations

from typing import Any

from . import _arrays

_FLOATS = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
_COMPLEX = {"C64", "C128"}
#: Integers, by the saved type: the types that hold each of its values.
_WIDER = {
    "I8": {"I16", "I32", "I64"},
    "I16": {"I32", "I64"},
    "I32": {"I64"},
    "U8": {"U16", "U32", "U64", "I16", "I32", "I64"},
    "U16": {"U32", "U64", "I32", "I64"},
    "U32": {"U64", "I64"},
}


def can_cast(saved: str, live: str) -> bool:
    """Whether values of the saved type may be converted to the live one."""
    both = {saved, live}
    return both <= _FLOATS or both <= _COMPLEX or live in _WIDER.get(saved, ())


def cast_box(box: _arrays.Box, saved: str) -> None:
    """Makes the box one of the saved element type; its bytes are converted after the restore."""
    if not can_cast(saved, box.dtype):
        raise _arrays.Unsavable(
            f"{box.name}: cannot cast {saved} of the checkpoint to {box.dtype} of the state; casts are between floating "
            "types, between complex types, and to wider integers"
        )
    live, finish = box.owner, box.after
    buffer = _arrays.empty("torch" if _arrays.is_torch(live) else "numpy", saved, box.shape)
    inner = _arrays.box_of(box.name, buffer, writable=True)
    assert inner is not None
    box.dtype, box.address, box.nbytes, box.owner = saved, inner.address, inner.nbytes, inner.owner

    def convert() -> None:
        _copy_into(live, buffer)
        if finish is not None:
            finish()

    box.after = convert


def _copy_into(live: Any, buffer: Any) -> None:
    if _arrays.is_torch(live):
        live.copy_(buffer)
    else:
        live[...] = buffer.astype(live.dtype)
