"""How a session begins: with the agent of the node, or with a store in a directory."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, Optional, Union

from ._rankguard import Agent, Local, RankguardError
from ._session import Session

#: What a save does when no slot is free.
WhenFull = Literal["wait", "replace-oldest", "skip"]


def connect(
    local_dir: Optional[Union[str, os.PathLike[str]]] = None,
    *,
    checkpoint_every: int = 0,
    job: Optional[str] = None,
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    generation: Optional[int] = None,
    slots: int = 1,
    when_full: Optional[WhenFull] = None,
    wait_s: Optional[float] = None,
    commit_within_s: float = 600.0,
    keep: int = 0,
) -> Session:
    """A session with the agent that the environment names, else with a store in ``local_dir``; options as in ``init``."""
    agent = Agent.connect()
    full: str = "wait" if when_full is None else when_full
    waits = 600.0 if wait_s is None else float(wait_s)
    if agent is not None:
        if when_full is not None or wait_s is not None:
            agent.set_when_full(full, waits)
        return Session(agent, None)
    if local_dir is None:
        raise RankguardError(
            "there is no agent here (RANKGUARD_SOCKET is not set) and no local store: start the trainer with "
            "`rankguard run`, or call rankguard.init(local_dir=...) to save into a directory"
        )
    options: dict[str, Any] = {
        # Not torchrun's run id: that is another one in every run, and the directory was chosen to be found again.
        "job": job or os.environ.get("RANKGUARD_JOB") or "local",
        "generation": generation,
        "slots": slots,
        "when_full": full,
        "wait_s": waits,
        "commit_within_s": commit_within_s,
        "keep": keep,
    }
    named = {"rank": rank, "world_size": world_size}
    options.update({name: value for name, value in named.items() if value is not None})
    return Session(None, _agreed(local_dir, options), int(checkpoint_every))


def _agreed(local_dir: Union[str, os.PathLike[str]], options: dict[str, Any]) -> Local:
    """The store under one generation for all ranks, which rank 0 chooses where the ranks can speak to each other."""
    torch: Any = sys.modules.get("torch.distributed")
    together = torch is not None and torch.is_available() and torch.is_initialized() and torch.get_world_size() > 1
    if not together or options.get("generation") is not None:
        return Local(os.fspath(local_dir), **options)
    options = {"rank": torch.get_rank(), "world_size": torch.get_world_size(), **options}
    chosen: list[Any] = [None]
    local = None
    if torch.get_rank() == 0:
        local = Local(os.fspath(local_dir), **options)
        chosen[0] = local.generation()
    torch.broadcast_object_list(chosen, src=0)
    return local or Local(os.fspath(local_dir), **{**options, "generation": chosen[0]})
