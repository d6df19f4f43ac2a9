"""The kinds of devices: a row each. It says how one is made, which imports its module."""

from __future__ import annotations

import functools
import importlib.util

from ..core.frozen import frozen
from ..program.device import Device, GpuProperties


@frozen
class DeviceKind:
    """A kind of device. module, name: below runtime.devices, and its class there. target: what kernels are printed for.
    numbered: there can be several. gpu: it needs CUDA's packages. host_memory, computes: as `Device` says."""

    module: str
    name: str
    target: str
    numbered: bool = True
    gpu: bool = False
    host_memory: bool = False
    computes: bool = True


DEVICES = {
    "cpu": DeviceKind("cpu.device", "CPUDevice", "cpu", numbered=False, host_memory=True),
    "cuda": DeviceKind("cuda.device", "CUDADevice", "cuda", gpu=True),
    "fake": DeviceKind("fake", "FakeDevice", "cuda", computes=False),
}


def make_device(kind: str, index: int) -> Device:
    """A new device. Raises ImportError where its packages are missing, and what its driver raises."""
    row = DEVICES[kind]
    made: Device = getattr(importlib.import_module(f".{row.module}", __package__), row.name)(index)
    return made


def start_device_early(kind: str, index: int) -> None:
    """Start in a thread what takes longest of making the device."""
    if DEVICES[kind].gpu:
        from .cuda.driver.early_start import start_cuda_context_early

        start_cuda_context_early(index)


@functools.cache
def has_dnn_library(kind: str) -> bool:
    """Whether devices of a kind may have a library for deep neural networks, which an open one knows."""
    return DEVICES[kind].gpu and importlib.util.find_spec("cudnn") is not None


@functools.cache
def query_gpu_properties(kind: str, index: int) -> GpuProperties | None:
    """What the driver tells of a GPU that is not in use. None for other devices, and where there is none."""
    if not DEVICES[kind].gpu:
        return None
    from .cuda.driver import early_start

    return early_start.query_gpu_properties(index)
