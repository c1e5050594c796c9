"""The adapters with the real frameworks, one process, CPU. Kills and several ranks: test_torch_jobs.py."""

import json
import os

import pytest

import rankguard

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from ranks import spawn  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def bits(module):
    return [weight.detach().clone().reshape(-1).view(torch.uint8) for weight in module.state_dict().values()]


def same(one, two):
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two))


def data(samples=32):
    source = torch.Generator().manual_seed(5)
    inputs = torch.randn(samples, 6, generator=source)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def layers():
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 1))


class TestLightning:
    """Trainer and Fabric."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("lightning.pytorch")

    @staticmethod
    def module():
        from lightning.pytorch import LightningModule, seed_everything

        class Module(LightningModule):
            def __init__(self):
                super().__init__()
                self.layers = layers()

            def training_step(self, batch, batch_idx):
                inputs, targets = batch
                return nn.functional.mse_loss(self.layers(inputs), targets)

            def configure_optimizers(self):
                optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
                return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3])]

        seed_everything(3, verbose=False)
        return Module()

    @staticmethod
    def trainer(session, epochs, folder, **options):
        from lightning.pytorch import Trainer

        import rankguard.lightning as rgl

        plugin = rgl.CheckpointIO(session)
        options.setdefault("enable_checkpointing", False)
        callbacks = [rgl.Callback(session=session, path=folder / "due.ckpt"), *options.pop("callbacks", [])]
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        return plugin, Trainer(
            accelerator="cpu", devices=1, max_epochs=epochs, plugins=[plugin], callbacks=callbacks, **quiet, **options
        )

    def test_a_run_goes_on_at_an_epochs_end_with_shuffle_dropout_and_schedule_to_the_last_bit(self, tmp_path):
        loader = lambda: DataLoader(data(), batch_size=8, shuffle=True)  # noqa: E731
        whole = self.module()
        session = rankguard.connect(tmp_path / "unused", job="a", rank=0, world_size=1)
        self.trainer(session, 4, tmp_path)[1].fit(whole, loader())
        session.done()

        session = rankguard.connect(tmp_path / "store", job="a", rank=0, world_size=1, checkpoint_every=4)
        plugin, trainer = self.trainer(session, 2, tmp_path)
        assert plugin.newest() is None
        first = self.module()
        trainer.fit(first, loader())
        session.wait()
        assert not same(bits(first), bits(whole))

        second = self.module()
        torch.manual_seed(99)
        plugin, trainer = self.trainer(session, 4, tmp_path)
        assert plugin.newest() == "rankguard:8"
        trainer.fit(second, loader(), ckpt_path=plugin.newest())
        session.done()
        assert trainer.global_step == 16
        assert same(bits(second), bits(whole))

    def test_its_model_checkpoint_keeps_notes_that_load(self, tmp_path, session):
        from lightning.pytorch.callbacks import ModelCheckpoint

        keeper = ModelCheckpoint(tmp_path / "notes", save_top_k=2, monitor="step", mode="max", save_last=True)
        model = self.module()
        _, trainer = self.trainer(session, 3, tmp_path, callbacks=[keeper], enable_checkpointing=True)
        trainer.fit(model, DataLoader(data(), batch_size=8))
        session.wait()
        notes = sorted(path.name for path in (tmp_path / "notes").iterdir())
        assert notes == ["epoch=1-step=8.ckpt", "epoch=2-step=12.ckpt", "last.ckpt"]
        assert json.loads((tmp_path / "notes" / notes[1]).read_text()) == {"rankguard": {"step": 12}}
        other = self.module()
        plugin, trainer = self.trainer(session, 3, tmp_path)
        loaded = plugin.load_checkpoint(tmp_path / "notes" / notes[1])
        other.load_state_dict(loaded["state_dict"])
        assert same(bits(other), bits(model)) and loaded["global_step"] == 12
        plugin.remove_checkpoint(tmp_path / "notes" / notes[1])
        plugin.remove_checkpoint(tmp_path / "notes" / notes[1])
        assert plugin.newest() == "rankguard:12"

    def test_files_of_others_and_steps_that_are_gone_are_refused(self, tmp_path, session):
        plugin, _ = self.trainer(session, 1, tmp_path)
        torch.save({"state_dict": {}}, tmp_path / "theirs.ckpt")
        with pytest.raises(ValueError, match=r"theirs.ckpt: this is no note of rankguard"):
            plugin.load_checkpoint(tmp_path / "theirs.ckpt")
        (tmp_path / "gone.ckpt").write_text('{"rankguard": {"step": 3}}')
        with pytest.raises(rankguard.RankguardError, match=r"step 3"):
            plugin.load_checkpoint(tmp_path / "gone.ckpt")
        with pytest.raises(TypeError, match="storage_options"):
            plugin.save_checkpoint({"global_step": 1}, tmp_path / "x.ckpt", storage_options={})

    def test_one_of_several_ranks_alone_is_refused_with_what_to_do(self, tmp_path, session, monkeypatch):
        plugin, _ = self.trainer(session, 1, tmp_path)
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(rankguard.RankguardError, match=r"first of 2 ranks.*DDPStrategy"):
            plugin.save_checkpoint({"global_step": 1}, tmp_path / "x.ckpt")

    def test_fabric_saves_and_loads_with_the_same_plugin(self, tmp_path, session):
        from lightning.fabric import Fabric

        import rankguard.lightning as rgl

        fabric = Fabric(accelerator="cpu", devices=1, plugins=[rgl.CheckpointIO(session)])
        model = layers()
        model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
        fabric.backward(model(torch.ones(2, 6)).sum())
        optimizer.step()
        fabric.save(tmp_path / "step-5.ckpt", {"model": model, "optimizer": optimizer, "epoch": 2})
        session.wait()
        other = layers()
        other, moments = fabric.setup(other, torch.optim.AdamW(other.parameters()))
        rest = fabric.load(tmp_path / "step-5.ckpt", {"model": other, "optimizer": moments})
        assert rest == {"epoch": 2} and session.newest() == 5
        assert same(bits(other), bits(model))
        one, two = optimizer.state_dict()["state"][0], moments.state_dict()["state"][0]
        assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)

    def test_fabric_with_several_ranks_has_an_image_of_each(self, tmp_path):
        spawn(fabric_rank, 2, str(tmp_path))


def fabric_rank(rank, ranks, folder):
    from lightning.fabric import Fabric

    import rankguard.lightning as rgl

    os.environ.update(LOCAL_RANK=str(rank), GROUP_RANK="0", TORCHELASTIC_RUN_ID="test")
    session = rankguard.connect(folder, job="test")
    plugin = rgl.CheckpointIO(session)
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy=rgl.FabricDDPStrategy(), plugins=[plugin])
    fabric.launch()
    torch.manual_seed(4)
    model = layers()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    fabric.backward(model(torch.full((2, 6), float(rank))).sum())
    optimizer.step()
    fabric.save(f"{folder}/notes/step-3.ckpt", {"model": model, "optimizer": optimizer, "rank": rank})
    session.wait()
    fabric.barrier()
    want, rest = bits(model), {"model": model, "rank": None}
    for weight in model.parameters():
        weight.data.zero_()
    fabric.load(f"{folder}/notes/step-3.ckpt", rest, strict=False)
    assert rest["rank"] == rank and same(bits(model), want)
    session.done()


class TestAccelerate:
    """Accelerator."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("accelerate")

    @staticmethod
    def prepared():
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration

        loaders = DataLoaderConfiguration(use_seedable_sampler=True)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dataloader_config=loaders)
        torch.manual_seed(3)
        model, critic = layers(), nn.Linear(6, 1)
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2), torch.optim.SGD(critic.parameters(), momentum=0.9)]
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], 50)
        loader = DataLoader(data(), batch_size=4, shuffle=True)
        return accelerator, accelerator.prepare(model, critic, *optimizers, schedule, loader)

    @staticmethod
    def train(accelerator, prepared, epoch):
        model, critic, optimizer, second, schedule, loader = prepared
        loader.set_epoch(epoch)
        for inputs, targets in loader:
            with accelerator.accumulate(model, critic):
                accelerator.backward(nn.functional.mse_loss(model(inputs) + critic(inputs), targets))
                optimizer.step()
                second.step()
                schedule.step()
                optimizer.zero_grad()
                second.zero_grad()

    def test_two_models_two_optimizers_and_a_schedule_go_on_to_the_last_bit(self, session):
        import rankguard.accelerate as rga

        accelerator, prepared = self.prepared()
        assert rga.restore(accelerator, session=session) is None
        # No step was made to find the moments.
        assert not any(optimizer.state for optimizer in prepared[2:4])
        self.train(accelerator, prepared, 0)
        rga.checkpoint(accelerator, step=4, session=session)
        session.wait()
        self.train(accelerator, prepared, 1)

        again, other = self.prepared()
        torch.manual_seed(77)
        restored = rga.restore(again, session=session)
        assert (restored.step, restored.world_size) == (4, 1)
        self.train(again, other, 1)
        for one, two in zip(prepared[:2], other[:2]):
            assert same(bits(one), bits(two))
        assert prepared[4].state_dict() == other[4].state_dict()

    @pytest.mark.parametrize("kind", ["DEEPSPEED", "MEGATRON_LM"])
    def test_who_keeps_the_state_itself_is_refused_by_name(self, session, kind):
        from types import SimpleNamespace

        import rankguard.accelerate as rga

        accelerator = SimpleNamespace(distributed_type=f"DistributedType.{kind}")
        for call in (rga.checkpoint, rga.restore):
            with pytest.raises(ValueError, match=rf"does not serve DistributedType\.{kind}, which keeps the state itself"):
                call(accelerator, session=session)


class TestTransformers:
    """Trainer."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("transformers")

    @staticmethod
    def trainer(session, folder, **options):
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

        import rankguard.transformers as rgt

        set_seed(7)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2))
        texts = torch.randint(0, 32, (24, 8), generator=torch.Generator().manual_seed(1))
        options.setdefault("save_strategy", "no")
        settings = TrainingArguments(
            output_dir=str(folder),
            max_steps=12,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=options.pop("gather", 1),
            logging_steps=options.pop("logging_steps", 5),
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            **options,
        )
        callback = rgt.Callback(session)
        rows = [{"input_ids": text, "labels": text} for text in texts]
        return callback, Trainer(model=model, args=settings, train_dataset=rows, callbacks=[callback])

    @pytest.mark.parametrize(("every", "gather"), [(6, 1), (4, 1), (5, 2)], ids=["epochs-end", "within-epoch", "gathered"])
    def test_a_run_goes_on_to_the_last_bit(self, tmp_path, every, gather):
        session = rankguard.connect(tmp_path / "unused", job="a", rank=0, world_size=1)
        callback, trainer = self.trainer(session, tmp_path, gather=gather)
        assert callback.resume() is None
        trainer.train()
        whole = bits(trainer.model)
        session.done()

        session = rankguard.connect(tmp_path / "store", job="a", rank=0, world_size=1, checkpoint_every=every)
        callback, trainer = self.trainer(session, tmp_path, gather=gather)
        stop = _StopAfter(every + 1)
        trainer.add_callback(stop)
        trainer.train()
        session.wait()

        callback, trainer = self.trainer(session, tmp_path, gather=gather)
        resume = callback.resume()
        trainer.train(resume_from_checkpoint=resume)
        assert trainer.state.global_step == 12 and not os.path.exists(resume)
        assert same(bits(trainer.model), whole)
        session.done()

    def test_a_checkpoint_of_the_trainers_own_is_sealed_too_and_losses_are_told(self, tmp_path, session, monkeypatch):
        told = []
        monkeypatch.setattr(session, "step", lambda n, loss=None, grad_norm=None: told.append((n, loss is not None)))
        _, trainer = self.trainer(session, tmp_path, save_strategy="steps", save_steps=6)
        trainer.train()
        session.wait()
        assert session.counts()["sealed"] == 2 and session.newest() == 12
        assert told == [(n, n % 5 == 0) for n in range(1, 13)]

    @pytest.mark.parametrize("option", ["fsdp", "deepspeed"])
    def test_those_that_load_files_of_their_own_are_refused(self, session, option):
        from types import SimpleNamespace

        import rankguard.transformers as rgt

        args = SimpleNamespace(**{"fsdp": [], "deepspeed": None, option: "on"})
        with pytest.raises(ValueError, match="does not serve FSDP and DeepSpeed"):
            rgt.Callback(session).on_train_begin(args, None, None)


class _StopAfter:
    """Made a callback of transformers when that is there: ends the training after so many steps."""

    def __new__(cls, steps):
        from transformers import TrainerCallback

        class Stop(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                control.should_training_stop = state.global_step >= steps

        return Stop()
