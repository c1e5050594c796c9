"""Sessions in forks: a worker of a data loader and an ``os.fork`` have a copy of the session of their parent.

The copy is closed in the fork before its first line runs. The parent goes on; the fork neither reports for its rank nor
writes into its memory, and each call of it is refused by name.
"""

from __future__ import annotations

import os
import weakref
from typing import Union

from ._rankguard import Agent, Local, RankguardError

_connections: weakref.WeakValueDictionary[int, _Holder] = weakref.WeakValueDictionary()
#: Process of an agent's session, once there was one. Forks inherit it.
_owner = 0


class _Holder:
    """A connection that can be referred to weakly."""

    def __init__(self, connection: Union[Agent, Local]) -> None:
        self.connection = connection


def watch(connection: Union[Agent, Local]) -> object:
    """Closes the copies of forks for as long as the caller keeps what this returns."""
    global _owner
    holder = _Holder(connection)
    _connections[id(holder)] = holder
    if isinstance(connection, Agent):
        _owner = os.getpid()
    return holder


def check_process() -> None:
    """Refuses a session with the agent in a fork of the process that had one: the agent knows that rank already."""
    if _owner not in (0, os.getpid()):
        raise RankguardError(
            f"cannot connect to the agent: this process is a fork of the rank's process {_owner}, which speaks for the rank; "
            "call rankguard there, or start this process with the spawn method and without RANKGUARD_SOCKET"
        )


def _leave() -> None:
    for holder in list(_connections.values()):
        holder.connection.leave_to_parent()


os.register_at_fork(after_in_child=_leave)
