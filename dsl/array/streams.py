"""`kg.Stream` and `kg.Event`: a device or anybody's stream in, a place in line for calls out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from ...runtime.program.device import Device
from ..core.context import context
from ..core.errors import ArgumentsError, OptionError
from .devices import device_named, device_place_of_name, name_of, open_device
from .in_flight import waitall
from .made_of import note_memory_is_rewritten

# How other libraries' streams tell their handle, tried in order.
_HANDLES = ("cuda_stream", "ptr", "handle")
# The stream that a library puts its work on at present, given its module and the number of the GPU.
CURRENT: dict[str, Callable[[Any, int], Any]] = {
    "torch": lambda module, index: module.cuda.current_stream(index),
    "cupy": lambda module, index: module.cuda.get_current_stream(),
}


class Event:
    """A moment in a stream's work; `Stream.record` makes them.

    Examples
    --------
    >>> event = kg.Stream("cpu").record()
    >>> event.synchronize(), event.query()
    (None, True)
    """

    __slots__ = ("_device", "_event")

    def __init__(self, event: Any = None, device: Device | None = None) -> None:
        if device is None:
            raise ArgumentsError("an event is a moment of a stream; write s.record(), where s is a kg.Stream")
        self._event, self._device = event, device

    @property
    def device(self) -> str:
        return name_of(self._device)

    def query(self) -> bool:
        """Whether it has happened; never blocks."""
        return bool(self._event.query())

    def synchronize(self) -> None:
        """Wait for it. What failed raises where its arrays are read."""
        self._event.wait()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`, both of one device; waits for them.

        Raises
        ------
        ArgumentsError
        """
        if not isinstance(end, Event) or end._device is not self._device:
            raise ArgumentsError("elapsed_time takes an event of the same device")
        return self._device.elapsed(self._event, end._event)

    def __repr__(self) -> str:
        return f"<event on {self.device}>"


class Stream:
    """Work in order on a device. A call made within `with kg.stream(s)` starts after what was put on `s` before, and
    what is put on `s` later starts after the call. Calls still run on streams of their own in between.

    Parameters
    ----------
    device : str, optional
        As in `kernel_graph`.
    priority : int, default 0
        Below 0 for work that should come first, where the device knows priorities.

    Examples
    --------
    >>> s = kg.Stream("cpu")
    >>> with kg.stream(s):
    ...     x = kg.kernel_graph(lambda x: x + 1)(np.zeros(2))
    >>> s.query() in (True, False)
    True
    """

    __slots__ = ("_device", "_stream")

    def __init__(self, device: str | None = None, priority: int = 0) -> None:
        if isinstance(priority, bool) or not isinstance(priority, (int, np.integer)) or abs(priority) >= 1 << 31:
            raise OptionError(f"priority={priority!r} is no small integer; write 0, or -1 for what should come first")
        self._device = device_named(device)
        self._stream = self._device.stream(int(priority))

    @classmethod
    def external(cls, stream: Any, device: str | None = None) -> Stream:
        """Somebody's CUDA stream. It is an object with `__cuda_stream__`, a stream of PyTorch, CuPy or numba, or the
        driver's handle. The handles 0 and 1 are the legacy default stream, 2 is the per-thread one.

        Raises
        ------
        ArgumentsError
        """
        if isinstance(stream, Stream):
            return stream
        made = cls.__new__(cls)
        handle = _native_stream_handle(stream)
        made._device = _gpu_of_user_stream(device, stream)
        made._stream = made._device.foreign_stream(handle, stream)
        return made

    @property
    def device(self) -> str:
        return name_of(self._device)

    @property
    def priority(self) -> int:
        return self._stream.priority

    @property
    def handle(self) -> int:
        """The driver's handle; 0 where there is none."""
        return self._stream.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which CUDA libraries exchange streams: its version and the handle."""
        if not self._device.foreign_streams:
            raise ArgumentsError(f"a stream on {self.device} is no CUDA stream")
        return (0, self.handle)

    def record(self) -> Event:
        """The moment when all that was put on the stream so far is done."""
        return Event(self._stream.record(), self._device)

    def wait(self, event: Event) -> None:
        """What is put on the stream from now on waits until the event has happened."""
        if not isinstance(event, Event):
            raise ArgumentsError("wait takes a kg.Event; write s.wait_stream(other) for a stream")
        self._stream.wait(event._event)

    def wait_stream(self, other: Any) -> None:
        """Later work on this stream waits for all that is on `other` now."""
        self.wait(Stream.external(other).record())

    def query(self) -> bool:
        """Whether all that was put on the stream is done; never blocks."""
        return self._stream.query()

    def synchronize(self) -> None:
        """Wait for all that was put on the stream."""
        self._stream.synchronize()

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x} on {self.device}>"


def _native_stream_handle(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in _HANDLES:
        found = getattr(stream, name, None)
        found = getattr(found, "value", found)  # of ctypes
        if isinstance(found, int):
            return found
    raise ArgumentsError(
        f"{stream!r} is no stream; pass a kg.Stream, an object with __cuda_stream__, a stream of PyTorch, CuPy or "
        "numba, or a handle"
    )


def _gpu_of_user_stream(device: str | None, stream: Any) -> Device:
    index = getattr(stream, "device_index", None)  # PyTorch's
    place = device_place_of_name(device) or ("cuda", index if isinstance(index, int) else 0)
    found = open_device(place)
    if not found.foreign_streams:
        raise OptionError(f"device={device!r} has no foreign streams; write device='cuda'")
    return found


def stream(stream: Any) -> AbstractContextManager[Stream | None]:
    """`with kg.stream(s):` puts this thread's calls on a stream. It is a `kg.Stream`, or whatever `Stream.external`
    takes; None: on none. It concerns calls on the stream's device.

    Parameters
    ----------
    stream
        A `kg.Stream`, another library's stream, or None.

    Returns
    -------
    context manager

    Raises
    ------
    DeviceUnavailableError
        For a stream of a device that is not here.

    Examples
    --------
    >>> s = kg.Stream("cpu")
    >>> with kg.stream(s):
    ...     x = kg.kernel_graph(lambda x: x + 1)(np.zeros(2))
    >>> s.synchronize(), x.tolist()
    (None, [1.0, 1.0])
    """
    return _put_calls_on_stream(None if stream is None else Stream.external(stream))


@contextmanager
def _put_calls_on_stream(chosen: Stream | None) -> Iterator[Stream | None]:
    before = context.stream
    try:
        context.put(chosen, context.device)
        yield chosen
    finally:
        context.put(before, context.device)


def current_stream() -> Stream | None:
    """The stream that this thread's calls are put on; None: none.

    Returns
    -------
    Stream or None

    Examples
    --------
    >>> with kg.stream(kg.Stream("cpu")) as s:
    ...     kg.current_stream() is s
    True
    >>> kg.current_stream() is None
    True
    """
    found: Stream | None = context.stream
    return found


def default_stream(device: str | None = None, *, per_thread: bool = False) -> Stream:
    """CUDA's default stream, in one of its two meanings.

    The legacy one is one for the whole process. It waits for every ordinary ("blocking") stream, and they for it.

    Parameters
    ----------
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.
    per_thread : bool, default False
        Whether it is the one of this thread, an ordinary stream.

    Returns
    -------
    Stream

    Raises
    ------
    OptionError
        For a device that there is no name for.
    DeviceUnavailableError
        For one that is not here.

    Examples
    --------
    >>> with kg.stream(kg.default_stream("cuda")):  # doctest: +SKIP
    ...     y = f(x)
    """
    return Stream.external(2 if per_thread else 1, device)


def synchronize(device: str | None = None) -> None:
    """Wait for all work on a device (default: the default one). What failed raises where its arrays are read.

    Parameters
    ----------
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Raises
    ------
    OptionError
        For a device that there is no name for.
    DeviceUnavailableError
        For one that is not here.

    Examples
    --------
    >>> x = kg.kernel_graph(lambda x: x + 1)(np.zeros(2))
    >>> kg.synchronize()
    >>> x.is_ready()
    True
    """
    device_named(device).synchronize()


def streams_of_other_libraries(device: Device) -> list[Any]:
    """The streams that other loaded libraries put their work on at present; the legacy one."""
    found = {1: device.foreign_stream(1)}
    for name in CURRENT:
        stream = stream_of(name, device)
        if stream is not None:
            found.setdefault(stream.handle, stream)
    return list(found.values())


def stream_of(library: str, device: Device) -> Any:
    """The stream that a library puts its work on at present; None for one that is not loaded or has no such thing. What
    it gives keeps the library's own object alive, and so the handle valid."""
    module, current = sys.modules.get(library), CURRENT.get(library)
    if module is None or current is None:
        return None
    try:
        stream = current(module, device.index)
    except Exception:  # it has no GPU, or is still being imported
        return None
    return device.foreign_stream(_native_stream_handle(stream), stream)


# what calls do under streams


def caller_streams(device: Device, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The streams that a call is forked from and joined to: the current one, and those of arrays that others share."""
    found: dict[int, Any] = {}
    current = context.stream
    if current is not None and current._device is device:
        found[current.handle] = current._stream
    for leaf in leaves:
        shared = getattr(getattr(leaf, "_memory", None), "streams", None)
        if shared is not None and leaf._device is device:
            for each in shared():
                found.setdefault(each.handle, each)
    return tuple(found.values())


def within_capture_of_user_stream(device: Device, caller: Sequence[Any]) -> AbstractContextManager[None] | None:
    """What a call under a stream that somebody captures runs within; None for any other call."""
    if not any(each.capturing for each in caller):
        return None
    return device.relaxed()


def fork_call_from_streams(caller: Sequence[Any], after: list[tuple[int, Any]], buffers: int) -> list[tuple[Any, ...]]:
    """Put a run behind what is on the streams."""
    return [each.fork(after, buffers) for each in caller]


def join_call_to_streams(
    caller: Sequence[Any], forked: Sequence[tuple[Any, ...]], events: Sequence[Any], ends: Sequence[int], kept: Any
) -> bool:
    """Put what comes on the streams behind a run; ends: which of its events do. Whether a graph has it, and `kept`."""
    last = [events[i] for i in ends]
    for each, its in zip(caller, forked, strict=True):
        each.join(last, its, kept)
    if captured := any(getattr(event, "captured", False) for event in last):
        note_memory_is_rewritten(kept)
    return captured


__all__ = ["Event", "Stream", "current_stream", "default_stream", "stream", "synchronize", "waitall"]
