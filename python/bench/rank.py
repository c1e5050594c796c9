"""One rank of the peers' benchmark: saves, loads and trains with the methods of one turn.

``peers.py`` starts the ranks and puts together what the first of them writes.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import logging
import mmap
import os
import resource
import shutil
import statistics
import sys
import time
import traceback
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import memory  # noqa: E402
import methods  # noqa: E402
from method import Method, raw, tensors  # noqa: E402

PARTS = (("weight", torch.bfloat16), ("master", torch.float32), ("exp_avg", torch.float32), ("exp_avg_sq", torch.float32))


def shapes(gib: float) -> dict[str, tuple]:
    """Parameters of a Llama-like model whose training state has about this size: 14 bytes a parameter."""
    width, inner = (256, 704) if gib < 0.4 else (1024, 2816)
    layer = 4 * width * width + 3 * width * inner + 2 * width
    vocabulary = 8 * width
    layers = max(1, round((gib * (1 << 30) / 14 - vocabulary * width) / layer))
    named = {"embed": (vocabulary, width), "norm": (width,)}
    for at in range(layers):
        named.update({f"layers.{at}.attention.{name}": (width, width) for name in "qkvo"})
        named.update({f"layers.{at}.mlp.{name}": (inner, width) for name in ("gate", "up")})
        named[f"layers.{at}.mlp.down"] = (width, inner)
        named.update({f"layers.{at}.norm{nth}": (width,) for nth in (1, 2)})
    return named


def build(gib: float, mesh: Any, seed: int) -> dict[str, Any]:
    """The state, of random numbers, the same for the same seed."""
    source = torch.Generator().manual_seed(seed * 1000 + mesh.get_rank())
    rank, world = mesh.get_local_rank(), mesh.size()
    model: dict[str, Any] = {}
    for name, shape in shapes(gib).items():
        share = -(-shape[0] // world)
        rows = max(0, min(share, shape[0] - rank * share))
        for part, dtype in PARTS:
            inner = torch.randn(rows, *shape[1:], generator=source).to(dtype)
            stride = torch.empty(shape, device="meta").stride()
            whole = DTensor.from_local(inner, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=stride)
            model[f"{name}.{part}"] = whole
    return {"model": model, "step": seed}


def most(value: float, group: Any) -> float:
    """The slowest rank's."""
    told = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX, group=group)
    return told.item()


def used(daemons: list[int]) -> float:
    """CPU seconds of this rank, of its children and of the daemons that work for it."""
    who = [resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in who) + sum(_alive(daemons))


def _alive(daemons: list[int]) -> list[float]:
    import psutil

    found = []
    for one in [*psutil.Process().children(recursive=True), *map(psutil.Process, daemons)]:
        try:
            found.append(sum(one.cpu_times()[:2]))
        except psutil.Error:
            pass
    return found


def untouched(whole: Any) -> torch.Tensor:
    """Memory for a tensor that this process has never had: what an allocator keeps would be another's gain."""
    count = max(whole.numel() * whole.element_size(), 1)
    memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=whole.dtype, count=whole.numel()).reshape(whole.shape)


def sync(path: str) -> None:
    """Files and folders, as a method would have to."""
    for folder, _, files in os.walk(path):
        for name in [*files, ""]:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(file)
            os.close(file)


def drop(path: str) -> None:
    """What is read next comes from the disk."""
    for folder, _, files in os.walk(path):
        for name in files:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


class Bench:
    """One run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rank = args, dist.get_rank()
        # Daemons serve all ranks, and count once.
        self.daemons = args.daemons if self.rank == 0 else []
        self.group = dist.new_group(backend="gloo")
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.state = build(args.gib, self.mesh, 1)
        self.into = build(args.gib, self.mesh, 2)
        held = sum(raw(tensor).numel() for _, tensor in tensors(self.state))
        total = torch.tensor([held])
        dist.all_reduce(total, group=self.group)
        self.bytes = int(total.item())
        self.rows: list[dict[str, Any]] = []
        self.failed: dict[str, str] = {}
        self.square = torch.randn(args.matrix, args.matrix)

    def note(self, method: Method, what: str, value: float, nth: int) -> None:
        row = {
            "method": method.name,
            "limit": int(method.limit),
            "what": what,
            "turn": self.args.turn,
            "round": nth,
            "value": value,
        }
        self.rows.append(row)

    def train_on(self) -> None:
        """Changes every page of the state, as an optimizer does: what is as it was may be left out of a save."""
        for _, tensor in tensors(self.state):
            raw(tensor)[::4096] += 1

    def step(self, method: Method) -> float:
        """One step of training on this rank: a product, then what comes before the optimizer."""
        start = time.perf_counter()
        torch.mm(self.square, self.square)
        method.before_optimizer()
        return time.perf_counter() - start

    def once(self, method: Method, nth: int) -> None:
        if self.rank == 0:
            print(f"round {nth}: {method.name}", file=sys.stderr, flush=True)
        path = f"{self.args.scratch}/{type(method).__name__}-{nth}"
        if self.rank == 0:
            os.makedirs(path)
        self.train_on()
        dist.barrier(group=self.group)
        cpu, start = used(self.daemons), time.perf_counter()
        method.save(path, 2 * nth + 1)
        method.before_optimizer()
        stall = time.perf_counter() - start
        method.finish()
        if not method.synced and not method.limit:
            # What another rank still writes has another name, or none.
            dist.barrier(group=self.group)
            if self.rank == 0:
                sync(path)
        durable = time.perf_counter() - start
        dist.barrier(group=self.group)
        method.settle()
        cpu = used(self.daemons) - cpu
        self.note(method, "stall", most(stall, self.group), nth)
        self.note(method, "durable", most(durable, self.group), nth)
        spent = torch.tensor([cpu], dtype=torch.float64)
        dist.all_reduce(spent, group=self.group)
        self.note(method, "cpu", spent.item(), nth)
        if type(method).load is not Method.load and nth == self.args.rounds - 1:
            self.load(method, path, nth)
            if type(method).whole is not Method.whole:
                self.reshard(method, path, nth)
        dist.barrier(group=self.group)
        if self.rank == 0:
            shutil.rmtree(path, ignore_errors=True)

    def reshard(self, method: Method, path: str, nth: int) -> None:
        """The first rank loads what all have saved, from the disk."""
        plain = {name: untouched(whole) for name, whole in self.state["model"].items()}
        taken, wrong = 0.0, 0
        if self.rank == 0:
            drop(self.args.scratch)
            start = time.perf_counter()
            method.whole(path, {"model": plain, "step": 0})
            taken = time.perf_counter() - start
        for name, sharded in self.state["model"].items():
            whole = sharded.full_tensor()
            wrong += self.rank == 0 and not torch.equal(raw(plain[name]), raw(whole))
        self.note(method, "load on one", most(taken, self.group), nth)
        self.note(method, "wrong tensors", most(wrong, self.group), nth)

    def load(self, method: Method, path: str, nth: int) -> None:
        for what in ("cold", "warm"):
            for _, tensor in tensors(self.into):
                tensor.zero_()
            if what == "cold":
                drop(self.args.scratch)
            dist.barrier(group=self.group)
            start = time.perf_counter()
            method.load(path, self.into)
            self.note(method, f"load {what}", most(time.perf_counter() - start, self.group), nth)
            pairs = zip(tensors(self.state), tensors(self.into))
            wrong = sum(not torch.equal(raw(one), raw(two)) for (_, one), (_, two) in pairs)
            self.note(method, "wrong tensors", most(wrong, self.group), nth)

    def train(self, method: Method, nth: int) -> None:
        """Training time lost to one save: the stall, and how much slower the steps were until it was over."""
        path = f"{self.args.scratch}/{type(method).__name__}-train-{nth}"
        if self.rank == 0:
            os.makedirs(path)
        self.train_on()
        dist.barrier(group=self.group)
        calm = [self.step(method) for _ in range(30)]
        start = time.perf_counter()
        method.save(path, 2 * nth + 2)
        stall, slow = time.perf_counter() - start, []
        while not method.over() and len(slow) < 5000:
            slow.append(self.step(method))
        if not slow:
            slow.append(self.step(method))
        method.finish()
        calm += [self.step(method) for _ in range(30)]
        lost = stall + sum(slow) - len(slow) * statistics.mean(calm)
        self.note(method, "lost", most(lost, self.group), nth)
        self.note(method, "slowest step", most(max(slow) / statistics.median(calm), self.group), nth)
        dist.barrier(group=self.group)
        if self.rank == 0:
            shutil.rmtree(path, ignore_errors=True)

    def take_turns(self) -> None:
        """Every method once a round."""
        kinds = [one for one in methods.ALL if one.__name__ in self.args.only]
        made: dict[str, Any] = {}
        for nth in range(self.args.rounds):
            for kind in kinds:
                self.tried(kind, made, nth)
        for method in made.values():
            try:
                method.close()
            except Exception as problem:
                print(f"{method.name}: {problem}", file=sys.stderr)
        made.clear()
        gc.collect()

    def tried(self, kind: Any, made: dict[str, Any], nth: int) -> None:
        """A method that fails is named in the table and does not end the run; its ranks fail together or not at all."""
        if kind.name in self.failed:
            return
        problem = ""
        try:
            with memory.Watch(self.daemons) as watch:
                if kind.name not in made:
                    made[kind.name] = kind(self.state, self.group, self.args.scratch)
                self.once(made[kind.name], nth)
            if nth == 0:
                extra = torch.tensor([watch.extra])
                dist.all_reduce(extra, group=self.group)
                self.note(made[kind.name], "memory", extra.item() / self.bytes, nth)
            if self.args.train:
                self.train(made[kind.name], nth)
        except Exception as raised:
            problem = repr(raised)[:200]
            if self.rank == 0:
                traceback.print_exc()
        if most(float(bool(problem)), self.group):
            self.failed[kind.name] = problem or "another rank failed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, required=True, help="size of the state, over all ranks")
    parser.add_argument("--rounds", type=int, required=True, help="saves of each method")
    parser.add_argument("--turn", type=int, required=True, help="number of this turn")
    parser.add_argument("--scratch", required=True, help="folder of the saves")
    parser.add_argument("--told", required=True, help="file that the first rank writes: what was measured, as JSON")
    parser.add_argument("--only", nargs="+", required=True, help="names of classes in methods.py")
    parser.add_argument("--daemons", nargs="*", type=int, default=[], help="processes that work for the ranks")
    parser.add_argument("--train", action="store_true", help="measure the training time lost to a save too")
    parser.add_argument("--matrix", type=int, required=True, help="size of the product that is a step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    bench = Bench(args)
    bench.take_turns()
    if dist.get_rank() == 0:
        told = {"rows": bench.rows, "failed": bench.failed, "bytes": bench.bytes, "tensors": len(bench.state["model"])}
        with open(args.told, "w") as file:
            json.dump(told, file)
    dist.barrier()
    # DLRover leaves threads and children that nothing ends.
    sys.stdout.flush()
    for child in __import__("psutil").Process().children(recursive=True):
        child.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
