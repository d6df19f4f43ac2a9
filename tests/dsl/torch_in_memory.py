"""Stand-ins for PyTorch and CuPy, with tensors on the GPU in memory. For `test_gpu_quick`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernelgraph.dsl.interop import dlpack
from tests.dsl.gpu_in_memory import ByDlpack, Lender, Theirs

DTYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


class Tensor(ByDlpack):
    """On cuda:0 as PyTorch's are, without gradients. offset: in elements, from where its storage begins."""

    __module__ = "torch"
    handshakes = False  # the consumer works behind PyTorch's current stream
    library: Any = None
    is_cuda, is_cpu, requires_grad, index = True, False, False, 0
    negated = conjugated = freed = wrapped = False
    offset = 0

    def __getitem__(self, key: Any) -> Tensor:
        made = type(self)(self.lender, self.memory, self.view[key])
        made.offset = (made.view.ctypes.data - self.memory.data.ctypes.data) // made.view.itemsize
        return made

    @property
    def dtype(self) -> Any:
        return getattr(self.library, self.view.dtype.name, "a dtype of 4 bits")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    def element_size(self) -> int:
        return self.view.itemsize

    @property
    def device(self) -> Any:
        return SimpleNamespace(type="cuda", index=self.index)

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.view.itemsize for s in self.view.strides)

    def get_device(self) -> int:
        return self.index

    def is_neg(self) -> bool:
        return self.negated

    def is_conj(self) -> bool:
        return self.conjugated

    def data_ptr(self) -> int:
        if self.wrapped:
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
        return self.storage_offset() * self.view.itemsize if self.freed else int(self.view.ctypes.data)

    def storage_offset(self) -> int:
        return self.offset

    def tensor(self) -> dlpack.DLPackTensor:
        v = self.view
        return dlpack.DLPackTensor(self.data_ptr(), (2, 0), v.shape, v.strides, v.dtype, False)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.library.asked += 1
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.conjugated:
            raise BufferError("Can't export tensors with the conjugate bit set")
        return super().__dlpack__(stream=stream, max_version=max_version)


def torch_with(lender: Lender, tensor: type) -> Any:
    """The module. Its current stream is that of `.lender`; asked: how often a tensor was asked for a capsule."""
    module = SimpleNamespace(lender=lender, asked=0, Tensor=tensor, **{name: f"torch.{name}" for name in DTYPES})
    current: Callable[[int], Any] = lambda index: SimpleNamespace(cuda_stream=module.lender.handle)  # noqa: E731
    module.cuda = SimpleNamespace(current_stream=current, device_count=lambda: 1, current_device=lambda: 0)
    module._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: module.lender.handle)
    return module


class ndarray(Theirs):
    """CuPy's, on GPU 0."""

    __module__ = "cupy"

    @property
    def dtype(self) -> Any:
        return self.view.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.view.strides

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=int(self.view.ctypes.data), device_id=0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        v = self.view
        found = {"shape": v.shape, "typestr": v.dtype.str, "data": (v.ctypes.data, False), "strides": v.strides}
        return found | {"version": 3, "stream": self.lender.handle}


def cupy_with(lender: Lender) -> Any:
    """The module. Its current stream is that of `.lender`."""
    module = SimpleNamespace(lender=lender, ndarray=ndarray)
    current = lambda: SimpleNamespace(ptr=module.lender.handle)  # noqa: E731
    runtime = SimpleNamespace(getDeviceCount=lambda: 1)
    module.cuda = SimpleNamespace(get_current_stream=current, runtime=runtime, Device=lambda: SimpleNamespace(id=0))
    return module


def tensor_of(library: Any, values: Any, order: str = "C") -> Any:
    """A new one, whose values are written late on the library's current stream."""
    made = library.lender.array(np.asarray(values), order)
    kind = getattr(library, "Tensor", None) or library.ndarray
    return kind(made.lender, made.memory, made.view)
