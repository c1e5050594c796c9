"""The sampler without a loader: what any sequence of world sizes consumes, in which order, with which factors."""

import fractions
import json
import random
import subprocess
import sys
import tracemalloc

import pytest

import rankguard
from rankguard import RankguardError, Sampler, _permutation
from rankguard._permutation import FeistelOrder
from rankguard._sampler import _BatchIterator

#: Sequences with the permutation, which cost more, among all.
SHUFFLED = 500


def ranks_of(world, *args, **options):
    return [Sampler(*args, rank=rank, world_size=world, **options) for rank in range(world)]


def one_step(samplers, loaders):
    """Batches of all ranks for one step, in the order of the shares' positions; checks that the ranks agree."""
    found = {}
    for sampler, loader in zip(samplers, loaders):
        for share in sampler.shares:
            indices = next(loader)
            if share.size:
                assert share.virtual_rank not in found
                found[share.virtual_rank] = indices
                assert len(indices) == share.size
            else:
                assert len(indices) == 1
    return [index for part in sorted(found) for index in found[part]]


def train(samplers, steps):
    """Some steps on all ranks, each rank on its own iteration; the indices that all consumed."""
    consumed = []
    loaders = [iter(sampler) for sampler in samplers]
    for _ in range(steps):
        epoch = samplers[0].epoch
        consumed += one_step(samplers, loaders)
        for sampler in samplers:
            sampler.advance()
        if samplers[0].epoch != epoch:
            assert all(next(loader, None) is None for loader in loaders)
            loaders = [iter(sampler) for sampler in samplers]
    return consumed


def expected_stream(samples, global_batch, last_batch, shuffle, seed, places):
    """The reference: whole epochs as lists, cut where the caller consumed as many places."""
    stream, epoch = [], 0
    while len(stream) < places:
        order = FeistelOrder(samples, seed, epoch).indices(0, samples) if shuffle else list(range(samples))
        stream += order[: samples - samples % global_batch] if last_batch == "drop" else order
        epoch += 1
    return stream[:places]


def random_sequence(source, shuffle):
    """One run through random world sizes, with lost steps; what was consumed beside the reference."""
    global_batch = source.randint(1, 8)
    last_batch = source.choice(["keep", "drop"])
    samples = source.randint(global_batch if last_batch == "drop" else 1, 40)
    virtual = source.choice([None, None, source.randint(1, global_batch)])
    options = {"seed": source.randrange(5), "last_batch": last_batch, "shuffle": shuffle, "virtual_ranks": virtual}
    largest = min(virtual or global_batch, 5)
    state, consumed = None, []
    for _ in range(source.randint(1, 4)):
        samplers = ranks_of(source.randint(1, largest), samples, global_batch, **options)
        if state is not None:
            for sampler in samplers:
                sampler.load_state_dict(state)
        consumed += train(samplers, source.randint(1, 4))
        state = samplers[0].state_dict()
        if any(sampler.state_dict() != state for sampler in samplers[1:]):
            return ["the states of the ranks differ"], []
        if source.random() < 0.2:
            # Steps after the checkpoint: a kill takes them, and they are consumed again.
            train(samplers, 1)
    place = state["epoch"] * samplers[0].epoch_samples + state["position"]
    rankguard.SampleLedger.of_state(state["ledger"]).check(place)
    return consumed, expected_stream(samples, global_batch, last_batch, shuffle, options["seed"], place)


def differences(sequences, seed, shuffle):
    source = random.Random(seed)
    return sum(consumed != expected for consumed, expected in (random_sequence(source, shuffle) for _ in range(sequences)))


@pytest.mark.parametrize("sequences", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_random_sequences_of_world_sizes_consume_the_same_samples_in_the_same_order(sequences):
    """The order of an epoch is a table of its own, so most sequences do without the cost of the permutation."""
    assert differences(sequences - SHUFFLED, 1, shuffle=False) + differences(SHUFFLED, 2, shuffle=True) == 0


def test_a_wrong_share_is_found(monkeypatch):
    """The comparison above detects a rank that takes one sample of its neighbour."""
    right = _BatchIterator.__next__

    def wrong(self):
        indices = right(self)
        return [indices[0] + 1, *indices[1:]] if self._sampler.rank == 1 else indices

    monkeypatch.setattr(_BatchIterator, "__next__", wrong)
    assert differences(50, 1, shuffle=False) > 5


@pytest.mark.parametrize("last_batch", ["keep", "drop"])
@pytest.mark.parametrize("virtual_ranks", [None, 5, 8])
def test_every_sample_of_an_epoch_is_consumed_once(last_batch, virtual_ranks):
    for world in (1, 2, 3, 5):
        samplers = ranks_of(world, 103, 10, seed=4, last_batch=last_batch, virtual_ranks=virtual_ranks)
        assert len(samplers[0]) == samplers[0].steps_per_epoch * samplers[0].rounds
        first = train(samplers, samplers[0].steps_per_epoch)
        assert (samplers[0].epoch, samplers[0].position) == (1, 0)
        assert len(first) == len(set(first)) == (103 if last_batch == "keep" else 100)
        second = train(samplers, samplers[0].steps_per_epoch)
        assert sorted(second)[:90] != second[:90] and first != second
        if last_batch == "keep":
            assert sorted(first) == sorted(second) == list(range(103))


@pytest.mark.parametrize("virtual_ranks", [None, 7, 12])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_factors_give_the_mean_over_the_global_batch(world, virtual_ranks):
    """In fractions: DDP's mean of the ranks' scaled losses is the mean of all samples; shares differ by one at most."""
    source = random.Random(world)
    samplers = ranks_of(world, 1000, 16, virtual_ranks=virtual_ranks)
    losses = [fractions.Fraction(source.randint(-99, 99), 7) for _ in range(1000)]
    for step in range(samplers[0].steps_per_epoch):
        size = 16 if step < 62 else 8
        wanted = sum(losses[step * 16 : step * 16 + size]) / size
        shares = [share for sampler in samplers for share in sampler.shares]
        parts = {share: losses[share.start : share.stop] for share in shares if share.size}
        exact = [
            fractions.Fraction(share.world_size * share.size, share.global_size) * sum(part) / len(part)
            for share, part in parts.items()
        ]
        assert sum(exact) / world == wanted
        for share in shares:
            assert share.global_size == size
            assert share.mean_scale == float(fractions.Fraction(world * share.size, size))
            assert share.sum_scale == (float(fractions.Fraction(world, size)) if share.size else 0)
            assert share.weight == float(fractions.Fraction(share.size, size))
            assert share.sample_weight == (1 / size if share.size else 0)
        real = [share.size for share in shares if share.virtual_rank < (virtual_ranks or world)]
        assert max(real) - min(real) <= 1 and sum(real) == size
        for sampler in samplers:
            sampler.advance()


def test_equal_shares_have_the_factor_one():
    assert {share.mean_scale for sampler in ranks_of(4, 100, 20) for share in sampler.shares} == {1.0}


def test_a_last_batch_smaller_than_the_ranks_keeps_all_ranks_at_work():
    """A share without samples is one sample of the step with factor 0, so that every rank has a batch."""
    samplers = ranks_of(4, 10, 8)
    train(samplers, 1)
    assert [sampler.share.size for sampler in samplers] == [0, 1, 0, 1]
    batches = [next(iter(sampler)) for sampler in samplers]
    order = FeistelOrder(10, 0, 0).indices(8, 10)
    assert batches == [order[:1], order[:1], order[:1], order[1:]]
    assert [sampler.share.mean_scale for sampler in samplers] == [0, 2, 0, 2]
    assert [sampler.share.sum_scale for sampler in samplers] == [0, 2, 0, 2]


def test_virtual_ranks_have_the_same_samples_and_seeds_at_every_world_size():
    # Round by round in the order of the ranks, as a sum in order needs them; 5 is beyond the virtual ranks.
    samplers = ranks_of(2, 97, 13, virtual_ranks=5)
    assert [[share.virtual_rank for share in sampler.shares] for sampler in samplers] == [[0, 2, 4], [1, 3, 5]]
    seen = []
    for world in (1, 2, 3, 4, 6):
        samplers = ranks_of(world, 97, 13, virtual_ranks=6, seed=2)
        found = {}
        for _ in range(2 * samplers[0].steps_per_epoch):
            for sampler in samplers:
                assert len(sampler.shares) == sampler.rounds == -(-6 // world)
                for share in sampler.shares:
                    if share.virtual_rank < 6:
                        key = (share.epoch, share.batch_start, share.virtual_rank)
                        assert key not in found
                        found[key] = (sampler.indices(share), sampler.random_seed(share), share.weight)
                sampler.advance()
        seen.append(found)
    assert all(found == seen[0] for found in seen)
    assert len({drawn for _, drawn, _ in seen[0].values()}) == len(seen[0])


def test_a_batch_is_that_of_indices():
    for sampler in ranks_of(3, 50, 7, virtual_ranks=4):
        loader = iter(sampler)
        for _ in range(sampler.steps_per_epoch):
            for share in sampler.shares:
                assert next(loader) == sampler.indices(share)
            sampler.advance()
        assert next(loader, None) is None


def test_the_place_of_a_sample():
    sampler = Sampler(1000, 10, seed=3)
    for position in range(0, 1000, 37):
        index = sampler.index_at(position, epoch=2)
        assert sampler.position_of(index, epoch=2) == position
    with pytest.raises(ValueError, match="index is 1000; it can be"):
        sampler.position_of(1000, 0)
    assert sampler.index_at(0, 0) == next(iter(sampler))[0]


def middle_steps(samples):
    """Steps in the middle of an epoch on changing world sizes, each from the state of the one before; the last state."""
    place = samples // 2 // 64 * 64
    state = Sampler(samples, 64, seed=1, rank=0, world_size=1).state_dict()
    state.update(position=place, ledger=[[0, 8, 0, place]])
    for world in (1, 3, 64):
        sampler = Sampler(samples, 64, seed=1, rank=world - 1, world_size=world)
        sampler.load_state_dict(state)
        for _, indices in zip(range(20), sampler):
            assert all(0 <= index < samples for index in indices)
            sampler.advance()
        state = sampler.state_dict()
    assert state["position"] == place + 3 * 20 * 64
    return state


def test_very_many_samples_in_constant_memory():
    """The peak of 10^12 samples is that of 10^4, some kilobytes."""
    peaks = []
    for samples in (10**4, 10**12):
        middle_steps(samples)
        tracemalloc.start()
        try:
            middle_steps(samples)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 20_000 and peaks[1] < 1.3 * peaks[0], peaks


def test_the_state_is_plain_and_the_same_on_every_rank():
    samplers = ranks_of(3, 40, 7, seed=9, generation=4)
    train(samplers, 8)
    states = [sampler.state_dict() for sampler in samplers]
    assert states[0] == states[1] == states[2] == json.loads(json.dumps(states[0]))
    assert states[0] == {
        "version": 1,
        "permutation": "feistel-splitmix64/1",
        "samples": 40,
        "global_batch": 7,
        "seed": 9,
        "last_batch": "keep",
        "virtual_ranks": None,
        "epoch": 1,
        "position": 14,
        "ledger": [[4, 3, 0, 54]],
    }
    assert (samplers[0].step, samplers[0].consumed) == (8, 54)


def test_the_ledger_has_what_each_generation_consumed(monkeypatch):
    state = None
    for world in (2, 3, 1):
        samplers = ranks_of(world, 40, 8, seed=1)
        for sampler in samplers:
            if state:
                sampler.load_state_dict(state)
        train(samplers, 4)
        state = samplers[0].state_dict()
    assert samplers[0].ledger.intervals == [(0, 2, 0, 32), (1, 3, 32, 64), (2, 1, 64, 96)]
    samplers[0].ledger.check(samplers[0].consumed)
    # The agent's generation is used where it goes on from the ledger's.
    for named, used in (("7", 7), ("2", 2), ("1", 3)):
        monkeypatch.setenv("RANKGUARD_GENERATION", named)
        later = Sampler(40, 8, seed=1, rank=0, world_size=1)
        later.load_state_dict(state)
        later.advance()
        assert later.ledger.intervals[-1][0] == used
    assert later.ledger.intervals[0] == (0, 2, 0, 32)


def test_a_state_of_another_run_is_refused_and_nothing_changes():
    options = {"rank": 0, "world_size": 1}
    state = Sampler(100, 10, seed=1, virtual_ranks=4, **options).state_dict()
    wrong = [
        ((101, 10), {"seed": 1, "virtual_ranks": 4}, r"saved with samples 100 and .* 101.*use the dataset of 100 samples"),
        ((100, 20), {"seed": 1, "virtual_ranks": 4}, r"global_batch 10 and .* 20.*make the sampler with global_batch=10"),
        ((100, 10), {"seed": 2, "virtual_ranks": 4}, r"seed 1 and .* 2.*make the sampler with seed=1"),
        ((100, 10), {"seed": 1}, r"virtual_ranks 4 and .* None.*sums would be in another order.*virtual_ranks=4"),
        ((100, 10), {"seed": 1, "virtual_ranks": 4, "last_batch": "drop"}, r"last_batch 'keep' and .* 'drop'.*'keep'"),
        ((100, 10), {"seed": 1, "virtual_ranks": 4, "shuffle": False}, r"saved with shuffle=True; make .* shuffle=True"),
    ]
    for args, others, message in wrong:
        sampler = Sampler(*args, **others, **options)
        sampler.advance()
        before = sampler.state_dict()
        with pytest.raises(ValueError, match=message):
            sampler.load_state_dict(state)
        assert sampler.state_dict() == before


def test_a_damaged_state_is_refused_by_what_is_wrong():
    sampler = Sampler(100, 10, rank=0, world_size=1)
    train([sampler], 3)
    state = sampler.state_dict()
    for change, message in [
        ({"version": 2}, r"version 2 and this package reads version 1; install the version"),
        ({"permutation": "feistel-splitmix64/9"}, r"no permutation 'feistel-splitmix64/9' .* install the version"),
        ({"position": -10}, r"damaged: position is -10"),
        ({"position": 100}, r"damaged: position is 100; it can be 0 to 99"),
        ({"position": 35}, r"damaged: position is 35; it can be a multiple of the global batch, 10"),
        ({"epoch": -1}, r"damaged: epoch is -1"),
        ({"epoch": 1.5}, r"damaged: epoch is 1.5"),
        ({"epoch": None}, r"damaged: epoch is None"),
        ({"ledger": [[0, 1, 0, 20]]}, r"damaged: .*no generation consumed the places 20 to 30"),
        ({"ledger": [[0, 1, 0, 20], [1, 1, 10, 30]]}, r"damaged: .*generations 0 and 1 both consumed the places 10 to 20"),
        ({"ledger": [[0, 1, 0, 40]]}, r"damaged: .*beyond the end, 30"),
        ({"ledger": None}, r"damaged: the ledger is no list"),
    ]:
        with pytest.raises(ValueError, match=message):
            sampler.load_state_dict({**state, **change})
        assert sampler.state_dict() == state
    for wrong in (None, {}, [1]):
        with pytest.raises(ValueError, match=r"pass what Sampler.state_dict\(\) returned"):
            sampler.load_state_dict(wrong)


def test_a_running_job_keeps_its_permutation(monkeypatch):
    """A package whose newest kind is another one goes on with the kind that a state names."""

    class Later(FeistelOrder):
        KIND = "feistel-splitmix64/2"

        def index(self, position):
            return self._samples - 1 - position

    sampler = Sampler(50, 10, seed=1, rank=0, world_size=1)
    train([sampler], 2)
    state = sampler.state_dict()
    follow = train([sampler], 2)
    monkeypatch.setitem(_permutation.KINDS, Later.KIND, Later)
    monkeypatch.setattr(_permutation, "SHUFFLED", Later.KIND)
    newer = Sampler(50, 10, seed=1, rank=0, world_size=1)
    assert newer.state_dict()["permutation"] == "feistel-splitmix64/2"
    newer.load_state_dict(state)
    assert train([newer], 2) == follow
    assert newer.state_dict()["permutation"] == "feistel-splitmix64/1"


def test_wrong_options_are_refused():
    for args, options, message in [
        ((0, 1), {}, "samples is 0; it can be at least 1"),
        (([], 1), {}, "samples is 0; it can be at least 1"),
        ((-5, 1), {}, "samples is -5"),
        ((2**62 + 1, 1), {}, "samples is"),
        ((10, 0), {}, "global_batch is 0; it can be at least 1"),
        ((10, 2), {"seed": -1}, "seed is -1"),
        ((10, 2), {"last_batch": "pad"}, "last_batch is 'pad'; it can be 'keep' or 'drop'"),
        ((10, 2), {"rank": 2, "world_size": 2}, "rank is 2; it can be 0 to 1"),
        ((10, 2), {"rank": 0, "world_size": 3}, "global_batch is 2 and world_size is 3.*at least 3 or use fewer ranks"),
        ((10, 2), {"virtual_ranks": 3}, "global_batch is 2 and virtual_ranks is 3"),
        (
            (10, 8),
            {"virtual_ranks": 3, "rank": 0, "world_size": 4},
            "virtual_ranks is 3 and world_size is 4.*largest world size",
        ),
        ((10, 12), {"last_batch": "drop"}, "samples is 10 and global_batch is 12.*'keep' or a smaller"),
    ]:
        with pytest.raises(ValueError, match=message):
            Sampler(*args, **{"rank": 0, "world_size": 1, **options})
    with pytest.raises(TypeError, match="rank without world_size"):
        Sampler(10, 2, rank=0)
    for wrong in (2.0, "2", True):
        with pytest.raises(TypeError, match="global_batch is"):
            Sampler(10, wrong)


def test_steps_that_no_loader_read_cannot_be_reported():
    sampler = Sampler(20, 5, rank=0, world_size=1)
    loader = iter(sampler)
    with pytest.raises(RankguardError, match="cannot advance beyond step 0: the loader has not read the 1 batch"):
        sampler.advance()
    next(loader)
    sampler.advance()
    with pytest.raises(RankguardError, match="cannot advance beyond step 1"):
        sampler.advance()
    sampler = Sampler(20, 5, virtual_ranks=4, rank=0, world_size=2)
    loader = iter(sampler)
    next(loader)
    with pytest.raises(RankguardError, match="has not read the 2 batches of the next one"):
        sampler.advance()
    next(loader)
    sampler.advance()


def test_an_epoch_without_a_reported_step_is_refused():
    sampler = Sampler(20, 5, rank=0, world_size=1)
    assert len(list(sampler)) == 4
    with pytest.raises(RankguardError, match=r"read 4 steps to the end of epoch 0 and advance\(\) reported none"):
        next(iter(sampler))
    # One that was left early may be begun again, at the reported place.
    sampler = Sampler(20, 5, shuffle=False, rank=0, world_size=1)
    next(iter(sampler))
    loader = iter(sampler)
    assert next(loader) == [0, 1, 2, 3, 4]
    sampler.advance()
    assert next(iter(sampler)) == [5, 6, 7, 8, 9]


def test_an_iteration_ends_with_a_restore_and_with_another_iteration():
    sampler = Sampler(20, 5, rank=0, world_size=1)
    older = iter(sampler)
    next(older)
    newer = iter(sampler)
    with pytest.raises(RankguardError, match="restore first and then begin"):
        next(older)
    sampler.load_state_dict(sampler.state_dict())
    with pytest.raises(RankguardError, match="the sampler was restored"):
        next(newer)


def test_loops_that_begin_at_another_epoch_are_refused():
    sampler = Sampler(20, 10, rank=0, world_size=1)
    sampler.set_epoch(0)
    train([sampler], 3)
    sampler.set_epoch(1)
    with pytest.raises(RankguardError, match=r"cannot set epoch 0: .* position 10 of epoch 1; begin the loop at sampler.epoch"):
        sampler.set_epoch(0)


def test_one_share_is_refused_where_there_are_several():
    sampler = Sampler(20, 10, virtual_ranks=4, rank=0, world_size=2)
    with pytest.raises(
        RankguardError, match=r"a step has 2 batches on each rank \(virtual_ranks=4, world_size=2\); use shares"
    ):
        _ = sampler.share


def test_rank_and_world_size_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = Sampler(30, 6)
    assert (sampler.rank, sampler.world_size) == (1, 3)
    assert sampler.indices(sampler.share) == next(iter(sampler))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        RankguardError, match=r"cannot iterate as rank 1 of 3: this process is rank 1 of 2 now; make the sampler"
    ):
        next(iter(sampler))


def test_a_checkpoint_of_three_ranks_is_gone_on_with_by_two(tmp_path):
    """Through the real store: the sampler is an entry of the state on every rank."""
    for world, steps, generation in ((3, 7, 1), (2, 6, 2), (4, 5, 3)):
        samplers = ranks_of(world, 61, 6, seed=8)
        sessions = [
            rankguard.connect(tmp_path, job="test", rank=rank, world_size=world, generation=generation, commit_within_s=120)
            for rank in range(world)
        ]
        if generation > 1:
            for session, sampler in zip(sessions, samplers):
                restored = session.restore({"sampler": sampler})
                assert restored.differing == restored.kept == []
        before = samplers[0].consumed
        consumed = train(samplers, steps)
        assert consumed == expected_stream(61, 6, "keep", True, 8, before + len(consumed))[before:]
        for session, sampler in zip(sessions, samplers):
            session.checkpoint({"sampler": sampler}, step=sampler.step)
        for session in sessions:
            session.done()
    assert samplers[0].step == 18
    assert [interval[:2] for interval in samplers[0].ledger.intervals] == [(0, 3), (1, 2), (2, 4)]
    samplers[0].ledger.check(samplers[0].consumed)


def test_neither_torch_nor_numpy_is_imported():
    program = (
        "import sys, rankguard\n"
        "sampler = rankguard.Sampler(10**12, 64, rank=0, world_size=2)\n"
        "next(iter(sampler)); sampler.advance(); sampler.load_state_dict(sampler.state_dict())\n"
        "assert not {'torch', 'numpy', 'torchdata'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
