"""The driver's own start, which takes longest of all that comes before a first result, beside other work."""

from __future__ import annotations

import ctypes
import sys
import threading

_lock = threading.Lock()
_started: dict[int, threading.Thread] = {}


def begin(index: int) -> threading.Thread:
    """A thread that makes the context of GPU `index`, which lives as long as the process. What fails is left for
    whoever opens the GPU to find out."""
    with _lock:
        if index not in _started:
            _started[index] = threading.Thread(target=_start, args=(index,), name="kernelgraph-driver", daemon=True)
            _started[index].start()
        return _started[index]


def _start(index: int) -> None:
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
