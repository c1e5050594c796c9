"""The tensors of a torch module under the names of the bare model.

The prefixes of DistributedDataParallel, DataParallel, ``torch.compile`` and activation checkpointing are removed, so that a
checkpoint does not depend on the wrapper. Tied tensors are saved once, under their first name.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from . import _arrays
from ._target import SavedDescription

#: Wrapper classes by name, and the attribute that holds the wrapped module. By name: most are loaded only where they are used.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
}

#: Wrappers with flattened or rank-local parameters, and what serves instead.
_REFUSED = {
    "FullyShardedDataParallel": "FSDP1 flattens parameters; use torch.distributed.fsdp.fully_shard (FSDP2)",
    "DeepSpeedEngine": "DeepSpeed partitions parameters itself; use its own checkpoints",
}


class ModuleState:
    """A module as an entry of a state: ``state_dict`` has live tensors, ``load_state_dict`` finishes a restore in place."""

    def __init__(self, module: nn.Module, label: str = "model") -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"{label} is a {type(module).__name__}, want a torch.nn.Module")
        for path, inner in module.named_modules():
            for name, reason in _REFUSED.items():
                if _is_class(inner, name):
                    raise _arrays.Unsavable(f"{label}{path and '.' + path}: a {name} cannot be saved: {reason}")
        self.module = module
        self.label = label
        self._bare_names: dict[str, str] = {}
        self._saved_names: Optional[frozenset[str]] = None
        #: Copies of tied tensors that the checkpoint has under several names, by name.
        self._copies: dict[str, Any] = {}

    def parameter_names(self) -> dict[int, str]:
        """The name of each parameter, by its id; a tied parameter has its first name."""
        names: dict[int, str] = {}
        for raw, parameter in self.module.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), self._bare(raw))
        return names

    def parameters_by_name(self) -> dict[str, nn.Parameter]:
        """The parameters under each of their names."""
        return {self._bare(raw): value for raw, value in self.module.named_parameters(remove_duplicate=False)}

    def state_dict(self) -> dict[str, Any]:
        """Live tensors and extra state by name."""
        entries = [(self._bare(raw), value) for raw, value in self.module.state_dict(keep_vars=True).items()]
        aliases: dict[int, frozenset[str]] = {}
        for name, value in entries:
            aliases[id(value)] = aliases.get(id(value), frozenset()) | {name}
        state: dict[str, Any] = {}
        placed: set[int] = set()
        self._copies = {}
        for name, value in entries:
            if name in state:
                raise _arrays.Unsavable(f"{self.label}.{name}: two entries of the module have this name without its wrappers")
            if not _arrays.is_array(value):
                state[name] = value
            elif not self._chosen(name, aliases[id(value)]):
                continue
            elif id(value) not in placed:
                placed.add(id(value))
                state[name] = value
            elif self._saved_names is not None:
                # Two names of one tensor in the checkpoint: both are read and compared.
                self._copies[name] = state[name] = torch.empty_like(value.detach())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Runs the module's own loading with the tensors in place, for its hooks and extra state."""
        copies, self._copies = self._copies, {}
        loaded = {}
        for raw, live in self.module.state_dict(keep_vars=True).items():
            name = self._bare(raw)
            if name in copies and not torch.equal(_local(copies[name]), _local(live)):
                raise ValueError(
                    f"cannot restore {self.label}.{name}: the module ties it to another tensor, and the checkpoint has "
                    "different values for the two; untie them, or save from a module that ties them"
                )
            # A tied tensor was filled under the name that the checkpoint has.
            loaded[raw] = live if name in copies else state.get(name, live)
        self.module.load_state_dict(loaded)

    def begin_restore(self, saved: SavedDescription, strict: bool) -> None:
        """Notes under which names the checkpoint has tied tensors."""
        tree = saved.tree()
        self._saved_names = frozenset(tree) if isinstance(tree, dict) else None

    def end_restore(self) -> None:
        """Returns to the names of the live module."""
        self._saved_names = None

    def _bare(self, raw: str) -> str:
        bare = self._bare_names.get(raw)
        if bare is None:
            bare = self._bare_names[raw] = bare_name(self.module, raw)
        return bare

    def _chosen(self, name: str, aliases: frozenset[str]) -> bool:
        """Whether a name of a tensor stands for it: each that the checkpoint has, else the first."""
        saved = aliases & (self._saved_names or frozenset())
        return name in saved if saved else True


def bare_name(module: nn.Module, raw: str) -> str:
    """A name of ``state_dict`` without the attributes that wrappers add."""
    current: Optional[Any] = module
    bare = []
    for part in raw.split("."):
        skipped = False
        while (inner := _inner_attribute(current)) is not None:
            current = getattr(current, inner)
            if part == inner:
                skipped = True
                break
        if not skipped:
            bare.append(part)
            current = getattr(current, "_modules", {}).get(part)
    return ".".join(bare)


def _inner_attribute(module: Any) -> Optional[str]:
    for name, inner in _WRAPPERS.items():
        if module is not None and _is_class(module, name):
            return inner
    return None


def _is_class(module: Any, name: str) -> bool:
    return any(base.__name__ == name and base.__module__.startswith(("torch.", "deepspeed.")) for base in type(module).__mro__)


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor.detach()
