"""A plain training script, as the systems of `recovery.py` start it: gloo, 4 KiB reduced in each step, 10 ms of work.

It writes what it does, with the machine's monotonic clock, to a file of its own in the folder `RECOVERY_EVENTS`.
"""

import time

started = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
events = open(f"{os.environ['RECOVERY_EVENTS']}/{os.getpid()}", "w", buffering=1)


def note(event: str, at: float) -> None:
    events.write(json.dumps({"at": at, "event": event, "rank": rank, "world": world, "process": os.getpid()}) + "\n")


note("start", started)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
note("import", time.monotonic())
dist.init_process_group("gloo")
note("join", time.monotonic())
gradient = torch.ones(1024)
while True:
    dist.all_reduce(gradient)
    gradient.fill_(1)
    time.sleep(0.01)
    note("step", time.monotonic())
