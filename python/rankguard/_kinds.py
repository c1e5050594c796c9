"""Plain values beyond JSON and tuples: how they are written, and how they come back.

Values of types of Python itself are made anew. Members of an :class:`enum.Enum` and named tuples are of types that the
program defines, and nothing is imported for a restore: they are restored where the live state has a value of the same type,
and refused by name elsewhere.
"""

from __future__ import annotations

import datetime
import pathlib
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Optional

#: Types whose empty value a defaultdict may make.
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (bool, bytes, dict, float, int, list, set, str, tuple)}
_PATHS = {kind.__name__: kind for kind in (pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()))}
_SETS: dict[str, Callable[[Iterable[Any]], Any]] = {"set": set, "frozenset": frozenset}


@dataclass(frozen=True)
class EnumMember:
    """A member of an enumeration in a decoded state."""

    type_name: str
    member: str


@dataclass(frozen=True)
class NamedValues:
    """A named tuple in a decoded state."""

    type_name: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]


def type_name(value: Any) -> str:
    """Module and qualified name of a value's type."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def encode_scalar(value: Any) -> Optional[dict[str, Any]]:
    """JSON of a plain value of one of these types; ``None`` for another one."""
    if type(value) is complex:
        return {"$": "complex", "v": [repr(value.real), repr(value.imag)]}
    if isinstance(value, Enum) and value.name in type(value).__members__:
        return {"$": "enum", "v": value.name, "t": type_name(value)}
    if type(value) in _PATHS.values():
        return {"$": "path", "v": str(value), "t": type(value).__name__}
    if type(value) is datetime.timedelta:
        return {"$": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if type(value) is datetime.date:
        return {"$": "date", "v": value.isoformat()}
    if type(value) is datetime.datetime and value.fold == 0 and type(value.tzinfo) in (type(None), datetime.timezone):
        return {"$": "datetime", "v": value.isoformat()}
    if _is_size(value):
        return {"$": "size", "v": list(value)}
    return None


def _is_size(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is torch.Size


def decode_scalar(kind: str, encoded: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the kind is one of :func:`encode_scalar`, and the value."""
    value = encoded["v"]
    if kind == "complex":
        return True, complex(float(value[0]), float(value[1]))
    if kind == "enum":
        return True, EnumMember(encoded["t"], value)
    if kind == "path":
        return True, _PATHS.get(encoded["t"], pathlib.PurePosixPath)(value)
    if kind == "timedelta":
        return True, datetime.timedelta(*value)
    if kind == "date":
        return True, datetime.date.fromisoformat(value)
    if kind == "datetime":
        return True, datetime.datetime.fromisoformat(value)
    if kind == "size":
        # A reader without torch has no use for torch.Size.
        torch = sys.modules.get("torch")
        return True, tuple(value) if torch is None else torch.Size(value)
    return False, None


def encode_set(value: Any, encode_key: Callable[[Any], Any]) -> Optional[dict[str, Any]]:
    """JSON of a set, in an order that does not depend on hashes; ``None`` for another type."""
    if type(value) not in (set, frozenset):
        return None
    items = sorted(value, key=lambda item: (type(item).__name__, repr(item)))
    return {"$": type(value).__name__, "v": [encode_key(item) for item in items]}


def decode_set(kind: str, items: Iterable[Any]) -> Any:
    """A set or frozenset."""
    return _SETS[kind](items)


def dict_tag(value: dict[Any, Any]) -> dict[str, str]:
    """Which kind of dict it is, beside its entries. Other subclasses are written as dicts."""
    if type(value) is OrderedDict:
        return {"t": "ordered"}
    if type(value) is Counter:
        return {"t": "counter"}
    if type(value) is defaultdict:
        factory = value.default_factory
        if factory is None or _FACTORIES.get(getattr(factory, "__name__", "")) is factory:
            return {"t": "default", "f": "" if factory is None else factory.__name__}
    return {}


def make_dict(encoded: dict[str, Any], entries: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The dict of a tag."""
    tag = encoded.get("t")
    if tag == "ordered":
        return OrderedDict(entries)
    if tag == "counter":
        return Counter(dict(entries))
    if tag == "default":
        return defaultdict(_FACTORIES.get(encoded.get("f", "")), entries)
    return dict(entries)


def like(model: dict[Any, Any], entries: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dict of the model's kind with other entries."""
    return make_dict(dict_tag(model), entries)


def like_tuple(model: tuple[Any, ...], items: Iterable[Any]) -> tuple[Any, ...]:
    """A tuple of the model's type, ``tuple`` or ``torch.Size``, with other items."""
    return type(model)(items)


def check_shallow(saved: Any) -> None:
    """Refuses a value that only a restore into a live state can make."""
    if isinstance(saved, (EnumMember, NamedValues)):
        what = f"{saved.type_name}.{saved.member}" if isinstance(saved, EnumMember) else f"a {saved.type_name}"
        raise ValueError(f"cannot load {what}: its type is the program's own; use restore() with a state that has one")


def adopt_member(live: Any, saved: EnumMember, path: str) -> Enum:
    """The member of the live value's own enumeration."""
    if not isinstance(live, Enum) or type_name(live) != saved.type_name:
        raise _needs_live(path, f"{saved.type_name}.{saved.member}", live)
    if saved.member not in type(live).__members__:
        raise ValueError(f"{path}: cannot restore {saved.type_name}.{saved.member}: the enumeration has no such member")
    return type(live)[saved.member]


def check_named(live: Any, saved: NamedValues, path: str) -> None:
    """Refuses a live value that is no named tuple of the saved type and fields."""
    if not isinstance(live, tuple) or type_name(live) != saved.type_name:
        raise _needs_live(path, f"a {saved.type_name}", live)
    fields = tuple(getattr(live, "_fields", ()))
    if fields != saved.fields:
        raise ValueError(
            f"{path}: cannot restore a {saved.type_name}: it has the fields {fields}, the saved one {saved.fields}"
        )


def check_made(saved: Any, path: str) -> Any:
    """The value, if it can be made without a live one."""
    if isinstance(saved, EnumMember):
        raise _needs_live(path, f"{saved.type_name}.{saved.member}", None)
    if isinstance(saved, NamedValues):
        raise _needs_live(path, f"a {saved.type_name}", None)
    if isinstance(saved, dict):
        for key, item in saved.items():
            check_made(item, f"{path}.{key}")
    elif isinstance(saved, (list, tuple)):
        for at, item in enumerate(saved):
            check_made(item, f"{path}.{at}")
    return saved


def needs_live(saved: Any) -> bool:
    """Whether a value of a decoded state can only be restored into a live one."""
    if isinstance(saved, (EnumMember, NamedValues)):
        return True
    if isinstance(saved, dict):
        return any(needs_live(item) for item in saved.values())
    return isinstance(saved, (list, tuple)) and any(needs_live(item) for item in saved)


def hint_for(value: Any) -> str:
    """What to save in the place of a value that is refused."""
    if isinstance(value, Enum):
        return "it is a combination of members; save its .value"
    if isinstance(value, datetime.datetime):
        return "save a datetime without a zone or with a datetime.timezone, and fold 0"
    if hasattr(type(value), "__dataclass_fields__"):
        return "save dataclasses.asdict(...) of it"
    if isinstance(value, (list, str, bytes, int, float, tuple)):
        return (
            f"convert it to {next(kind for kind in (list, str, bytes, int, float, tuple) if isinstance(value, kind)).__name__}"
        )
    return "save what it is made of"


def _needs_live(path: str, what: str, live: Any) -> ValueError:
    found = "nothing of that type is" if live is None else f"a {type_name(live)} is"
    return ValueError(
        f"{path}: cannot restore {what}: {found} at this place of the live state; put a value of the type there before "
        "restore(), or save plain values"
    )
