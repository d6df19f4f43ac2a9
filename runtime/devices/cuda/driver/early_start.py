"""The driver's start beside other work, and what it tells without a context. It takes longest of all that comes before
a first result."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

from ....program.device import H200, GpuProperties

# CUdevice_attribute
SHARED_BYTES, WARP_SIZE, MULTIPROCESSORS, MEMORY_CLOCK_RATE, BUS_WIDTH, L2_BYTES = 8, 10, 16, 36, 37, 38
THREADS_PER_MULTIPROCESSOR, MAJOR, MINOR, BLOCKS_PER_MULTIPROCESSOR = 39, 75, 76, 106
SHARED_PER_MULTIPROCESSOR = 81

_lock = threading.Lock()
_started: dict[int, threading.Thread] = {}


def start_cuda_context_early(index: int) -> threading.Thread:
    """A thread that makes the context of GPU `index`, which lives as long as the process. What fails is left for
    whoever opens the GPU to find out."""
    with _lock:
        if index not in _started:
            _started[index] = threading.Thread(
                target=_make_cuda_context, args=(index,), name="kernelgraph-driver", daemon=True
            )
            _started[index].start()
        return _started[index]


def _load_cuda_driver() -> Any:
    """The library, started; None where there is none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def query_gpu_properties(index: int) -> GpuProperties | None:
    """Of GPU `index`; None where there is no such."""
    driver, device = _load_cuda_driver(), ctypes.c_int()
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), index):
        return None

    def query_gpu_attribute(attribute: int) -> int:
        value = ctypes.c_int()
        return value.value if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0 else 0

    name, nbytes = ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device)
    # kHz x bits, twice a clock; the fraction is what copies reach
    bandwidth = query_gpu_attribute(MEMORY_CLOCK_RATE) * 1e3 * query_gpu_attribute(BUS_WIDTH) / 8 * 2 * 0.83 / 1e6
    return GpuProperties(
        name=name.value.decode(),
        compute_capability=(query_gpu_attribute(MAJOR), query_gpu_attribute(MINOR)),
        multiprocessors=query_gpu_attribute(MULTIPROCESSORS),
        threads_per_multiprocessor=query_gpu_attribute(THREADS_PER_MULTIPROCESSOR),
        blocks_per_multiprocessor=query_gpu_attribute(BLOCKS_PER_MULTIPROCESSOR),
        warp=query_gpu_attribute(WARP_SIZE),
        shared_bytes=query_gpu_attribute(SHARED_BYTES),
        shared_per_multiprocessor=query_gpu_attribute(SHARED_PER_MULTIPROCESSOR),
        l2_bytes=query_gpu_attribute(L2_BYTES),
        memory_bytes=nbytes.value,
        bandwidth=bandwidth or H200.bandwidth,
    )


def _make_cuda_context(index: int) -> None:
    driver, device, context = _load_cuda_driver(), ctypes.c_int(), ctypes.c_void_p()
    if driver is not None and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
