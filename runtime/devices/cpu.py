"""The CPU device: plans in, their steps run on this machine's cores, events out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import machine_code
from ..errors import CompileError
from ..plan import Plan
from ..pool import Pool, as_numpy
from ..program import Kernel
from ..serial import KERNEL, host_call, kernel_call, run_serially


class Done:
    """An event that has happened, well (error None) or badly."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def query(self) -> bool:
        return True

    def wait(self) -> None:
        if self.error is not None:
            raise self.error


DONE = Done()


def scalar_bits(value: Any, dtype: str) -> int:
    """The bits of a number as `dtype`, in the low bytes of a slot."""
    raw = np.asarray(value).astype(dtype).tobytes()
    if len(raw) > 8:
        raise CompileError(f"a {dtype} does not fit one argument slot")
    return int.from_bytes(raw, "little")


class CPUExecutable:
    """A plan with its kernels loaded."""

    def __init__(self, device: CPUDevice, plan: Plan) -> None:
        self.plan = plan
        device.load([t.kernel for t in plan.tasks if isinstance(t.kernel, Kernel)])
        self._calls = [
            kernel_call(t, KERNEL(device.function(k)), scalar_bits) if isinstance(k := t.kernel, Kernel) else host_call(t)
            for t in plan.tasks
        ]

    def run(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> tuple[Any, ...]:
        poisoned = {}
        for buffer, event in after:
            try:
                event.wait()
            except Exception as error:
                poisoned[buffer] = error
        addresses = [
            (m if o is None else arena + o) or 0 for m, o in zip(memories, self.plan.offsets, strict=True)
        ]
        errors = run_serially(self.plan, self._calls, addresses, scalars, poisoned)
        return tuple(DONE if errors[e] is None else Done(errors[e]) for e in self.plan.completion)


class CPUDevice:
    """This machine's cores and memory."""

    kind = "cpu"

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.pool = Pool()
        self.allocate = self.pool.allocate
        self._loaded: dict[Kernel, machine_code.Code] = {}

    def upload(self, host: np.ndarray[Any, Any], memory: Any) -> Done:
        """Copy a C-contiguous host array into the start of `memory`."""
        as_numpy(memory, host.dtype, host.shape)[...] = host
        return DONE

    def download(self, memory: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy the start of `memory` into a C-contiguous host array."""
        host[...] = as_numpy(memory, host.dtype, host.shape)

    def load(self, kernels: Sequence[Kernel]) -> None:
        """Compile or fetch from the disk cache what is not loaded yet. Raises CompileError."""
        missing = [k for k in dict.fromkeys(kernels) if k not in self._loaded]
        codes = machine_code.build_all([(k.source, k.name) for k in missing])
        for kernel, code in zip(missing, codes, strict=True):
            if kernel.name not in code.functions:
                raise CompileError(f"the text of kernel {kernel.name} does not define @{kernel.name}")
            self._loaded[kernel] = code

    def function(self, kernel: Kernel) -> int:
        """The address of a loaded kernel."""
        return self._loaded[kernel].functions[kernel.name]

    def prepare(self, plan: Plan) -> CPUExecutable:
        return CPUExecutable(self, plan)

    def synchronize(self) -> None:
        return None
