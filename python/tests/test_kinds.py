"""Plain values of more kinds, parts of a state, and element types on the way back."""

import collections
import datetime
import enum
import pathlib
import time

import numpy as np
import pytest

import rankguard
from rankguard import PerRank, Unsavable, _tree

Point = collections.namedtuple("Point", "x y")


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


PLAIN = [
    1 + 2j,
    complex(float("inf"), -0.0),
    {1, "a", (2, 3)},
    frozenset({b"x", frozenset({1})}),
    pathlib.Path("runs/é"),
    pathlib.PureWindowsPath("c:/x"),
    bytearray(b"\0\1"),
    collections.OrderedDict([("z", 1), ("a", 2)]),
    collections.Counter({"b": 2, "a": 1}),
    collections.defaultdict(list, {"k": [1]}),
    collections.defaultdict(None, {"k": 1}),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    datetime.date(2026, 1, 2),
    datetime.timedelta(days=-1, microseconds=7),
    {frozenset({1, 2}): "key"},
    np.complex128(1 + 2j),
    np.datetime64("2026-01-02"),
]


# The order of sets differs between processes, and the names of tests must not.
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_a_plain_value_comes_back_with_its_type(session, value):
    session.checkpoint({"value": value, "own": PerRank(value)}, step=1)
    session.wait()
    live = {"value": None, "own": PerRank(None)}
    session.restore(live)
    for back in (live["value"], live["own"].value, session.load().state["value"]):
        assert back == value and type(back) is type(value) and repr(back) == repr(value)
    if isinstance(value, collections.defaultdict):
        assert live["value"].default_factory is value.default_factory


def test_the_order_of_a_set_does_not_depend_on_hashes():
    letters = [chr(97 + n) for n in range(20)]
    assert _tree.Flat({"s": set(letters)}).text() == _tree.Flat({"s": set(reversed(letters))}).text()


def test_a_scalar_of_ml_dtypes_is_not_taken_for_bytes(session):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    session.checkpoint({"lr": ml_dtypes.bfloat16(1.5)}, step=1)
    session.wait()
    back = session.load().state["lr"]
    assert type(back) is ml_dtypes.bfloat16 and float(back) == 1.5


def test_members_and_named_tuples_are_restored_into_live_ones(session):
    saved = {"mode": Mode.SLOW, "level": Level.LOW, "at": Point(np.ones(3), [Mode.FAST]), "pair": (Mode.FAST, 2)}
    session.checkpoint(saved, step=1)
    session.wait()
    weights = np.zeros(3)
    live = {"mode": Mode.FAST, "level": Level.LOW, "at": Point(weights, [Mode.SLOW]), "pair": (Mode.SLOW, 0)}
    session.restore(live)
    assert live["mode"] is Mode.SLOW and live["level"] is Level.LOW and live["pair"] == (Mode.FAST, 2)
    assert type(live["at"]) is Point and live["at"].x is weights and live["at"].y == [Mode.FAST]
    assert weights.tolist() == [1, 1, 1]


@pytest.mark.parametrize("live", [None, 1, Level.LOW, "missing"], ids=repr)
def test_a_member_without_a_live_one_of_its_type_is_named(session, live):
    session.checkpoint({"opt": {"mode": Mode.SLOW}}, step=1)
    session.wait()
    state = {"opt": {} if live == "missing" else {"mode": live}}
    with pytest.raises(ValueError, match=r"^opt.mode: cannot restore test_kinds.Mode.SLOW: .* of the live state"):
        session.restore(state)
    with pytest.raises(ValueError, match=r"Mode.SLOW: its type is the program's own; use restore"):
        session.load()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Flags.A | Flags.B, r"\.value"),
        ({"in": PerRank(Mode.FAST)}, "PerRank"),
        (np.zeros(1, dtype=[("a", "i4")])[0], "fields"),
        (np.array(["a"]), "tolist"),
        (np.array(["2026-01-02"], dtype="M8[D]"), "int64"),
        (datetime.datetime(2026, 1, 2, fold=1), "fold"),
        (type("Text", (str,), {})("x"), "convert it to str"),
        ({1, object()}, "set|key"),
        (time.gmtime(0), "convert it to tuple"),
        ("caf\udce9", "lone surrogate at position 3"),
        ({"caf\udce9": 1}, "lone surrogate at position 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_would_change_is_refused_with_a_hint(session, value, why):
    with pytest.raises(Unsavable, match=f"^here.*{why}"):
        session.checkpoint({"here": value}, step=1)
    session.checkpoint({"here": 1}, step=2)
    assert session.wait() == 2


def test_the_stall_counts_the_encoding_of_the_state(session):
    class Slow:
        def state_dict(self):
            time.sleep(0.2)
            return {"w": np.ones(2)}

        def load_state_dict(self, state):
            raise AssertionError("nothing is restored")

    assert session.checkpoint({"slow": Slow()}, step=1).stall_s >= 0.2
    begun = session.begin({"slow": Slow()}, step=2) or session.finish()
    assert begun is not None and begun.stall_s >= 0.2


class Counter:
    def __init__(self, count):
        self.state = {"count": count, "memory": np.full(4, count)}
        self.loaded = 0

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state.update(state)
        self.loaded += 1


def state_of(n):
    inner = {"1": np.full(3, n), "10": np.full(3, n), "lr": n}
    return {"model": {"layers": inner, "head": np.full(2, n)}, "counter": Counter(n), "other": Counter(n), "epoch": n}


def test_a_part_of_a_state_is_restored_and_the_rest_is_left(session):
    session.checkpoint(state_of(1), step=1)
    session.wait()
    live = state_of(2)
    model = live["model"]
    session.restore(live, only=["model.layers.1", "model.layers.lr", "counter.count", "epoch"])
    assert live["model"] is model and list(live) == ["model", "counter", "other", "epoch"]
    assert [int(model["layers"][key][0]) for key in ("1", "10")] == [1, 2] and model["layers"]["lr"] == 1
    assert int(model["head"][0]) == 2 and live["epoch"] == 1
    assert live["counter"].state["count"] == 1 and live["counter"].state["memory"].tolist() == [2, 2, 2, 2]
    assert (live["counter"].loaded, live["other"].loaded, live["other"].state["count"]) == (1, 0, 2)
    session.restore(live, only=["counter"])
    assert live["counter"].state["memory"].tolist() == [1, 1, 1, 1]


def test_an_object_as_the_whole_state_is_restored_in_part(session):
    session.checkpoint(Counter(1), step=1)
    session.wait()
    live = Counter(2)
    session.restore(live, only=["memory"])
    assert live.state["memory"].tolist() == [1, 1, 1, 1] and live.state["count"] == 2


def test_a_prefix_without_a_place_is_named(session):
    session.checkpoint({"model": {"a": np.ones(1)}}, step=1)
    session.wait()
    with pytest.raises(ValueError, match="only names 'modle', and the state has nothing there"):
        session.restore({"model": {"a": np.zeros(1)}}, only=["modle"])
    with pytest.raises(ValueError, match="only names 'lr', and the checkpoint of step 1 has nothing there"):
        session.restore({"model": {"a": np.zeros(1)}, "lr": 1}, only=["model", "lr"])
    for wrong in ("model", [], [1], [""]):
        with pytest.raises(TypeError, match="only is"):
            session.restore({"model": {"a": np.zeros(1)}}, only=wrong)


def test_types_are_cast_only_when_asked(session):
    saved = {"f": np.arange(5, dtype=np.float32) / 3, "i": np.arange(5, dtype=np.int16), "c": np.ones(2, dtype=np.complex64)}
    session.checkpoint({**saved, "part": rankguard.Shard(saved["f"], (5,), (0,))}, step=1)
    session.wait()

    def fresh():
        part = rankguard.Shard(np.zeros(5, dtype=np.float64), (5,), (0,))
        return {"f": np.zeros(5), "i": np.zeros(5, dtype=np.int64), "c": np.zeros(2, dtype=np.complex128), "part": part}

    with pytest.raises(rankguard.RankguardError, match="F32"):
        session.restore(fresh())
    live = fresh()
    session.restore(live, cast=True)
    assert np.array_equal(live["f"], saved["f"].astype(np.float64)) and live["i"].tolist() == [0, 1, 2, 3, 4]
    assert live["c"].tolist() == [1, 1] and np.array_equal(live["part"].array, live["f"])
    strided = np.zeros((5, 2))
    session.restore({"f": strided[:, 1]}, strict=False, cast=True)
    assert np.array_equal(strided[:, 1], live["f"]) and not strided[:, 0].any()
    for name, dtype in (("i", np.int8), ("f", np.int64), ("c", np.float32), ("i", np.float64)):
        with pytest.raises(Unsavable, match=f"^{name}: cannot cast"):
            session.restore({name: np.zeros(saved[name].shape, dtype=dtype)}, strict=False, cast=True)
