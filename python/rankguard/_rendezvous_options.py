"""Options of torchrun for the back end ``rankguard``."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

BACKEND = "rankguard"
# Options of --rdzv-conf in seconds, with their defaults.
_SECONDS = {"join_timeout": 600.0, "last_call_timeout": 30.0, "restart_timeout": 60.0, "connect_timeout": 60.0}
_TEXTS = ("node",)
# torchrun adds `timeout` for back ends of other kinds.
_IGNORED = ("timeout",)


@dataclass(frozen=True)
class RunOptions:
    """Options of one torchrun process."""

    program: str
    controller: Optional[str]
    run_id: str
    nodes_min: int
    nodes_max: int
    # Maximum wait for the minimum of nodes, and for a controller that is away.
    join_timeout: float
    # Wait for further nodes.
    last_call_timeout: float
    # Maximum wait for nodes that stop the workers of a round that is over.
    restart_timeout: float
    # Maximum wait for the first contact with the controller.
    connect_timeout: float
    node: Optional[str]
    local_address: Optional[str]

    @classmethod
    def of(cls, parameters: RendezvousParameters) -> RunOptions:
        """Reads the parameters of torchrun. Raises ValueError for what it does not take."""
        if parameters.run_id in ("", "none"):
            raise ValueError("--rdzv-id is required with --rdzv-backend=rankguard: the name of the job, the same on all nodes")
        endpoint = parameters.endpoint.strip()
        if endpoint and not endpoint.rpartition(":")[2].isdigit():
            raise ValueError(f"--rdzv-endpoint={endpoint}: expected the address of the controller, HOST:PORT")
        config = dict(parameters.config)
        unknown = sorted(set(config) - {*_SECONDS, *_TEXTS, *_IGNORED})
        if unknown:
            known = ", ".join([*_SECONDS, *_TEXTS])
            raise ValueError(f"--rdzv-conf: unknown option {', '.join(unknown)}; --rdzv-backend=rankguard takes {known}")
        seconds = {name: _seconds(name, config.get(name, default)) for name, default in _SECONDS.items()}
        return cls(
            program=_program(),
            controller=endpoint or None,
            run_id=parameters.run_id,
            nodes_min=parameters.min_nodes,
            nodes_max=parameters.max_nodes,
            node=config.get("node"),
            local_address=parameters.local_addr,
            **seconds,
        )

    def command(self) -> list[str]:
        """The program that keeps the connection to the controller."""
        controller = ["--controller", self.controller] if self.controller else []
        return [self.program, "rendezvous", "join", *controller]

    def join_line(self, member: int) -> dict[str, Any]:
        """Its first input."""
        return {
            "input": "join",
            "run_id": self.run_id,
            "member": member,
            "node": self.node,
            "address": self.local_address,
            "nodes_min": self.nodes_min,
            "nodes_max": self.nodes_max,
            "join_timeout_ms": round(self.join_timeout * 1e3),
            "last_call_timeout_ms": round(self.last_call_timeout * 1e3),
            "restart_timeout_ms": round(self.restart_timeout * 1e3),
        }


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds <= 7 * 86_400:
        raise ValueError(f"--rdzv-conf: {name}={value} is not a number of seconds above 0 and at most 604800")
    return seconds


def _program() -> str:
    named = os.environ.get("RANKGUARD_BIN")
    if named:
        found = shutil.which(named)
        if not found:
            raise ValueError(f"RANKGUARD_BIN={named} is not a program")
        return found
    beside = os.path.join(os.path.dirname(sys.executable), "rankguard")
    found = shutil.which("rankguard") or shutil.which(beside)
    if not found:
        raise ValueError(
            "cannot find the program rankguard, which --rdzv-backend=rankguard needs: install the wheel of rankguard, put the "
            "program on PATH, or set RANKGUARD_BIN to its path"
        )
    return found
