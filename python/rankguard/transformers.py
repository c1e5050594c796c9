"""The Trainer of Hugging Face transformers: saves through Rankguard and resumes where the job was.

    import rankguard.transformers as rgt

    rankguard.init()
    callback = rgt.Callback()
    trainer = Trainer(model, TrainingArguments(..., save_strategy="no"), train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume())
    rankguard.done()

The callback tells each step, with its loss where the Trainer logs it, and seals an image when the job wants one, and whenever
the Trainer has written a checkpoint of its own (none with ``save_strategy="no"``).

A callback alone cannot resume: the Trainer works out epoch and batch from ``trainer_state.json`` before any callback is asked.
So :meth:`Callback.resume` gives it a folder that has this file and no weights, which is gone once training begins; then the
callback restores model, optimizer and schedule in place. The Trainer warns that the model's keys are missing from that
folder, a moment before they come.

Restored: weights, moments, schedule, the Trainer's state, the random numbers of each rank, and by the Trainer the place in the
data. Not restored: the scale of fp16 (bf16 has none), the log entry of the very step that was saved, and what a collator drew
for the first batch of a run that goes on within an epoch. Absent: FSDP and DeepSpeed under the Trainer, which load files
of their own; they are refused.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from typing import Any, Optional

import safetensors.torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from . import _random, _session
from ._modules import ModuleState
from ._optimizer import OptimizerState
from ._tree import PerRank


class Callback(TrainerCallback):
    """One for one Trainer. Takes the session of the process unless it is given one."""

    def __init__(self, session: Optional[_session.Session] = None) -> None:
        self._session = session
        self._folder: Optional[str] = None
        self._sealed: Optional[int] = None
        self._random: Optional[dict[str, Any]] = None
        self._objects: dict[str, Any] = {}

    def resume(self) -> Optional[str]:
        """For ``trainer.train(resume_from_checkpoint=...)``; ``None`` for a fresh start. To be called on every rank."""
        state: dict[str, Any] = {"trainer": {}}
        if self._given().restore(state, strict=False, replicate=True) is None:
            return None
        self._folder = tempfile.mkdtemp(prefix="rankguard-resume-")
        TrainerState(**state["trainer"]).save_to_json(os.path.join(self._folder, "trainer_state.json"))
        safetensors.torch.save_file({}, os.path.join(self._folder, "model.safetensors"), metadata={"format": "pt"})
        return self._folder

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.fsdp or args.deepspeed:
            raise ValueError("rankguard.transformers does not serve FSDP and DeepSpeed; save with rankguard.dcp instead")
        self._objects = {name: kwargs[name] for name in ("model", "optimizer", "lr_scheduler")}
        if self._folder is None:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        live = self._state(state)
        restored = self._given().restore(live, replicate=True)
        if restored is None or restored.step != state.global_step:
            raise _session.RankguardError(f"the Trainer resumes step {state.global_step} and the store gave {restored}")
        self._sealed = restored.step
        if not restored.kept:
            self._random = live["random"].value

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # Before the loader begins an epoch: its order may be drawn from these.
        if self._random is not None:
            _random.restore(self._random)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # The loader of an epoch that goes on drew already, in the run that saved.
        if self._random is not None and not float(state.epoch or 0).is_integer():
            _random.restore(self._random)
        self._random = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # The Trainer logs this step right after this, and on_log has the loss.
        if not control.should_log:
            self._given().step(state.global_step)
        if self._given().due(state.global_step):
            self._save(state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        told = logs or {}
        if "loss" in told:
            self._given().step(state.global_step, loss=told["loss"], grad_norm=told.get("grad_norm"))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._save(state)

    def _save(self, state: TrainerState) -> None:
        if state.global_step != self._sealed and self._given().checkpoint(self._state(state), state.global_step).sealed:
            self._sealed = state.global_step

    def _state(self, state: TrainerState) -> dict[str, Any]:
        model = ModuleState(self._objects["model"])
        return {
            "model": model,
            "optimizer": OptimizerState(model, [self._bare_optimizer()]),
            "schedule": self._objects["lr_scheduler"],
            "trainer": dataclasses.asdict(state),
            "random": PerRank(_random.states()),
        }

    def _bare_optimizer(self) -> Any:
        """Without Accelerate's wrapper, which does not step when gradients are being gathered."""
        optimizer = self._objects["optimizer"]
        return getattr(optimizer, "optimizer", optimizer)

    def _given(self) -> _session.Session:
        return _session.given(self._session)
