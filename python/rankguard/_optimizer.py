"""The state of torch optimizers by parameter name.

The tree is that of ``torch.distributed.checkpoint.state_dict``: ``state`` by parameter name, and ``param_groups`` with names
in ``params``. Nothing is allocated for a save, and no step is made: a parameter without state has no entry. A restore makes
moments as the checkpoint describes them and assigns them to the optimizers when all bytes are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch

from . import _arrays
from ._modules import ModuleState
from ._moments import moment_layouts, new_moment
from ._target import SavedDescription

#: Optimizers with a state that is not by parameter, and what serves instead.
_REFUSED = {
    "ZeroRedundancyOptimizer": "each rank has the moments of other parameters; use fully_shard (FSDP2)",
    "DeepSpeedZeroOptimizer": "DeepSpeed partitions moments itself; use its own checkpoints",
}


@dataclass
class SavedParameter:
    """What a checkpoint has of one parameter."""

    #: The options of its group, without ``params``.
    options: dict[str, Any]
    #: Its entry in ``state``; ``None`` for a parameter without state.
    state: Optional[dict[str, Any]]
    #: Moments that are parts of a larger tensor and unlike their parameter, by key.
    layouts: dict[str, Any]


class OptimizerState:
    """Optimizers as one entry of a state."""

    def __init__(self, model: ModuleState, optimizers: Sequence[torch.optim.Optimizer], label: str = "optimizer") -> None:
        self._model = model
        self._optimizers = list(optimizers)
        self._label = label
        self._restoring: Optional[dict[str, Any]] = None
        #: The tree that the last restore made, and what it found of each live parameter.
        self._described: Optional[dict[str, Any]] = None
        self._found: dict[str, SavedParameter] = {}
        for at, optimizer in enumerate(self._optimizers):
            _refuse(f"{label} {at}" if len(self._optimizers) > 1 else label, optimizer)
        self._named_groups()

    def state_dict(self) -> dict[str, Any]:
        """Live tensors by parameter name; during a restore, new ones as the checkpoint describes them."""
        if self._restoring is not None:
            return self._restoring
        state: dict[str, Any] = {}
        layouts: dict[str, Any] = {}
        groups = []
        for optimizer, group, names in self._named_groups():
            groups.append({"params": names, **_options(group)})
            for name, parameter in zip(names, group["params"]):
                moments = optimizer.state.get(parameter)
                if moments:
                    state[name] = _copied(moments)
                    unlike = moment_layouts(f"{self._label}.state.{name}", moments, parameter)
                    if unlike:
                        layouts[name] = unlike
        # As in torch's own files; layouts only where there are any.
        return {"state": state, "param_groups": groups, **({"layouts": layouts} if layouts else {})}

    def load_state_dict(self, tree: dict[str, Any]) -> None:
        """Assigns moments and options to the live optimizers."""
        found = self._found if tree is self._described else _by_parameter(tree)
        self._described, self._found = None, {}
        self._add_groups(tree)
        for optimizer, group, names in self._named_groups():
            if names and names[0] in found:
                _set_options(group, self._loaded_options(tree, found, names[0]))
            for name, parameter in zip(names, group["params"]):
                moments = tree["state"].get(name)
                if moments:
                    optimizer.state[parameter] = moments
                elif name in found:
                    optimizer.state.pop(parameter, None)

    def begin_restore(self, saved: SavedDescription, strict: bool) -> None:
        """Makes the tree that the checkpoint describes, beside the live optimizers; errors name the parameter."""
        if saved.imported:
            # Imported files describe no moments: torch makes them, with a step of rate 0 that the restore overwrites.
            from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

            get_optimizer_state_dict(self._model.module, self._optimizers)
            return
        tree = saved.tree()
        if not isinstance(tree, dict) or "param_groups" not in tree:
            return
        self._found = self._find(saved, strict)
        parameters = {name: (parameter, group) for name, parameter, group in self._targets(tree, saved, strict)}
        state = {}
        for name, (parameter, group) in parameters.items():
            found = self._found.get(name)
            if found is not None and found.state:
                place = f"{self._label}.state.{name}"
                state[name] = {
                    key: new_moment(f"{place}.{key}", key, value, parameter, group, found.layouts.get(str(key)))
                    for key, value in found.state.items()
                }
        groups = [_new_options(f"{self._label}.param_groups.{at}", group) for at, group in enumerate(tree["param_groups"])]
        extra = {key: value for key, value in tree.items() if key not in ("state", "param_groups")}
        self._restoring = self._described = {**extra, "state": state, "param_groups": groups}

    def end_restore(self) -> None:
        """Returns to the live optimizers."""
        self._restoring = None

    def _named_groups(self) -> Iterator[tuple[torch.optim.Optimizer, dict[str, Any], list[str]]]:
        names = self._model.parameter_names()
        seen: dict[int, int] = {}
        groups = []
        for at, optimizer in enumerate(self._optimizers):
            for number, group in enumerate(optimizer.param_groups):
                groups.append(
                    (optimizer, group, [self._name_of(names, group, at, number, n) for n in range(len(group["params"]))])
                )
                for parameter, name in zip(group["params"], groups[-1][2]):
                    if seen.setdefault(id(parameter), at) != at:
                        raise _arrays.Unsavable(f"{self._label}: parameter {name} is in two optimizers; save them separately")
        return iter(groups)

    def _name_of(self, names: dict[int, str], group: dict[str, Any], at: int, number: int, position: int) -> str:
        parameter = group["params"][position]
        name = names.get(id(parameter))
        if name is None:
            raise _arrays.Unsavable(
                f"{self._label} {at}: parameter {position} of group {number}, shape {list(parameter.shape)}, is not in the "
                "model; make the optimizer after fully_shard and after parameters were replaced, from the model's parameters"
            )
        return name

    def _find(self, saved: SavedDescription, strict: bool) -> dict[str, SavedParameter]:
        """What the checkpoint has of the live parameters; refuses groups that the checkpoint cannot describe."""
        found: dict[str, SavedParameter] = {}
        trees = saved.trees()
        wanted = [names for _, _, names in self._named_groups() if names]
        for tree in trees:
            found.update({name: it for name, it in _by_parameter(tree or {}).items() if name not in found})
            if all(name in found for names in wanted for name in names):
                break
        for names in wanted:
            missing = [name for name in names if name not in found]
            if missing and strict:
                raise ValueError(self._unknown(saved, found, missing[0]))
            options = [found[name].options for name in names if name in found]
            for name, other in zip(names, options):
                if other != options[0]:
                    raise ValueError(
                        f"cannot restore {self._label}: parameters {names[0]} and {name} are in one group here and in groups "
                        "with different options in the checkpoint; make the groups that were saved"
                    )
        return found

    def _unknown(self, saved: SavedDescription, found: dict[str, SavedParameter], name: str) -> str:
        if found and all(not known or known.isdigit() for known in found):
            return (
                f"cannot restore {self._label}: the checkpoint of step {saved.step} has parameters by number, as "
                'optimizer.state_dict() gives them; restore it with {"optimizer": optimizer} after a step'
            )
        return (
            f"cannot restore {self._label}: parameter {name} is in no group of the checkpoint of step {saved.step}; add it "
            "after the restore (add_param_group), or start it anew with restore(..., strict=False)"
        )

    def _targets(
        self, tree: dict[str, Any], saved: SavedDescription, strict: bool
    ) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Name, parameter and group of what the optimizers will have: live groups, and those that were added later."""
        live: set[str] = set()
        for _, group, names in self._named_groups():
            live.update(names)
            yield from zip(names, group["params"], [group] * len(names))
        parameters = self._model.parameters_by_name()
        for group in tree["param_groups"]:
            unknown = [name for name in group["params"] if name not in live]
            absent = [name for name in unknown if name not in parameters]
            partly = len(unknown) < len(group["params"])
            if unknown and strict and (saved.own or not absent) and (absent or partly or len(self._optimizers) > 1):
                reason = "the model has no such parameter" if absent else "no group of the optimizer has it"
                raise ValueError(
                    f"cannot restore {self._label}: the checkpoint of step {saved.step} has state of parameter "
                    f"{(absent or unknown)[0]}, and {reason}; add it, or leave it away with restore(..., strict=False)"
                )
            if unknown and not absent and not partly:
                for name in unknown:
                    yield name, parameters[name], group
                self._found.update({name: it for name, it in _by_parameter(tree).items() if name in unknown})

    def _add_groups(self, tree: dict[str, Any]) -> None:
        """Adds groups of the checkpoint that were added after the program's start."""
        if len(self._optimizers) != 1:
            return
        live = {name for _, _, names in self._named_groups() for name in names}
        parameters = self._model.parameters_by_name()
        for group in tree["param_groups"]:
            names = group["params"]
            if names and not live & set(names) and all(name in parameters for name in names):
                self._optimizers[0].add_param_group({**_options(group), "params": [parameters[name] for name in names]})

    def _loaded_options(self, tree: dict[str, Any], found: dict[str, SavedParameter], name: str) -> dict[str, Any]:
        """Options with their restored tensors, where this rank's tree has the parameter."""
        for group in tree["param_groups"]:
            if name in group["params"]:
                return _options(group)
        return found[name].options


def _refuse(label: str, optimizer: Any) -> None:
    for base in type(optimizer).__mro__:
        if base.__name__ in _REFUSED:
            raise _arrays.Unsavable(f"{label}: a {base.__name__} cannot be saved: {_REFUSED[base.__name__]}")
    if not isinstance(getattr(optimizer, "param_groups", None), list) or not hasattr(optimizer, "state"):
        raise TypeError(f"{label} is a {type(optimizer).__name__}, want a torch.optim.Optimizer")
    others = sorted(str(key) for key in optimizer.state if not isinstance(key, torch.Tensor))
    if others:
        raise _arrays.Unsavable(
            f"{label}: its state has {others[0]!r}, which belongs to no parameter; save that as an extra entry"
        )


def _by_parameter(tree: dict[str, Any]) -> dict[str, SavedParameter]:
    state, layouts = tree.get("state") or {}, tree.get("layouts") or {}
    return {
        str(name): SavedParameter(_options(group), state.get(name), layouts.get(name) or {})
        for group in tree.get("param_groups", [])
        for name in group["params"]
    }


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _new_options(place: str, group: dict[str, Any]) -> dict[str, Any]:
    """A saved group with tensors for its tensor options (a rate may be one)."""
    nothing = torch.empty(0)
    return {
        key: value if key == "params" else new_moment(f"{place}.{key}", key, value, nothing, {}, None)
        for key, value in group.items()
    }


def _set_options(group: dict[str, Any], options: dict[str, Any]) -> None:
    for key, value in options.items():
        live = group.get(key)
        if isinstance(live, torch.Tensor) and isinstance(value, (torch.Tensor, float, int)):
            # Compiled and captured steps read this very tensor.
            live.fill_(value)
        else:
            group[key] = value


def _copied(value: Any) -> Any:
    """The containers of a state, new; tensors as they are."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value
