"""The ways to save that are compared, and the limits of the machine they are measured against."""

from __future__ import annotations

import concurrent.futures
import mmap
import os
import time
from typing import Any

import ours
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from method import Method, localized, raw, tensors

DIRECT_BLOCK = 16 << 20


class Memcpy(Method):
    name, limit = "memcpy (limit)", True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.copies = [torch.zeros_like(tensor) for _, tensor in tensors(self.state)]

    def save(self, path: str, step: int) -> None:
        for copy, (_, tensor) in zip(self.copies, tensors(self.state)):
            copy.copy_(tensor)


class Direct(Method):
    """Two bounce buffers, one thread that writes past the page cache, fsync."""

    name, limit = "O_DIRECT write (limit)", True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.maps = [mmap.mmap(-1, DIRECT_BLOCK) for _ in range(2)]
        self.views = [torch.frombuffer(one, dtype=torch.uint8) for one in self.maps]

    def save(self, path: str, step: int) -> None:
        file = os.open(f"{path}/{self.rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT)
        with concurrent.futures.ThreadPoolExecutor(1) as writer:
            writes: list[Any] = [None, None]
            turn = filled = at = 0
            for _, tensor in tensors(self.state):
                data, done = raw(tensor), 0
                while done < len(data):
                    part = min(len(data) - done, DIRECT_BLOCK - filled)
                    self.views[turn][filled : filled + part].copy_(data[done : done + part])
                    done, filled = done + part, filled + part
                    if filled == DIRECT_BLOCK:
                        writes[turn] = writer.submit(os.pwrite, file, memoryview(self.maps[turn]), at)
                        turn, filled, at = 1 - turn, 0, at + DIRECT_BLOCK
                        if writes[turn]:
                            writes[turn].result()
            if filled:
                end = -(-filled // 4096) * 4096
                writes[turn] = writer.submit(os.pwrite, file, memoryview(self.maps[turn])[:end], at)
            for write in writes:
                if write:
                    write.result()
        os.fsync(file)
        os.close(file)

    def load(self, path: str, into: dict[str, Any]) -> None:
        file = os.open(f"{path}/{self.rank}", os.O_RDONLY)
        for _, tensor in tensors(into):
            data = memoryview(raw(tensor).numpy())
            while data:
                data = data[os.readv(file, [data[: 64 << 20]]) :]
        os.close(file)


class TorchSave(Method):
    name, synced = "torch.save", False

    def save(self, path: str, step: int) -> None:
        torch.save(localized(self.state), f"{path}/{self.rank}.pt")

    def load(self, path: str, into: dict[str, Any]) -> None:
        there = dict(tensors(torch.load(f"{path}/{self.rank}.pt", weights_only=True)))
        for name, tensor in tensors(into):
            tensor.copy_(there[name])


class Safetensors(Method):
    name, synced = "safetensors", False

    def save(self, path: str, step: int) -> None:
        from safetensors.torch import save_file

        save_file(dict(tensors(self.state)), f"{path}/{self.rank}.safetensors")

    def load(self, path: str, into: dict[str, Any]) -> None:
        from safetensors import safe_open

        with safe_open(f"{path}/{self.rank}.safetensors", "pt") as file:
            for name, tensor in tensors(into):
                tensor.copy_(file.get_tensor(name))


class DcpSave(Method):
    name = "DCP save"

    def save(self, path: str, step: int) -> None:
        dcp.save(self.state, checkpoint_id=path, process_group=self.group)

    def load(self, path: str, into: dict[str, Any]) -> None:
        dcp.load(into, checkpoint_id=path, process_group=self.group)

    def whole(self, path: str, into: dict[str, Any]) -> None:
        dcp.load(into, checkpoint_id=path, no_dist=True)


class DcpAsync(DcpSave):
    name = "DCP async, thread (default)"
    future: Any = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.options: dict[str, Any] = {}

    def save(self, path: str, step: int) -> None:
        self.future = dcp.async_save(self.state, checkpoint_id=path, process_group=self.group, **self.options)

    def finish(self) -> None:
        self.future.result()

    def over(self) -> bool:
        return self.future.done()


class DcpAsyncReused(DcpAsync):
    name = "DCP async, thread, stager kept"
    shared, kind = False, AsyncCheckpointerType.THREAD

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.options = {
            "async_stager": DefaultStager(StagingOptions(False, self.shared, False, False)),
            "async_checkpointer_type": self.kind,
        }

    def close(self) -> None:
        self.options["async_stager"].close()


class DcpAsyncProcess(DcpAsyncReused):
    name = "DCP async, process, stager kept"
    shared, kind = True, AsyncCheckpointerType.PROCESS


class DlRover(Method):
    name, synced = "DLRover flash, to disk", False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
        from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

        world = dist.get_world_size()
        self.kind, self.step = StorageType.DISK, 0
        self.folder = f"{self.root}/dlrover"
        os.makedirs(self.folder, exist_ok=True)
        self.keeper = DdpCheckpointer(self.folder, local_shard_num=world, global_shard_num=world)

    def save(self, path: str, step: int) -> None:
        self.step += 1
        self.keeper.save_checkpoint(self.step, localized(self.state), path=f"{path}/{self.rank}.pt", storage_type=self.kind)

    def over(self) -> bool:
        try:
            with open(f"{self.folder}/dlrover_latest.txt") as file:
                return int(file.read() or 0) >= self.step
        except (OSError, ValueError):
            return False

    def finish(self) -> None:
        end = time.monotonic() + 300
        while not self.over():
            if time.monotonic() > end:
                raise TimeoutError("DLRover's tracker did not reach the step")
            time.sleep(0.005)

    def load(self, path: str, into: dict[str, Any]) -> None:
        found = self.keeper.load_checkpoint()
        there = dict(tensors(found if "model" in found else found["model_states"]))
        for name, tensor in tensors(into):
            tensor.copy_(there[name])


ALL = [
    Memcpy,
    Direct,
    TorchSave,
    Safetensors,
    DcpSave,
    DcpAsync,
    DcpAsyncReused,
    DcpAsyncProcess,
    *ours.ALL,
    DlRover,
]
