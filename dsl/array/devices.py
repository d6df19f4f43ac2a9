"""Devices in use: a name such as `cpu`, `cuda` or `cuda:1` in, a Device out."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, cast

from ...runtime.core.errors import KernelGraphError
from ...runtime.core.settings import settings
from ...runtime.devices.registry import DEVICES, has_dnn_library, make_device, query_gpu_properties, start_device_early
from ...runtime.program.device import H200, Device, GpuProperties
from ..core.context import context
from ..core.errors import OptionError, UserError
from .in_flight import fit_budget_to_gpu

# For type checkers: what is most often written. A name made at run time goes to `with kg.device(name):`.
DeviceName: TypeAlias = Literal[
    "cpu", "cpu:0", "cpu:1", "cpu:2", "cpu:3", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5",
    "cuda:6", "cuda:7", "fake", "fake:0", "fake:1", "fake:2", "fake:3",
]  # fmt: skip
INSTALL = "pip install '.[cuda]' in kernelgraph's folder"


class DeviceUnavailableError(UserError, RuntimeError):
    """The device exists in the table, not on this machine."""


def device_place_of_name(name: Any) -> tuple[str, int] | None:
    """(kind, index) of a device's name; None for None. Raises OptionError."""
    if name is None:
        return None
    known = ", ".join(map(repr, DEVICES))
    if not isinstance(name, str):
        raise OptionError(f"device={name!r} is no device name; write one of {known}, 'cuda:1', or None")
    kind, _, number = name.partition(":")
    if kind not in DEVICES or (":" in name and not number.isdecimal()):
        raise OptionError(f"there is no device {name!r}; write one of {known}, 'cuda:1', or None")
    if not DEVICES[kind].numbered and int(number or 0) >= max(1, settings.cpu_devices):
        count = settings.cpu_devices
        there = f"all cores together are one, {kind!r}" if count <= 1 else f"there are {count}, from {kind!r} on"
        raise OptionError(f"there is no device {name!r}: {there}; KERNELGRAPH_CPU_DEVICES=4 makes several")
    return kind, int(number or 0)


_open: dict[tuple[str, int], Device] = {}
_lock = threading.RLock()
_default: tuple[str, int] | None = None


def default_device_kind() -> tuple[str, int]:
    """cuda where it can be used, else cpu; decided once."""
    global _default
    if _default is None:
        _default = ("cuda", 0) if _why_cuda_is_unusable() is None else ("cpu", 0)
    return _default


def device_named(name: str | None) -> Device:
    """The device of a name; of None the one of `with kg.device(...)`, else the default one."""
    return open_device(device_place_of_name(name) or context.device or default_device_kind())


@contextmanager
def device(name: str) -> Iterator[str]:
    """`with kg.device("cuda:1"):` makes a device this thread's default one. It is that of new arrays, and of calls of
    functions that name none. None: the process' default. In a traced function the operations within run there.

    Parameters
    ----------
    name : str
        What people read it by.

    Returns
    -------
    context manager

    Raises
    ------
    OptionError

    Examples
    --------
    >>> with kg.device("cpu:1"):
    ...     x = kg.zeros(3)
    >>> x.device
    'cpu:1'
    """
    place = device_place_of_name(name)
    if context.trace is not None:
        builder = context.trace.builder
        before, builder.place = builder.place, place
        try:
            yield name
        finally:
            builder.place = before
        return
    before = context.device
    try:
        context.put(context.stream, place)
        yield name
    finally:
        context.put(context.stream, before)


def _why_cuda_is_unusable() -> str | None:
    """Why CUDA cannot be used, cheapest reasons first; None if it can."""
    if not _cuda_installed():
        return f"its packages are not installed; run {INSTALL}"
    try:
        open_device(("cuda", 0))
    except UserError as error:
        return str(error)
    return None


def _cuda_installed() -> bool:
    return importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.core") is not None


def begin_opening_device(place: tuple[str, int] | None) -> None:
    """The device will be opened soon (None: the default one): what takes long of that starts, beside other work."""
    place = place or _default or ("cuda", 0)
    if DEVICES[place[0]].gpu and place not in _open and _cuda_installed():
        start_device_early(*place)


def open_device(place: tuple[str, int]) -> Device:
    """The one Device of a (kind, index). Raises DeviceUnavailableError, naming the command that installs it."""
    found = _open.get(place)
    if found is not None:
        return found
    with _lock:
        if place not in _open:
            _open[place] = _construct_device(*place)
        return _open[place]


def gpu_properties_at(place: tuple[str, int]) -> GpuProperties:
    """What is known of the GPU at a place; where there is none, as when programs are only looked at, an H200. It is
    opened where that tells more."""
    found = _open.get(place)
    if found is None and has_dnn_library(place[0]) and _cuda_installed() and query_gpu_properties(*place) is not None:
        found = open_device(place)
    known = None if found is None else found.properties
    return known or query_gpu_properties(*place) or H200


def opened_devices() -> list[Device]:
    """The devices in use; the CPU and the default one are opened."""
    for place in (("cpu", 0), default_device_kind()):
        open_device(place)
    return list(_open.values())


def _construct_device(kind: str, index: int) -> Device:
    try:
        made = make_device(kind, index)
        if made.properties is not None:
            fit_budget_to_gpu(made.properties)
        return made
    except ImportError as error:
        raise DeviceUnavailableError(
            f"device {kind!r} needs packages that are not installed ({error}); run {INSTALL}, or write device='cpu'"
        ) from None
    except (KernelGraphError, RuntimeError, OSError, ValueError) as error:
        raise DeviceUnavailableError(
            f"device '{kind}:{index}' cannot be used: {error}; write device='cpu', or run on a machine with an NVIDIA "
            f"GPU, its driver and {INSTALL}"
        ) from None


def kernel_target_of_device_kind(kind: str) -> str:
    """What kernels for a device of this kind are printed for."""
    return DEVICES[kind].target


def name_of(device: Device) -> DeviceName:
    """`cpu`, `cpu:1`, `cuda:0`: what the device goes by."""
    numbered = DEVICES[device.kind].numbered or device.index
    return cast(DeviceName, f"{device.kind}:{device.index}" if numbered else device.kind)
