"""Checks of what callers pass: each refusal names the argument, its value and the range."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Callable, Optional

#: Largest step, generation and count: what a signed word holds.
MAX_INTEGER = (1 << 63) - 1
#: Longest time that a setting may name, seconds.
MAX_SECONDS = 1e9
MAX_RANKS = (1 << 32) - 1

_WHEN_FULL = ("wait", "replace-oldest", "skip")


def check_integer(name: str, value: Any, low: int = 0, high: int = MAX_INTEGER) -> int:
    """A whole number: an int, or an integer of numpy or torch; no bool and no float."""
    if type(value) is int and low <= value <= high:
        return value
    kind = type(value).__name__
    if isinstance(value, bool) or kind in ("bool", "bool_") or "bool" in str(getattr(value, "dtype", "")):
        raise TypeError(f"{name} is {value!r}, a {kind}; pass an int")
    try:
        number = operator.index(value)
    except TypeError as problem:
        raise TypeError(f"{name} is {value!r}, a {kind}; pass an int") from problem
    if not low <= number <= high:
        limit = f"at least {low}" if high >= MAX_RANKS else f"{low} to {high}"
        raise ValueError(f"{name} is {number}; it can be {limit}" + (f" and at most {high}" if number > high else ""))
    return number


def check_optional(name: str, value: Any, low: int = 0, high: int = MAX_INTEGER) -> Optional[int]:
    """A whole number or ``None``."""
    return None if value is None else check_integer(name, value, low, high)


def check_seconds(name: str, value: Any) -> float:
    """A finite time of 0 to 1e9 seconds."""
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; pass seconds as a number")
    try:
        seconds = float(value)
    except (TypeError, ValueError) as problem:
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; pass seconds as a number") from problem
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS):
        raise ValueError(f"{name} is {seconds} s; it can be 0 to {MAX_SECONDS:.0e} s")
    return seconds


def check_flag(name: str, value: Any) -> bool:
    """A bool: a string or a number in its place is a mistake of the caller's."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; pass True or False")
    return value


def check_directory(name: str, value: Any) -> str:
    """An absolute path: a later change of the working directory does not move the store."""
    try:
        path = os.fspath(value)
    except TypeError as problem:
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; pass a path") from problem
    path = os.fsdecode(path)
    if not path:
        raise ValueError(f"{name} is empty; pass the path of a directory")
    if "\0" in path:
        raise ValueError(f"{name} is {path!r}; a path has no null character")
    return os.path.abspath(path)


def check_job(value: Any) -> str:
    """The name of a job: one folder of the store."""
    if not isinstance(value, str):
        raise TypeError(f"job is {value!r}, a {type(value).__name__}; pass a str")
    if not value:
        raise ValueError("job is empty; pass the name of a job")
    return value


def check_when_full(value: Any) -> str:
    """What a save does when every slot is taken."""
    if value not in _WHEN_FULL:
        raise ValueError(f"when_full is {value!r}; it can be {', '.join(_WHEN_FULL[:-1])} or {_WHEN_FULL[-1]}")
    return str(value)


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "job": check_job,
    "rank": lambda value: check_integer("rank", value, 0, MAX_RANKS - 1),
    "world_size": lambda value: check_integer("world_size", value, 1, MAX_RANKS),
    "generation": lambda value: check_integer("generation", value, 0),
    "slots": lambda value: check_integer("slots", value, 1, 3),
    "when_full": check_when_full,
    "wait_s": lambda value: check_seconds("wait_s", value),
    "commit_within_s": lambda value: check_seconds("commit_within_s", value),
    "keep": lambda value: check_integer("keep", value, 0, MAX_RANKS),
}


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of :func:`rankguard.init`. ``None`` counts as absent."""
    checked = {name: _OPTIONS[name](value) for name, value in options.items() if value is not None}
    if ("rank" in checked) != ("world_size" in checked):
        given, absent = ("rank", "world_size") if "rank" in checked else ("world_size", "rank")
        raise TypeError(f"init() has the option {given} without {absent}; pass both or neither")
    return checked
