"""The driver's own start, which takes longest of all that comes before a first result, beside other work; and what the
driver tells of a GPU before it has a context."""

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


def start_context(index: int) -> threading.Thread:
    """A thread that makes the context of GPU `index`, which lives as long as the process. What fails is left for
    whoever opens the GPU to find out."""
    with _lock:
        if index not in _started:
            _started[index] = threading.Thread(
                target=_make_context, args=(index,), name="kernelgraph-driver", daemon=True
            )
            _started[index].start()
        return _started[index]


def _load_started_driver() -> Any:
    """The library, started; None where there is none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def query_gpu_properties(index: int) -> GpuProperties | None:
    """Of GPU `index`; None where there is no such."""
    driver, device = _load_started_driver(), ctypes.c_int()
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), index):
        return None

    def attribute_value(attribute: int) -> int:
        value = ctypes.c_int()
        return value.value if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0 else 0

    name, nbytes = ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device)
    # kHz x bits, twice a clock; the fraction is what copies reach
    bandwidth = attribute_value(MEMORY_CLOCK_RATE) * 1e3 * attribute_value(BUS_WIDTH) / 8 * 2 * 0.83 / 1e6
    return GpuProperties(
        name=name.value.decode(),
        compute_capability=(attribute_value(MAJOR), attribute_value(MINOR)),
        multiprocessors=attribute_value(MULTIPROCESSORS),
        threads_per_multiprocessor=attribute_value(THREADS_PER_MULTIPROCESSOR),
        blocks_per_multiprocessor=attribute_value(BLOCKS_PER_MULTIPROCESSOR),
        warp=attribute_value(WARP_SIZE),
        shared_bytes=attribute_value(SHARED_BYTES),
        shared_per_multiprocessor=attribute_value(SHARED_PER_MULTIPROCESSOR),
        l2_bytes=attribute_value(L2_BYTES),
        memory_bytes=nbytes.value,
        bandwidth=bandwidth or H200.bandwidth,
    )


def _make_context(index: int) -> None:
    driver, device, context = _load_started_driver(), ctypes.c_int(), ctypes.c_void_p()
    if driver is not None and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
