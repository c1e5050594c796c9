"""Lightning: Trainer and Fabric save and load through Rankguard.

    import rankguard.lightning as rgl

    rankguard.init()
    io = rgl.CheckpointIO()
    trainer = Trainer(plugins=[io], callbacks=[rgl.Callback()], strategy=rgl.DDPStrategy(), enable_checkpointing=False)
    trainer.fit(model, loader, ckpt_path=io.newest())
    rankguard.done()

:class:`CheckpointIO` is the plugin for Trainer and Fabric alike. What it leaves at a checkpoint's path is a note of a few
bytes that names the step; the state itself is in the session's store, whose retention also decides how long it stays:
removing a path removes the note. A save returns when the image is sealed, so nothing like Lightning's own
``AsyncCheckpointIO`` is wanted around it. :class:`Callback` tells each step with its loss, saves when the job wants a
checkpoint, and brings random numbers back. With several ranks Lightning calls a plugin on the first alone, which would leave
an image that nobody can commit: :class:`DDPStrategy` (Trainer) and :class:`FabricDDPStrategy` call it on all.

Equal bit by bit to an undisturbed run from three ranks on: ``DDPStrategy(find_unused_parameters=True)``.

Restored: all that Lightning puts into a checkpoint, and with the callback the random numbers of each rank. The place within
an epoch is Lightning's matter: it comes back where the loader has ``state_dict`` and ``load_state_dict``, else use an image
of an epoch's end. Absent: Lightning's FSDP and model-parallel strategies, which write files of their own past every plugin.
Without an agent and with several ranks, call ``torch.distributed.init_process_group`` before ``rankguard.init``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Optional, Union

from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO as _CheckpointIO
from lightning.fabric.strategies.ddp import DDPStrategy as _FabricDDPStrategy
from lightning.fabric.utilities.cloud_io import get_filesystem
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback as _Callback
from lightning.pytorch.strategies.ddp import DDPStrategy as _DDPStrategy

from . import _random, _session
from ._tree import PerRank

_Path = Union[str, Path]

#: What :meth:`CheckpointIO.newest` gives in place of a path, before the step.
_NEWEST = "rankguard:"


class CheckpointIO(_CheckpointIO):
    """Saves into the session's store and loads from it. Takes the session of the process unless it is given one."""

    def __init__(self, session: Optional[_session.Session] = None) -> None:
        self._session = session
        self._sealed: Optional[int] = None
        #: Whether the strategy calls on every rank; ours do.
        self.on_every_rank = False

    def newest(self) -> Optional[str]:
        """For ``ckpt_path``: what a restart goes on from. ``None`` for a fresh start."""
        step = self._given().newest()
        return None if step is None else f"{_NEWEST}{step}"

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _Path, storage_options: Optional[Any] = None) -> None:
        """Seals an image of the step that the checkpoint is of, once, and leaves a note at ``path``."""
        if storage_options is not None:
            raise TypeError("storage_options: the session's store takes none")
        session = self._given()
        rank, world_size = _session.place()
        if world_size > 1 and not self.on_every_rank:
            raise _session.RankguardError(
                f"only the first of {world_size} ranks was asked to save, and a checkpoint wants an image of each: use "
                "strategy=rankguard.lightning.DDPStrategy() (for Fabric: FabricDDPStrategy)"
            )
        step = self._step_of(checkpoint, path)
        if step != self._sealed:
            if not session.checkpoint(checkpoint, step).sealed:
                return
            self._sealed = step
        if rank == 0:
            files = get_filesystem(path)
            files.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
            with files.open(os.fspath(path), "w") as file:
                json.dump({"rankguard": {"step": step}}, file)

    def load_checkpoint(
        self, path: _Path, map_location: Optional[Any] = None, weights_only: Optional[bool] = None
    ) -> dict[str, Any]:
        """The state that was saved, on the CPU. Nothing is unpickled, whatever ``weights_only`` says."""
        session, step = self._given(), self._named(path)
        if session.under_agent:
            chosen = session.newest()
            if chosen != step:
                raise _session.RankguardError(f"{path}: under an agent the controller chooses, here step {chosen}, not {step}")
        loaded = session.load(None if session.under_agent else step, replicate=True)
        if loaded is None:
            raise FileNotFoundError(f"{path}: nothing is committed")
        # Another save of this step would be the same.
        self._sealed = step
        return dict(loaded.state)

    def remove_checkpoint(self, path: _Path) -> None:
        """Removes the note. The store's retention removes the state."""
        files = get_filesystem(path)
        if files.exists(os.fspath(path)):
            files.rm(os.fspath(path))

    def _given(self) -> _session.Session:
        return _session.given(self._session)

    def _step_of(self, checkpoint: dict[str, Any], path: _Path) -> int:
        """Trainer tells it; for Fabric it is the number at the end of the path, else the step that was told last."""
        told = checkpoint.get("global_step")
        if type(told) is int:
            return told
        number = re.search(r"(\d+)(\.[A-Za-z]+)?/*$", os.fspath(path))
        return int(number.group(1)) if number else self._given().last_step

    def _named(self, path: _Path) -> int:
        text = os.fspath(path)
        if text.startswith(_NEWEST):
            return int(text[len(_NEWEST) :])
        with get_filesystem(path).open(text, "r") as file:
            try:
                return int(json.loads(file.read(4096))["rankguard"]["step"])
            except (ValueError, KeyError, TypeError) as problem:
                raise ValueError(f"{text}: this is no note of rankguard; load it with the plugin that wrote it") from problem


class Callback(_Callback):
    """Tells the steps of a Trainer, saves when one is due, and restores the random numbers of this rank.

    ``loss`` (a key of what ``training_step`` gave) is told with each step; reading it from a device waits for the device, and
    ``None`` leaves it away. ``path`` is where the notes of due checkpoints go: one, replaced each time.
    """

    def __init__(
        self, loss: Optional[str] = "loss", path: Optional[_Path] = None, session: Optional[_session.Session] = None
    ) -> None:
        self._loss, self._path, self._session = loss, path, session
        self._told = 0
        self._random: Optional[dict[str, Any]] = None
        self._within_epoch = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == self._told:
            # Gradients are being gathered still.
            return
        self._told = step
        given = outputs.get(self._loss) if isinstance(outputs, dict) else outputs
        session = _session.given(self._session)
        session.step(step, loss=given if self._loss is not None else None)
        if session.due(step):
            trainer.save_checkpoint(self._path or os.path.join(trainer.default_root_dir, "rankguard.ckpt"), False)

    def state_dict(self) -> dict[str, Any]:
        return {"random": PerRank({"states": _random.states(), "within_epoch": self._within_epoch})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["random"]
        if saved is not None:
            self._random, self._within_epoch = saved["states"], saved["within_epoch"]

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["callbacks"][self.state_key]["random"]
        state.value["within_epoch"] = not trainer.is_last_batch

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._told = trainer.global_step

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Before the loader begins an epoch: its order is drawn from these.
        if self._random is not None:
            _random.restore(self._random)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # The loader of an epoch that goes on drew already, in the run that saved.
        if self._random is not None and self._within_epoch:
            _random.restore(self._random)
        self._random = None


class DDPStrategy(_DDPStrategy):
    """Trainer's DDP, with the plugin called on every rank."""

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: _Path, storage_options: Optional[Any] = None) -> None:
        _ours(self.checkpoint_io).save_checkpoint(checkpoint, filepath, storage_options=storage_options)


class FabricDDPStrategy(_FabricDDPStrategy):
    """Fabric's DDP, with the plugin called on every rank."""

    def save_checkpoint(
        self,
        path: _Path,
        state: dict[str, Any],
        storage_options: Optional[Any] = None,
        filter: Optional[dict[str, Any]] = None,
    ) -> None:
        plain = self._convert_stateful_objects_in_state(state, filter=filter or {})
        _ours(self.checkpoint_io).save_checkpoint(plain, path, storage_options=storage_options)


def _ours(plugin: Any) -> CheckpointIO:
    if not isinstance(plugin, CheckpointIO):
        raise TypeError(f"this strategy wants plugins=[rankguard.lightning.CheckpointIO()], not a {type(plugin).__name__}")
    plugin.on_every_rank = True
    return plugin
