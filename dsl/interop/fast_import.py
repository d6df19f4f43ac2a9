"""Arrays of PyTorch, CuPy and JAX in; leaves over the same memory, in 1 to 5 us where the long way takes 10 to 70, out.

Whatever is unusual is left to the long way, which says what is wrong with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType, dtype_of
from ..array.array import Array
from ..array.devices import open_device
from ..core.spec import Spec, strided_spec
from .device_sharing import LEGACY, ImportedMemory, MemoryProducer, extent_of_shared_memory, has_torch_storage
from .host_import import bfloat16_from_foreign

Leaf = np.ndarray[Any, Any] | Array
View = Callable[[Any], Leaf | None]
REMEMBERED = 4096  # layouts of tensors
LOW = 1 << 40  # addresses below may be offsets into memory that is gone

# How to see arrays of a type, of the types that have been met.
VIEWS: dict[type, View] = {}


def import_foreign_array(value: Any) -> Leaf | None:
    """What `host_import` or `import_array` gives; None where they have to look, which say what is wrong."""
    view = VIEWS.get(type(value))
    try:
        return None if view is None else view(value)
    except Exception:
        return None


def import_arguments(given: Sequence[Any]) -> tuple[Sequence[Any], MemoryProducer | None] | None:
    """Arguments with quick views of those that have one, and who lends GPU memory: None for nobody. None where that
    takes the long way, or several lend."""
    if VIEWS.keys().isdisjoint(map(type, given)):
        return given, None
    leaves: list[Any] = []
    producer = None
    try:
        for value in given:
            view = VIEWS.get(type(value))
            leaf = value
            if view is not None:
                leaf = view(value)
                if leaf is None:
                    return None
                if type(leaf) is Array:
                    its = leaf._memory.producer  # type: ignore[attr-defined]
                    if producer is not None and producer is not its:
                        return None
                    producer = its
            leaves.append(leaf)
    except Exception:
        return None
    return leaves, producer


def register_foreign_type(kind: type) -> None:
    """A type has been met."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind is torch.Tensor:
        VIEWS[kind] = _torch_tensor_importer(torch)
    elif cupy is not None and kind is cupy.ndarray:
        VIEWS[kind] = _cupy_array_importer(cupy)
    elif kind.__module__.startswith("jaxlib.") and kind.__name__ == "ArrayImpl":
        VIEWS[kind] = _import_jax_array


def _torch_tensor_importer(torch: Any) -> View:
    gpus: dict[int, View] = {}

    def import_cpu_tensor(tensor: Any) -> Leaf | None:
        """Not by `tensor.numpy()`, after which the tensor's memory could not be resized any more."""
        if not tensor.is_cpu or tensor.is_neg() or not has_torch_storage(tensor):
            return None
        return bfloat16_from_foreign(tensor) if tensor.dtype is torch.bfloat16 else np.from_dlpack(tensor)

    def import_torch_tensor(tensor: Any) -> Leaf | None:
        if not tensor.is_cuda:
            return import_cpu_tensor(tensor)
        index = tensor.get_device()
        if index not in gpus:
            gpus[index] = _torch_gpu_tensor_importer(torch, index, import_cpu_tensor)
            if torch.cuda.device_count() == 1:
                VIEWS[type(tensor)] = gpus[index]
        return gpus[index](tensor) if torch.cuda.current_device() == index else None

    return import_torch_tensor


def _torch_gpu_tensor_importer(torch: Any, index: int, elsewhere: View) -> View:
    """Of tensors on one GPU, and elsewhere. Those that gradients, vmap and the like trace have no memory, nor have
    sparse ones: there `data_ptr` raises."""
    dtypes = {getattr(torch, name): name for name in _TORCH if hasattr(torch, name)}
    layouts = _ImportLayouts(lambda dtype: dtypes[dtype], lambda strides, itemsize: [s * itemsize for s in strides])
    device = open_device(("cuda", index))
    handle = partial(torch._C._cuda_getCurrentRawStream, index)
    producer = MemoryProducer(lambda: (device.foreign_stream(handle() or LEGACY),), handle)

    def import_gpu_tensor(tensor: Any) -> Leaf | None:
        if not tensor.is_cuda:
            return elsewhere(tensor)
        if tensor.requires_grad or tensor.is_neg():
            return None
        place = tensor.data_ptr()
        spec, nbytes, is_complex = layouts[tensor.dtype, tensor.shape, tensor.stride(), not place & 15]
        if (place < LOW and not has_torch_storage(tensor)) or (is_complex and tensor.is_conj()):
            return None
        return Array(ImportedMemory(place, nbytes, 0, tensor, False, producer), spec, device)

    return import_gpu_tensor


_TORCH = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def _cupy_array_importer(cupy: Any) -> View:
    on_gpu: dict[int, tuple[Any, MemoryProducer]] = {}
    layouts = _ImportLayouts(dtype_of, lambda strides, itemsize: strides)
    is_only = cupy.cuda.runtime.getDeviceCount() == 1

    def cupy_producer_on_gpu(index: int) -> tuple[Any, MemoryProducer]:
        def cupy_stream_handle() -> int:
            return int(cupy.cuda.get_current_stream().ptr)

        device: Any = open_device(("cuda", index))
        on_gpu[index] = (
            device,
            MemoryProducer(lambda: (device.foreign_stream(cupy_stream_handle() or LEGACY),), cupy_stream_handle),
        )
        return on_gpu[index]

    def import_cupy_array(array: Any) -> Array | None:
        data, strides = array.data, array.strides
        index, place = data.device_id, data.ptr
        spec, nbytes, _ = layouts[array.dtype, array.shape, strides, not place & 15]
        if not place or (strides and min(strides) < 0) or not (is_only or cupy.cuda.Device().id == index):
            return None
        device, producer = on_gpu.get(index) or cupy_producer_on_gpu(index)
        return Array(ImportedMemory(place, nbytes, 0, array, False, producer), spec, device)

    return import_cupy_array


class _ImportLayouts(dict[tuple[Any, Any, Any, bool], tuple[Spec, int, bool]]):
    """By dtype, shape, strides and whether the address is a multiple of 16: the spec, the bytes from the first element
    to the end, and whether it is complex. Raises KeyError and TypeError for dtypes that are not known here."""

    def __init__(self, name_of: Callable[[Any], Any], bytes_of: Callable[[Any, int], Sequence[int]]) -> None:
        super().__init__()
        self._name_of, self._bytes_of = name_of, bytes_of

    def __missing__(self, key: tuple[Any, Any, Any, bool]) -> tuple[Spec, int, bool]:
        dtype, shape = dtype_of(self._name_of(key[0])), tuple(key[1])
        strides = tuple(self._bytes_of(key[2], dtype.itemsize))
        end = extent_of_shared_memory(shape, strides, dtype.itemsize)[1]
        if len(self) >= REMEMBERED:
            self.clear()
        found = self[key] = strided_spec(ArrayType(shape, dtype), strides, key[3]), end, dtype.kind == "c"
        return found


def _import_jax_array(array: Any) -> Leaf | None:
    """Read-only, and on the CPU without a copy."""
    # Asking a deleted array for its platform ends the process, in jaxlib 0.10.
    return None if array.is_deleted() or array.platform() != "cpu" else np.asarray(array)
