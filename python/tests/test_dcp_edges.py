"""Distributed checkpoints of PyTorch: steps that nobody named, and stores without a checkpoint."""

import pytest

import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed.checkpoint as dcp  # noqa: E402

import rankguard.dcp  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def save(session, step=None, save=dcp.save, **options):
    writer = rankguard.dcp.StorageWriter(step, session=session)
    done = save({"w": torch.ones(3)}, storage_writer=writer, **options)
    return done.result() if hasattr(done, "result") else done


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("group") / "rendezvous"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("how", [dcp.save, dcp.async_save], ids=["save", "async_save"])
def test_a_save_without_a_known_step_says_how_to_name_it(session, group, how):
    with pytest.raises(BaseException, match=r"its step is unknown; pass StorageWriter\(step=n\)"):
        save(session, save=how)
    session.step(4)
    save(session, save=how)
    assert session.newest() == 4


def test_a_staged_step_that_is_not_of_the_id_is_refused(session, group):
    session.step(4)
    with pytest.raises(BaseException, match=r"step 4 was staged.*StorageWriter\(step=9\)"):
        save(session, save=dcp.async_save, checkpoint_id="run/step-9")
    save(session, 9, save=dcp.async_save, checkpoint_id="run/step-9")
    save(session, 10, save=dcp.async_save, checkpoint_id="run/step-7")
    assert session.newest() == 10


def test_a_load_from_an_empty_store_names_it(session, group, tmp_path):
    reader = rankguard.dcp.StorageReader(session=session)
    with pytest.raises(
        BaseException, match=r"no checkpoint to load: .*store has no checkpoint of the job 'test'; save one first"
    ):
        dcp.load({"w": torch.zeros(3)}, storage_reader=reader)


@pytest.mark.parametrize("step", [5.7, -1, True, "3"], ids=repr)
def test_a_step_out_of_range_is_named(session, step):
    for kind in (rankguard.dcp.StorageWriter, rankguard.dcp.StorageReader):
        with pytest.raises((TypeError, ValueError), match="step is"):
            kind(step, session=session)
