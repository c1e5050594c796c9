"""How a session begins: with the agent of the node, or with a store in a directory."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional, Union

from ._rankguard import Agent, Local, RankguardError
from ._session import Session


def connect(local_dir: Optional[Union[str, os.PathLike[str]]] = None, *, checkpoint_every: int = 0, **options: Any) -> Session:
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
