"""The script of `recovery_worker.py` with torchft: a replica group of one process, which torchrun starts again when it ends."""

import time

started = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402
from datetime import timedelta  # noqa: E402

group = int(os.environ["REPLICA_GROUP"])
events = open(f"{os.environ['RECOVERY_EVENTS']}/{os.getpid()}", "w", buffering=1)


def note(event: str, at: float, world: int) -> None:
    events.write(json.dumps({"at": at, "event": event, "rank": group, "world": world, "process": os.getpid()}) + "\n")


def main() -> None:
    note("start", started, 2)
    import torch
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    note("import", time.monotonic(), 2)
    weights, gradient = torch.zeros(1024), torch.ones(1024)

    def load(state: dict) -> None:
        weights.copy_(state["weights"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"weights": weights},
        min_replica_size=1,
        timeout=timedelta(seconds=20),
        quorum_timeout=timedelta(seconds=60),
        replica_id=f"group{group}_",
    )
    note("join", time.monotonic(), 2)
    while True:
        manager.start_quorum()
        gradient.fill_(1)
        manager.allreduce(gradient).wait()
        committed = manager.should_commit()
        time.sleep(0.01)
        if committed:
            note("step", time.monotonic(), manager.num_participants())


if __name__ == "__main__":
    main()
