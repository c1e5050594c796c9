"""Our TCPStore server beside that of torch (libuv): one machine, one run, in turns.

    python python/bench/store.py --rounds 7 --seconds 3

In each round both servers run, one after the other and in changing order, with 1, 8 and 64 clients. The server has one core
and the load (`store_load`, an example program of the crate) another. Printed is a table of medians over the rounds: replies a
second, the latencies, the processor time of the server for each reply, and the ratio of the two servers in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests")]
from store_servers import KINDS, StoreServer, example  # noqa: E402

FIGURES = ("replies_per_s", "p50_us", "p99_us", "cpu_us")


def measure(kind: str, clients: int, seconds: float) -> dict[str, float]:
    cores = sorted(os.sched_getaffinity(0))
    with StoreServer(kind, ("taskset", "-c", str(cores[0]))) as server:
        command = ["taskset", "-c", str(cores[-1]), example("store_load"), f"127.0.0.1:{server.port}", str(clients)]
        subprocess.run([*command, "0.3"], check=True, stdout=subprocess.DEVNULL)
        before = server.cpu_seconds()
        ran = subprocess.run([*command, str(seconds)], check=True, stdout=subprocess.PIPE, text=True)
        figures: dict[str, float] = json.loads(ran.stdout)
        used = server.cpu_seconds() - before
    figures["cpu_us"] = used * 1e6 / (figures["replies_per_s"] * seconds)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    arguments = parser.parse_args()
    print("| clients | figure | ours | torch | ours / torch, median of rounds | lowest | highest |")
    print("|---|---|---|---|---|---|---|")
    for clients in arguments.clients:
        rounds = []
        for number in range(arguments.rounds):
            order = KINDS if number % 2 == 0 else KINDS[::-1]
            rounds.append({kind: measure(kind, clients, arguments.seconds) for kind in order})
        for figure in FIGURES:
            ours, torch = ([measured[kind][figure] for measured in rounds] for kind in KINDS)
            ratios = [a / b for a, b in zip(ours, torch)]
            cells = [statistics.median(ours), statistics.median(torch)]
            texts = [f"{cell:,.0f}" if figure == "replies_per_s" else f"{cell:.1f}" for cell in cells]
            texts += [f"{ratio:.2f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios))]
            print(f"| {clients} | {figure} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
