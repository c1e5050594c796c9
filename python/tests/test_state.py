"""Plain state and numpy arrays, without torch."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import rankguard
from rankguard import PerRank, Shard, Unsavable, _tree


def state_of(seed):
    source = np.random.default_rng(seed)
    return {
        "layers": [{"w": source.standard_normal((5, 7)), "b": source.standard_normal(7).astype(np.float32)} for _ in range(3)],
        "half": source.standard_normal(9).astype(np.float16),
        "flags": source.integers(0, 2, 11).astype(bool),
        "scalar": np.array(source.integers(1 << 60)),
        "empty": np.zeros((0, 4)),
        "fortran": np.asfortranarray(source.standard_normal((4, 6))),
        "strided": source.standard_normal((8, 8))[::2, 1::3],
        "complex": (source.standard_normal(3) + 1j).astype(np.complex64),
        "lr": 0.1 + seed,
        "name": f"run {seed}",
        "epoch": seed,
    }


def arrays(state):
    return _tree.Flat(state).leaves


def test_arrays_come_back_bit_by_bit_in_the_memory_they_had(session):
    saved, live = state_of(1), state_of(2)
    session.checkpoint(saved, step=3)
    assert session.wait() == 3
    addresses = [leaf.value.__array_interface__["data"][0] for leaf in arrays(live)]
    restored = session.restore(live)
    assert (restored.step, restored.world_size, restored.kept) == (3, 1, [])
    assert addresses == [leaf.value.__array_interface__["data"][0] for leaf in arrays(live)]
    for want, got in zip(arrays(saved), arrays(live)):
        assert want.value.tobytes() == got.value.tobytes(), want.name
    assert (live["lr"], live["name"], live["epoch"]) == (1.1, "run 1", 1)


def test_what_changes_after_the_save_is_not_in_it(session):
    weights = np.arange(100_000, dtype=np.float32)
    session.checkpoint({"w": weights}, step=1)
    weights += 1
    session.wait()
    session.restore({"w": weights})
    assert np.array_equal(weights, np.arange(100_000, dtype=np.float32))


def test_a_save_beside_the_training_is_what_stood_there_at_its_begin(session):
    weights = np.arange(3_000_000, dtype=np.float32)
    assert session.begin({"w": weights}, step=1) is None
    saved = session.finish()
    assert saved.sealed and session.finish() is None
    weights[:] = 0
    session.wait()
    session.restore({"w": weights})
    assert np.array_equal(weights, np.arange(3_000_000, dtype=np.float32))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(1 << 63),
        1 << 70,
        0.1,
        -0.0,
        math.inf,
        5e-324,
        'text with " and \u2028',
        b"\x00\xff",
        [1, [2, []]],
        (1, (2.5, "x")),
        {1: "int", "1": "text", (2, "b"): None, 2.5: True, None: 0},
        {"$": "a key of our own"},
        {},
        np.float32(1.5),
        np.int64(-7),
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(value):
    text = _tree.Flat({"value": value}).text()
    json.loads(text)
    back = _tree.decode(text)["value"]
    assert back == value and type(back) is type(value)
    assert repr(back) == repr(value)


def test_the_order_of_a_dict_comes_back(session):
    session.checkpoint({"z": 1, "a": {"y": 2, "b": 3}}, step=1)
    session.wait()
    loaded = session.load()
    assert list(loaded.state) == ["z", "a"] and list(loaded.state["a"]) == ["y", "b"]


def test_a_state_is_loaded_without_one_to_restore_into(session):
    saved = {"w": np.arange(6, dtype=np.float16).reshape(2, 3), "n": (1, [np.zeros((0, 2)), "x"]), "own": PerRank({"seed": 5})}
    assert session.load() is None and session.newest() is None
    session.checkpoint(saved, step=3)
    session.wait()
    loaded = session.load()
    assert (loaded.step, loaded.world_size, session.newest(), session.last_step) == (3, 1, 3, 3)
    assert loaded.state["w"].dtype == np.float16 and np.array_equal(loaded.state["w"], saved["w"])
    assert loaded.state["n"][0] == 1 and loaded.state["n"][1][0].shape == (0, 2) and loaded.state["n"][1][1] == "x"
    assert loaded.state["own"] == {"seed": 5}


def test_a_whole_of_which_a_part_is_missing_is_not_loaded(session):
    session.checkpoint({"w": Shard(np.zeros((2, 3)), (4, 3), (0, 0))}, step=1)
    session.wait()
    with pytest.raises(rankguard.RankguardError, match=r"w: no shard holds the part at \[2, 0\]"):
        session.load()


def test_a_local_store_says_when_a_checkpoint_is_due(tmp_path):
    session = rankguard.connect(tmp_path, job="test", checkpoint_every=3)
    told = []
    for n in range(1, 8):
        session.step(n)
        told.append(session.due())
    assert told == [False, False, True, False, False, True, False] and session.checkpoint_every == 3
    session.done()
    assert not session.due(3)


def test_nan_comes_back():
    assert math.isnan(_tree.decode(_tree.Flat({"value": math.nan}).text())["value"])


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({"a": {"b": object()}}, "a.b"),
        ({"a": [1, {2, object()}]}, "a.1"),
        ({"fn": print}, "fn"),
        ({"x": range(3)}, "x"),
        ({"words": np.array(["a", None], dtype=object)}, "words"),
        ({"big": np.zeros(3, dtype=">f4")}, "big"),
        ({"a.b": np.zeros(1), "a": {"b": np.zeros(1)}}, "a.b"),
        ({"at": {range(3): 1}}, "at"),
    ],
    # Addresses and the order of sets differ between processes, and the names of tests must not.
    ids=lambda value: value if isinstance(value, str) else type(next(iter(value.values()))).__name__,
)
def test_what_is_neither_tensor_nor_plain_is_refused_by_its_key(session, value, key):
    with pytest.raises(Unsavable, match=f"^{key}: "):
        session.checkpoint(value, step=1)


def test_a_state_that_contains_itself_is_refused(session):
    state = {}
    state["loop"] = {"self": state}
    with pytest.raises(Unsavable, match="contains itself"):
        session.checkpoint(state, step=1)


def test_a_schema_of_another_version_is_refused_by_name():
    with pytest.raises(ValueError, match=r"somebody.else/9"):
        _tree.decode('{"schema": "somebody.else/9", "state": {}}')


def test_a_tensor_that_the_state_has_no_place_for_is_an_error_unless_allowed(session):
    session.checkpoint({"w": np.ones(3), "m": np.ones(4)}, step=1)
    session.wait()
    live = {"w": np.zeros(3)}
    with pytest.raises(ValueError, match="no place for: m"):
        session.restore(live)
    session.restore(live, strict=False)
    assert live["w"].tolist() == [1, 1, 1]


def test_a_tensor_that_the_checkpoint_does_not_have_is_named(session):
    session.checkpoint({"w": np.ones(3)}, step=1)
    session.wait()
    with pytest.raises(rankguard.StateMismatch, match="does not have: momentum"):
        session.restore({"w": np.zeros(3), "momentum": np.zeros(3)})


def test_a_read_only_array_is_refused(session):
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(Unsavable, match="read-only"):
        session.restore({"w": frozen})


def test_an_object_with_a_state_dict_is_asked_and_given_back(session):
    class Counter:
        def __init__(self, count):
            self.count, self.loaded = count, None
            self.memory = np.full(4, count)

        def state_dict(self):
            return {"count": self.count, "memory": self.memory}

        def load_state_dict(self, state):
            self.count, self.loaded = state["count"], state["memory"].tolist()

    session.checkpoint({"counter": Counter(7)}, step=1)
    session.wait()
    live = Counter(0)
    session.restore({"counter": live})
    assert (live.count, live.loaded) == (7, [7, 7, 7, 7])


def test_two_ranks_save_parts_and_one_takes_all(tmp_path):
    whole = np.arange(40.0).reshape(10, 4)
    ranks = [
        rankguard.connect(tmp_path, job="test", rank=rank, world_size=2, generation=1, commit_within_s=60) for rank in (0, 1)
    ]
    for rank, session in enumerate(ranks):
        part = whole[rank * 5 : rank * 5 + 5]
        session.checkpoint({"w": Shard(part, (10, 4), (rank * 5, 0)), "own": PerRank(rank), "epoch": 3}, step=2)
    for session in ranks:
        assert session.wait() == 2
        session.done()
    live, alone = {"w": np.zeros((10, 4)), "own": PerRank(9), "epoch": 0}, rankguard.connect(tmp_path, job="test")
    restored = alone.restore(live)
    assert np.array_equal(live["w"], whole) and live["epoch"] == 3
    # Another number of ranks: what belonged to one rank stays as it is, and is named.
    assert (restored.world_size, restored.kept, live["own"].value) == (2, ["own"], 9)
    alone.done()


def test_values_of_one_rank_come_back_with_their_arrays(session):
    source = np.random.default_rng(3).bit_generator
    saved = {"rng": PerRank({"state": source.state, "keys": np.arange(5, dtype=np.uint32)})}
    session.checkpoint(saved, step=1)
    session.wait()
    live = {"rng": PerRank(None)}
    session.restore(live)
    assert live["rng"].value["state"] == source.state
    assert live["rng"].value["keys"].tolist() == [0, 1, 2, 3, 4]


def test_rg_2_a_flipped_bit_is_refused_by_name_and_an_older_step_can_be_asked_for(tmp_path):
    session = rankguard.connect(tmp_path, job="test")
    for step in (1, 2):
        session.checkpoint({"w": np.full(1000, step)}, step=step)
        session.wait()
    shard = max(tmp_path.glob("test/*/rank-00000.shard"))
    damaged = bytearray(shard.read_bytes())
    damaged[100] ^= 8
    shard.write_bytes(damaged)
    live = {"w": np.zeros(1000, dtype=np.int64)}
    with pytest.raises(rankguard.RankguardError, match="tensor w"):
        session.restore(live, step=2)
    assert session.restore(live).step == 1 and live["w"][0] == 1
    session.done()


def test_a_skipped_save_is_told_and_counted(tmp_path):
    session = rankguard.connect(tmp_path, job="test", when_full="skip")
    state = {"w": np.zeros(2_000_000)}
    with pytest.warns(RuntimeWarning, match="no checkpoint of step"):
        outcomes = [session.checkpoint(state, step=step) for step in range(1, 40)]
    counts = session.counts()
    assert counts["sealed"] + counts["skipped"] == 39
    assert counts["skipped"] == sum(not saved.sealed for saved in outcomes) > 0
    session.done()


def test_without_an_agent_and_a_place_the_error_says_what_to_do():
    with pytest.raises(rankguard.RankguardError, match=r"rankguard run.*local_dir"):
        rankguard.connect()


def test_init_twice_is_refused_and_done_ends_it(tmp_path):
    rankguard.init(tmp_path, job="test")
    with pytest.raises(rankguard.RankguardError, match="already"):
        rankguard.init(tmp_path)
    rankguard.step(4, loss=0.5, grad_norm=np.float32(2))
    rankguard.checkpoint({"epoch": 1})
    assert rankguard.wait() == 4
    rankguard.done()
    with pytest.raises(rankguard.RankguardError, match="over"):
        rankguard.checkpoint({"epoch": 1})


def test_nothing_is_imported_that_the_trainer_did_not_import(tmp_path):
    script = (
        "import sys, rankguard\n"
        f"rankguard.init({str(tmp_path)!r})\n"
        "rankguard.checkpoint({'epoch': 1, 'data': b'x'}, step=1)\n"
        "rankguard.done()\n"
        "heavy = {'torch', 'numpy', 'jax'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_gil_is_free_while_a_save_copies(tmp_path):
    import threading

    session = rankguard.connect(tmp_path, job="test")
    state = {"w": np.zeros(32_000_000)}
    session.checkpoint(state, step=1)
    session.wait()
    turns, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = turns[0]
    session.checkpoint(state, step=2)
    during = turns[0] - before
    stop.set()
    thread.join()
    session.done()
    assert during > 0
