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


SETTINGS = "[controller.policy]\ngather_ms = 200\npending_ms = 2_000\nsettle_ms = 300\nuser_retries = 5\n"


class Cluster:
    """A controller and an agent on each of some nodes; all end with it."""

    def __init__(self, folder: pathlib.Path, slots: int = 2, nodes: int = 1, settings: str = SETTINGS) -> None:
        self.folder = folder
        self._bin = program()
        assert self._bin is not None
        self._slots = slots
        self._daemons: dict[str, subprocess.Popen] = {}
        self._controllers = 0
        (folder / "test.toml").write_text(settings)
        self.address = "127.0.0.1:0"
        self._start_controller()
        for node in range(1, nodes + 1):
            self._start_agent(f"n{node}")
        self.await_nodes(nodes)

    def _start_controller(self) -> None:
        self._controllers += 1
        state = self.folder / f"controller-{self._controllers}"
        self._daemon("controller", "controller", "--listen", self.address, "--state-dir", str(state))
        self.address = until("the controller", lambda: _text(state / "controller.addr"))

    def _start_agent(self, node: str) -> None:
        words = ["agent", "--node", node, "--slots", str(self._slots), "--kernel-log", "off", "--controller", self.address]
        self._daemon(node, *words, "--failure-domain", node, "--state-dir", str(self.folder / f"agent-{node}"))

    def _daemon(self, name: str, *args: str) -> None:
        command = [self._bin, "--config", str(self.folder / "test.toml"), *args]
        with open(self.folder / f"{name}.log", "a") as log:
            self._daemons[name] = subprocess.Popen(command, stdout=log, stderr=log, env=clean())

    def _kill(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def await_nodes(self, count: int) -> None:
        """Returns when so many nodes are healthy."""
        healthy = lambda: [node for node in self.ask("status", "nodes") if node["state"] == "healthy"]  # noqa: E731
        until(f"{count} healthy nodes", lambda: len(healthy()) >= count or None, 120)

    def kill_agent(self, node: str) -> None:
        """SIGKILL; the ranks below it end with it, as on a node that is lost."""
        self._kill(node)

    def return_agent(self, node: str) -> None:
        """Starts a killed agent again on the state that it had."""
        self._start_agent(node)

    def kill_controller(self) -> None:
        """SIGKILL."""
        self._kill("controller")

    def return_controller(self) -> None:
        """Starts the killed controller again on the state that it had, at the same address."""
        self._controllers -= 1
        self._start_controller()
        # The file with the address is there from before.
        args = [self._bin, "status", "--controller", self.address]
        answers = lambda: subprocess.run(args, capture_output=True, env=clean()).returncode == 0 or None  # noqa: E731
        until("an answer of the controller", answers)

    def replace_controller(self) -> None:
        """Kills the controller and starts one that knows nothing at the same address, for the agents that are there."""
        self._kill("controller")
        self._start_controller()

    def replace_agents(self) -> None:
        """Kills all agents and starts new ones of the same names that know nothing."""
        for node in [name for name in self._daemons if name != "controller"]:
            self._kill(node)
            (self.folder / f"agent-{node}").rename(self.folder / f"agent-{node}-before-{self._controllers}")
            self._start_agent(node)

    def ask(self, *words: str) -> Any:
        """The answer of the controller, parsed."""
        args = [self._bin, *words, "--controller", self.address, "--format", "json"]
        return json.loads(subprocess.run(args, check=True, capture_output=True, env=clean(), timeout=60).stdout)

    def ask_nothing(self, *words: str) -> None:
        """Carries out a command that has no answer."""
        subprocess.run([self._bin, *words, "--controller", self.address], check=True, env=clean(), timeout=60)

    def job(self, name: str) -> dict[str, Any]:
        """The controller's view of a job; empty where it knows none of the name."""
        return next((job for job in self.ask("status", "jobs") if job["spec"]["id"] == name), {})

    def cancel(self, name: str) -> subprocess.CompletedProcess:
        """`rankguard cancel`."""
        args = [self._bin, "cancel", name, "--controller", self.address]
        return subprocess.run(args, capture_output=True, text=True, env=clean(), timeout=120)

    @property
    def pids(self) -> list[int]:
        """Of the controller and the agents."""
        return [daemon.pid for daemon in self._daemons.values()]

    def run(
        self,
        name: str,
        command: list[str],
        ranks: int,
        store: Optional[pathlib.Path],
        every: int,
        *options: str,
        restarts: int = 10,
    ) -> subprocess.Popen:
        """Starts a job and follows it; its output goes behind that of earlier runs of the name."""
        args = [self._bin, "run", "--controller", self.address, "--name", name, "--ranks-per-node", str(ranks), *options]
        if store is not None:
            args += ["--checkpoint-dir", str(store), "--checkpoint-every", str(every)]
        args += ["--max-restarts", str(restarts), "--workdir", str(self.folder), "--", *command]
        with open(self.folder / f"run-{name}.log", "a") as log:
            return subprocess.Popen(args, stdout=log, stderr=log, env=clean())

    def log(self) -> str:
        """What everybody said, for a test that fails."""
        files = sorted(self.folder.rglob("*.log")) + sorted(self.folder.rglob("*.out")) + sorted(self.folder.rglob("*.err"))
        return "\n".join(f"== {file.name}\n{_text(file)}" for file in files)[-20_000:]

    def close(self) -> None:
        for name in reversed(list(self._daemons)):
            self._kill(name)


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


def ranks_of(script: str, folder: pathlib.Path) -> list[int]:
    """Process ids of the ranks that run this script in the newest generation, by rank; below the agents of this folder."""
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
        is_below = env.get(b"RANKGUARD_SOCKET", b"").startswith(bytes(folder) + b"/")
        if script.encode() in words and is_below:
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
