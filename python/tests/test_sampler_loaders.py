"""The sampler in loaders: torch's DataLoader and torchdata's StatefulDataLoader, with and without workers that read ahead."""

import importlib.util
import warnings

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import rankguard  # noqa: E402
from rankguard import RankguardError, Sampler  # noqa: E402

stateful = None
if importlib.util.find_spec("torchdata") is not None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    stateful = StatefulDataLoader

WITH_TORCHDATA = pytest.mark.skipif(stateful is None, reason="torchdata is not installed (python/tests/torch_env.sh)")
LOADERS = pytest.mark.parametrize("kind", [DataLoader, pytest.param(stateful, marks=WITH_TORCHDATA)])
WORKERS = pytest.mark.parametrize("workers", [0, 2])
SAMPLES, BATCH = 50, 8


class Numbers(Dataset):
    """Each sample is its own index."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index


def loader_of(kind, sampler, workers, **options):
    return kind(Numbers(), batch_sampler=sampler, num_workers=workers, **options)


def sampler_of(rank=0, world=1, **options):
    return Sampler(SAMPLES, BATCH, seed=5, rank=rank, world_size=world, **options)


def order_of(steps):
    """The reference: what one rank consumes in so many steps."""
    sampler, found = sampler_of(), []
    for _ in range(steps):
        found += sampler.indices(sampler.share)
        sampler.advance()
    return found


def consume(sampler, loader, steps):
    """So many steps of this rank, over the ends of epochs; each step's batch."""
    found = []
    while len(found) < steps:
        for batch in loader:
            share = sampler.share
            found.append(batch.tolist()[: share.size])
            sampler.advance()
            if len(found) == steps:
                break
    return found


def merged(parts):
    """The global order of the batches of all ranks."""
    return [index for step in zip(*parts) for batch in step for index in batch]


@LOADERS
@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_of_one_rank(kind, workers, persistent):
    sampler = sampler_of()
    loader = loader_of(kind, sampler, workers, persistent_workers=persistent and workers > 0)
    assert len(loader) == 7
    found = consume(sampler, loader, 14)
    assert merged([found]) == order_of(14)
    assert (sampler.epoch, sampler.position) == (2, 0)


@LOADERS
@WORKERS
def test_a_sequence_of_world_sizes_with_states_of_the_sampler(kind, workers):
    """The state has what was reported, not what workers read ahead; also at the end of an epoch."""
    state, found = None, []
    for world, steps in ((2, 3), (1, 4), (3, 2), (2, 5)):
        samplers = [sampler_of(rank, world) for rank in range(world)]
        parts = []
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(state)
            parts.append(consume(sampler, loader_of(kind, sampler, workers), steps))
        found += merged(parts)
        state = samplers[0].state_dict()
        assert all(sampler.state_dict() == state for sampler in samplers)
        assert len(found) == samplers[0].consumed
    assert found == order_of(14)


@WITH_TORCHDATA
@WORKERS
@pytest.mark.parametrize("steps", [1, 4, 6, 7, 9])
def test_states_of_a_stateful_loader_go_on_at_another_world_size(workers, steps):
    """The loader's own state, which is that of the batch that it returned last."""
    parts, states = [], []
    for rank in range(2):
        sampler = sampler_of(rank, 2)
        loader = loader_of(stateful, sampler, workers)
        parts.append(consume(sampler, loader, steps))
        states.append(loader.state_dict())
    found = merged(parts)
    parts = []
    for rank in range(3):
        sampler = sampler_of(rank, 3)
        loader = loader_of(stateful, sampler, workers)
        loader.load_state_dict(states[rank % 2])
        parts.append(consume(sampler, loader, 12 - steps))
        assert sampler.step == 12
        sampler.ledger.check(sampler.consumed)
        assert [interval.world_size for interval in sampler.ledger.intervals] == [2, 3]
    assert found + merged(parts) == order_of(12)


@WITH_TORCHDATA
@WORKERS
def test_a_stateful_loader_after_its_sampler_was_restored(workers):
    """Both states are loaded, in either order of the calls: the loader applies its own when it begins to iterate."""
    sampler = sampler_of()
    loader = loader_of(stateful, sampler, workers)
    found = consume(sampler, loader, 3)
    saved, saved_loader = sampler.state_dict(), loader.state_dict()
    for order in (1, -1):
        again = sampler_of()
        loader = loader_of(stateful, again, workers)
        for load, state in [(again.load_state_dict, saved), (loader.load_state_dict, saved_loader)][::order]:
            load(state)
        assert merged([found]) + merged([consume(again, loader, 6)]) == order_of(9)
        assert again.ledger.intervals == [(0, 1, 0, 24), (1, 1, 24, again.consumed)]


@LOADERS
@WORKERS
def test_virtual_ranks_are_batches_of_their_own(kind, workers):
    """A step is several batches of the loader; saved between steps, gone on with by another number of ranks."""
    found = []
    state = None
    for world, steps in ((1, 4), (2, 3), (3, 4)):
        parts = {}
        for rank in range(world):
            sampler = sampler_of(rank, world, virtual_ranks=4)
            if state is not None:
                sampler.load_state_dict(state)
            begin, done = sampler.step, 0
            while done < steps:
                batches = iter(loader_of(kind, sampler, workers))
                for _ in range(min(steps - done, sampler.steps_per_epoch - sampler.position // BATCH)):
                    for share in sampler.shares:
                        batch = next(batches).tolist()
                        if share.size:
                            parts[begin + done, share.virtual_rank] = batch
                    sampler.advance()
                    done += 1
        state = sampler.state_dict()
        found += [index for key in sorted(parts) for index in parts[key]]
    assert found == order_of(11)


@WORKERS
def test_a_rankguard_state_restores_the_place(tmp_path, workers):
    """`rankguard.torch.state` with a sampler, saved by one rank and restored by two."""
    model = torch.nn.Linear(2, 2)
    session = rankguard.connect(tmp_path, job="test", rank=0, world_size=1)
    sampler = sampler_of()
    consumed = merged([consume(sampler, loader_of(DataLoader, sampler, workers), 9)])
    session.checkpoint(rankguard.torch.state(model, sampler=sampler), step=9)
    session.done()
    parts = []
    for rank in range(2):
        session = rankguard.connect(tmp_path, job="test", rank=rank, world_size=2, generation=7)
        sampler = sampler_of(rank, 2)
        assert session.restore(rankguard.torch.state(model, sampler=sampler)).step == 9
        session.done()
        assert (sampler.step, sampler.epoch, sampler.position) == (9, 1, 16)
        parts.append(consume(sampler, loader_of(DataLoader, sampler, workers), 5))
    assert consumed + merged(parts) == order_of(14)


# A StatefulDataLoader with workers needs ten seconds to end after an error.
@pytest.mark.parametrize(
    ("kind", "workers"), [(DataLoader, 0), (DataLoader, 2), pytest.param(stateful, 0, marks=WITH_TORCHDATA)]
)
def test_a_loop_without_advance_is_refused_after_an_epoch(kind, workers):
    sampler = sampler_of()
    loader = loader_of(kind, sampler, workers)
    assert len([*loader]) == 7
    with pytest.raises(RankguardError, match=r"read 7 steps to the end of epoch 0 and advance\(\) reported none of them"):
        next(iter(loader))


@LOADERS
@WORKERS
def test_a_loop_without_advance_is_warned_of_within_an_epoch(kind, workers):
    """Also where the loop reports, late: gradients of 16 batches may be accumulated."""
    for reports, expected in ((0, 1), (16, 0)):
        sampler = Sampler(800, BATCH, rank=0, world_size=1)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for nth, _ in enumerate(kind(range(800), batch_sampler=sampler, num_workers=workers), 1):
                if reports and nth % reports == 0:
                    for _ in range(reports):
                        sampler.advance()
                if nth == 40:
                    break
        # Other libraries warn here, too: JAX, once imported, of every fork of a loader's workers.
        texts = [str(warning.message) for warning in found if "advance()" in str(warning.message)]
        assert len(texts) == expected, texts
        assert all("from step 0 on and advance() reported none" in text for text in texts)


@LOADERS
def test_two_reports_of_one_step_are_refused(kind):
    sampler = sampler_of()
    next(iter(loader_of(kind, sampler, 0)))
    sampler.advance()
    with pytest.raises(RankguardError, match="cannot advance beyond step 1"):
        sampler.advance()


@LOADERS
def test_a_restore_after_the_loader_began_is_refused(kind):
    sampler = sampler_of()
    batches = iter(loader_of(kind, sampler, 0))
    next(batches)
    sampler.load_state_dict(sampler_of().state_dict())
    with pytest.raises(RankguardError, match="restore first and then begin"):
        next(batches)


@LOADERS
def test_a_sampler_in_the_place_of_indices_is_refused(kind):
    """With sampler= a loader would take its batches for indices, and a TensorDataset would accept them."""
    dataset = TensorDataset(torch.arange(SAMPLES))
    with pytest.raises(TypeError, match=r"passed as sampler=.*batch_sampler=sampler\) without batch_size"):
        next(iter(kind(dataset, sampler=sampler_of(), batch_size=2)))
    (batch,) = next(iter(kind(dataset, sampler=sampler_of(), batch_size=None)))
    assert batch.tolist() == order_of(1)


@LOADERS
def test_a_loader_that_returns_batches_out_of_order_is_refused(kind):
    with pytest.raises(TypeError, match="leave in_order at True"):
        next(iter(loader_of(kind, sampler_of(), 2, in_order=False)))


@WITH_TORCHDATA
def test_a_stateful_loader_that_repeats_batches_is_refused():
    with pytest.raises(TypeError, match="leave snapshot_every_n_steps at 1"):
        next(iter(loader_of(stateful, sampler_of(), 2, snapshot_every_n_steps=3)))


@WITH_TORCHDATA
def test_a_state_of_a_loader_within_a_step_is_refused():
    sampler = sampler_of(virtual_ranks=4)
    loader = loader_of(stateful, sampler, 0)
    next(iter(loader))
    again = loader_of(stateful, sampler_of(virtual_ranks=4), 0)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(RankguardError, match="saved after 1 of the batches of a step"):
        next(iter(again))


def test_accelerate_is_refused_where_it_distributes_again():
    pytest.importorskip("accelerate")
    from accelerate.data_loader import BatchSamplerShard

    shard = BatchSamplerShard(sampler_of(0, 2), num_processes=2, process_index=0)
    with pytest.raises(TypeError, match="Accelerate distributes the batches"):
        next(iter(shard))
