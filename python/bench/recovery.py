"""Recovery beside the peers: from a kill -9 until every rank of the new world has made a step, one machine, in turns.

    python python/bench/recovery.py --program target/release/rankguard --rounds 20

Each system runs the same plain gloo script (`recovery_worker.py`) as two nodes of two ranks. `rankguard.elastic` needs the
training in a function (`recovery_elastic.py`); torchft needs its manager in the script (`recovery_replica.py`) and runs two
replica groups of one rank. A case happens once to each system in a round, and the order of the systems turns from round to
round. The cases:

    rank    one of the four ranks is killed; the new world has four ranks
    agent   one of the two agents is killed with its ranks, the one that hosts nothing for the other; the new world has two
    host    the same with the other agent: the one of torchrun's rendezvous store; with rankguard the one of rank 0
    join    a third agent comes after `agent`; the new world has four

Printed is a table with a line for each case and system: rounds, those that recovered within `--limit`, the median, the 99th
percentile (nearest rank) and the range in seconds, and the medians of the phases: the last new process started, had imported
torch, the last surviving process called its function again, and the last process had joined its group. A process that was made
before the failure has no start and no import after it. "Stall" is the median time from the last step of the old world to the
first steps of the new one. Raw results go to `--raw` as lines of JSON. A system that cannot be run is named with the reason and
gets no line. Rankguard takes a new node into a job that reports neither steps nor checkpoints after it has worked for a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

HERE = pathlib.Path(__file__).resolve().parent
CASES = ("rank", "agent", "host", "join")
PHASES = ("start", "import", "call", "join")
#: One call of the training by one process.
Call = tuple[int, int]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class System:
    """One way to keep a job alive: its processes, by the node that they belong to."""

    #: Cases that the system has a way to go through at all; the others are not run.
    cases: tuple[str, ...] = CASES
    #: Ranks of the whole job, and of one node.
    world, per_node = 4, 2
    #: True where ranks that were not killed go on within the same call of their training.
    survivors_stay = False

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options

    def missing(self) -> str | None:
        """Why the system cannot be run here."""
        return None

    def begin(self, run: Run, case: str) -> None:
        """Starts the job on two nodes."""
        raise NotImplementedError

    def add_node(self, run: Run, node: int) -> None:
        """Starts the agent of one more node."""
        raise NotImplementedError

    def host(self, run: Run) -> int:
        """Which of the two nodes hosts what the other one needs."""
        raise NotImplementedError


class Run:
    """Processes of one round of one system, their logs and the events of the ranks."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.port = folder, free_port()
        self.events_folder = folder / "events"
        self.events_folder.mkdir(parents=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], **environment: str) -> None:
        """Starts a process in a session of its own; its output goes to `<name>.log`."""
        ours = {"RECOVERY_EVENTS": str(self.events_folder), "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env={**os.environ, **ours, **environment}, stdout=log, stderr=log, start_new_session=True
            )

    def tree(self, name: str) -> list[psutil.Process]:
        """The process of that name and all that come from it; none when it has ended."""
        try:
            process = psutil.Process(self.processes[name].pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def events(self) -> list[dict[str, Any]]:
        found = []
        for file in self.events_folder.iterdir():
            # The last line of a process that was killed may be torn.
            whole = file.read_text().rpartition("\n")[0]
            found += [json.loads(line) for line in whole.splitlines()]
        return sorted(found, key=lambda event: event["at"])

    def close(self) -> None:
        trees = [process for name in self.processes for process in self.tree(name)]
        for process in trees:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for started in self.processes.values():
            started.wait()
        # Ranks of an agent that was killed are below none of these processes; the events have their numbers.
        for number in {event["process"] for event in self.events()}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)


class Torchrun(System):
    def __init__(self, name: str, options: argparse.Namespace, conf: str = "", **environment: str) -> None:
        super().__init__(name, options)
        self.conf, self.environment = conf, environment

    def begin(self, run: Run, case: str) -> None:
        self.nodes = "2" if case == "rank" else "1:2"
        self.add_node(run, 0)
        # The first agent that comes hosts the store.
        time.sleep(1)
        self.add_node(run, 1)

    def host(self, run: Run) -> int:
        return 0

    def add_node(self, run: Run, node: int) -> None:
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", f"127.0.0.1:{run.port}"]
        rendezvous += ["--rdzv-conf", self.conf] if self.conf else []
        shape = ["--nnodes", self.nodes, "--nproc-per-node", "2", "--max-restarts", "50", "--local-addr", "127.0.0.1"]
        command = [sys.executable, "-m", "torch.distributed.run", *shape, *rendezvous, str(HERE / "recovery_worker.py")]
        run.start(f"node{node}", command, **self.environment)


class Rankguard(System):
    def __init__(self, name: str, options: argparse.Namespace, *arguments: str, script: str = "recovery_worker.py") -> None:
        super().__init__(name, options)
        self.arguments, self.script = arguments, script

    def missing(self) -> str | None:
        help_text = subprocess.run(
            [self.options.program, "run", "--help"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        unknown = [argument for argument in self.arguments if argument.startswith("--") and argument not in help_text]
        if unknown:
            return f"`{self.options.program} run` has no {' '.join(unknown)}"
        return missing_package() if self.script == "recovery_elastic.py" else None

    def begin(self, run: Run, case: str) -> None:
        program, address = self.options.program, f"127.0.0.1:{run.port}"
        run.start("controller", [program, "controller", "--listen", address, "--state-dir", str(run.folder / "controller")])
        time.sleep(1)
        for node in range(2):
            self.add_node(run, node)
        time.sleep(1)
        shape = ["--name", "job", "--nodes", "2" if case == "rank" else "1:2", "--ranks-per-node", "2"]
        environment = ["--env", f"RECOVERY_EVENTS={run.events_folder}", "--env", "OMP_NUM_THREADS=1"]
        script = [sys.executable, str(HERE / self.script)]
        run.start("run", [program, "run", "--controller", address, *shape, *environment, *self.arguments, "--", *script])

    def add_node(self, run: Run, node: int) -> None:
        place = ["--node", f"n{node}", "--controller", f"127.0.0.1:{run.port}", "--state-dir", str(run.folder / f"agent{node}")]
        run.start(f"node{node}", [self.options.program, "agent", *place, "--slots", "2", "--kernel-log", "off"])

    def host(self, run: Run) -> int:
        ranks = {event["process"] for event in run.events() if event["rank"] == 0}
        return next(node for node in (0, 1) if ranks & {process.pid for process in run.tree(f"node{node}")})


class RankguardTorchrun(System):
    def missing(self) -> str | None:
        return missing_package()

    def begin(self, run: Run, case: str) -> None:
        self.nodes = "2" if case == "rank" else "1:2"
        address = f"127.0.0.1:{run.port}"
        state = str(run.folder / "controller")
        run.start("controller", [self.options.program, "controller", "--listen", address, "--state-dir", state])
        time.sleep(1)
        for node in range(2):
            self.add_node(run, node)

    def host(self, run: Run) -> int:
        # The store of a round is in the node of rank 0.
        ranks = {event["process"] for event in run.events() if event["rank"] == 0}
        return next(node for node in (0, 1) if ranks & {process.pid for process in run.tree(f"node{node}")})

    def add_node(self, run: Run, node: int) -> None:
        rendezvous = ["--rdzv-backend", "rankguard", "--rdzv-id", "job", "--rdzv-endpoint", f"127.0.0.1:{run.port}"]
        rendezvous += ["--rdzv-conf", f"node=n{node},last_call_timeout=1"]
        shape = ["--nnodes", self.nodes, "--nproc-per-node", "2", "--max-restarts", "50", "--local-addr", "127.0.0.1"]
        command = [sys.executable, "-m", "torch.distributed.run", *shape, *rendezvous, str(HERE / "recovery_worker.py")]
        run.start(f"node{node}", command, RANKGUARD_BIN=self.options.program)


def missing_package() -> str | None:
    """Why the package rankguard cannot be imported by the ranks."""
    found = importlib.util.find_spec("rankguard")
    return None if found else "the package rankguard is not installed (maturin develop in python)"


class Torchft(System):
    cases = ("rank",)
    world, per_node = 2, 1
    survivors_stay = True

    def __init__(self, name: str, options: argparse.Namespace, *lighthouse: str) -> None:
        super().__init__(name, options)
        self.lighthouse = lighthouse

    def missing(self) -> str | None:
        return (
            None if importlib.util.find_spec("torchft") else "torchft is not installed (pip install --no-deps torchft-nightly)"
        )

    def begin(self, run: Run, case: str) -> None:
        program = pathlib.Path(sys.executable).with_name("torchft_lighthouse")
        run.start("lighthouse", [str(program), "--min_replicas", "1", "--bind", f"[::]:{run.port}", *self.lighthouse])
        for node in range(2):
            self.add_node(run, node)

    def add_node(self, run: Run, node: int) -> None:
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        shape = ["--nnodes", "1", "--nproc-per-node", "1", "--max-restarts", "50"]
        command = [sys.executable, "-m", "torch.distributed.run", *shape, *rendezvous, str(HERE / "recovery_replica.py")]
        run.start(f"node{node}", command, REPLICA_GROUP=str(node), TORCHFT_LIGHTHOUSE=f"http://127.0.0.1:{run.port}")


def systems(options: argparse.Namespace) -> list[System]:
    fast = "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=2,join_timeout=60"
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return [
        Rankguard("rankguard", options),
        Rankguard("rankguard --standby 2", options, "--standby", "2"),
        Rankguard("rankguard --standby 2 --store agent", options, "--standby", "2", "--store", "agent"),
        Rankguard("rankguard.elastic", options, script="recovery_elastic.py"),
        Rankguard(
            "rankguard.elastic --standby 1 --store agent",
            options,
            *("--standby", "1", "--store", "agent"),
            script="recovery_elastic.py",
        ),
        RankguardTorchrun("torchrun, rankguard back end", options),
        Torchrun("torchrun", options),
        Torchrun("torchrun, own store", options, **own_store),
        Torchrun("torchrun, own store, short keep-alive", options, fast, **own_store),
        Torchft("torchft", options),
        Torchft("torchft, heartbeat 1 s", options, "--heartbeat_timeout_ms", "1000", "--join_timeout_ms", "1000"),
    ]


def until(seconds: float, condition: Callable[[], Any]) -> Any:
    """The first true value of the condition; None when there was none in that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    return None


def call_of(event: dict[str, Any]) -> Call:
    """Which call of the training an event belongs to; without `rankguard.elastic` a process makes one."""
    return event["process"], event.get("call", 0)


def first_steps(run: Run, world: int, after: float, old: set[Call]) -> dict[int, float]:
    """When each rank made its first step in a world of that size after a moment, in a call that is not an old one."""
    found: dict[int, float] = {}
    for event in run.events():
        if event["event"] == "step" and event["at"] > after and event["world"] == world and call_of(event) not in old:
            found.setdefault(event["rank"], event["at"])
    return found


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def measure(system: System, case: str, run: Run, limit: float) -> dict[str, Any]:
    """Starts the job, lets the case happen and waits for the new world."""
    system.begin(run, case)
    begun = time.monotonic()
    if not until(120, lambda: len(first_steps(run, system.world, 0, set())) == system.world):
        return {"began": None}
    result: dict[str, Any] = {"began": time.monotonic() - begun}
    # Standby processes are made after the start, and files of the first start are written.
    time.sleep(system.options.settle)
    world = system.world
    if case == "rank":
        by_rank = {event["rank"]: event["process"] for event in run.events()}
        # Of torchft, group 1 is killed, and the steps of group 0 show the recovery.
        victims = [psutil.Process(by_rank[1 if system.survivors_stay else random.randrange(world)])]
    else:
        host = system.host(run)
        victims = run.tree(f"node{host if case == 'host' else 1 - host}")
        world -= system.per_node
    old = {call_of(event) for event in run.events()}
    killed = time.monotonic()
    kill(victims)
    if case == "join":
        if not until(limit, lambda: len(first_steps(run, world, killed, old)) == world):
            return {**result, "began": None}
        time.sleep(system.options.settle)
        old = {call_of(event) for event in run.events()}
        world, killed = system.world, time.monotonic()
        system.add_node(run, 2)
    if system.survivors_stay:
        # A step of two participants is one of the new process, too.
        old = {(victim.pid, 0) for victim in victims}
    recovered = until(limit, lambda: len(steps := first_steps(run, world, killed, old)) == world and steps)
    if recovered is None:
        return {**result, "recovered": None}
    result["recovered"] = max(recovered.values()) - killed
    if not system.survivors_stay:
        last = max(event["at"] for event in run.events() if event["event"] == "step" and call_of(event) in old)
        result["stall"] = max(recovered.values()) - last
    survivors = {process for process, _ in old}
    for phase in PHASES:
        events = [event for event in run.events() if event["event"] == phase and event["at"] > killed]
        if phase == "call":
            events = [event for event in events if event["process"] in survivors]
        moments = [event["at"] for event in events if event["at"] <= max(recovered.values())]
        result[phase] = max(moments) - killed if moments else None
    return result


def percentile(values: list[float], share: float) -> float:
    """The value at that share of all, by nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def line(case: str, name: str, results: list[dict[str, Any]]) -> str:
    began = [result for result in results if result["began"] is not None]
    times = [result["recovered"] for result in began if result["recovered"] is not None]
    cells = [case, name, str(len(began)), str(len(times))]
    if times:
        cells += [f"{statistics.median(times):.2f}", f"{percentile(times, 0.99):.2f}", f"{min(times):.2f}-{max(times):.2f}"]
    else:
        cells += ["never", "-", "-"]
    for phase in ("stall", *PHASES):
        known = [result[phase] for result in began if result.get(phase) is not None]
        cells.append(f"{statistics.median(known):.2f}" if known else "-")
    return "| " + " | ".join(cells) + " |"


@contextlib.contextmanager
def folder_of(options: argparse.Namespace, name: str) -> Iterator[pathlib.Path]:
    """A new folder for one run; it is kept where that was asked for."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=name.replace(" ", "-").replace(",", "") + "-", dir=options.keep))
    yield folder
    if options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program rankguard, as it is to be measured (a release build)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--systems", nargs="+", help="names of systems; without it all")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a run counts as not recovered")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds of training before the case happens")
    parser.add_argument("--raw", type=pathlib.Path, help="a file for the results, one line of JSON each")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder that keeps logs and events of all runs")
    options = parser.parse_args()
    known = systems(options)
    unknown = set(options.systems or []) - {system.name for system in known}
    if unknown:
        parser.error(
            f"there is no system {', '.join(sorted(unknown))}; there are: {', '.join(system.name for system in known)}"
        )
    chosen = []
    for system in known:
        if options.systems and system.name not in options.systems:
            continue
        if reason := system.missing():
            print(f"not measured: {system.name}: {reason}", flush=True)
        else:
            chosen.append(system)
    # A run that is ended early ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(options.rounds):
        turned = chosen[number % len(chosen) :] + chosen[: number % len(chosen)]
        for case in options.cases:
            for system in turned:
                if case not in system.cases:
                    continue
                with folder_of(options, f"{system.name}-{case}") as folder:
                    run = Run(folder)
                    try:
                        result = measure(system, case, run, options.limit)
                    finally:
                        run.close()
                results.setdefault((case, system.name), []).append(result)
                row = {"round": number, "case": case, "system": system.name, "load": os.getloadavg()[0], **result}
                print(json.dumps(row), file=sys.stderr, flush=True)
                if options.raw:
                    with open(options.raw, "a") as raw:
                        raw.write(json.dumps(row) + "\n")
    columns = ["case", "system", "n", "recovered", "median, s", "p99, s", "range, s", "stall"]
    columns += ["last start", "last import", "survivors", "last join"]
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for case in options.cases:
        for system in chosen:
            if rows := results.get((case, system.name)):
                print(line(case, system.name, rows))


if __name__ == "__main__":
    main()
