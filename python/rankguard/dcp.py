"""PyTorch's distributed checkpoints (DCP) over a rankguard store.

``dcp.save``, ``dcp.async_save`` and ``dcp.load`` as they are, with another mesh or world size on the way back::

    import torch.distributed.checkpoint as dcp
    import rankguard
    import rankguard.dcp

    rankguard.init()  # or init(local_dir=...), after init_process_group
    future = dcp.async_save(state, storage_writer=rankguard.dcp.StorageWriter(step=100))
    ...
    dcp.load(state, storage_reader=rankguard.dcp.StorageReader())

The writer is its own stager: ``async_save`` returns as soon as this rank's tensors are sealed, in one pass of copy and
digest into memory that is kept from save to save, and nothing is copied again. Non-tensor values are JSON, never pickle; a
value that is neither is refused with its key. ``checkpoint_id`` is only looked at for a number at its end (``.../step-100``),
where no step was given.

Under an agent a save is over when every rank's image is sealed: the agents write and the controller commits. With a local
store it is over when the checkpoint is committed. Absent: process-based ``async_save`` (the session cannot move to another
process), and ``use_collectives=False``.
"""

from __future__ import annotations

import io
import json
import os
import re
from typing import Any, Optional, Union

import torch
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import StorageReader as _StorageReader
from torch.distributed.checkpoint.storage import StorageWriter as _StorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _arguments, _arrays, _session, _tree

#: Name and version of what stands in a rank's state.
SCHEMA = "rankguard.dcp/1"

_PathLike = Union[str, "os.PathLike[str]"]


class StorageWriter(_StorageWriter, AsyncStager):
    """Saves into the session's store. May be used again for another step: set :attr:`step`."""

    def __init__(self, step: Optional[int] = None, session: Optional[_session.Session] = None) -> None:
        super().__init__()
        #: The step of the next save. ``None`` takes it from the end of the checkpoint's id (``dcp.save`` alone), else the last
        #: one that was reported; a save is refused where there is none.
        self.step = _arguments.check_optional("step", step)
        self._staged_step: Optional[int] = None
        #: Set by DCP for a save that has one, and used up by it.
        self._checkpoint_id: Optional[_PathLike] = None
        self._session = session
        self._staged: Optional[_Content] = None

    # What async_save asks of a stager.

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Nothing is left to wait for: :meth:`stage` seals."""
        return False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Seals this rank's part. The state is given back as it is; from here on nobody reads its tensors."""
        flat, paths = flatten_state_dict(state_dict)
        content = _Content(paths, self._given().staging)
        for fqn, value in flat.items():
            content.add(fqn, value)
        self._staged_step = self._seal(content, self.step)
        self._staged = content
        return state_dict

    def synchronize_staging(self) -> None:
        """Nothing is left to wait for."""

    def close(self) -> None:
        """The memory belongs to the session."""

    # What a save asks of a storage.

    def reset(self, checkpoint_id: Optional[_PathLike] = None) -> None:
        self._checkpoint_id = checkpoint_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_collectives", True) is False:
            raise ValueError("rankguard commits over all ranks; leave use_collectives at True")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        content, self._staged = self._staged, None
        checkpoint_id, self._checkpoint_id = self._checkpoint_id, None
        if content is None:
            content = _Content(plan.planner_data or {}, self._given().staging)
            for item in plan.items:
                content.add_item(item, planner)
            step = self.step if self.step is not None else _number_at_the_end(checkpoint_id)
            self._seal(content, step)
        else:
            self._check_id(checkpoint_id)
            content.covers(plan)
        session = self._given()
        if not session.under_agent:
            session.wait()
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(item.index, item.tensor_storage_size() or 0, None) for item in plan.items])
        return future

    def finish(self, metadata: meta.Metadata, results: list[list[WriteResult]]) -> None:
        """The commit is the store's, or the controller's, and DCP's own metadata can be told from the shards."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _PathLike) -> bool:
        return True

    def storage_meta(self) -> Optional[meta.StorageMeta]:
        return None

    def _given(self) -> _session.Session:
        return _session.given(self._session)

    def _check_id(self, checkpoint_id: Optional[_PathLike]) -> None:
        """Refuses an id that names another step than the one that was staged: the stager does not get the id."""
        named = _number_at_the_end(checkpoint_id)
        if self.step is None and named is not None and named != self._staged_step:
            raise ValueError(
                f"cannot save {checkpoint_id!s}: step {self._staged_step} was staged, the last one that was reported; pass "
                f"StorageWriter(step={named}), since async_save stages before the id is known"
            )

    def _seal(self, content: _Content, step: Optional[int]) -> int:
        session = self._given()
        if step is None and not session.has_step:
            raise _session.RankguardError(
                "cannot save a checkpoint: its step is unknown; pass StorageWriter(step=n), call rankguard.step(n) after each "
                "step, or with dcp.save pass a checkpoint_id that ends with the step"
            )
        step = session.last_step if step is None else _arguments.check_integer("step", step)
        saved = session.save_boxes(content.boxes, content.text(), SCHEMA, step)
        if not saved.sealed and not session.without_store:
            raise _session.RankguardError("no memory is free for this image: earlier ones are not durable yet")
        return step


class StorageReader(_StorageReader):
    """Loads from the session's store: the newest checkpoint or that of ``step``, under an agent the controller's choice."""

    def __init__(self, step: Optional[int] = None, session: Optional[_session.Session] = None) -> None:
        super().__init__()
        self.step = _arguments.check_optional("step", step)
        self._session = session
        self._objects: dict[str, Any] = {}
        self._sizes: dict[str, list[int]] = {}

    def reset(self, checkpoint_id: Optional[_PathLike] = None) -> None:
        if self.step is None:
            self.step = _number_at_the_end(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> meta.Metadata:
        given = self._given().restore_boxes([], self._wanted_step())
        if given is None:
            raise _session.RankguardError(
                f"there is no checkpoint to load: {self._given().nothing_found()}; save one first, or start without dcp.load"
            )
        step, states = given
        # What follows reads this one, even if another is committed meanwhile.
        self.step = step
        shards = [_opened(text) for _, text in sorted(states.items())]
        tensors: dict[str, Any] = {}
        paths: dict[str, tuple[Any, ...]] = {}
        self._objects = {}
        for shard in shards:
            paths.update({fqn: tuple(path) for fqn, path in shard["paths"].items()})
            for fqn, value in shard["objects"].items():
                self._objects.setdefault(fqn, value)
            for fqn, (dtype, size, chunks) in shard["tensors"].items():
                entry = tensors.setdefault(fqn, (dtype, size, {}))
                entry[2].update({tuple(offset): extent for offset, extent in chunks})
        self._sizes = {fqn: size for fqn, (_, size, _) in tensors.items()}
        described: dict[str, Any] = {fqn: meta.BytesStorageMetadata() for fqn in self._objects}
        for fqn, (dtype, size, chunks) in tensors.items():
            described[fqn] = meta.TensorStorageMetadata(
                properties=meta.TensorProperties(dtype=_arrays.torch_dtype(dtype)),
                size=torch.Size(size),
                chunks=[
                    meta.ChunkStorageMetadata(offsets=torch.Size(offset), sizes=torch.Size(extent))
                    for offset, extent in sorted(chunks.items())
                ],
            )
        return meta.Metadata(state_dict_metadata=described, planner_data=paths, storage_data={})

    def set_up_storage_reader(self, metadata: meta.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        boxes, places = [], []
        if not self._sizes:
            # Metadata is read by the coordinator alone and sent to the others; what it was made of stays there.
            self.read_metadata()
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                # The planner takes pickle alone; this one was made here a moment ago, of plain values.
                buffer = io.BytesIO()
                torch.save(_tree.decode_plain(self._objects[item.storage_index.fqn]), buffer)
                buffer.seek(0)
                planner.load_bytes(item, buffer)
                continue
            tensor = planner.resolve_tensor(item).detach()
            box = _arrays.box_of(item.storage_index.fqn, tensor, writable=True)
            assert box is not None
            chunk = item.storage_index.offset or torch.Size([0] * len(item.lengths))
            box.offset = [int(start) + int(at) for start, at in zip(chunk, item.storage_offsets)]
            box.global_shape = self._sizes[box.name]
            boxes.append(box)
            places.append((item, tensor))
        if boxes:
            self._given().restore_boxes(boxes, self._wanted_step())
        for item, tensor in places:
            planner.commit_tensor(item, tensor)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _PathLike) -> bool:
        return True

    def _given(self) -> _session.Session:
        return _session.given(self._session)

    def _wanted_step(self) -> Optional[int]:
        return None if self._given().under_agent else self.step


class _Content:
    """What one rank saves."""

    def __init__(self, paths: dict[str, tuple[Any, ...]], staging: _arrays.Staging) -> None:
        self._staging = staging
        self.boxes: list[_arrays.Box] = []
        self._paths = {fqn: list(path) for fqn, path in paths.items()}
        self._objects: dict[str, Any] = {}
        self._tensors: dict[str, Any] = {}

    def add(self, fqn: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            box = _arrays.box_of(fqn, value, writable=False, staging=self._staging)
            if box is not None:
                self._add_box(box)
        else:
            self._objects[fqn] = _tree.encode_plain(value, fqn)

    def add_item(self, item: Any, planner: Any) -> None:
        fqn = item.index.fqn
        if item.type == WriteItemType.BYTE_IO:
            self._objects[fqn] = _tree.encode_plain(planner.lookup_object(item.index), fqn)
            return
        tensor = planner.resolve_data(item)
        offset = [int(n) for n in item.tensor_data.chunk.offsets]
        # A rank may hold several parts of a tensor, and each is staged in memory of its own.
        box = _arrays.box_of(f"{fqn} at {offset}", tensor, writable=False, staging=self._staging)
        assert box is not None
        box.name, box.global_shape, box.offset = fqn, [int(n) for n in item.tensor_data.size], offset
        self._add_box(box)

    def covers(self, plan: SavePlan) -> None:
        """Refuses a plan that wants something written that was not there when the state was staged."""
        for item in plan.items:
            fqn = item.index.fqn
            known = self._objects if item.type == WriteItemType.BYTE_IO else self._tensors
            if item.tensor_data is not None and 0 in item.tensor_data.chunk.sizes:
                continue
            offset = item.tensor_data and [int(n) for n in item.tensor_data.chunk.offsets]
            if fqn not in known or (offset and offset not in [at for at, _ in known[fqn][2]]):
                raise ValueError(f"{fqn}: the plan wants it at {offset}, which was not staged; use the default planner")

    def text(self) -> str:
        state = {"tensors": self._tensors, "objects": self._objects, "paths": self._paths}
        return json.dumps({"schema": SCHEMA, "state": state}, separators=(",", ":"), allow_nan=False)

    def _add_box(self, box: _arrays.Box) -> None:
        entry = self._tensors.setdefault(box.name, [box.dtype, box.global_shape, []])
        entry[2].append([box.offset, box.shape])
        self.boxes.append(box)


def _opened(text: str) -> dict[str, Any]:
    outer = json.loads(text)
    schema = outer.get("schema") if isinstance(outer, dict) else None
    if schema != SCHEMA:
        raise ValueError(
            f"the checkpoint's state is of schema {schema!r}, and DCP reads {SCHEMA!r}; restore it with rankguard.restore()"
        )
    state: dict[str, Any] = outer["state"]
    return state


def _number_at_the_end(checkpoint_id: Optional[_PathLike]) -> Optional[int]:
    found = re.search(r"(\d+)/*$", os.fspath(checkpoint_id)) if checkpoint_id is not None else None
    return int(found.group(1)) if found else None
