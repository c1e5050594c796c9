"""One rank's run: with the agent of its node, or with a store in a directory."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

from . import _aliases, _arrays, _imported, _merge, _plain_state, _tree
from ._plan import RestorePlan
from ._rankguard import Agent, Local, RankguardError
from ._view import CheckpointView, Replicate, ReplicatedNames, check_tensors

__all__ = ["Loaded", "RankguardError", "Restored", "Saved", "Session", "given", "place"]


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
    kept: list[str] = field(default_factory=list)
    #: Tensors of the checkpoint without a place in the live state; empty with ``strict``.
    missing: list[str] = field(default_factory=list)
    #: Tensors and objects of the live state that the checkpoint does not have, left as they were; empty with ``strict``.
    unfilled: list[str] = field(default_factory=list)
    #: Plain values of the checkpoint that go with missing tensors; empty with ``strict``.
    dropped: list[str] = field(default_factory=list)
    #: Plain values of the live state that the checkpoint does not have; they were removed.
    removed: list[str] = field(default_factory=list)
    #: Tensors and plain values of which the first rank's were taken although ranks saved different ones.
    differing: list[str] = field(default_factory=list)


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
        self._growth = _plain_state.StateGrowth()
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
        """Steps between checkpoints: of ``rankguard run --checkpoint-every``, without an agent of ``init``; 0 for none."""
        return self._agent.checkpoint_every() if self._agent else self._every

    @property
    def under_agent(self) -> bool:
        """Whether an agent serves this rank."""
        return self._agent is not None

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
        asked. Making it durable goes on beside the training.
        """
        step = self._step if step is None else int(step)
        flat = _tree.Flat(_top(state))
        boxes, text = self._packed(self._boxes(flat), flat.text(), step)
        sealed, stall_s = self._keeper.checkpoint(step, boxes, text, _tree.SCHEMA)
        return self._saved(step, sealed, stall_s)

    def begin(self, state: Any, step: Optional[int] = None) -> Optional[Saved]:
        """Starts to save beside the training: call it after the optimizer's step and ``finish`` before the next one.

        The tensors must not change in between. Gives what became of it already when it was skipped.
        """
        step = self._step if step is None else int(step)
        flat = _tree.Flat(_top(state))
        boxes, text = self._packed(self._boxes(flat), flat.text(), step)
        begun = self._keeper.begin(step, boxes, text, _tree.SCHEMA)
        return None if begun is None else self._saved(step, *begun)

    def finish(self) -> Optional[Saved]:
        """Waits for what is left of the copy that was begun. ``None`` when none was."""
        finished = self._keeper.finish()
        return None if finished is None else self._saved(self._step, *finished)

    def restore(
        self, state: Any, step: Optional[int] = None, strict: bool = True, replicate: Replicate = ()
    ) -> Optional[Restored]:
        """Restores into ``state``, in place: tensors keep their memory. ``None`` when there is nothing to restore.

        The state must have its tensors already; :func:`rankguard.torch.state` makes those of an optimizer. With ``strict``,
        at every world size, each tensor of the checkpoint has a place in the state and each tensor of the state is in the
        checkpoint, else :class:`StateMismatch` names them and nothing is changed. Without it, ``Restored`` lists what was
        not restored. A rank of the same world size compares with what it saved itself, else with what all ranks saved.

        Tensors that ranks saved with different content under one name come back to each rank of the same world size; at
        another one they are refused, unless ``replicate`` names them (names or patterns such as ``"model.*.running_*"``,
        ``True`` for all): then every rank takes those of the first rank. Of plain values that differ every rank takes the
        first rank's with a warning, unless they are named. Arrays of JAX are replaced in their container. ``step`` chooses
        a checkpoint of a local store; under an agent the controller has chosen.
        """
        flat = _tree.Flat(_top(state))
        view = self._look(step)
        if view is None:
            # The memory for images of this size is made now, and not in the first save.
            self._fetch(self._places(flat, [])[0], step)
            return None
        plan = self._planned(view, state, flat, strict, replicate)
        boxes, shared = self._places(flat, plan.comparison.unfilled)
        if boxes:
            filled = self._fetch(boxes, step)
            if filled is None:
                raise RankguardError(f"cannot restore step {view.step}: it was removed while it was restored; restore again")
            if filled.step != view.step:
                # The newest one is damaged, and an older one was taken.
                plan = self._planned(self._resolved(filled), state, flat, strict, replicate)
            shared.check()
        return self._adopt(state, flat, plan)

    def newest(self) -> Optional[int]:
        """The step that a restore would give: the newest committed, under an agent the controller's choice."""
        view = self._fetch([], None)
        return None if view is None else view.step

    def load(self, step: Optional[int] = None, replicate: Replicate = ()) -> Optional[Loaded]:
        """The checkpoint as a new state, for those who have none to restore into. ``None`` when there is nothing.

        It costs the memory of the whole state, and tensors that were saved in parts (DTensors, :class:`Shard`) are refused:
        :meth:`restore` puts them where they belong. ``replicate`` is that of :meth:`restore`.
        """
        view = self._look(step)
        if view is None:
            return None
        if _imported.named(view.states) is not None:
            raise RankguardError(f"step {view.step} was imported and knows names alone; use restore() with a state to fill")
        place = self._keeper.place()
        own = view.is_own(place)
        saved = view.own_state(place) if own else self._resolved(view, every=True).union(min(view.states)).state
        if not own:
            names = (ref.name for ref in _tree.refs(saved))
            check_tensors(view, names, ReplicatedNames(replicate), place[1])
        made: dict[str, Any] = {}
        for ref in _tree.refs(saved):
            if ref.dtype is None or ref.shape is None or ref.kind is None:
                why = "was saved in parts" if ref.kind == "part" else "was saved without its shape"
                raise _arrays.Unsavable(f"{ref.name}: it {why}; use restore() with a state to fill")
            made[ref.name] = _arrays.empty(ref.kind, ref.dtype, ref.shape)
        boxes = [_arrays.box_of(name, array, writable=True) for name, array in made.items()]
        # The same one, even if another is committed meanwhile.
        self._fetch([box for box in boxes if box is not None], None if self._agent is not None else view.step)
        self._step = view.step
        return Loaded(view.step, len(view.states), _merge.replaced(saved, made, own))

    def save_boxes(self, boxes: list[_arrays.Box], text: str, schema: str, step: Optional[int]) -> Saved:
        """Saves boxes that an adapter has made with :attr:`staging`, and the JSON of this rank."""
        _arrays.synchronize(self.staging)
        step = self._step if step is None else int(step)
        told, text = self._packed([box.told() for box in boxes], text, step)
        sealed, stall_s = self._keeper.checkpoint(step, told, text, schema)
        return self._saved(step, sealed, stall_s)

    def restore_boxes(self, boxes: list[_arrays.Box], step: Optional[int] = None) -> Optional[tuple[int, dict[int, str]]]:
        """Fills boxes that an adapter has made; the step and the JSON of every rank."""
        view = self._fetch(boxes, step)
        if view is None:
            return None
        view = self._resolved(view, every=True)
        return view.step, view.states

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

    def _packed(self, boxes: list[Any], text: str, step: int) -> tuple[list[Any], str]:
        """Boxes and JSON of a save; a large plain state is one of the boxes."""
        self._growth.check(step, len(text))
        text, box = _plain_state.packed(text, self._keeper.place()[0])
        return (boxes if box is None else [*boxes, box.told()]), text

    def _fetch(self, boxes: list[_arrays.Box], step: Optional[int]) -> Optional[CheckpointView]:
        """Fills the boxes; what is known of the checkpoint."""
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
        found, states, differing, names = given
        return CheckpointView(found, dict(states), dict(differing), names)

    def _look(self, step: Optional[int]) -> Optional[CheckpointView]:
        """What is known of a checkpoint, with this rank's plain state."""
        view = self._fetch([], step)
        if view is None:
            return None
        try:
            return self._resolved(view)
        except RankguardError:
            if self._agent is not None or step is not None or self._keeper.place()[1] > 1:
                raise
            older = [n for n, _ in self._local_keeper().committed() if n < view.step]
            if not older:
                raise
            # As for tensors: a damaged checkpoint is passed over where no other rank could choose another.
            return self._look(older[-1])

    def _resolved(self, view: CheckpointView, every: bool = False) -> CheckpointView:
        """The same with the plain state that lies in tensors: this rank's, or all where there is none of this rank."""
        place = self._keeper.place()
        ranks = [place[0]] if view.is_own(place) and not every else sorted(view.states)
        unpacked = {rank: _plain_state.unpacking(view.states[rank]) for rank in ranks}
        found = {rank: pair for rank, pair in unpacked.items() if pair is not None}
        if not found:
            return view
        self._fetch([box for box, _ in found.values()], None if self._agent is not None else view.step)
        texts = {rank: data.decode("utf-8") for rank, (_, data) in found.items()}
        return replace(view, states={**view.states, **texts})

    def _planned(self, view: CheckpointView, state: Any, flat: _tree.Flat, strict: bool, replicate: Replicate) -> RestorePlan:
        replicated = ReplicatedNames(replicate, flat.replicated)
        plan = RestorePlan(view, _top(state), flat, self._keeper.place(), lambda: self._resolved(view, every=True))
        plan.check(flat, replicated, strict)
        return plan

    def _places(self, flat: _tree.Flat, unfilled: list[str]) -> tuple[list[_arrays.Box], _aliases.SharedMemory]:
        """Boxes of the live tensors that the checkpoint has."""
        absent = set(unfilled)
        leaves = [leaf for leaf in flat.leaves if leaf.name not in absent]
        found = [(leaf.name, leaf.value, self._place(leaf)) for leaf in leaves]
        boxes = [(name, value, box) for name, value, box in found if box is not None]
        return [box for _, _, box in boxes], _aliases.SharedMemory(boxes)

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

    def _adopt(self, state: Any, flat: _tree.Flat, plan: RestorePlan) -> Restored:
        """Puts the plain state in; tensors are in their places."""
        view, comparison = plan.view, plan.comparison
        if plan.imported is not None:
            _imported.Merge(plan.imported, flat).into(_top(state))
            kept: list[str] = []
        else:
            merge = _merge.Merge(plan.own, flat)
            merge.into(_top(state), plan.saved)
            kept = merge.kept
        flat.load()
        self._step = view.step
        return Restored(
            view.step,
            len(view.states),
            kept,
            comparison.missing,
            comparison.unfilled,
            comparison.dropped,
            comparison.removed,
            plan.differing,
        )

    def _saved(self, step: int, sealed: bool, stall_s: float) -> Saved:
        if not sealed:
            warnings.warn(
                f"no checkpoint of step {step} from this rank: earlier images are not durable yet", RuntimeWarning, stacklevel=3
            )
        if self._local is not None:
            for failed, reason in self._local.take_failures():
                warnings.warn(f"the checkpoint of step {failed} was not made durable: {reason}", RuntimeWarning, stacklevel=3)
        return Saved(sealed, stall_s)


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
