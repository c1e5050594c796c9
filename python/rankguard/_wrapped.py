"""Tensor subclasses that are made of other tensors (``__tensor_flatten__``), such as the 8-bit moments of torchao.

Their inner tensors are saved by name, beside the class, its plain context, shape and strides. A restore fills the inner
tensors in place. Where one is made anew its class must be imported already: nothing is imported by a checkpoint's word.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Callable, Union

from . import _arrays

_DTYPE = "torch.dtype"


@dataclass(frozen=True)
class WrappedTensor:
    """A wrapper subclass in a decoded state; ``inner`` has references to its tensors."""

    #: Module and qualified name of the class, with a colon between.
    kind: str
    context: Any
    shape: list[int]
    stride: list[int]
    inner: dict[str, Any]

    def make(self, name: str, make_inner: Callable[[str, Any], Any]) -> Any:
        """A new tensor of the class, from new inner tensors."""
        owner = _class_of(name, self.kind)
        inner = {key: make_inner(f"{name}.{key}", item) for key, item in self.inner.items()}
        return owner.__tensor_unflatten__(inner, _live_context(self.context), tuple(self.shape), tuple(self.stride))

    def check(self, name: str, live: Any) -> None:
        """Refuses a live tensor of another class, context or shape."""
        if not is_wrapped(live):
            raise ValueError(f"cannot restore {name}: the checkpoint has a {self.kind} and the state a {type(live).__name__}")
        _, context = live.__tensor_flatten__()
        here = (_kind_of(live), plain_context(name, context), [int(extent) for extent in live.shape])
        saved = (self.kind, self.context, list(self.shape))
        for what, one, two in zip(("class", "context", "shape"), saved, here):
            if one != two:
                raise ValueError(f"cannot restore {name}: its {what} is {two} here and {one} in the checkpoint")


def is_wrapped(value: Any) -> bool:
    """Whether it is a tensor that is made of other tensors; a DTensor is not, its parts have places."""
    torch: Any = sys.modules.get("torch")
    return (
        torch is not None
        and isinstance(value, torch.Tensor)
        and hasattr(type(value), "__tensor_flatten__")
        and not _arrays.is_dtensor(value)
    )


def parts_of(name: str, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inner tensors by name, and the description that :class:`WrappedTensor` has; refuses nested tensors."""
    if value.is_nested:
        raise _arrays.Unsavable(
            f"{name}: a nested tensor cannot be saved; save its values() and offsets(), and make it again with "
            "torch.nested.nested_tensor_from_jagged"
        )
    names, context = value.__tensor_flatten__()
    described = {
        "c": _kind_of(value),
        "x": plain_context(name, context),
        "s": [int(extent) for extent in value.shape],
        "t": [int(extent) for extent in value.stride()],
    }
    return {inner: getattr(value, inner) for inner in names}, described


def plain_context(name: str, context: Any) -> Any:
    """The context of a wrapper as plain state; element types become text."""
    torch: Any = sys.modules["torch"]
    if context is None or type(context) in (bool, int, float, str):
        return context
    if isinstance(context, torch.dtype):
        return {_DTYPE: str(context).rpartition(".")[2]}
    if isinstance(context, (list, tuple)):
        items = [plain_context(name, item) for item in context]
        return tuple(items) if isinstance(context, tuple) else items
    if isinstance(context, dict) and all(type(key) is str for key in context):
        return {key: plain_context(name, item) for key, item in context.items()}
    raise _arrays.Unsavable(
        f"{name}: the context of its class has a {type(context).__name__}, which is no plain value; save its inner tensors"
    )


def _live_context(context: Any) -> Any:
    if isinstance(context, dict):
        if set(context) == {_DTYPE}:
            return _dtype_of(context[_DTYPE])
        return {key: _live_context(item) for key, item in context.items()}
    if isinstance(context, (list, tuple)):
        items: Union[list[Any], tuple[Any, ...]] = [_live_context(item) for item in context]
        return tuple(items) if isinstance(context, tuple) else items
    return context


def _dtype_of(text: Any) -> Any:
    torch: Any = sys.modules["torch"]
    found = getattr(torch, str(text), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the checkpoint names the element type {text!r}, which this torch does not know")
    return found


def _kind_of(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _class_of(name: str, kind: str) -> Any:
    torch: Any = sys.modules.get("torch")
    module, _, path = kind.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and torch is not None and issubclass(found, torch.Tensor)):
        raise ValueError(
            f"cannot restore {name}: it is a {kind}, and no such class is imported; import {module} before the restore"
        )
    if not hasattr(found, "__tensor_unflatten__"):
        raise ValueError(f"cannot restore {name}: {kind} has no __tensor_unflatten__")
    return found
