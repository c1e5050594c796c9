"""What counts as a tensor, and where its bytes lie.

No library is imported here unless the trainer has imported it already: an object of torch can only come from somebody who
did. Each kind of array becomes a :class:`Box`: name, element type, place in the global tensor, address, and an owner that
keeps the memory in place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

#: numpy's kind and size, or its name, to the element types of the format.
_NUMPY = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "complex128": "C128",
    # ml_dtypes, as JAX uses it.
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}

_TORCH = dict(_NUMPY)


#: Where parts of DTensors lie, by global shape, mesh and placements: a model has few of them.
_PLACES: dict[Any, tuple[tuple[int, ...], tuple[int, ...], int]] = {}
_PLACES_MAX = 4096


class Unsavable(TypeError):
    """A value that is neither a tensor nor plain state; the message names its key."""


@dataclass(frozen=True)
class Shard:
    """A part of a larger array: ``array`` lies at ``offset`` in a tensor of ``global_shape``.

    For arrays that do not say it themselves (numpy parts of something larger); a DTensor does.
    """

    array: Any
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]


@dataclass
class Box:
    """A tensor's part and its bytes."""

    name: str
    dtype: str
    global_shape: list[int]
    offset: list[int]
    shape: list[int]
    address: int
    nbytes: int
    owner: Any
    #: Called after the bytes were restored, where they were restored beside the array.
    after: Optional[Callable[[], None]] = None
    #: Which copy of the part this is: 0 is the primary, and all others must be equal to it.
    replica: int = 0

    def told(self) -> tuple[str, str, list[int], list[int], list[int], int, int, Any, int]:
        """As the native part takes it."""
        return (
            self.name,
            self.dtype,
            self.global_shape,
            self.offset,
            self.shape,
            self.address,
            self.nbytes,
            self.owner,
            self.replica,
        )


@dataclass
class Staging:
    """Host memory for arrays of a device, kept from save to save: pinned memory is dear to make."""

    buffers: dict[str, Any] = field(default_factory=dict)
    #: A side stream for each device: a stream takes no work of another device.
    streams: dict[Any, Any] = field(default_factory=dict)


def torch_dtype(name: str) -> Any:
    """The type of torch for an element type of the format."""
    torch = _loaded("torch")
    return getattr(torch, next(theirs for theirs, ours in _TORCH.items() if ours == name))


def _loaded(name: str) -> Any:
    return sys.modules.get(name)


def is_array(value: Any) -> bool:
    """Whether it is a tensor of numpy, torch or JAX, or a :class:`Shard` of one."""
    return isinstance(value, Shard) or _is_numpy(value) or is_torch(value) or is_jax(value)


def _is_numpy(value: Any) -> bool:
    numpy = _loaded("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch."""
    torch = _loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_dtensor(value: Any) -> bool:
    """Whether it is a DTensor, which knows the place of its part."""
    dtensor = _loaded("torch.distributed.tensor")
    return dtensor is not None and isinstance(value, dtensor.DTensor)


def is_jax(value: Any) -> bool:
    """Whether it is an array of JAX, which nobody can write into."""
    jax = _loaded("jax")
    return jax is not None and isinstance(value, jax.Array)


def broadcast_buffers(value: Any) -> list[str]:
    """Names of the buffers that DistributedDataParallel takes from its first rank before each forward pass."""
    parallel = _loaded("torch.nn.parallel")
    if parallel is None or not isinstance(value, parallel.DistributedDataParallel) or not value.broadcast_buffers:
        return []
    return [name for name, _ in value.named_buffers()]


def described(value: Any) -> dict[str, Any]:
    """What is needed to make the array anew: ``d`` its element type, ``s`` its shape, ``k`` whose array it is.

    A part of something larger is of kind ``part``: ``s`` is the shape of the whole and ``w`` the library. Empty for what
    cannot be saved.
    """
    if isinstance(value, Shard):
        inner = described(value.array)
        if "d" not in inner:
            return {"k": "part"}
        return {"k": "part", "d": inner["d"], "s": [int(n) for n in value.global_shape], "w": inner.get("w", inner["k"])}
    torch = is_torch(value)
    if torch and value.is_nested:
        return {}
    dtype = _TORCH.get(str(value.dtype).rpartition(".")[2]) if torch else _NUMPY.get(value.dtype.name)
    if dtype is None:
        return {}
    if torch and is_dtensor(value):
        return {"k": "part", "d": dtype, "s": [int(extent) for extent in value.shape], "w": "torch"}
    return {"d": dtype, "s": [int(extent) for extent in value.shape], "k": "torch" if torch else "numpy"}


def empty(kind: str, dtype: str, shape: list[int]) -> Any:
    """A new array, on the CPU, for bytes to be restored into. Imports the library that it belongs to."""
    name = next(theirs for theirs, ours in _NUMPY.items() if ours == dtype)
    if kind == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, name))
    return _numpy().empty(shape, dtype=_numpy_type(name))


def scalar_dtype(value: Any, name: str) -> str:
    """The element type of a scalar of numpy, as the state of a rank spells it."""
    if value.dtype.name in _NUMPY and value.dtype.kind not in "biufc":
        # Types of ml_dtypes: their code alone says only how many bytes they have.
        return str(value.dtype.name)
    if value.dtype.kind == "V":
        raise Unsavable(f"{name}: a scalar of {value.dtype} cannot be saved; save its fields as plain values")
    return str(value.dtype.str)


def scalar_of(dtype: str, data: bytes) -> Any:
    """A scalar of numpy from its bytes."""
    return _numpy().frombuffer(data, dtype=_numpy_type(dtype))[0]


def _numpy_type(name: str) -> Any:
    """The type of numpy; those that numpy does not have itself are of ml_dtypes."""
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        return _numpy().dtype(getattr(ml_dtypes, name))
    return _numpy().dtype(name)


def _numpy() -> Any:
    import numpy

    return numpy


def box_of(name: str, value: Any, *, writable: bool, staging: Optional[Staging] = None) -> Optional[Box]:
    """The part of the tensor that this process holds; ``None`` when it holds nothing of it.

    With ``writable`` the box is for a restore: bytes go in, and ``after`` brings them where they belong if the array itself
    cannot take them. Otherwise it is for a save.
    """
    if isinstance(value, Shard):
        inner = box_of(name, value.array, writable=writable, staging=staging)
        if inner is None:
            return None
        inner.global_shape, inner.offset = _part_of(name, inner.shape, value)
        return inner
    if is_torch(value):
        return _torch_box(name, value, writable, staging)
    if is_jax(value):
        if writable:
            raise Unsavable(f"{name}: an array of JAX cannot be written into; restore() replaces it in its container")
        if not value.is_fully_addressable:
            raise Unsavable(f"{name}: parts of this JAX array are on other hosts; save its addressable shards as Shard")
        return _numpy_box(name, _loaded("numpy").asarray(value), False)
    return _numpy_box(name, value, writable)


def _part_of(name: str, shape: Sequence[int], part: Shard) -> tuple[list[int], list[int]]:
    global_shape, offset = [int(n) for n in part.global_shape], [int(n) for n in part.offset]
    fits = len(global_shape) == len(offset) == len(shape) and all(
        0 <= at and at + extent <= whole for at, extent, whole in zip(offset, shape, global_shape)
    )
    if not fits:
        raise ValueError(f"{name}: a part of shape {list(shape)} at {offset} is not inside {global_shape}")
    return global_shape, offset


def _numpy_box(name: str, array: Any, writable: bool) -> Box:
    numpy = _loaded("numpy")
    dtype = _NUMPY.get(array.dtype.name)
    if dtype is None or array.dtype.hasobject:
        raise Unsavable(f"{name}: arrays of {array.dtype} cannot be saved; {_hint_for(array.dtype)}")
    if not array.dtype.isnative:
        raise Unsavable(f"{name}: its bytes are in the other order; use .astype(array.dtype.newbyteorder('='))")
    if writable and not array.flags.writeable:
        raise Unsavable(f"{name}: the array is read-only, so nothing can be restored into it")
    shape, memory, after = list(array.shape), array, None
    if not array.flags.c_contiguous:
        memory = numpy.ascontiguousarray(array)
        if writable:

            def after() -> None:
                array[...] = memory

    address = memory.__array_interface__["data"][0]
    return Box(name, dtype, shape, [0] * len(shape), shape, address, memory.nbytes, memory, after)


def _torch_box(name: str, tensor: Any, writable: bool, staging: Optional[Staging]) -> Optional[Box]:
    torch = _loaded("torch")
    if tensor.is_nested:
        raise Unsavable(f"{name}: a nested tensor cannot be saved; save the list of its parts (unbind())")
    global_shape, offset, replica = list(tensor.shape), [0] * tensor.dim(), 0
    if is_dtensor(tensor):
        placed = dtensor_part(name, tensor)
        if placed is None:
            return None
        local, offset, replica = placed
    elif type(tensor).__name__ == "ShardedTensor":
        raise Unsavable(f"{name}: ShardedTensor is not supported; use DTensor (FSDP2)")
    else:
        local = tensor.detach()
    if local.is_quantized:
        raise Unsavable(f"{name}: a quantized tensor cannot be saved; save its int_repr() with q_scale() and q_zero_point()")
    if local.layout is not torch.strided and local.layout is not torch.jagged:
        raise Unsavable(f"{name}: a {local.layout} tensor cannot be saved; save {_parts_of(local)}, or its to_dense()")
    if hasattr(type(local), "__tensor_flatten__"):
        raise Unsavable(
            f"{name}: a part of type {type(local).__name__} has no place in a larger tensor; save it on whole tensors (DDP)"
        )
    dtype = _TORCH.get(str(local.dtype).rpartition(".")[2])
    if dtype is None:
        raise Unsavable(f"{name}: tensors of {local.dtype} cannot be saved; known are {', '.join(_TORCH)}")
    if local.layout is not torch.strided or local.device.type == "meta" or local.is_quantized:
        raise Unsavable(f"{name}: {local.layout} tensors on {local.device} cannot be saved; only dense ones with data")
    if local.is_conj() or local.is_neg():
        if writable:
            raise Unsavable(f"{name}: a lazily conjugated or negated tensor cannot be restored into")
        local = local.resolve_conj().resolve_neg()
    shape, memory, after = list(local.shape), local, None
    if local.device.type != "cpu":
        memory, after = _staged(name, local, writable, staging)
    elif not local.is_contiguous():
        memory = local.contiguous()
        if writable:

            def after() -> None:
                local.copy_(memory)

    nbytes = memory.numel() * memory.element_size()
    return Box(name, dtype, global_shape, offset, shape, memory.data_ptr() if nbytes else 0, nbytes, memory, after, replica)


def _parts_of(tensor: Any) -> str:
    if str(tensor.layout) == "torch.sparse_coo":
        return "indices() and values() of its coalesce()"
    return f"{'crow' if str(tensor.layout).endswith(('csr', 'bsr')) else 'ccol'}_indices() and the rest of its parts"


def _hint_for(dtype: Any) -> str:
    if dtype.hasobject or dtype.kind in "SU":
        return "save .tolist() of it"
    if dtype.kind in "mM":
        return "save .view('int64') of it"
    if dtype.kind == "V":
        return "save its fields as arrays"
    return f"known are {', '.join(_NUMPY)}"


def dtensor_part(name: str, tensor: Any) -> Optional[tuple[Any, list[int], int]]:
    """The local part, its first element in the whole, and which copy it is; ``None`` when it holds nothing."""
    with _loaded("torch").no_grad():
        # With gradients this would be an operation of autograd, and so would a detach of the DTensor: a tenth of a millisecond
        # for each tensor, in which the trainer stands still.
        local = tensor.to_local().detach()
    shape, offset, replica = _dtensor_place(name, tuple(tensor.shape), tensor.device_mesh, tuple(tensor.placements))
    if local.numel() == 0 and tensor.numel() > 0:
        return None
    if tuple(local.shape) != shape:
        raise Unsavable(f"{name}: its local part has shape {tuple(local.shape)} where its placement says {shape}")
    return local, list(offset), replica


def _dtensor_place(
    name: str, global_shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shape and offset of the local part, and which copy it is. The same from save to save, and dear to find out."""
    # Meshes of different processes are equal.
    key = (global_shape, mesh, placements, tuple(mesh.get_coordinate() or ()))
    known = _PLACES.get(key)
    if known is not None:
        return known
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(placement.is_partial() for placement in placements):
        raise Unsavable(f"{name}: a partial DTensor has no value yet; reduce it first (redistribute)")
    shape, offset = compute_local_shape_and_global_offset(global_shape, mesh, placements)
    replica = 0
    for placement, at, size in zip(placements, mesh.get_coordinate() or [], mesh.shape):
        if placement.is_replicate():
            replica = replica * size + at
    if len(_PLACES) >= _PLACES_MAX:
        _PLACES.clear()
    _PLACES[key] = tuple(shape), tuple(int(at) for at in offset), replica
    return _PLACES[key]


def _staged(name: str, tensor: Any, writable: bool, staging: Optional[Staging]) -> tuple[Any, Optional[Callable[[], None]]]:
    """A copy of a device's tensor in host memory.

    With a staging it is pinned and only queued on a side stream: read it after :func:`synchronize`. Without one the copy is
    over when this returns.
    """
    torch = _loaded("torch")
    if tensor.device.type != "cuda":
        raise Unsavable(f"{name}: tensors on {tensor.device} cannot be saved; move it to the CPU first")
    memory = None if staging is None else staging.buffers.get(name)
    if memory is None or memory.shape != tensor.shape or memory.dtype != tensor.dtype:
        memory = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=staging is not None)
        if staging is not None:
            staging.buffers[name] = memory
    if writable:

        def after() -> None:
            tensor.copy_(memory)

        return memory, after
    if staging is None:
        memory.copy_(tensor)
        return memory, None
    if tensor.device not in staging.streams:
        staging.streams[tensor.device] = torch.cuda.Stream(tensor.device)
    stream = staging.streams[tensor.device]
    # Behind the optimizer's step that was queued last, beside whatever is queued next.
    stream.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(stream):
        memory.copy_(tensor, non_blocking=True)
    # It may be a temporary one: its memory must not be given to another before the copy is over.
    tensor.record_stream(stream)
    return memory, None


def synchronize(staging: Staging) -> None:
    """Waits for the copies from the devices that were queued."""
    for stream in staging.streams.values():
        stream.synchronize()
