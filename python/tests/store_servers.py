"""Servers of a TCPStore, each in a process of its own: ours and that of torch."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("ours", "torch")

TORCH_SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
print(store.port, flush=True)
sys.stdin.read()
"""


def example(name: str) -> str:
    """An example program of the store's crate: RANKGUARD_STORE_EXAMPLES, else the newest build of this checkout."""
    named = os.environ.get("RANKGUARD_STORE_EXAMPLES")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folders = [pathlib.Path(named)] if named else [target / kind / "examples" for kind in ("release", "debug")]
    there = [folder / name for folder in folders if (folder / name).exists()]
    assert there, f"there is no {name}: cargo build -p rankguard-tcp-store --examples"
    return str(max(there, key=lambda path: path.stat().st_mtime))


class StoreServer:
    """A running server; it ends with the `with` block."""

    def __init__(self, kind: str, prefix: tuple[str, ...] = ()) -> None:
        command = [example("store_server")] if kind == "ours" else [sys.executable, "-c", TORCH_SERVER]
        self.process = subprocess.Popen([*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("", timeout=30)

    def cpu_seconds(self) -> float:
        """Processor time of the process since its start."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
