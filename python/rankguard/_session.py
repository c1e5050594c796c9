"""One rank's run: with the agent of its node, or with a store in a directory."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

from . import _aliases, _arguments, _arrays, _casts, _fork, _imported, _load, _merge, _partial, _plain_state, _target, _tree
from ._permitted import PermittedNames, Replicate, ReplicatedNames, listed_patterns
from ._plan import RestorePlan
from ._rankguard import Agent, Local, RankguardError
from ._view import CheckpointView, check_tensors

__all__ = ["Counts", "Loaded", "RankguardError", "Restored", "Saved", "Session", "given", "place"]


@dataclass(frozen=True)
class Saved:
    """What became of a save."""

    #: Whether there is an image. Without one this rank takes no part in the checkpoint, which makes it void.
    sealed: bool
    #: How long the trainer waited, seconds: the whole call, with the encoding of plain state and copies from a device.
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


@dataclass(frozen=True)
class LocalPlace:
    """Where the checkpoints of a local session lie."""

    directory: str
    job: str
    #: Whether the caller or the environment named the job; otherwise it is the default.
    job_named: bool


class Counts(dict[str, int]):
    """Saves since the start, by what became of them; of those that failed the newest reason."""

    def __init__(self, counts: list[tuple[str, int]], last_failure: Optional[tuple[int, str]]) -> None:
        super().__init__(counts)
        #: Why the newest of the failed ones is void, with its step; ``None`` where none failed.
        self.last_failure = None if last_failure is None else f"step {last_failure[0]}: {last_failure[1]}"


class Session:
    """A rank's run. Trainers use the functions of the package, which have one session for the process.

    Calls come from one thread, but for ``step``, which any thread may call at any moment.
    """

    def __init__(
        self,
        agent: Optional[Agent],
        local: Optional[Local],
        checkpoint_every: int = 0,
        local_place: Optional[LocalPlace] = None,
    ) -> None:
        self._agent, self._local = agent, local
        self._local_place = local_place
        self._pid = os.getpid()
        self._watch = [_fork.watch(connection) for connection in (agent, local) if connection is not None]
        if local is not None:
            _close_at_exit(self)
        self._every = checkpoint_every
        #: Where tensors of a device are copied to, by name; an adapter hands it to :func:`box_of`.
        self.staging = _arrays.Staging()
        self._growth = _plain_state.StateGrowth()
        self._permitted = PermittedNames()
        self._step = 0
        #: How long the last ``begin`` took, seconds.
        self._begin_s = 0.0
        #: Whether the last wait for a commit failed.
        self._wait_failed = False
        #: Whether a step was reported or restored.
        self._stepped = False
        self._stepped_at = time.monotonic()
        self.closed = False
        #: Whether the warning that the job has no store was given.
        self._warned = False
        #: Whether the warning that checkpoints are void was given.
        self._warned_void = False

    @property
    def _keeper(self) -> Union[Agent, Local]:
        self._check_open()
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
    def has_step(self) -> bool:
        """Whether a step was reported or restored."""
        return self._stepped

    def nothing_found(self) -> str:
        """Why there is nothing to restore."""
        if self._agent is not None:
            return "the controller has chosen no checkpoint for this generation"
        place = self._local_place
        return "the store is empty" if place is None else f"{place.directory} has no checkpoint of the job {place.job!r}"

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
        step = self._step if step is None else _arguments.check_integer("step", step)
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
        n = _arguments.check_integer("n", n)
        loss, norm = _number("loss", loss), _number("grad_norm", grad_norm)
        waited_s = None if waited_s is None else _arguments.check_seconds("waited_s", waited_s)
        self._check_open()
        now = time.monotonic()
        step_ms, self._stepped_at = (now - self._stepped_at) * 1e3, now
        self._step, self._stepped = n, True
        if self._agent is not None:
            # The agent's step mark has a loss and no norm. A norm that is no number tells what the loss will be.
            told = norm if norm is not None and norm != norm and loss is None else loss
            own_ms = None if waited_s is None else max(step_ms - waited_s * 1e3, 0.0)
            self._agent.step(n, told, step_ms, own_ms)
            self._warn_of_void()

    def checkpoint(self, state: Any, step: Optional[int] = None) -> Saved:
        """Saves; when it returns, the state may be changed. What is sealed survives this process under an agent.

        ``state`` is a nested dict of tensors and plain values; objects with ``state_dict`` and ``load_state_dict`` are
        asked. Making it durable goes on beside the training. In a job without a checkpoint store nothing is saved: the
        first call warns, and the result names the reason.
        """
        started = time.perf_counter()
        step = self._save_step(step)
        boxes, text = self._flat_packed(_tree.Flat(_top(state)), step)
        return self._saved(step, started, *self._keeper.checkpoint(step, boxes, text, _tree.SCHEMA))

    def begin(self, state: Any, step: Optional[int] = None) -> Optional[Saved]:
        """Starts to save beside the training: call it after the optimizer's step and ``finish`` before the next one.

        The tensors must not change in between. Gives what became of it already when it was skipped.
        """
        started = time.perf_counter()
        step = self._save_step(step)
        boxes, text = self._flat_packed(_tree.Flat(_top(state)), step)
        begun = self._keeper.begin(step, boxes, text, _tree.SCHEMA)
        self._begin_s = time.perf_counter() - started
        return None if begun is None else self._saved(step, started, *begun)

    def finish(self) -> Optional[Saved]:
        """Waits for what is left of the copy that was begun. ``None`` when none was.

        ``stall_s`` is the time of both calls.
        """
        started = time.perf_counter() - self._begin_s
        finished = self._keeper.finish()
        return None if finished is None else self._saved(self._step, started, *finished)

    def restore(
        self,
        state: Any,
        step: Optional[int] = None,
        strict: bool = True,
        replicate: Replicate = (),
        *,
        only: Optional[Sequence[str]] = None,
        cast: bool = False,
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

        ``only`` restores the keys below these prefixes (``["model", "optimizer.state"]``) and leaves the rest of the state as
        it is. ``cast`` converts tensors that were saved with another element type: between floating types, between complex
        types, and to wider integers; without it another element type is an error.
        """
        strict, cast = _arguments.check_flag("strict", strict), _arguments.check_flag("cast", cast)
        step = _arguments.check_optional("step", step)
        part = None if only is None else _partial.Part(_top(state), only)
        state = state if part is None else part.view
        with _target.described(self, state, step, strict) as step:
            flat = _tree.Flat(_top(state))
        replicate = listed_patterns(replicate)
        self._permitted.add(replicate, () if strict else (leaf.name for leaf in flat.leaves))
        view = self._look(step)
        if view is None:
            # The memory for images of this size is made now, and not in the first save.
            self._fetch(self._places(flat, [])[0], step)
            return None
        plan = self._planned(view, state, flat, strict, replicate, part)
        boxes, shared = self._places(flat, plan.comparison.unfilled)
        if cast:
            _cast_boxes(boxes, plan)
        if boxes:
            filled = self._fetch(boxes, step)
            if filled is None:
                raise RankguardError(f"cannot restore step {view.step}: it was removed while it was restored; restore again")
            if filled.step != view.step:
                # The newest one is damaged, and an older one was taken.
                plan = self._planned(self._resolved(filled), state, flat, strict, replicate, part)
            shared.check()
        restored = self._adopt(state, flat, plan)
        if part is not None:
            part.write_back()
        return restored

    def newest(self) -> Optional[int]:
        """The step that a restore would give: the newest committed, under an agent the controller's choice."""
        view = self._fetch([], None)
        return None if view is None else view.step

    def load(self, step: Optional[int] = None, replicate: Replicate = ()) -> Optional[Loaded]:
        """The checkpoint as a new state, for those who have none to restore into. ``None`` when there is nothing.

        It costs the memory of the whole state: tensors that ranks saved in parts (DTensors, :class:`Shard`) and those of DCP
        become full tensors on the CPU. ``replicate`` is that of
        :meth:`restore`.
        """
        replicate = listed_patterns(replicate)
        self._permitted.add(replicate)
        view = self._look(step)
        if view is None:
            return None
        whole = self._resolved(view, every=True)
        place = self._keeper.place()
        own, saved = False, _load.dcp_state(whole.states)
        if saved is None:
            _load.refuse_imported(view.step, view.states)
            own = view.is_own(place)
            saved = view.own_state(place) if own else whole.union(min(view.states)).state
        if not own:
            names = (ref.name for ref in _tree.refs(saved))
            check_tensors(view, names, ReplicatedNames(replicate), place[1])
        # The same one, even if another is committed meanwhile.
        wanted = None if self._agent is not None else view.step
        state = _load.assemble(view.step, saved, own, lambda boxes: self._fetch(boxes, wanted))
        self._step, self._stepped = view.step, True
        return Loaded(view.step, len(view.states), state)

    def save_boxes(self, boxes: list[_arrays.Box], text: str, schema: str, step: Optional[int]) -> Saved:
        """Saves boxes that an adapter has made with :attr:`staging`, and the JSON of this rank."""
        started = time.perf_counter()
        _arrays.synchronize(self.staging)
        step = self._save_step(step)
        told, text = self._packed([box.told() for box in boxes], text, step)
        return self._saved(step, started, *self._keeper.checkpoint(step, told, text, schema))

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
        seconds = _arguments.check_seconds("seconds", seconds)
        if self._agent is not None:
            self._check_open()
            self._agent.finish()
            return None
        local, self._wait_failed = self._local_keeper(), True
        waited = local.wait(seconds)
        self._wait_failed = False
        return None if waited is None else waited[0]

    def idle(self) -> bool:
        """Whether nothing of this rank is copied, written, committed or cleared away now. Only for a local store."""
        return self._local_keeper().idle()

    def counts(self) -> Counts:
        """Saves since the start: sealed, skipped, waited, replaced, failed; under an agent also step marks dropped.

        Failed are those that did not become a checkpoint, with the newest reason in :attr:`Counts.last_failure`. An agent
        reports them some time after the save, those of other ranks of the node too, and the first is a ``RuntimeWarning``.
        """
        keeper = self._keeper
        return Counts(keeper.counts(), keeper.last_failure())

    def done(self) -> None:
        """Reports that all work of this rank is done. A local store is written to the end and closed first.

        After a :meth:`wait` that failed it waits for no other rank; what is not committed then is a ``RuntimeWarning``. In a
        fork of the rank's process it does nothing.
        """
        if self.closed or self.is_fork:
            return
        self.closed = True
        if self._agent is not None:
            self._agent.finish()
            self._warn_of_void()
            self._agent.done()
            return
        assert self._local is not None
        try:
            if not self._wait_failed:
                self._local.wait(600.0)
        finally:
            self._close_local()

    def leave(self) -> None:
        """Closes the session with the agent without a report: the generation of this rank is over."""
        self.closed = True
        self._watch.clear()
        self._agent = None

    @property
    def is_fork(self) -> bool:
        """Whether this process is a fork of the one that opened the session."""
        return self._pid != os.getpid()

    def _close_local(self) -> None:
        assert self._local is not None
        self.closed = True
        self._warn_of(self._local.close())

    def _check_open(self) -> None:
        if self.is_fork:
            raise RankguardError(
                f"this process is a fork of the rank's process {self._pid}, and the session belongs to that one; call it there"
            )
        if self.closed:
            raise RankguardError("this session is over; call rankguard.init() for another")

    def _check_job(self) -> None:
        """Refuses to restore nothing where the name of the job is a default and the store has checkpoints of others."""
        place = self._local_place
        if self._local is None or place is None or place.job_named:
            return
        others = sorted(job for job in self._local.jobs() if job != place.job)
        if others:
            shown = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
            raise RankguardError(
                f"cannot restore: {place.directory} has no checkpoint of the job {place.job!r} (the default name), but "
                f"checkpoints of {shown}; pass init({place.directory!r}, job=...) with one of these, or job={place.job!r} to "
                "start a new one"
            )

    def _save_step(self, step: Any) -> int:
        if step is not None:
            return _arguments.check_integer("step", step)
        if not self._stepped:
            raise RankguardError(
                "cannot save a checkpoint: its step is unknown; pass step=n, or call rankguard.step(n) after each step"
            )
        return self._step

    def _warn_of(self, failures: list[tuple[int, str]]) -> None:
        for failed, reason in failures:
            warnings.warn(f"the checkpoint of step {failed} was not made durable: {reason}", RuntimeWarning, stacklevel=4)

    def _warn_of_void(self) -> None:
        """Warns of the first checkpoint that the agent could not keep."""
        if self._agent is None or self._warned_void:
            return
        failures = self._agent.take_failures()
        if failures:
            self._warned_void = True
            step, reason = failures[0]
            warnings.warn(
                f"the checkpoint of step {step} is void: {reason}; training goes on, an earlier commit stands if there is "
                "one, and rankguard.counts() has those that follow",
                RuntimeWarning,
                stacklevel=4,
            )

    def _local_keeper(self) -> Local:
        keeper = self._keeper
        if not isinstance(keeper, Local):
            raise RankguardError("under an agent the agent writes and the controller commits; `rankguard status` shows it")
        return keeper

    def _boxes(self, flat: _tree.Flat) -> list[Any]:
        boxes = [_arrays.box_of(leaf.name, leaf.value, writable=False, staging=self.staging) for leaf in flat.leaves]
        _arrays.synchronize(self.staging)
        return [box.told() for box in boxes if box is not None]

    def _flat_packed(self, flat: _tree.Flat, step: int) -> tuple[list[Any], str]:
        """Boxes and JSON of the save of a nested state."""
        names = [leaf.name for leaf in flat.leaves]
        replicated = self._permitted.of(names, flat.replicated)
        return self._packed(self._boxes(flat), flat.text(replicated), step, replicated)

    def _packed(self, boxes: list[Any], text: str, step: int, replicated: Optional[list[str]] = None) -> tuple[list[Any], str]:
        """Boxes and JSON of a save; a large plain state is one of the boxes."""
        self._growth.check(step, len(text))
        text, box = _plain_state.packed(text, self._keeper.place()[0], replicated)
        return (boxes if box is None else [*boxes, box.told()]), text

    def _fetch(self, boxes: list[_arrays.Box], step: Optional[int]) -> Optional[CheckpointView]:
        """Fills the boxes; what is known of the checkpoint."""
        step = _arguments.check_optional("step", step)
        self._check_open()
        if self._agent is not None and step is not None:
            job = os.environ.get("RANKGUARD_JOB") or "JOB"
            raise ValueError(
                f"cannot restore step {step}: under an agent all ranks start from the checkpoint that the controller chose; "
                f"submit the job with `rankguard run --resume-from {job}:{step}`"
            )
        told = [box.told() for box in boxes]
        if self._agent is not None:
            given = None if self.checkpoint_every == 0 else self._agent.restore(told)
        else:
            given = self._local_keeper().restore(told, step)
        if given is None:
            self._check_job()
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

    def _planned(
        self,
        view: CheckpointView,
        state: Any,
        flat: _tree.Flat,
        strict: bool,
        replicate: Replicate,
        part: Optional[_partial.Part],
    ) -> RestorePlan:
        replicated = ReplicatedNames(replicate, flat.replicated)

        def pruned(view: CheckpointView) -> CheckpointView:
            return view if part is None else part.pruned(view)

        def every_state() -> CheckpointView:
            return pruned(self._resolved(view, every=True))

        plan = RestorePlan(pruned(view), _top(state), flat, self._keeper.place(), every_state)
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
        self._step, self._stepped = view.step, True
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

    def _saved(self, step: int, started: float, sealed: bool, reason: Optional[str] = None) -> Saved:
        stall_s = time.perf_counter() - started
        if not sealed and not (self.without_store and self._warned):
            self._warned = self.without_store
            warnings.warn(f"no checkpoint of step {step} from this rank: {reason}", RuntimeWarning, stacklevel=3)
        if self._local is not None:
            self._warn_of(self._local.take_failures())
        self._warn_of_void()
        self._wait_failed = self._wait_failed and not sealed
        return Saved(sealed, stall_s, reason)


def _close_at_exit(session: Session) -> None:
    """Ends a local session that the program did not end, while the interpreter still handles signals."""
    reference = weakref.ref(session)

    def close() -> None:
        left = reference()
        if left is not None and not left.closed and not left.is_fork:
            left._close_local()

    atexit.register(close)
    weakref.finalize(session, atexit.unregister, close).atexit = False


def _cast_boxes(boxes: list[_arrays.Box], plan: RestorePlan) -> None:
    """Gives boxes of another element type a buffer of the saved one."""
    saved = {ref.name: ref.dtype for ref in _tree.refs(plan.saved)}
    for box in boxes:
        stored = saved.get(box.name)
        if stored is not None and stored != box.dtype:
            _casts.cast_box(box, stored)


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


def load_path(
    path: Union[str, os.PathLike[str]], job: Optional[str], step: Optional[int], replicate: Replicate = ()
) -> Optional[Loaded]:
    """A checkpoint in a directory as a new state, without a session; see :func:`rankguard.load`."""
    local, step = _load.open_path(path, job, step)
    session = Session(None, local)
    try:
        return session.load(step, replicate)
    finally:
        session.closed = True
        local.close()


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
