"""Sampler of exact global batches at any sequence of world sizes; :class:`rankguard.Sampler`."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator, Sized
from typing import Any, Literal, Optional, Union

from . import _arguments, _loaders, _permutation, _session, _shares
from ._ledger import SampleLedger
from ._rankguard import RankguardError
from ._shares import BatchShare

#: Version of the saved state.
_STATE_VERSION = 1
_LAST_BATCH = ("keep", "drop")
#: Options that a saved state and the sampler that loads it must have in common.
_FIXED = ("samples", "global_batch", "seed", "last_batch", "virtual_ranks")
#: Steps without a report beyond those that a loader reads ahead, from which on a warning is given. Loops that accumulate
#: gradients over fewer batches may report them together.
_UNREPORTED = 16


class Sampler:
    """Yields this rank's part of each global batch; pass it to a loader as ``batch_sampler``.

        sampler = rankguard.Sampler(dataset, global_batch=256, seed=7)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)
        state = rankguard.torch.state(model, optimizer, sampler=sampler)
        restored = rankguard.restore(state)
        for epoch in range(sampler.epoch, epochs):
            for inputs, targets in loader:
                loss = cross_entropy(model(inputs), targets) * sampler.share.mean_scale
                ...
                optimizer.step()
                sampler.advance()
                rankguard.step(sampler.step, loss=loss)
                if rankguard.due():
                    rankguard.checkpoint(state)

    A step consumes the next ``global_batch`` positions of the epoch's order, which depends on ``samples``, ``seed`` and epoch
    alone. Ranks take consecutive shares of them that differ by at most one sample; :class:`rankguard.BatchShare` has the
    factors that make the gradient of DDP the mean over the global batch. So the same samples are consumed in the same global
    order at any sequence of world sizes. The order is a keyed permutation with random access
    (``rankguard/_permutation.py``): a sampler of 10^12 samples needs no more memory than one of 10.

    :meth:`advance` reports a step as done. Loaders read ahead, so the place in the data cannot be what was read: it is what
    was reported, and :meth:`state_dict` has it. The state is the same on every rank and names no rank or world size. It is a
    part of a rankguard state as it is. A loader that begins to iterate begins at that place, also within an epoch. A
    ``StatefulDataLoader`` may save and load its own state too; that counts each batch it has returned as done.

    ``samples`` is a dataset or the number of its samples. ``last_batch`` is ``"keep"`` (the last batch of an epoch has what is
    left, with its own factors; each sample is consumed once an epoch) or ``"drop"``. ``shuffle=False`` keeps the order of the
    dataset. Rank and world size are those of ``torch.distributed``, else of ``RANK`` and ``WORLD_SIZE``, unless given, as for
    the data-parallel part of a mesh. ``generation`` labels the ledger; without it it is ``RANKGUARD_GENERATION``, else one more
    with each load.

    ``virtual_ranks=V`` divides each batch into V shares at every world size. Rank r of W computes the shares r, r + W,
    r + 2W and so on, and a step of the loader is :attr:`rounds` batches on every rank. Gradients that are added up in the
    order of the virtual ranks are then equal bit by bit at every world size (``examples/elastic_ddp.py``).
    """

    def __init__(
        self,
        samples: Union[int, Sized],
        global_batch: int,
        *,
        seed: int = 0,
        last_batch: Literal["keep", "drop"] = "keep",
        shuffle: bool = True,
        virtual_ranks: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        generation: Optional[int] = None,
    ) -> None:
        count = len(samples) if isinstance(samples, Sized) else samples
        self._samples = _arguments.check_integer("samples", count, 1, _permutation.MAX_SAMPLES)
        self._global_batch = _arguments.check_integer("global_batch", global_batch, 1)
        self._seed = _arguments.check_integer("seed", seed)
        if last_batch not in _LAST_BATCH:
            raise ValueError(f"last_batch is {last_batch!r}; it can be 'keep' or 'drop'")
        self._last_batch = last_batch
        self._virtual_ranks = _arguments.check_optional("virtual_ranks", virtual_ranks, 1, _arguments.MAX_RANKS)
        self._is_detected = rank is None and world_size is None
        if (rank is None) != (world_size is None):
            raise TypeError("Sampler() has rank without world_size, or the reverse; pass both or neither")
        found = _session.place() if rank is None or world_size is None else (rank, world_size)
        self._world_size = _arguments.check_integer("world_size", found[1], 1, _arguments.MAX_RANKS)
        self._rank = _arguments.check_integer("rank", found[0], 0, self._world_size - 1)
        self._check_sizes()
        self._epoch_samples = self._samples - (self._samples % self._global_batch if last_batch == "drop" else 0)
        self._rounds = -(-(self._virtual_ranks or self._world_size) // self._world_size)
        self._named_generation = _generation(generation)
        self._generation = self._named_generation or 0
        self._kind = _permutation.SHUFFLED if shuffle else _permutation.SEQUENTIAL
        self._order: Optional[tuple[int, _permutation.SampleOrder]] = None
        self._epoch = self._position = 0
        self._ledger = SampleLedger()
        self._newest: Optional[_BatchIterator] = None

    def _check_sizes(self) -> None:
        if self._virtual_ranks is not None and self._virtual_ranks < self._world_size:
            raise ValueError(
                f"virtual_ranks is {self._virtual_ranks} and world_size is {self._world_size}, so ranks would have no work; "
                "pass virtual_ranks of at least the largest world size of the run"
            )
        parts, name = (self._virtual_ranks, "virtual_ranks") if self._virtual_ranks else (self._world_size, "world_size")
        if self._global_batch < parts:
            raise ValueError(
                f"global_batch is {self._global_batch} and {name} is {parts}, so ranks would have no samples; "
                f"pass a global_batch of at least {parts} or use fewer ranks"
            )
        if self._last_batch == "drop" and self._samples < self._global_batch:
            raise ValueError(
                f"samples is {self._samples} and global_batch is {self._global_batch}, so last_batch='drop' leaves no batch; "
                "pass last_batch='keep' or a smaller global_batch"
            )

    @property
    def samples(self) -> int:
        """Samples of the dataset."""
        return self._samples

    @property
    def global_batch(self) -> int:
        """Samples of a step over all ranks."""
        return self._global_batch

    @property
    def rank(self) -> int:
        """Rank among those that share a global batch."""
        return self._rank

    @property
    def world_size(self) -> int:
        """Ranks that share a global batch."""
        return self._world_size

    @property
    def virtual_ranks(self) -> Optional[int]:
        """Shares of a global batch at every world size; ``None`` for one share a rank."""
        return self._virtual_ranks

    @property
    def rounds(self) -> int:
        """Batches that a loader returns on each rank for one step: 1 without virtual ranks."""
        return self._rounds

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a whole epoch."""
        return -(-self.epoch_samples // self._global_batch)

    @property
    def epoch_samples(self) -> int:
        """Samples that an epoch consumes; with ``last_batch="drop"`` the largest multiple of the global batch."""
        return self._epoch_samples

    @property
    def epoch(self) -> int:
        """Epoch of the next step, from 0. It grows with the :meth:`advance` that ends an epoch."""
        return self._epoch

    @property
    def position(self) -> int:
        """Samples of this epoch that steps reported by :meth:`advance` have consumed."""
        return self._position

    @property
    def consumed(self) -> int:
        """Samples consumed in all epochs: the place in the sample stream, as in the ledger."""
        return self._epoch * self._epoch_samples + self._position

    @property
    def step(self) -> int:
        """Steps reported in all epochs."""
        return self._epoch * self.steps_per_epoch + self._position // self._global_batch

    @property
    def ledger(self) -> SampleLedger:
        """Places of the sample stream that the present state has consumed, by generation."""
        return self._ledger

    @property
    def shares(self) -> tuple[BatchShare, ...]:
        """This rank's shares of the next step to be reported, one for each batch that a loader returns for it."""
        return self._shares(self._epoch, self._position)

    @property
    def share(self) -> BatchShare:
        """This rank's share of the next step to be reported."""
        if self._rounds != 1:
            raise RankguardError(
                f"cannot give one share: a step has {self.rounds} batches on each rank (virtual_ranks={self._virtual_ranks}, "
                f"world_size={self._world_size}); use shares, one for each batch"
            )
        return self.shares[0]

    def indices(self, share: BatchShare) -> list[int]:
        """Indices of a share in the dataset; of a share without samples the first of its step, to take part with."""
        order = self._order_of(share.epoch)
        return order.indices(share.start, share.stop) if share.size else [order.index(share.batch_start)]

    def index_at(self, position: int, epoch: int) -> int:
        """Index in the dataset of the sample at a position of an epoch."""
        position = _arguments.check_integer("position", position, 0, self._samples - 1)
        return self._order_of(_arguments.check_integer("epoch", epoch)).index(position)

    def position_of(self, index: int, epoch: int) -> int:
        """Position at which an epoch consumes a sample; the inverse of :meth:`index_at`."""
        index = _arguments.check_integer("index", index, 0, self._samples - 1)
        return self._order_of(_arguments.check_integer("epoch", epoch)).position(index)

    def random_seed(self, share: BatchShare) -> int:
        """Seed for the random numbers of a share, such as dropout: of seed, step and virtual rank, of 63 bits."""
        text = f"rankguard.share/1 seed={self._seed} epoch={share.epoch} step={share.batch_start} part={share.virtual_rank}"
        return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "little") >> 1

    def advance(self) -> None:
        """Reports the step of :attr:`shares` as done; call it once a step on every rank, before a checkpoint of the step."""
        newest = self._newest
        if newest is not None and newest.issued <= self.consumed:
            raise RankguardError(
                f"cannot advance beyond step {self.step}: the loader has not read the {self.rounds} "
                f"{'batches' if self.rounds > 1 else 'batch'} of the next one; call advance() once for each step, after it"
            )
        size = self._step_size(self._position)
        start = self.consumed
        self._ledger._extend(start, start + size, self._generation, self._world_size)
        self._move(start + size)

    def set_epoch(self, epoch: int) -> None:
        """Checks that the next step is of this epoch; loops for ``DistributedSampler`` call it. :meth:`advance` moves on."""
        epoch = _arguments.check_integer("epoch", epoch)
        if epoch != self._epoch:
            raise RankguardError(
                f"cannot set epoch {epoch}: the sampler is at position {self._position} of epoch {self._epoch}; "
                "begin the loop at sampler.epoch, and call advance() after each step"
            )

    def __len__(self) -> int:
        """Batches that a loader returns for a whole epoch on each rank; fewer where it begins within one."""
        return self.steps_per_epoch * self.rounds

    def __iter__(self) -> Iterator[list[int]]:
        """The batches from the reported place to the end of the epoch."""
        # Before a loader starts its workers: one that fails with its first batch waits for their end.
        caller = sys._getframe(1)
        problem = _loaders.problem_of(caller) or self._place_problem() or self._report_problem()
        if problem is not None:
            raise problem
        self._newest = _BatchIterator(self, self._epoch, self._position, _loaders.reads_ahead(caller))
        return self._newest

    def state_dict(self) -> dict[str, Any]:
        """The reported place and what the order depends on, as plain values; equal on all ranks."""
        return {
            "version": _STATE_VERSION,
            "permutation": self._kind,
            **{name: getattr(self, f"_{name}") for name in _FIXED},
            "epoch": self._epoch,
            "position": self._position,
            "ledger": self._ledger.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on at a saved place, at any rank and world size; refuses a state of other data and changes nothing then.

        Iterations that began before end with an error at their next batch.
        """
        if not isinstance(state, dict) or "version" not in state:
            raise ValueError("cannot load the state of the sampler: it is none; pass what Sampler.state_dict() returned")
        if state["version"] != _STATE_VERSION:
            raise ValueError(
                f"cannot load the state of the sampler: it has version {state['version']!r} and this package reads version "
                f"{_STATE_VERSION}; install the version of rankguard that saved it"
            )
        kind = self._loaded_kind(state)
        self._check_fixed(state)
        epoch, position, ledger = self._loaded_place(state)
        self._kind, self._order, self._newest = kind, None, None
        self._epoch, self._position, self._ledger = epoch, position, ledger
        self._begin_generation()

    def _begin_generation(self) -> None:
        """Labels what is consumed from here on: as named, unless the ledger has later generations already."""
        last = max((interval.generation for interval in self._ledger.intervals), default=-1)
        named = self._named_generation
        self._generation = named if named is not None and named >= last else last + 1

    def _loaded_kind(self, state: dict[str, Any]) -> str:
        kind = state.get("permutation")
        if kind not in _permutation.KINDS:
            raise ValueError(
                f"cannot load the state of the sampler: this package has no permutation {kind!r} and would use another order; "
                "install the version of rankguard that saved it"
            )
        if _permutation.family(kind) != _permutation.family(self._kind):
            shuffle = kind != _permutation.SEQUENTIAL
            raise ValueError(
                f"cannot load the state of the sampler: it was saved with shuffle={shuffle}; make the sampler with "
                f"shuffle={shuffle}"
            )
        return str(kind)

    def _check_fixed(self, state: dict[str, Any]) -> None:
        for name in _FIXED:
            saved, own = state.get(name), getattr(self, f"_{name}")
            if saved == own:
                continue
            loss = "sums would be in another order" if name == "virtual_ranks" else "samples would be lost or repeated"
            remedy = f"use the dataset of {saved} samples" if name == "samples" else f"make the sampler with {name}={saved!r}"
            raise ValueError(
                f"cannot load the state of the sampler: it was saved with {name} {saved!r} and this sampler has {own!r}, so "
                f"{loss}; {remedy}, or begin a new run with a new sampler"
            )

    def _loaded_place(self, state: dict[str, Any]) -> tuple[int, int, SampleLedger]:
        try:
            epoch = _arguments.check_integer("epoch", state.get("epoch"))
            position = _arguments.check_integer("position", state.get("position"), 0, self.epoch_samples - 1)
            ledger = SampleLedger.of_state(state.get("ledger"))
            if position % self._global_batch:
                raise ValueError(f"position is {position}; it can be a multiple of the global batch, {self._global_batch}")
            ledger.check(epoch * self.epoch_samples + position)
        except (TypeError, ValueError, RankguardError) as problem:
            raise ValueError(
                f"cannot load the state of the sampler: it is damaged: {problem}; use another checkpoint"
            ) from problem
        return epoch, position, ledger

    def _place_problem(self) -> Optional[RankguardError]:
        """The refusal of a sampler that was made before the process group and took another rank or world size."""
        rank, world_size = _session.place() if self._is_detected else (self._rank, self._world_size)
        if (rank, world_size) == (self._rank, self._world_size):
            return None
        return RankguardError(
            f"cannot iterate as rank {self._rank} of {self._world_size}: this process is rank {rank} of {world_size} now; "
            "make the sampler after torch.distributed.init_process_group"
        )

    def _report_problem(self) -> Optional[RankguardError]:
        """The refusal of a loop that read an epoch to its end and reported no step of it."""
        newest = self._newest
        if newest is None or not newest.is_exhausted or newest.issued == newest.started or newest.started != self.consumed:
            return None
        steps = -(-(newest.issued - newest.started) // self._global_batch)
        return RankguardError(
            f"cannot begin to iterate: the loader has read {steps} steps to the end of epoch {self._epoch} and "
            "advance() reported none of them; call sampler.advance() once after each step"
        )

    def _order_of(self, epoch: int) -> _permutation.SampleOrder:
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, _permutation.make(self._kind, self._samples, self._seed, epoch))
        return self._order[1]

    def _step_size(self, position: int) -> int:
        return min(self._global_batch, self._epoch_samples - position)

    def _shares(self, epoch: int, position: int) -> tuple[BatchShare, ...]:
        return tuple(self._share(epoch, position, nth) for nth in range(self._rounds))

    def _share(self, epoch: int, position: int, nth: int) -> BatchShare:
        """This rank's share of one round of the step at a position."""
        part, parts = nth * self._world_size + self._rank, self._virtual_ranks or self._world_size
        return _shares.share_of(epoch, position, self._step_size(position), part, parts, self._world_size)

    def _move(self, place: int) -> None:
        self._epoch, self._position = divmod(place, self._epoch_samples)


class _BatchIterator:
    """One iteration over the rest of an epoch, as loaders begin it; its place is what was read and not what was done.

    A ``StatefulDataLoader`` asks it for its state with every batch, and saves that of the batch that it returned last.
    """

    def __init__(self, sampler: Sampler, epoch: int, position: int, reads_ahead: Optional[int]) -> None:
        self._sampler, self._epoch, self._position = sampler, epoch, position
        self._round = 0
        #: Place from which on a read without any report is a reason to warn.
        self._warn_from: Optional[int] = None
        if reads_ahead is not None:
            steps = -(-reads_ahead // sampler._rounds) + _UNREPORTED
            self._warn_from = epoch * sampler._epoch_samples + position + steps * sampler._global_batch
        self._order = sampler._order_of(epoch)
        #: Place in the sample stream at which it began, and to which whole steps were read.
        self.started = self.issued = epoch * sampler._epoch_samples + position
        self.is_exhausted = False

    def __iter__(self) -> _BatchIterator:
        return self

    def __next__(self) -> list[int]:
        sampler = self._sampler
        if sampler._newest is not self:
            raise RankguardError(
                "cannot read the next batch: the sampler was restored, or another iteration over it began, after this one; "
                "restore first and then begin iter(loader)"
            )
        if self._position >= sampler._epoch_samples:
            self.is_exhausted = True
            raise StopIteration
        share = sampler._share(self._epoch, self._position, self._round)
        indices = self._order.indices(share.start, share.stop) if share.size else [self._order.index(share.batch_start)]
        self._round += 1
        if self._round == sampler._rounds:
            self._round = 0
            self._position += share.global_size
            self.issued += share.global_size
            if self._warn_from is not None and self.issued > self._warn_from:
                self._warn_of_reports()
        return indices

    def _warn_of_reports(self) -> None:
        self._warn_from = None
        if self._sampler.consumed == self.started:
            warnings.warn(
                f"the loader has read more than {_UNREPORTED} steps from step {self._sampler.step} on and advance() reported "
                "none, so a checkpoint would repeat them; call sampler.advance() once after each step",
                RuntimeWarning,
                # The reader of batches is the loader, some frames below the loop.
                stacklevel=3,
            )

    def state_dict(self) -> dict[str, Any]:
        """What was read; with its generation and world size, which consumed it if the loader returned it."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "round": self._round,
            "generation": self._sampler._generation,
            "world_size": self._sampler._world_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Moves the sampler to what the loader had returned; the loader has loaded its state before."""
        if state["round"]:
            raise RankguardError(
                f"cannot load the state of the loader: it was saved after {state['round']} of the batches of a step; "
                "save it after the last batch of a step"
            )
        sampler = self._sampler
        self._epoch, self._position = state["epoch"], state["position"]
        place = self._epoch * sampler._epoch_samples + self._position
        if place < sampler.consumed:
            raise RankguardError(
                f"cannot load the state of the loader: it is at sample {place} of the stream and its sampler at "
                f"{sampler.consumed}; load the state of a StatefulDataLoader as it was saved"
            )
        sampler._ledger._extend(sampler.consumed, place, state["generation"], state["world_size"])
        sampler._begin_generation()
        sampler._move(place)
        self._order = sampler._order_of(self._epoch)
        self.started = self.issued = place


def _generation(generation: Optional[int]) -> Optional[int]:
    """The generation that the ledger names: of the caller, else of the agent's environment."""
    if generation is not None:
        return _arguments.check_integer("generation", generation)
    named = os.environ.get("RANKGUARD_GENERATION", "")
    return int(named) if named.isascii() and named.isdigit() else None
