"""State comes back exactly or is refused by name, whatever the world size."""

import json
import subprocess
import warnings

import numpy as np
import pytest

import cluster
import rankguard
from rankguard import PerRank, Shard, StateMismatch, _plain_state


def saved_by(folder, states, step=1, **options):
    """Saves one state a rank, each by a session of its own."""
    world = len(states)
    sessions = [
        rankguard.connect(folder, job="test", rank=rank, world_size=world, generation=step, commit_within_s=120, **options)
        for rank in range(world)
    ]
    for session, state in zip(sessions, states):
        session.checkpoint(state, step=step)
    for session in sessions:
        session.done()


def restored(folder, states, **options):
    """Restores one state a rank."""
    world, found = len(states), []
    for rank, state in enumerate(states):
        session = rankguard.connect(folder, job="test", rank=rank, world_size=world, generation=99)
        found.append(session.restore(state, **options))
        session.done()
    return found


def adam(moments):
    state = {"model": {"w": np.ones(4)}, "optimizer": {"lr": 0.1}}
    if moments:
        state["optimizer"]["state"] = {0: {"exp_avg": np.full(4, 5.0), "step": 3}}
    return state


@pytest.mark.parametrize("world", [1, 2, 3])
def test_strict_is_the_same_at_every_world_size(tmp_path, world):
    saved_by(tmp_path, [adam(True), adam(True)])
    live = adam(False)
    live["model"]["w"][:] = 0
    with pytest.raises(StateMismatch, match=r"no place for: optimizer.state.0.exp_avg.*rankguard\.torch\.state"):
        restored(tmp_path, [live] * world)
    assert live["model"]["w"].tolist() == [0] * 4, "nothing was changed"
    found = restored(tmp_path, [live] * world, strict=False)[0]
    assert (found.missing, found.dropped) == (["optimizer.state.0.exp_avg"], ["optimizer.state.0.step"])
    assert live["model"]["w"].tolist() == [1] * 4
    full = adam(True)
    full["optimizer"]["state"][0]["exp_avg"][:] = 0
    assert restored(tmp_path, [full] * world)[0].missing == []
    assert full["optimizer"]["state"][0]["exp_avg"].tolist() == [5] * 4


@pytest.mark.parametrize("world", [1, 2, 3])
def test_an_extra_live_tensor_is_refused_and_left_as_it_is_where_that_is_allowed(tmp_path, world):
    saved_by(tmp_path, [{"w": np.ones(3)}] * 2)
    live = {"w": np.zeros(3), "ema": np.full(3, 7.0), "note": "new"}
    with pytest.raises(StateMismatch, match="does not have: ema"):
        restored(tmp_path, [live] * world)
    assert live["w"].tolist() == [0] * 3
    found = restored(tmp_path, [live] * world, strict=False)[0]
    assert (found.unfilled, found.removed, live["ema"].tolist()) == (["ema"], ["note"], [7] * 3)


def test_tensors_that_only_another_rank_saved_count_at_another_world_size(tmp_path):
    saved_by(tmp_path, [{"stage0": np.ones(2)}, {"stage1": np.full(2, 2.0)}])
    with pytest.raises(StateMismatch, match="no place for: stage1"):
        restored(tmp_path, [{"stage0": np.zeros(2)}])
    both = {"stage0": np.zeros(2), "stage1": np.zeros(2)}
    restored(tmp_path, [both])
    assert both["stage1"].tolist() == [2, 2]
    # At the same world size each rank compares with what it saved.
    alone = [{"stage0": np.zeros(2)}, {"stage1": np.zeros(2)}]
    restored(tmp_path, alone)
    assert alone[1]["stage1"].tolist() == [2, 2]


def buffers(rank, rows=3):
    return {"bn": {"running_mean": np.full(rows, float(rank)), "num_batches_tracked": np.array(rank)}, "w": np.ones(2)}


def test_tensors_that_differ_come_back_to_each_rank_and_are_refused_elsewhere(tmp_path):
    saved_by(tmp_path, [buffers(rank) for rank in range(3)])
    lives = [buffers(9) for _ in range(3)]
    restored(tmp_path, lives)
    assert [live["bn"]["running_mean"].tolist() for live in lives] == [[rank] * 3 for rank in range(3)]
    assert [int(live["bn"]["num_batches_tracked"]) for live in lives] == [0, 1, 2]
    for world in (1, 2, 4):
        live = buffers(9)
        message = r"bn.running_mean \(different content between rank 0 and rank 1\).*PerRank.*replicate"
        with pytest.raises(StateMismatch, match=message):
            restored(tmp_path, [live] * world)
        assert live["w"].tolist() == [1, 1] and int(live["bn"]["num_batches_tracked"]) == 9
        found = restored(tmp_path, [live] * world, replicate=["bn.*"])[0]
        assert found.differing == ["bn.running_mean", "bn.num_batches_tracked"]
        assert live["bn"]["running_mean"].tolist() == [0] * 3
    session = rankguard.connect(tmp_path, job="test")
    with pytest.raises(StateMismatch, match=r"bn\.running_mean"):
        session.load()
    assert int(session.load(replicate=True).state["bn"]["num_batches_tracked"]) == 0
    session.done()


def test_shapes_that_differ_come_back_to_each_rank(tmp_path):
    saved_by(tmp_path, [{"w": np.full(2, 1.0)}, {"w": np.full(3, 2.0)}])
    lives = [{"w": np.zeros(2)}, {"w": np.zeros(3)}]
    restored(tmp_path, lives)
    assert [live["w"].tolist() for live in lives] == [[1, 1], [2, 2, 2]]
    with pytest.raises(StateMismatch, match="different shapes"):
        restored(tmp_path, [{"w": np.zeros(2)}])


def test_equal_tensors_are_not_taken_for_different_ones_wherever_they_lie(tmp_path):
    common = np.arange(50_000.0)
    saved_by(tmp_path, [{"a": common}, {"Z": np.ones(7, dtype=np.int8), "a": common}])
    live = {"a": np.zeros(50_000), "Z": np.zeros(7, dtype=np.int8)}
    assert restored(tmp_path, [live])[0].differing == []
    assert np.array_equal(live["a"], common)


def test_plain_values_that_differ_are_named(tmp_path):
    states = [{"seen": rank, "epoch": 3, "w": np.ones(1), "rng": PerRank(rank)} for rank in range(2)]
    saved_by(tmp_path, states)
    live = {"seen": -1, "epoch": 0, "w": np.zeros(1), "rng": PerRank(8)}
    with pytest.warns(RuntimeWarning, match="different values.*first rank's: seen. "):
        found = restored(tmp_path, [live])[0]
    assert (found.differing, found.kept, live["seen"], live["rng"].value) == (["seen"], ["rng"], 0, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        restored(tmp_path, [live], replicate=["seen"])
        lives = [dict(live), dict(live)]
        restored(tmp_path, lives)
    assert [live["seen"] for live in lives] == [0, 1]


def test_a_value_of_another_rank_is_not_adopted(tmp_path):
    saved_by(tmp_path, [{"rng": PerRank(rank)} for rank in range(2)])
    live = {}
    assert restored(tmp_path, [live])[0].kept == ["rng"] and live == {}


def test_arrays_that_share_memory_are_restored_or_refused(tmp_path):
    tied = np.arange(6.0)
    saved_by(tmp_path / "tied", [{"a": tied, "b": tied}])
    saved_by(tmp_path / "untied", [{"a": np.zeros(6), "b": np.ones(6)}])
    live = np.zeros(6)
    restored(tmp_path / "tied", [{"a": live, "b": live}])
    assert live.tolist() == tied.tolist()
    with pytest.raises(ValueError, match=r"a: it shares memory with another tensor of the live state .b."):
        restored(tmp_path / "untied", [{"a": live, "b": live}])
    # Interleaved arrays share a range and no element.
    both = np.zeros(12)
    restored(tmp_path / "untied", [{"a": both[::2], "b": both[1::2]}])
    assert both.tolist() == [0, 1] * 6


def test_a_tensor_in_the_place_of_plain_state_is_refused_before_anything_is_changed(tmp_path):
    saved_by(tmp_path, [{"w": np.ones(2), "x": {"y": np.ones(2)}}])
    for other in ([1], 5, [np.zeros(2)], (np.zeros(2),)):
        live = {"w": np.zeros(2), "x": other}
        with pytest.raises(ValueError, match="x: "):
            restored(tmp_path, [live])
        assert live["w"].tolist() == [0, 0]


def test_an_object_that_the_checkpoint_does_not_have_stays(tmp_path):
    class Schedule:
        def state_dict(self):
            return {"last": 1}

        def load_state_dict(self, state):
            raise AssertionError("nothing was saved for it")

    saved_by(tmp_path, [{"w": np.ones(2)}])
    live = {"w": np.zeros(2), "schedule": Schedule()}
    with pytest.raises(StateMismatch, match="does not have: schedule"):
        restored(tmp_path, [live])


@pytest.mark.parametrize("worlds", [(1, 1), (2, 2), (2, 3)])
def test_losses_grow_without_end(tmp_path, worlds):
    saves, loads = worlds
    source = np.random.default_rng(1)
    sessions = [
        rankguard.connect(tmp_path, job="test", rank=rank, world_size=saves, generation=1, commit_within_s=120)
        for rank in range(saves)
    ]
    losses = []
    for step, count in enumerate([10, 20_000, 30_000, 200_000], 1):
        losses += source.standard_normal(count - len(losses)).tolist()
        for session in sessions:
            session.checkpoint({"w": np.full(10, step), "losses": losses}, step=step)
        for session in sessions:
            assert session.wait() == step
    for session in sessions:
        session.done()
    lives = [{"w": np.zeros(10, dtype=np.int64), "losses": []} for _ in range(loads)]
    restored(tmp_path, lives)
    assert all(live["losses"] == losses and live["w"][0] == 4 for live in lives)
    older = {"w": np.zeros(10, dtype=np.int64), "losses": []}
    restored(tmp_path, [older] * loads, step=1)
    assert older["losses"] == losses[:10]
    session = rankguard.connect(tmp_path, job="test", rank=0, world_size=loads, generation=99)
    assert session.load().state["losses"] == losses
    session.done()


def test_many_names_fit(tmp_path):
    names = [f"model.layers.{nth}.self_attention.projection.weight" for nth in range(12_000)]
    saved_by(tmp_path, [{name: np.full(1, nth) for nth, name in enumerate(names)}])
    live = {name: np.zeros(1, dtype=np.int64) for name in names}
    restored(tmp_path, [live])
    assert all(live[name][0] == nth for nth, name in enumerate(names))


def test_the_limit_of_plain_state_is_forecast_and_named(monkeypatch):
    monkeypatch.setattr(_plain_state, "STATE_BYTES_MAX", 1000)
    growth = _plain_state.StateGrowth()
    growth.check(1, 100)
    with pytest.warns(RuntimeWarning, match="from step 19 on"):
        growth.check(10, 550)
    with pytest.raises(rankguard.Unsavable, match="more than"):
        growth.check(20, 1050)


def test_names_of_the_package_are_refused(tmp_path):
    session = rankguard.connect(tmp_path, job="test")
    with pytest.raises(rankguard.Unsavable, match="belong to rankguard"):
        session.checkpoint({"rankguard": {"plain-state": {"0": np.zeros(1)}}}, step=1)
    session.done()


def test_a_part_that_another_rank_saved_differently_is_refused_at_the_same_world_size(tmp_path):
    saved_by(tmp_path, [{"w": Shard(np.full(2, rank), (2,), (0,))} for rank in range(2)])
    lives = [{"w": np.zeros(2, dtype=np.int64)} for _ in range(2)]
    restored(tmp_path, lives)
    assert [live["w"].tolist() for live in lives] == [[0, 0], [1, 1]]
    with pytest.raises(rankguard.RankguardError, match=r"w .*differ"):
        restored(tmp_path, [{"w": np.zeros(2, dtype=np.int64)}])


def test_verify_and_show_name_tensors_that_differ(tmp_path):
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    saved_by(tmp_path, [buffers(rank) for rank in range(2)])

    def ask(*words):
        args = [cluster.program(), "checkpoint", *words, "--format", "json"]
        return json.loads(subprocess.run(args, check=True, capture_output=True, env=cluster.clean(), timeout=60).stdout)

    (verified,) = ask("verify", "--dir", str(tmp_path))
    assert verified["state"] == "intact" and "differ between ranks" in verified["what"]
    assert verified["tensors"] == ["bn.num_batches_tracked", "bn.running_mean"]
    shown = {tensor["name"]: tensor.get("differs") for tensor in ask("show", "--dir", str(tmp_path), "1")["tensors"]}
    assert shown["bn.running_mean"] == "different content between rank 0 and rank 1" and shown["w"] is None
