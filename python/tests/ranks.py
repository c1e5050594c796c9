"""Several ranks on this machine, each a process of its own, in a gloo group."""

import multiprocessing
import os
import socket

import torch
import torch.distributed as dist

#: One process imports torch and gives birth to the ranks: an import for each would take most of the tests' time.
RANKS = multiprocessing.get_context("forkserver")
RANKS.set_forkserver_preload(["torch.distributed.checkpoint", "torch.distributed.tensor", "rankguard.dcp"])


def spawn(work, ranks, *args):
    """Runs ``work(rank, ranks, *args)`` in a gloo group."""
    port = _free_port()
    children = [RANKS.Process(target=_in_group, args=(rank, ranks, port, work, args)) for rank in range(ranks)]
    for child in children:
        child.start()
    for child in children:
        child.join(240)
    codes = [child.exitcode for child in children]
    for child in children:
        child.kill()
    assert codes == [0] * ranks, codes


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _in_group(rank, ranks, port, work, args):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    work(rank, ranks, *args)
    dist.barrier()
    dist.destroy_process_group()
