"""A controller and agents on loopback, as people start them, for the tests of jobs."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time
from typing import Any, Callable, Optional, TypeVar

ROOT = pathlib.Path(__file__).resolve().parents[2]
T = TypeVar("T")


def program() -> Optional[str]:
    """The `rankguard` to test: RANKGUARD_BIN, else a build of this checkout, the newest."""
    named = os.environ.get("RANKGUARD_BIN")
    if named:
        return named
    built = [ROOT / "target" / kind / "rankguard" for kind in ("release", "debug")]
    there = [path for path in built if path.exists()]
    return str(max(there, key=lambda path: path.stat().st_mtime)) if there else shutil.which("rankguard")


def until(what: str, look: Callable[[], Optional[T]], seconds: float = 60.0) -> T:
    """Looks until there is something; fails the test when there is nothing in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


class Cluster:
    """A controller and one agent; both end with it."""

    def __init__(self, folder: pathlib.Path, slots: int = 2) -> None:
        self.folder = folder
        self._bin = program()
        assert self._bin is not None
        self._daemons: list[subprocess.Popen] = []
        config = folder / "test.toml"
        config.write_text("[controller.policy]\ngather_ms = 200\npending_ms = 2_000\nsettle_ms = 300\nuser_retries = 5\n")
        state = folder / "controller"
        self._daemon("controller", "--config", str(config), "controller", "--listen", "127.0.0.1:0", "--state-dir", str(state))
        self.address = until("the controller", lambda: _text(state / "controller.addr"))
        agent = ["agent", "--node", "n1", "--slots", str(slots), "--kernel-log", "off", "--controller", self.address]
        self._daemon("agent", *agent, "--state-dir", str(folder / "agent"))
        until("the agent to join", lambda: self.ask("status", "nodes")[:1] or None)

    def _daemon(self, name: str, *args: str) -> None:
        log = open(self.folder / f"{name}.log", "w")
        self._daemons.append(subprocess.Popen([self._bin, *args], stdout=log, stderr=log, env=clean()))

    def ask(self, *words: str) -> Any:
        """What the controller answers, parsed."""
        args = [self._bin, *words, "--controller", self.address, "--format", "json"]
        return json.loads(subprocess.run(args, check=True, capture_output=True, env=clean(), timeout=60).stdout)

    @property
    def pids(self) -> list[int]:
        """Of the controller and the agent."""
        return [daemon.pid for daemon in self._daemons]

    def run(
        self, name: str, command: list[str], ranks: int, store: pathlib.Path, every: int, *options: str, restarts: int = 10
    ) -> subprocess.Popen:
        """Starts a job and follows it."""
        args = [self._bin, "run", "--controller", self.address, "--name", name, "--ranks-per-node", str(ranks), *options]
        args += ["--checkpoint-dir", str(store), "--checkpoint-every", str(every), "--max-restarts", str(restarts)]
        args += ["--workdir", str(self.folder), "--", *command]
        log = open(self.folder / f"run-{name}.log", "w")
        return subprocess.Popen(args, stdout=log, stderr=log, env=clean())

    def log(self) -> str:
        """What everybody said, for a test that fails."""
        files = sorted(self.folder.rglob("*.log")) + sorted(self.folder.rglob("*.out")) + sorted(self.folder.rglob("*.err"))
        return "\n".join(f"== {file.name}\n{_text(file)}" for file in files)[-20_000:]

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()


MARK = "TEST_PROCESS_MARK"
_mark = f"{os.getpid()}-{time.time_ns()}"
_guards: list[subprocess.Popen] = []


def _start_guard() -> None:
    """Starts what ends all processes of these tests when this process ends, killed or not; it waits for the end of a pipe."""
    if _guards:
        return
    script = (ROOT / "tests" / "support" / "guard.sh").read_text()
    args = ["sh", "-c", script, "guard", f"{MARK}={_mark}"]
    null = subprocess.DEVNULL
    _guards.append(subprocess.Popen(args, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True))


def clean() -> dict:
    """The environment without settings of the caller, with the mark of this test process."""
    _start_guard()
    settings = {name: value for name, value in os.environ.items() if not name.startswith("RANKGUARD_")}
    return {**settings, MARK: _mark}


def ranks_of(script: str) -> list[int]:
    """Process ids of the ranks that run this script in the newest generation, by rank."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            pairs = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        env = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        if script.encode() in words and b"RANKGUARD_SOCKET" in env:
            found.append((int(env[b"RANKGUARD_GENERATION"]), int(env[b"RANK"]), int(entry.name)))
    newest = max((generation for generation, _, _ in found), default=0)
    return [pid for generation, _, pid in sorted(found) if generation == newest]


def committed(store: pathlib.Path, job: str) -> list[int]:
    """Steps of the committed checkpoints, oldest first."""
    return sorted(int(path.parent.name.split("-")[0]) for path in (store / job).glob("*/MANIFEST"))


def _text(path: pathlib.Path) -> Optional[str]:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
