"""One rank's run: with the agent of its node, or with a store in a directory."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Union

from . import _arrays, _tree
from ._rankguard import Agent, Local, RankguardError


@dataclass(frozen=True)
class Saved:
    """What became of a save."""

    #: Whether there is an image. Without one this rank takes no part in the checkpoint, which makes it void.
    sealed: bool
    #: How long the trainer waited, seconds.
    stall_s: float


@dataclass(frozen=True)
class Restored:
    """What a restore gave. Tensors and plain state are in the state that was handed over."""

    #: Steps completed when it was saved.
    step: int
    #: Ranks that saved it.
    world_size: int
    #: Keys of :class:`PerRank` values that have no counterpart, because another number of ranks saved.
    kept: List[str] = field(default_factory=list)


class Session:
    """A rank's run. Trainers use the functions of the package, which have one session for the process.

    Calls come from one thread, but for ``step``, which any thread may call at any moment.
    """

    def __init__(self, agent: Optional[Agent], local: Optional[Local]) -> None:
        self._agent, self._local = agent, local
        self._staging = _arrays.Staging()
        self._step = 0
        self._stepped_at = time.monotonic()
        self.closed = False

    @property
    def _keeper(self) -> Union[Agent, Local]:
        if self.closed:
            raise RankguardError("this session is over; call rankguard.init() for another")
        keeper = self._agent or self._local
        assert keeper is not None
        return keeper

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints, as ``rankguard run --checkpoint-every`` says; 0 without an agent or checkpoints."""
        return self._agent.checkpoint_every() if self._agent else 0

    @property
    def under_agent(self) -> bool:
        """Whether an agent serves this rank."""
        return self._agent is not None

    def due(self, step: Optional[int] = None) -> bool:
        """Whether a checkpoint is to be made after this step (the last one that was told).

        Under an agent it follows the rule of ``rankguard run --checkpoint-every`` and the steps that the controller
        calls, so ask it after every step. Without an agent nothing is due.
        """
        step = self._step if step is None else int(step)
        return self._agent is not None and not self.closed and step > 0 and self._agent.due(step)

    def step(self, n: int, loss: Any = None, grad_norm: Any = None, waited_s: Optional[float] = None) -> None:
        """Tells that step ``n`` was completed: ``n`` steps are done. Never waits and never fails for want of an agent.

        ``loss`` and ``grad_norm`` may be tensors; that of a device makes this call wait for the device. ``waited_s`` is the
        part of the step that this rank waited for others, seconds, where the program measures it: in a job whose ranks wait
        for each other only the rest of a step tells the slow rank from the others.
        """
        now = time.monotonic()
        step_ms, self._stepped_at = (now - self._stepped_at) * 1e3, now
        self._step = int(n)
        loss, norm = _number("loss", loss), _number("grad_norm", grad_norm)
        if self._agent is not None and not self.closed:
            # The agent's step mark has a loss and no norm. A norm that is no number tells what the loss will be.
            told = norm if norm is not None and norm != norm and loss is None else loss
            own_ms = None if waited_s is None else max(step_ms - float(waited_s) * 1e3, 0.0)
            self._agent.step(self._step, told, step_ms, own_ms)

    def checkpoint(self, state: Any, step: Optional[int] = None) -> Saved:
        """Saves; when it returns, the state may be changed. What is sealed survives this process under an agent.

        ``state`` is a nested dict of tensors and plain values; objects with ``state_dict`` and ``load_state_dict`` are
        asked. Making it durable goes on beside the training.
        """
        step = self._step if step is None else int(step)
        flat = _tree.Flat(_top(state))
        told = self._boxes(flat)
        sealed, stall_s = self._keeper.checkpoint(step, told, flat.text(), _tree.SCHEMA)
        return self._saved(step, sealed, stall_s)

    def begin(self, state: Any, step: Optional[int] = None) -> Optional[Saved]:
        """Starts to save beside the training: call it after the optimizer's step and ``finish`` before the next one.

        The tensors must not change in between. Gives what became of it already when it was skipped.
        """
        step = self._step if step is None else int(step)
        flat = _tree.Flat(_top(state))
        begun = self._keeper.begin(step, self._boxes(flat), flat.text(), _tree.SCHEMA)
        return None if begun is None else self._saved(step, *begun)

    def finish(self) -> Optional[Saved]:
        """Waits for what is left of the copy that was begun. ``None`` when none was."""
        finished = self._keeper.finish()
        return None if finished is None else self._saved(self._step, *finished)

    def restore(self, state: Any, step: Optional[int] = None, strict: bool = True) -> Optional[Restored]:
        """Restores into ``state``, in place: tensors keep their memory. ``None`` when there is nothing to restore.

        The state must have the tensors already (an optimizer has its moments after its first step; see
        ``torch.distributed.checkpoint.state_dict.get_state_dict``). With ``strict``, tensors that this rank saved and that
        the state has no place for are an error. Arrays of JAX are replaced in their container. ``step`` chooses a
        checkpoint of a local store; under an agent the controller has chosen.
        """
        flat = _tree.Flat(_top(state))
        boxes = [self._place(leaf) for leaf in flat.leaves]
        if self._agent is not None and step is not None:
            raise ValueError("under an agent the controller chooses the checkpoint; leave step away")
        given = self.restore_boxes([box for box in boxes if box is not None], step)
        return None if given is None else self._adopt(state, flat, given[0], given[1], strict)

    def save_boxes(self, boxes: List[_arrays.Box], text: str, schema: str, step: Optional[int]) -> Saved:
        """Saves boxes that an adapter has made, with the JSON of this rank."""
        step = self._step if step is None else int(step)
        sealed, stall_s = self._keeper.checkpoint(step, [box.told() for box in boxes], text, schema)
        return self._saved(step, sealed, stall_s)

    def restore_boxes(self, boxes: List[_arrays.Box], step: Optional[int] = None) -> Optional[tuple]:
        """Fills boxes that an adapter has made; the step and the JSON of every rank."""
        told = [box.told() for box in boxes]
        if self._agent is not None:
            given = None if self.checkpoint_every == 0 else self._agent.restore(told)
        else:
            given = self._local_keeper().restore(told, step)
        if given is None:
            return None
        for box in boxes:
            if box.after is not None:
                box.after()
        return given[0], dict(given[1])

    def wait(self, seconds: float = 600.0) -> Optional[int]:
        """Waits until what was saved is committed; its step. Only for a local store: under an agent the controller commits."""
        waited = self._local_keeper().wait(seconds)
        return None if waited is None else waited[0]

    def idle(self) -> bool:
        """Whether nothing of this rank is being copied, written or committed. Only for a local store."""
        return self._local_keeper().idle()

    def counts(self) -> Dict[str, int]:
        """Saves since the start: sealed, skipped, waited, replaced, failed; under an agent also step marks dropped."""
        return dict(self._keeper.counts())

    def done(self) -> None:
        """Tells that all work of this rank is done. A local store is written to the end and closed first."""
        if self.closed:
            return
        if self._agent is not None:
            self._agent.finish()
            self._agent.done()
        else:
            try:
                self.wait()
            finally:
                self._local_keeper().close()
        self.closed = True

    def _local_keeper(self) -> Local:
        keeper = self._keeper
        if not isinstance(keeper, Local):
            raise RankguardError("under an agent the agent writes and the controller commits; `rankguard status` shows it")
        return keeper

    def _boxes(self, flat: _tree.Flat) -> List[Any]:
        boxes = [_arrays.box_of(leaf.name, leaf.value, writable=False, staging=self._staging) for leaf in flat.leaves]
        _arrays.synchronize(self._staging)
        return [box.told() for box in boxes if box is not None]

    def _place(self, leaf: _tree.Leaf) -> Optional[_arrays.Box]:
        if not _arrays.is_jax(leaf.value):
            return _arrays.box_of(leaf.name, leaf.value, writable=True, staging=self._staging)
        if leaf.replace is None:
            raise _arrays.Unsavable(f"{leaf.name}: an array of JAX in a tuple cannot be replaced; use a list or a dict")
        numpy, jax, old, replace = sys.modules["numpy"], sys.modules["jax"], leaf.value, leaf.replace
        buffer = numpy.empty(old.shape, dtype=old.dtype)
        box = _arrays.box_of(leaf.name, buffer, writable=True)
        assert box is not None
        box.after = lambda: replace(jax.device_put(buffer, old.sharding))
        return box

    def _adopt(self, state: Any, flat: _tree.Flat, step: int, states: Dict[int, str], strict: bool) -> Restored:
        rank, world_size = _place()
        own = len(states) == world_size and rank in states
        saved = _tree.decode(states[rank if own else min(states)])
        missing = sorted(set(_tree.refs(saved)) - {leaf.name for leaf in flat.leaves}) if own else []
        if missing and strict:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise ValueError(
                f"the checkpoint of step {step} has tensors that the state has no place for: {shown}. Make them first "
                "(an optimizer makes its own in its first step), or restore(..., strict=False) to do without"
            )
        merge = _tree.Merge(own, flat)
        merge.into(_top(state), saved)
        flat.load()
        self._step = step
        return Restored(step, len(states), merge.kept)

    def _saved(self, step: int, sealed: bool, stall_s: float) -> Saved:
        if not sealed:
            warnings.warn(
                f"no checkpoint of step {step} from this rank: earlier images are not durable yet", RuntimeWarning, stacklevel=3
            )
        if self._local is not None:
            for failed, reason in self._local.take_failures():
                warnings.warn(f"the checkpoint of step {failed} was not made durable: {reason}", RuntimeWarning, stacklevel=3)
        return Saved(sealed, stall_s)


def connect(local_dir: Optional[Union[str, os.PathLike]] = None, **options: Any) -> Session:
    """A session with the agent that the environment names, else with a store in ``local_dir``."""
    agent = Agent.connect()
    if agent is not None:
        if "wait_s" in options or "when_full" in options:
            agent.set_when_full(options.get("when_full", "wait"), float(options.get("wait_s", 600.0)))
        return Session(agent, None)
    if local_dir is None:
        raise RankguardError(
            "there is no agent here (RANKGUARD_SOCKET is not set) and no local store: start the trainer with "
            "`rankguard run`, or call rankguard.init(local_dir=...) to save into a directory"
        )
    # Not torchrun's run id: that is another one in every run, and the directory was chosen to be found again.
    options.setdefault("job", os.environ.get("RANKGUARD_JOB") or "local")
    return Session(None, _agreed(local_dir, options))


def _agreed(local_dir: Union[str, os.PathLike], options: Dict[str, Any]) -> Local:
    """The store under one generation for all ranks, which rank 0 chooses where the ranks can speak to each other."""
    torch = sys.modules.get("torch.distributed")
    together = torch is not None and torch.is_available() and torch.is_initialized() and torch.get_world_size() > 1
    if not together or options.get("generation") is not None:
        return Local(os.fspath(local_dir), **options)
    options = {"rank": torch.get_rank(), "world_size": torch.get_world_size(), **options}
    chosen: List[Any] = [None]
    local = None
    if torch.get_rank() == 0:
        local = Local(os.fspath(local_dir), **options)
        chosen[0] = local.generation()
    torch.broadcast_object_list(chosen, src=0)
    return local or Local(os.fspath(local_dir), **{**options, "generation": chosen[0]})


def _place() -> tuple:
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return torch.get_rank(), torch.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _top(state: Any) -> Any:
    if isinstance(state, dict):
        return state
    if callable(getattr(state, "state_dict", None)) and callable(getattr(state, "load_state_dict", None)):
        return state
    raise TypeError(f"a state is a dict, or an object with state_dict and load_state_dict; this is a {type(state).__name__}")


def _number(name: str, value: Any) -> Optional[float]:
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError) as problem:
        raise TypeError(f"{name} is a {type(value).__name__}, want a number or a tensor with one element") from problem
