"""Our TCPStore server beside that of torch: torch's own client sends both the same operations and sees the same."""

from __future__ import annotations

import pathlib
import random
import socket
import struct
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from store_servers import KINDS, StoreServer  # noqa: E402
from torch.distributed import PrefixStore, TCPStore  # noqa: E402

from cluster import Cluster, program  # noqa: E402

pytestmark = pytest.mark.torch

SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=20)
# Opcodes that each scenario sends; together all but VALIDATE and PING, which every connection sends.
QUERY = "SET COMPARE_SET GET ADD CHECK WAIT GETNUMKEYS DELETE_KEY APPEND MULTI_GET MULTI_SET CANCEL_WAIT".split()
QUERY += "QUEUE_PUSH QUEUE_POP QUEUE_LEN LIST_KEYS BARRIER".split()
# Calls to which the store sends no reply.
UNANSWERED = {"set", "append", "multi_set", "queue_push"}


class Session:
    """Clients of one server, and what they saw."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seen: list[Any] = []
        self.one = self.client()
        self.two = self.client()

    def client(self, timeout: timedelta = LONG) -> TCPStore:
        return TCPStore("127.0.0.1", self._port, timeout=timeout, is_master=False, wait_for_workers=False, use_libuv=True)

    def note(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Records the result of a call, or the type of its error."""
        try:
            result = call(*arguments)
            if getattr(call, "__name__", "") in UNANSWERED:
                # Another connection may be served first until the store has answered on this one.
                result = call.__self__.num_keys()  # type: ignore[attr-defined]
            self.seen.append(result)
        except Exception as error:
            self.seen.append(type(error).__name__)

    def blocked(self, call: Callable[[], Any]) -> threading.Thread:
        """Starts a call that is to wait; its result is recorded when it ends."""
        thread = threading.Thread(target=self.note, args=(call,), daemon=True)
        thread.start()
        time.sleep(0.2)
        self.seen.append(("waits", thread.is_alive()))
        return thread

    def join(self, *threads: threading.Thread) -> None:
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "the call does not end"


def values(at: Session) -> None:
    "SET GET GETNUMKEYS DELETE_KEY LIST_KEYS"
    at.note(at.one.num_keys)
    for key, value in [("a", "1"), ("b", ""), ("a", "2"), ("ü", "ß" * 5000), ("", "empty key")]:
        at.note(at.one.set, key, value)
        at.note(at.two.get, key)
    at.note(at.two.num_keys)
    at.note(lambda: sorted(at.two.list_keys()))
    for key in ["a", "a", "none", ""]:
        at.note(at.one.delete_key, key)
    at.note(at.two.num_keys)
    at.note(lambda: sorted(at.two.list_keys()))


def absent(at: Session) -> None:
    "GET WAIT CANCEL_WAIT"
    impatient = at.client(SHORT)
    at.note(impatient.get, "absent")
    at.note(impatient.wait, ["absent"], SHORT)
    at.note(impatient.set, "absent", "here")
    at.note(impatient.get, "absent")
    at.note(impatient.multi_get, ["absent", "other"])
    at.note(impatient.add, "n", 1)


def compare(at: Session) -> None:
    "COMPARE_SET"
    steps = [
        ("x", "y"),
        ("", "one"),
        ("", "two"),
        ("one", "two"),
        ("one", "three"),
        ("two", ""),
        ("", "four"),
        ("four", "four"),
    ]
    for expected, desired in steps:
        at.note(at.one.compare_set, "key", expected, desired)
        at.note(at.two.check, ["key"])
    at.note(at.two.get, "key")


def sums(at: Session) -> None:
    "ADD"
    for amount in [1, 41, -100, 0, 2**62]:
        at.note(at.one.add, "n", amount)
        at.note(at.two.get, "n")
    for text in ["7", " 8 ", "+9", "-10", "11apples", "9223372036854775807"]:
        at.note(at.one.set, "n", text)
        at.note(at.two.add, "n", 0)


def no_number(at: Session) -> None:
    "ADD BARRIER"
    for text in ["", "apples", "9223372036854775808", "- 1"]:
        for call in ["add", "barrier"]:
            client = at.client()
            at.note(client.set, "n", text)
            at.note(getattr(client, call), "n", 1)
            at.note(client.num_keys)
    at.note(at.one.get, "n")


def checks(at: Session) -> None:
    "CHECK QUEUE_PUSH"
    at.note(at.one.check, ["a"])
    at.note(at.one.set, "a", "")
    at.note(at.one.check, ["a"])
    at.note(at.one.check, ["a", "b"])
    at.note(at.one.queue_push, "b", "value")
    at.note(at.one.check, ["a", "b"])


def waits(at: Session) -> None:
    "WAIT SET ADD APPEND MULTI_SET COMPARE_SET"
    writes: list[Callable[[str], Any]] = [
        lambda key: at.one.set(key, "v"),
        lambda key: at.one.add(key, 1),
        lambda key: at.one.append(key, "v"),
        lambda key: at.one.multi_set([key], ["v"]),
        lambda key: at.one.compare_set(key, "", "v"),
    ]
    for number, write in enumerate(writes):
        first, second = f"first {number}", f"second {number}"
        waiting = at.blocked(lambda first=first, second=second: at.two.wait([first, second, first], LONG))
        write(first)
        time.sleep(0.1)
        at.seen.append(waiting.is_alive())
        write(second)
        at.join(waiting)
    at.note(at.two.wait, ["first 0", "second 4"], SHORT)


def appends(at: Session) -> None:
    "APPEND GET"
    for value in ["a", "", "b" * 3000, "c"]:
        at.note(at.one.append, "key", value)
        at.note(at.two.get, "key")


def several(at: Session) -> None:
    "MULTI_SET MULTI_GET"
    keys = [f"key {number}" for number in range(300)]
    at.note(at.one.multi_set, keys, [key * 20 for key in keys])
    at.note(at.two.multi_get, keys[::-1])
    at.note(at.two.multi_get, keys[:1])
    at.note(at.two.num_keys)


def queues(at: Session) -> None:
    "QUEUE_PUSH QUEUE_POP QUEUE_LEN"
    at.note(at.one.queue_len, "q")
    at.note(at.one.queue_pop, "q", False)
    for value in ["1", "", "3"]:
        at.note(at.one.queue_push, "q", value)
        at.note(at.two.queue_len, "q")
    at.note(at.two.num_keys)
    at.note(at.two.list_keys)
    at.note(at.two.delete_key, "q")
    for _ in range(4):
        at.note(at.two.queue_pop, "q", False)
    at.note(at.one.set, "q", "value")
    at.note(at.one.queue_len, "q")
    popping = at.blocked(lambda: at.two.queue_pop("other", True))
    # What the waiting client gets is noted by its own thread.
    at.one.queue_push("other", "late")
    at.join(popping)
    at.note(at.client(SHORT).queue_pop, "other", True)


def queue_order(at: Session) -> None:
    "QUEUE_POP QUEUE_PUSH WAIT"
    clients = [at.client() for _ in range(4)]
    threads = [at.blocked(lambda client=client: client.queue_pop("q", True)) for client in clients]
    for number in range(4):
        at.one.queue_push("q", str(number))
        at.join(threads[number])
    at.note(at.one.queue_len, "q")


def barriers(at: Session) -> None:
    "BARRIER CANCEL_WAIT"
    clients = [at.client() for _ in range(3)]
    threads = [at.blocked(lambda client=client: client.barrier("b", 4, LONG)) for client in clients]
    at.note(at.one.get, "b")
    at.note(at.one.barrier, "b", 4, LONG)
    at.join(*threads)
    at.note(at.one.barrier, "b", 4, LONG)
    at.note(at.one.get, "b")
    at.note(at.two.barrier, "c", 2, SHORT)
    at.note(at.two.get, "c")
    at.note(at.one.barrier, "c", 2, LONG)
    at.note(at.one.barrier, "d", 0, LONG)
    # An ordinary wait for the key of a barrier ends with it.
    waiting = at.blocked(lambda: at.two.wait(["e"], LONG))
    barrier = at.blocked(lambda: at.one.barrier("e", 2, LONG))
    at.seen.append(waiting.is_alive())
    at.client().barrier("e", 2, LONG)
    at.join(waiting, barrier)


def prefixes(at: Session) -> None:
    "SET GET ADD LIST_KEYS"
    outer = PrefixStore("outer", at.one)
    inner = PrefixStore("inner", outer)
    at.note(inner.set, "a", "1")
    at.note(outer.get, "inner/a")
    at.note(inner.add, "n", 3)
    at.note(at.two.get, "outer/inner/n")
    at.note(lambda: sorted(at.two.list_keys()))
    at.note(at.one.clone().get, "outer/inner/a")


def sizes(at: Session) -> None:
    "SET GET APPEND"
    for size in [1 << 10, 4095, 4096, 4097, 1 << 16, 1 << 20, 8 << 20]:
        at.note(at.one.set, "key", "x" * size)
        at.note(lambda: len(at.two.get("key")))
    at.note(at.one.set, "k" * 8191, "longest")
    at.note(at.two.get, "k" * 8191)
    for key, value in [("k" * 8192, "too long"), ("key", "x" * ((8 << 20) + 1))]:
        client = at.client()
        at.note(client.set, key, value)
        time.sleep(0.2)
        at.note(lambda client=client: [client.num_keys() for _ in range(3)])
    at.note(at.two.num_keys)


SCENARIOS = [
    values,
    absent,
    compare,
    sums,
    no_number,
    checks,
    waits,
    appends,
    several,
    queues,
    queue_order,
    barriers,
    prefixes,
    sizes,
]


def test_all_opcodes_are_in_a_scenario() -> None:
    named = {opcode for scenario in SCENARIOS for opcode in (scenario.__doc__ or "").split()}
    assert named == set(QUERY)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_torch_client_sees_the_same_as_with_torch_server(scenario: Callable[[Session], None]) -> None:
    seen = {}
    for kind in KINDS:
        with StoreServer(kind) as server:
            session = Session(server.port)
            scenario(session)
            seen[kind] = session.seen
    assert len(seen["torch"]) >= 4
    assert seen["ours"] == seen["torch"]


def _calls(client: TCPStore, draw: random.Random) -> list[Callable[[], Any]]:
    """Calls that do not wait."""
    key = draw.choice("abcd")
    text = draw.choice(["", "1", "22", "-3", "4x"])
    return [
        lambda: (client.set(key, text), client.num_keys()),
        lambda: client.compare_set(key, text, draw.choice(["", "5"])),
        lambda: client.get(key) if client.check([key]) and client.queue_len(key) == 0 else None,
        lambda: client.check([key, "a"]),
        client.num_keys,
        lambda: sorted(client.list_keys()),
        lambda: client.delete_key(key),
        lambda: (client.append(key, text), client.num_keys()),
        lambda: (client.multi_set([key, "a"], [text, "6"]), client.num_keys()),
        lambda: (client.queue_push(key, text), client.num_keys()),
        lambda: client.queue_pop(key, False),
        lambda: client.queue_len(key),
        lambda: client.add("n", draw.randrange(-9, 9)),
        lambda: client.barrier("bar", 1, LONG),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_give_the_same(seed: int) -> None:
    seen = {}
    for kind in KINDS:
        with StoreServer(kind) as server:
            session = Session(server.port)
            draw = random.Random(seed)
            for _ in range(400):
                session.note(draw.choice(_calls(draw.choice([session.one, session.two]), draw)))
            seen[kind] = session.seen
    assert seen["ours"] == seen["torch"]


def test_a_hostile_client_loses_its_connection_and_torch_clients_go_on() -> None:
    with StoreServer("ours") as server:
        session = Session(server.port)
        session.one.set("a", "1")
        for message in [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<BIBQ", 0, 0x3C85F7CE, 6, 1 << 63)]:
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as hostile:
                hostile.sendall(message)
                assert hostile.recv(1) == b""
        assert session.two.get("a") == b"1"


def _gloo_rank(rank: int, port: int, results: Any) -> None:
    import torch.distributed as dist

    store = TCPStore("127.0.0.1", port, timeout=LONG, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    tensor = torch.tensor([float(rank + 1)])
    dist.all_reduce(tensor)
    dist.barrier()
    results.put(tensor.item())
    dist.destroy_process_group()


def test_ranks_of_torch_form_a_group_over_our_store() -> None:
    context = torch.multiprocessing.get_context("spawn")
    with StoreServer("ours") as server:
        results = context.Queue()
        ranks = [context.Process(target=_gloo_rank, args=(rank, server.port, results)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        assert [results.get(timeout=60) for _ in ranks] == [3.0, 3.0]
        for rank in ranks:
            rank.join(60)
            assert rank.exitcode == 0


JOB = """
import os, pathlib, socket, sys
import torch
import torch.distributed as dist
rank, generation = int(os.environ["RANK"]), int(os.environ["RANKGUARD_GENERATION"])
with socket.socket() as probe:
    try:
        probe.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        is_taken = False
    except OSError:
        is_taken = True
dist.init_process_group("gloo")
tensor = torch.tensor([float(rank + 1)])
dist.all_reduce(tensor)
if generation == 1 and rank == 1:
    sys.exit(7)
dist.barrier()
pathlib.Path(f"result-{rank}").write_text(f"{is_taken} {tensor.item()}")
dist.destroy_process_group()
"""


@pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")
def test_a_job_with_the_store_of_the_agent_goes_through_a_failure(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        (tmp_path / "job.py").write_text(JOB)
        run = cluster.run("stored", [sys.executable, "job.py"], 2, None, 0, "--store", "agent")
        assert run.wait(120) == 0, cluster.log()
        assert cluster.job("stored")["generation"] == 2
        assert [(tmp_path / f"result-{rank}").read_text() for rank in range(2)] == ["True 3.0"] * 2
    finally:
        cluster.close()
