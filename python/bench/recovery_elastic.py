"""The script of `recovery_worker.py` in a function of `rankguard.elastic`: a process is several ranks, one after the other."""

import time

started = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402

events = open(f"{os.environ['RECOVERY_EVENTS']}/{os.getpid()}", "w", buffering=1)
calls = 0


def note(event: str, at: float) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    process = {"process": os.getpid(), "call": calls}
    events.write(json.dumps({"at": at, "event": event, "rank": rank, "world": world, **process}) + "\n")


note("start", started)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import rankguard  # noqa: E402

torch.set_num_threads(1)
note("import", time.monotonic())


@rankguard.elastic
def train() -> None:
    global calls
    calls += 1
    note("call", time.monotonic())
    dist.init_process_group("gloo")
    note("join", time.monotonic())
    gradient = torch.ones(1024)
    while True:
        dist.all_reduce(gradient)
        gradient.fill_(1)
        time.sleep(0.01)
        note("step", time.monotonic())


train()
