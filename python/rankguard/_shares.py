"""Shares of a global batch: which positions each rank, or each virtual rank, takes of one step."""

from __future__ import annotations

from typing import NamedTuple


class BatchShare(NamedTuple):
    """The part of one global batch that one rank computes in one forward and backward.

    Positions are those of the epoch's order. A share without a sample (``size`` 0) exists because all ranks must take part
    in the same collectives: its batch is one sample of this step, to be computed with factor 0.

    With ``b`` samples in the global batch, ``s`` in this share and ``W`` ranks, DDP computes ``1/W * sum of the ranks'
    gradients``, and the mean over the global batch is ``1/b * sum of all samples' gradients``. So a local loss is multiplied
    by ``W * s / b`` if it is a mean over the share, and by ``W / b`` if it is a sum. Where gradients are added up and not
    averaged, the factors are ``s / b`` and ``1 / b``. Each factor is rounded once, and ``W * s / b`` is exactly 1 where
    shares are equal.
    """

    #: Epoch of the step, from 0.
    epoch: int
    #: First position of the share in the order of the epoch.
    start: int
    #: Position after the last one of the share.
    stop: int
    #: First position of the global batch.
    batch_start: int
    #: Samples in the global batch of this step.
    global_size: int
    #: Number of the virtual rank; without virtual ranks that of the rank. At least their number where none is left.
    virtual_rank: int
    #: Ranks over which DDP averages.
    world_size: int

    @property
    def size(self) -> int:
        """Samples in this share; 0 for a share that only takes part."""
        return self.stop - self.start

    @property
    def mean_scale(self) -> float:
        """Factor of a mean loss over the share, where gradients are averaged over ranks (DDP, FSDP)."""
        return self.world_size * self.size / self.global_size

    @property
    def sum_scale(self) -> float:
        """Factor of a sum of losses over the share, where gradients are averaged over ranks."""
        return self.world_size / self.global_size if self.size else 0.0

    @property
    def weight(self) -> float:
        """Factor of a mean loss over the share, where gradients are added up."""
        return self.size / self.global_size

    @property
    def sample_weight(self) -> float:
        """Weight of each sample in the global mean."""
        return 1 / self.global_size if self.size else 0.0


def share_of(epoch: int, start: int, size: int, part: int, parts: int, world_size: int) -> BatchShare:
    """Share ``part`` of ``parts`` of a global batch: consecutive positions; shares differ by at most one sample."""
    if part >= parts:
        return BatchShare(epoch, start, start, start, size, part, world_size)
    return BatchShare(epoch, start + part * size // parts, start + (part + 1) * size // parts, start, size, part, world_size)
