"""A nested state, taken apart: tensors by name, and everything else as JSON.

JSON alone loses what Python has: tuples, bytes, integers beyond 64 bits, NaN, floats to the last bit, keys that are no
strings. Such values become ``{"$": kind, ...}``; a name of this encoding (:data:`SCHEMA`) goes with every state, and what is
none of these is refused with its key. Nothing is ever pickled.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import _arrays, _kinds, _plain_state, _wrapped
from ._arrays import Unsavable
from ._permitted import REPLICATE_KEY
from ._wrapped import WrappedTensor

#: Name and version of the encoding.
SCHEMA = "rankguard.python/1"

#: Names the schema and the state in the JSON of a rank.
_SCHEMA_KEY, _STATE_KEY = "schema", "state"

_WORD = 1 << 63


@dataclass(frozen=True)
class PerRank:
    """A value that belongs to this rank alone, such as the state of its random numbers.

    It is saved in the rank's own state, tensors included, so keep it small. A rank that has no counterpart in the
    checkpoint (another world size) keeps what it has; ``Restored.kept`` names it.
    """

    value: Any


@dataclass
class Leaf:
    """A tensor in the tree."""

    name: str
    value: Any
    #: Puts another value in its place, where the container allows it.
    replace: Optional[Callable[[Any], None]]


class Flat:
    """A state taken apart."""

    def __init__(self, state: Any, path: tuple[Any, ...] = ()) -> None:
        self.leaves: list[Leaf] = []
        #: Names of tensors of which the first rank's are right for all.
        self.replicated: set[str] = set()
        #: Places of values that can only be restored into live ones.
        self.live_kinds: list[str] = []
        self._names: dict[str, tuple[Any, ...]] = {}
        self._stateful: list[tuple[Any, Any]] = []
        self._seen: list[int] = []
        self._state = self._encode(state, path, None)

    def text(self, replicated: Optional[list[str]] = None) -> str:
        """The state of this rank, as JSON; with the tensors of which a restore permits the first rank's, where known."""
        outer = {_SCHEMA_KEY: SCHEMA, _STATE_KEY: self._state}
        if replicated is not None:
            outer[REPLICATE_KEY] = replicated
        return json.dumps(outer, separators=(",", ":"), allow_nan=False)

    def states(self) -> dict[int, Any]:
        """The state of each object that was asked for one, by the object's id."""
        return {id(owner): state for owner, state in self._stateful}

    def load(self) -> None:
        """Hands restored state back to the objects that it was asked of."""
        for owner, state in self._stateful:
            owner.load_state_dict(state)

    def _encode(self, value: Any, path: tuple[Any, ...], replace: Optional[Callable[[Any], None]]) -> Any:
        if value is None or value is True or value is False:
            return value
        if type(value) is str:
            return _text(value, path)
        if type(value) is int:
            return value if -_WORD <= value < _WORD else {"$": "int", "v": str(value)}
        if type(value) is float:
            # As text: a reader of JSON may round the last bit, and there is no NaN.
            return {"$": "float", "v": repr(value)}
        if type(value) is bytes:
            return {"$": "bytes", "v": base64.b64encode(value).decode("ascii")}
        if type(value) is bytearray:
            return {"$": "bytes", "v": base64.b64encode(value).decode("ascii"), "t": "bytearray"}
        if _wrapped.is_wrapped(value):
            inner, described = _wrapped.parts_of(text_of(path), value)
            context = self._encode(described.pop("x"), path, None)
            parts = {key: self._encode(item, (*path, key), None) for key, item in inner.items()}
            return {"$": "wrapped", **described, "x": context, "v": parts}
        if _arrays.is_array(value):
            name = self._name(path)
            self.leaves.append(Leaf(name, value, replace))
            return {"$": "tensor", "v": name, **_arrays.described(value)}
        if isinstance(value, PerRank):
            return {"$": "per-rank", "v": _inline(value.value, text_of(path))}
        if _is_numpy_scalar(value):
            array = value.reshape(())
            return {
                "$": "scalar",
                "d": _arrays.scalar_dtype(value, text_of(path)),
                "v": base64.b64encode(array.tobytes()).decode("ascii"),
            }
        scalar = _kinds.encode_scalar(value) or _kinds.encode_set(value, lambda item: self._key(item, path))
        if scalar is not None:
            if scalar["$"] == "enum":
                self.live_kinds.append(text_of(path))
            return scalar
        return self._container(value, path)

    def _container(self, value: Any, path: tuple[Any, ...]) -> Any:
        if id(value) in self._seen:
            raise Unsavable(f"{text_of(path)}: the state contains itself")
        self._seen.append(id(value))
        try:
            if isinstance(value, dict):
                return self._dict(value, path)
            if type(value) is list:
                return [self._encode(item, (*path, at), _setter(value, at)) for at, item in enumerate(value)]
            if type(value) is tuple:
                # Nothing can be put into a tuple; restored values that are no tensors rebuild it as a whole.
                return {"$": "tuple", "v": [self._encode(item, (*path, at), None) for at, item in enumerate(value)]}
            if isinstance(value, tuple) and hasattr(value, "_fields"):
                self.live_kinds.append(text_of(path))
                fields = [str(field) for field in value._fields]
                items = [self._encode(item, (*path, field), None) for field, item in zip(fields, value)]
                return {"$": "named-tuple", "v": items, "f": fields, "t": _kinds.type_name(value)}
            if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
                state = value.state_dict()
                self._stateful.append((value, state))
                self.replicated.update(text_of((*path, name)) for name in _arrays.broadcast_buffers(value))
                return {"$": "stateful", "v": self._encode(state, path, None)}
        finally:
            self._seen.pop()
        raise Unsavable(
            f"{text_of(path)}: a {_kinds.type_name(value)} is neither a tensor nor plain state; {_kinds.hint_for(value)}"
        )

    def _dict(self, value: dict[Any, Any], path: tuple[Any, ...]) -> Any:
        # An object of JSON may come back in the order of its keys, and to Python the order is part of the value.
        tag = _kinds.dict_tag(value)
        plain = not tag and all(type(key) is str for key in value) and "$" not in value and list(value) == sorted(value)
        encoded = [(self._key(key, path), self._encode(item, (*path, key), _setter(value, key))) for key, item in value.items()]
        return dict(encoded) if plain else {"$": "dict", "v": [list(pair) for pair in encoded], **tag}

    def _key(self, key: Any, path: tuple[Any, ...]) -> Any:
        if key is None or type(key) in (str, int, float, bool, bytes):
            return self._encode(key, path, None)
        if type(key) is tuple:
            return {"$": "tuple", "v": [self._key(item, path) for item in key]}
        if type(key) is frozenset:
            return _kinds.encode_set(key, lambda item: self._key(item, path))
        raise Unsavable(f"{text_of(path)}: a key of type {type(key).__name__} cannot be saved: {key!r}")

    def _name(self, path: tuple[Any, ...]) -> str:
        name = text_of(path)
        if name.startswith(_plain_state.NAME_PREFIX):
            raise Unsavable(f"{name}: names that begin with {_plain_state.NAME_PREFIX} belong to rankguard; rename its key")
        if self._names.setdefault(name, path) != path:
            raise Unsavable(f"{name}: two tensors have this name, at {self._names[name]!r} and {path!r}")
        return name


def decode(text: str) -> Any:
    """The state in a rank's JSON; tensors are :class:`Ref`. Refuses another encoding by its name."""
    outer = json.loads(text)
    schema = outer.get(_SCHEMA_KEY) if isinstance(outer, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"the state of the checkpoint is of schema {schema!r}; this version reads {SCHEMA!r}")
    return _decode(outer.get(_STATE_KEY))


def encode_plain(value: Any, name: str) -> Any:
    """A value without tensors, as JSON; refuses one with its name."""
    flat = Flat(value, (name,))
    if flat.leaves:
        raise Unsavable(f"{name}: a tensor stands where only plain state can be saved")
    if flat.live_kinds:
        raise Unsavable(
            f"{flat.live_kinds[0]}: an enumeration or named tuple cannot be made without a live one; save plain values"
        )
    return flat._state


def decode_plain(value: Any) -> Any:
    """What :func:`encode_plain` was given."""
    return _decode(value)


@dataclass(frozen=True)
class Ref:
    """A tensor in a decoded state, with what is needed to make it anew, where that was written."""

    name: str
    dtype: Optional[str] = None
    shape: Optional[list[int]] = None
    #: Whose array it was: ``torch``, ``numpy`` (JAX too), or ``part`` for a part of something larger.
    kind: Optional[str] = None
    #: Library of the whole (``torch`` or ``numpy``), for a part; absent in states of earlier versions.
    part_of: Optional[str] = None


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: _decode(item) for key, item in value.items()}
    kind, inner = value["$"], value["v"]
    if kind == "float":
        return float(inner)
    if kind == "int":
        return int(inner)
    if kind == "bytes":
        return bytearray(base64.b64decode(inner)) if value.get("t") == "bytearray" else base64.b64decode(inner)
    if kind == "tensor":
        return Ref(inner, value.get("d"), value.get("s"), value.get("k"), value.get("w"))
    if kind == "wrapped":
        inner = {key: _decode(item) for key, item in inner.items()}
        return WrappedTensor(value["c"], _decode(value["x"]), value["s"], value["t"], inner)
    if kind == "tuple":
        return tuple(_decode(item) for item in inner)
    if kind == "dict":
        return _kinds.make_dict(value, [(_decode(key), _decode(item)) for key, item in inner])
    if kind in ("set", "frozenset"):
        return _kinds.decode_set(kind, map(_decode, inner))
    if kind == "named-tuple":
        return _kinds.NamedValues(value["t"], tuple(value["f"]), tuple(map(_decode, inner)))
    if kind == "stateful":
        return _decode(inner)
    if kind == "per-rank":
        return PerRank(_outline(inner))
    if kind == "scalar":
        return _arrays.scalar_of(value["d"], base64.b64decode(inner))
    known, made = _kinds.decode_scalar(kind, value)
    if known:
        return made
    raise ValueError(f"the state of the checkpoint has a value of kind {kind!r}, which this version does not know")


def refs(state: Any) -> Iterable[Ref]:
    """The tensors in a decoded state."""
    if isinstance(state, Ref):
        yield state
    elif isinstance(state, WrappedTensor):
        yield from refs(state.inner)
    elif isinstance(state, dict):
        for item in state.values():
            yield from refs(item)
    elif isinstance(state, (list, tuple)):
        for item in state:
            yield from refs(item)
    elif isinstance(state, _kinds.NamedValues):
        yield from refs(state.values)


def _setter(container: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value

    return put


def _text(value: str, path: tuple[Any, ...]) -> str:
    """The text, if it is Unicode; a lone surrogate, as ``surrogateescape`` leaves it, has no UTF-8."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            raise Unsavable(
                f"{text_of(path)}: the text {value!r:.60} has a lone surrogate at position {problem.start}; save its bytes "
                "(os.fsencode)"
            ) from None
    return value


def text_of(path: tuple[Any, ...]) -> str:
    """The name of a place in a state."""
    return ".".join(str(part) for part in path) or "state"


def _is_numpy_scalar(value: Any) -> bool:
    import sys

    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject


def _inline(value: Any, name: str) -> Any:
    """A value of one rank with its tensors in it."""
    flat = Flat(value)
    if flat.live_kinds:
        raise Unsavable(f"{name}.{flat.live_kinds[0]}: a PerRank has no enumerations and named tuples; save plain values")
    tensors = {}
    for leaf in flat.leaves:
        box = _arrays.box_of(f"{name}.{leaf.name}", leaf.value, writable=False)
        if box is None or box.shape != box.global_shape:
            raise Unsavable(f"{name}: a part of a larger tensor cannot belong to one rank alone")
        tensors[leaf.name] = [box.dtype, box.shape, base64.b64encode(_bytes_of(box)).decode("ascii"), _kind(leaf.value)]
    return {"state": flat._state, "tensors": tensors}


def _outline(inner: Any) -> Any:
    tensors = inner["tensors"]

    def back(value: Any) -> Any:
        if isinstance(value, Ref):
            return _array_of(*tensors[value.name])
        if isinstance(value, WrappedTensor):
            return value.make("state", lambda _, item: back(item))
        if isinstance(value, dict):
            return _kinds.like(value, [(key, back(item)) for key, item in value.items()])
        if isinstance(value, list):
            return [back(item) for item in value]
        if isinstance(value, tuple):
            return _kinds.like_tuple(value, (back(item) for item in value))
        return value

    return back(_decode(inner["state"]))


def _kind(value: Any) -> str:
    return "torch" if type(value).__module__.startswith("torch") else "numpy"


def _bytes_of(box: _arrays.Box) -> bytes:
    import ctypes

    return ctypes.string_at(box.address, box.nbytes) if box.nbytes else b""


def _array_of(dtype: str, shape: list[int], data: str, kind: str) -> Any:
    array = _arrays.empty(kind, dtype, shape)
    box = _arrays.box_of("value", array, writable=True)
    raw = base64.b64decode(data)
    assert box is not None
    if box.nbytes != len(raw):
        raise ValueError(f"the checkpoint has {len(raw)} bytes for an array of {box.nbytes}; the state of its rank is damaged")
    if raw:
        import ctypes

        ctypes.memmove(box.address, raw, len(raw))
    return array
