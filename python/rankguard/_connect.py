"""How a session begins: with the agent of the node, or with a store in a directory."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, Optional, Union

from . import _arguments, _fork
from ._rankguard import Agent, Local, RankguardError
from ._session import LocalPlace, Session

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
    named = {
        "job": job,
        "rank": rank,
        "world_size": world_size,
        "generation": generation,
        "slots": slots,
        "when_full": when_full,
        "wait_s": wait_s,
        "commit_within_s": commit_within_s,
        "keep": keep,
    }
    options = _arguments.check_options(named)
    checkpoint_every = _arguments.check_integer("checkpoint_every", checkpoint_every)
    local_dir = None if local_dir is None else _arguments.check_directory("local_dir", local_dir)
    if os.environ.get("RANKGUARD_SOCKET"):
        _fork.check_process()
    agent = Agent.connect()
    if agent is not None:
        if "wait_s" in options or "when_full" in options:
            agent.set_when_full(options.get("when_full", "wait"), options.get("wait_s", 600.0))
        return Session(agent, None)
    if local_dir is None:
        raise RankguardError(
            "there is no agent here (RANKGUARD_SOCKET is not set) and no local store: start the trainer with "
            "`rankguard run`, or call rankguard.init(local_dir=...) to save into a directory"
        )
    # Not torchrun's run id: that is another one in every run, and the directory was chosen to be found again.
    is_named = "job" in options or bool(os.environ.get("RANKGUARD_JOB"))
    options.setdefault("job", os.environ.get("RANKGUARD_JOB") or "local")
    place = LocalPlace(local_dir, options["job"], is_named)
    return Session(None, _agreed(local_dir, options), checkpoint_every, place)


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
