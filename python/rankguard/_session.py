"""One rank's run: with the agent of its node, or with a store in a directory."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from . import _arrays, _imported, _merge, _tree
from ._rankguard import Agent, Local, RankguardError

__all__ = ["Loaded", "RankguardError", "Restored", "Saved", "Session", "given", "place"]


@dataclass(frozen=True)
class Saved:
    """What became of a save."""

    #: Whether there is an image. Without one this rank takes no part in the checkpoint, which makes it void.
    sealed: bool
    #: How long the trainer waited, seconds.
    stall_s: float
    #: Why there is no image; ``None`` with one.
    reason: Optional[str] = None


@dataclass(frozen=True)
class Restored:
    """What a restore gave. Tensors and plain state are in the state that was handed over."""

    #: Steps completed when it was saved.
    step: int
    #: Ranks that saved it.
    world_size: int
    #: Keys of :class:`PerRank` values that have no counterpart, because another number of ranks saved.
    kept: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Loaded:
    """A checkpoint in memory of its own."""

    #: Steps completed when it was saved.
    step: int
    #: Ranks that saved it.
    world_size: int
    #: What was saved. Tensors are new ones on the CPU; of :class:`PerRank` values stands the value that this rank saved,
    #: or ``None`` if another number of ranks saved; of objects with a ``state_dict``, that.
    state: Any


class Session:
    """A rank's run. Trainers use the functions of the package, which have one session for the process.

    Calls come from one thread, but for ``step``, which any thread may call at any moment.
    """

    def __init__(self, agent: Optional[Agent], local: Optional[Local], checkpoint_every: int = 0) -> None:
        self._agent, self._local = agent, local
        self._every = checkpoint_every
        #: Where tensors of a device are copied to, by name; an adapter hands it to :func:`box_of`.
        self.staging = _arrays.Staging()
        self._step = 0
        self._stepped_at = time.monotonic()
        self.closed = False
        #: Whether the warning that the job has no store was given.
        self._warned = False

    @property
    def _keeper(self) -> Union[Agent, Local]:
        if self.closed:
            raise RankguardError("this session is over; call rankguard.init() for another")
        keeper = self._agent or self._local
        assert keeper is not None
        return keeper

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints: of ``rankguard run --checkpoint-every``, without an agent of ``init``; 0 for none."""
        return self._agent.checkpoint_every() if self._agent else self._every

    @property
    def under_agent(self) -> bool:
        """Whether an agent serves this rank."""
        return self._agent is not None

    @property
    def without_store(self) -> bool:
        """Whether the job was submitted without ``--checkpoint-dir``: saves are skipped with one warning, training goes on."""
        return self._agent is not None and self._agent.without_store()

    @property
    def last_step(self) -> int:
        """The step that was told or restored last; 0 before that."""
        return self._step

    def due(self, step: Optional[int] = None) -> bool:
        """Whether a checkpoint is to be made after this step (the last one that was told).

        Under an agent it follows the rule of ``rankguard run --checkpoint-every`` and the steps that the controller
        calls, so ask it after every step. Without an agent it is every ``checkpoint_every`` steps of ``init``.
        """
        step = self._step if step is None else int(step)
        if self.closed or step <= 0:
            return False
        if self._agent is not None:
            return self._agent.due(step)
        return self._every > 0 and step % self._every == 0

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
        asked. Making it durable goes on beside the training. In a job without a checkpoint store nothing is saved: the
        first call warns, and the result names the reason.
        """
        step = self._step if step is None else int(step)
        flat = _tree.Flat(_top(state))
        told = self._boxes(flat)
        return self._saved(step, *self._keeper.checkpoint(step, told, flat.text(), _tree.SCHEMA))

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
        given = self.restore_boxes([box for box in boxes if box is not None], step)
        return None if given is None else self._adopt(state, flat, given[0], given[1], strict)

    def newest(self) -> Optional[int]:
        """The step that a restore would give: the newest committed, under an agent the controller's choice."""
        given = self.restore_boxes([])
        return None if given is None else given[0]

    def load(self, step: Optional[int] = None) -> Optional[Loaded]:
        """The checkpoint as a new state, for those who have none to restore into. ``None`` when there is nothing.

        It costs the memory of the whole state, and tensors that were saved in parts (DTensors, :class:`Shard`) are refused:
        :meth:`restore` puts them where they belong.
        """
        given = self.restore_boxes([], step)
        if given is None:
            return None
        found, states = given
        if _imported.named(states) is not None:
            raise RankguardError(f"step {found} was imported and knows names alone; use restore() with a state to fill")
        own, saved = _own(states)
        made: dict[str, Any] = {}
        for ref in _tree.refs(saved):
            if ref.dtype is None or ref.shape is None or ref.kind is None:
                why = "was saved in parts" if ref.kind == "part" else "was saved without its shape"
                raise _arrays.Unsavable(f"{ref.name}: it {why}; use restore() with a state to fill")
            made[ref.name] = _arrays.empty(ref.kind, ref.dtype, ref.shape)
        boxes = [_arrays.box_of(name, array, writable=True) for name, array in made.items()]
        # The same one, even if another is committed meanwhile.
        self.restore_boxes([box for box in boxes if box is not None], None if self._agent is not None else found)
        self._step = found
        return Loaded(found, len(states), _merge.replaced(saved, made, own))

    def save_boxes(self, boxes: list[_arrays.Box], text: str, schema: str, step: Optional[int]) -> Saved:
        """Saves boxes that an adapter has made with :attr:`staging`, and the JSON of this rank."""
        _arrays.synchronize(self.staging)
        step = self._step if step is None else int(step)
        return self._saved(step, *self._keeper.checkpoint(step, [box.told() for box in boxes], text, schema))

    def restore_boxes(self, boxes: list[_arrays.Box], step: Optional[int] = None) -> Optional[tuple[int, dict[int, str]]]:
        """Fills boxes that an adapter has made; the step and the JSON of every rank."""
        if self._agent is not None and step is not None:
            raise ValueError("under an agent the controller chooses the checkpoint; leave step away")
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
        """Waits until what was saved is committed; its step.

        Under an agent it waits for the copy alone and gives ``None``: the agent writes and the controller commits, also
        after this process has ended.
        """
        if self._agent is not None:
            self._agent.finish()
            return None
        waited = self._local_keeper().wait(seconds)
        return None if waited is None else waited[0]

    def idle(self) -> bool:
        """Whether nothing of this rank is copied, written, committed or cleared away now. Only for a local store."""
        return self._local_keeper().idle()

    def counts(self) -> dict[str, int]:
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

    def _boxes(self, flat: _tree.Flat) -> list[Any]:
        boxes = [_arrays.box_of(leaf.name, leaf.value, writable=False, staging=self.staging) for leaf in flat.leaves]
        _arrays.synchronize(self.staging)
        return [box.told() for box in boxes if box is not None]

    def _place(self, leaf: _tree.Leaf) -> Optional[_arrays.Box]:
        if not _arrays.is_jax(leaf.value):
            return _arrays.box_of(leaf.name, leaf.value, writable=True, staging=self.staging)
        if leaf.replace is None:
            raise _arrays.Unsavable(f"{leaf.name}: an array of JAX in a tuple cannot be replaced; use a list or a dict")
        numpy, jax, old, replace = sys.modules["numpy"], sys.modules["jax"], leaf.value, leaf.replace
        buffer = numpy.empty(old.shape, dtype=old.dtype)
        box = _arrays.box_of(leaf.name, buffer, writable=True)
        assert box is not None
        box.after = lambda: replace(jax.device_put(buffer, old.sharding))
        return box

    def _adopt(self, state: Any, flat: _tree.Flat, step: int, states: dict[int, str], strict: bool) -> Restored:
        values = _imported.named(states)
        if values is not None:
            _imported.Merge(values, flat).into(_top(state))
            flat.load()
            self._step = step
            return Restored(step, len(states))
        own, saved = _own(states)
        missing = sorted({ref.name for ref in _tree.refs(saved)} - {leaf.name for leaf in flat.leaves}) if own else []
        if missing and strict:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise ValueError(
                f"the checkpoint of step {step} has tensors that the state has no place for: {shown}. Make them first "
                "(an optimizer makes its own in its first step), or restore(..., strict=False) to do without"
            )
        merge = _merge.Merge(own, flat)
        merge.into(_top(state), saved)
        flat.load()
        self._step = step
        return Restored(step, len(states), merge.kept)

    def _saved(self, step: int, sealed: bool, stall_s: float, reason: Optional[str] = None) -> Saved:
        if not sealed and not (self.without_store and self._warned):
            self._warned = self.without_store
            warnings.warn(f"no checkpoint of step {step} from this rank: {reason}", RuntimeWarning, stacklevel=3)
        if self._local is not None:
            for failed, reason in self._local.take_failures():
                warnings.warn(f"the checkpoint of step {failed} was not made durable: {reason}", RuntimeWarning, stacklevel=3)
        return Saved(sealed, stall_s, reason)


def given(session: Optional[Session]) -> Session:
    """The session that an adapter was given, else that of the process."""
    if session is not None:
        return session
    from . import session as of_process

    return of_process()


def place() -> tuple[int, int]:
    """Rank and world size: of the process group where there is one, else of the environment."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return torch.get_rank(), torch.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _own(states: dict[int, str]) -> tuple[bool, Any]:
    """Whether this rank saved one of the states itself, and that one or the first."""
    rank, world_size = place()
    own = len(states) == world_size and rank in states
    return own, _tree.decode(states[rank if own else min(states)])


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
