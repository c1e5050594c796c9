"""Standby processes of jobs with torch."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Optional

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cluster import Cluster, program, until  # noqa: E402

pytestmark = pytest.mark.torch

JOB = """
import os, pathlib, sys, time
is_imported = "torch" in sys.modules
import torch
import torch.distributed as dist
rank, generation = int(os.environ["RANK"]), int(os.environ["RANKGUARD_GENERATION"])
dist.init_process_group("gloo")
tensor = torch.tensor([float(rank + 1)])
dist.all_reduce(tensor)
pathlib.Path(f"pid-{generation}-{rank}").write_text(str(os.getpid()))
pathlib.Path(f"start-{generation}-{rank}").write_text(f"{is_imported} {torch.cuda.is_initialized()} {tensor.item()}")
if generation == 1:
    time.sleep(600)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")
def test_ranks_of_a_restart_find_torch_imported_and_no_device_context(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)

    def waiting() -> Optional[bool]:
        words = [str(program()), "agent", "status", "--state-dir", str(tmp_path / "agent-n1"), "--format", "json"]
        view = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return True if any(len(job["waiting"]) == 2 for job in view.get("standbys", [])) else None

    def starts(generation: int) -> Optional[list[str]]:
        paths = [tmp_path / f"start-{generation}-{rank}" for rank in range(2)]
        return [path.read_text() for path in paths] if all(path.exists() for path in paths) else None

    try:
        (tmp_path / "job.py").write_text(JOB)
        run = cluster.run("held", [sys.executable, "job.py"], 2, None, 0, "--standby", "auto")
        assert until("the ranks", lambda: starts(1), 120) == ["False False 3.0"] * 2
        until("the standby processes", waiting, 120)
        os.kill(int((tmp_path / "pid-1-0").read_text()), signal.SIGKILL)
        assert run.wait(120) == 0, cluster.log()
        assert starts(2) == ["True False 3.0"] * 2
    finally:
        cluster.close()
