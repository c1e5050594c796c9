"""Rankguard as the rendezvous back end of torchrun::

    torchrun --rdzv-backend=rankguard --rdzv-endpoint=CONTROLLER:7700 --rdzv-id=JOB --nnodes=MIN:MAX --nproc-per-node=8 train.py

The script needs no change. The controller of Rankguard decides which nodes form a round; a node that it cordons leaves the
job. The group of entry points ``torchrun.handlers`` names :func:`handler_factory`; torch loads it with
``torch.distributed.elastic.rendezvous``, so this module imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

__all__ = ["create_handler", "handler_factory"]


def handler_factory() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Returns the creator of handlers, as the group of entry points requires."""
    return create_handler


def create_handler(parameters: RendezvousParameters) -> RendezvousHandler:
    """Creates the handler of one torchrun process. Raises ValueError for options that it does not take."""
    from ._rendezvous import RankguardRendezvous
    from ._rendezvous_options import RunOptions

    return RankguardRendezvous(RunOptions.of(parameters))
