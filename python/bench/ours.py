"""Rankguard's own ways to save: without an agent, under one, and through DCP."""

from __future__ import annotations

import pathlib
import shutil
import time
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from method import Method

#: The job that ranks under an agent belong to, the store's folder in that of the saves, and the checkpoints that it keeps:
#: agents hold on to the one before until they hear of the commit.
AGENT_JOB, AGENT_STORE, AGENT_KEEP = "bench", "store-agent", 2


class Rankguard(Method):
    """Without an agent: the arena is the trainer's own, a thread writes, rank 0 commits."""

    name = "rankguard"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        import rankguard

        self.store = f"{self.root}/store-{type(self).__name__}"
        self.session = rankguard.connect(self.store, job="bench", keep=1)
        # As a trainer does: asking for a restore first makes the memory.
        self.session.restore(self.state)

    def save(self, path: str, step: int) -> None:
        self.session.checkpoint(self.state, step=step)

    def finish(self) -> None:
        self.session.finish()
        self.session.wait()

    def over(self) -> bool:
        return self.session.idle()

    def settle(self) -> None:
        while not self.session.idle():
            time.sleep(0.001)

    def load(self, path: str, into: dict[str, Any]) -> None:
        assert self.session.restore(into) is not None

    def whole(self, path: str, into: dict[str, Any]) -> None:
        assert self.session.restore(into) is not None

    def close(self) -> None:
        self.session.done()
        dist.barrier(group=self.group)
        if self.rank == 0:
            shutil.rmtree(self.store, ignore_errors=True)


class RankguardOverlapped(Rankguard):
    name = "rankguard, beside the training"

    def save(self, path: str, step: int) -> None:
        self.session.begin(self.state, step=step)

    def before_optimizer(self) -> None:
        self.session.finish()


class RankguardAgent(Method):
    """As `rankguard run` does it: the arena is the agent's, which writes, and the controller commits."""

    name, under_agent = "rankguard under an agent", True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        import rankguard

        self.session = rankguard.connect()
        self.step, self.checkpoints = 0, pathlib.Path(self.root, AGENT_STORE, AGENT_JOB)
        self.session.restore(self.state)

    def save(self, path: str, step: int) -> None:
        self.step = step
        self.session.checkpoint(self.state, step=step)

    def over(self) -> bool:
        return any(self.checkpoints.glob(f"{self.step:012}-*/MANIFEST"))

    def finish(self) -> None:
        while not self.over():
            time.sleep(0.001)

    def settle(self) -> None:
        while len(list(self.checkpoints.glob("*/MANIFEST"))) > AGENT_KEEP:
            time.sleep(0.001)

    def close(self) -> None:
        self.session.done()


class RankguardAgentOverlapped(RankguardAgent):
    name = "rankguard under an agent, beside the training"

    def save(self, path: str, step: int) -> None:
        self.step = step
        self.session.begin(self.state, step=step)

    def before_optimizer(self) -> None:
        self.session.finish()


class RankguardDcp(Rankguard):
    name = "rankguard through dcp.async_save"
    future: Any = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        import rankguard.dcp

        self.writer = rankguard.dcp.StorageWriter(session=self.session)
        self.reader = rankguard.dcp.StorageReader(session=self.session)

    def save(self, path: str, step: int) -> None:
        self.writer.step = step
        self.future = dcp.async_save(self.state, storage_writer=self.writer, process_group=self.group)

    def finish(self) -> None:
        self.future.result()

    def over(self) -> bool:
        return self.future.done()

    def load(self, path: str, into: dict[str, Any]) -> None:
        dcp.load(into, storage_reader=self.reader, process_group=self.group)

    def whole(self, path: str, into: dict[str, Any]) -> None:
        dcp.load(into, storage_reader=self.reader, no_dist=True)


ALL = [Rankguard, RankguardOverlapped, RankguardDcp, RankguardAgent, RankguardAgentOverlapped]
