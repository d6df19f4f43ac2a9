"""GPU memory that other libraries share: theirs borrowed for a call or an array, ours lent to them.

What is shared is written and read by others on streams of theirs. So each use of it is forked from those streams and
joined to them, on the device; and memory goes back to its owner when the last use is over.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType, dtype_of
from ...runtime.core.frozen import frozen
from ...runtime.core.readable_text import with_article
from ...runtime.program.device import Device
from ...runtime.program.plan import ENTRY
from ..array.array import Array, copied_on_device, from_numpy
from ..array.devices import DeviceUnavailableError, open_device
from ..array.in_flight import events_using_memory, track_memory
from ..array.made_of import is_memory_lent, note_memory_is_rewritten
from ..array.streams import stream_of, streams_of_other_libraries
from ..core.errors import ArgumentsError, DTypeError, ReadOnlyError
from ..core.object_model import dict_of_object
from ..core.spec import strided_spec
from . import dlpack

LEGACY = 1
UNKNOWN = -1  # in place of a handle: the holder works on streams that it has not told
NO_HANDSHAKE = -1  # DLPack's way to say that the consumer has seen to the order itself


@frozen
class MemoryProducer:
    """Whose memory it is. streams: gives the streams that he works on at present; handle: that of the only one, where
    it is quickly told, 0 for the legacy default stream."""

    streams: Callable[[], Sequence[Any]]
    handle: Callable[[], int] | None = None


class ImportedMemory:
    """Somebody else's memory. address: of its lowest byte; start: from there to the first element."""

    __slots__ = ("address", "nbytes", "owner", "producer", "readonly", "start")

    def __init__(
        self, address: int, nbytes: int, start: int, owner: Any, readonly: bool, producer: MemoryProducer
    ) -> None:
        self.address, self.nbytes, self.start = address, nbytes, start
        self.owner, self.readonly, self.producer = owner, readonly, producer

    def streams(self) -> Sequence[Any]:
        return self.producer.streams()


def extent_of_shared_memory(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The bytes before an array's first element, and those from there to its end. The former begin at its lowest
    one. strides: in bytes."""
    if 0 in shape:
        return 0, 0
    reach = [s * (n - 1) for n, s in zip(shape, strides, strict=True)]
    return -sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + itemsize


class ExportedMemory:
    """Our memory that others hold: pinned while they do, and until what they launched on it is done."""

    __slots__ = ("__weakref__", "_array", "_device", "_holders", "_past", "address", "inner", "nbytes", "start")
    readonly = False

    def __init__(self, array: Array) -> None:
        self.inner, self._device, self._array = array._memory, array._device, weakref.ref(array)
        self.address, self.nbytes, self.start = self.inner.address, self.inner.nbytes, 0
        self._holders: dict[object, Any] = {}  # the stream of each; None for one that has not told
        self._past: list[Any] = []  # what holders that let go may still be doing

    def add(self, handle: int) -> object:
        """A holder, which works on a stream (or UNKNOWN), and keeps that as long."""
        token = object()
        own = [stream for stream in streams_of_other_libraries(self._device) if stream.handle == handle]
        foreign = self._device.foreign_stream
        self._holders[token] = None if handle == UNKNOWN else own[0] if own else foreign(handle)
        return token

    @property
    def has_unknown_consumer(self) -> bool:
        """Whether there is a holder that has not told its stream."""
        return None in self._holders.values()

    def drop(self, token: object) -> None:
        """A holder lets go."""
        stream = self._holders.pop(token)
        self._past += [stream.record() for stream in self._streams_of_holders([stream])]

    @property
    def is_held(self) -> bool:
        self._past = [event for event in self._past if not event.query()]
        return bool(self._holders or self._past)

    def streams(self) -> Sequence[Any]:
        return [*self._streams_of_holders(self._holders.values()), *map(SharedMemoryEventStream, self._past)]

    def _streams_of_holders(self, holders: Any) -> list[Any]:
        found = {stream.handle: stream for stream in holders if stream is not None}
        if None in holders:
            found |= {stream.handle: stream for stream in streams_of_other_libraries(self._device)}
        return list(found.values())

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        events = [*self._past, *(stream.record() for stream in self._streams_of_holders(self._holders.values()))]
        if events:
            track_memory(tuple(events), (self.inner,))


class SharedMemoryEventStream:
    """An event in a stream's place: something to come after."""

    capturing = False

    def __init__(self, event: Any) -> None:
        self.event, self.handle = event, -id(event)

    def fork(self, after: list[tuple[int, Any]], buffers: int) -> tuple[Any, ...]:
        after.append((ENTRY, self.event))
        return ()

    def join(self, events: Sequence[Any], forked: tuple[Any, ...], kept: Any) -> None:
        """Nothing comes after it."""

    def record(self) -> Any:
        return self.event


SHARED = frozenset({ImportedMemory, ExportedMemory})


class SharedArray(Array):
    """A `kg.Array` whose memory others share. Calls take it the long way: see `shared_array_as_call_leaf`."""

    __slots__ = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values as they are now: others may write them, so that nothing is kept."""
        memory: Any = self._memory
        self.wait()
        for stream in memory.streams():
            stream.record().wait()
        raw = np.empty(memory.nbytes, np.uint8)
        self._device.download(memory, raw)
        host = np.ndarray(self.shape, self.dtype, raw.data if raw.size else None, memory.start, self._spec.strides)
        found = np.ascontiguousarray(host).reshape(self.shape)
        found.flags.writeable = False
        return found


def shared_array_as_call_leaf(array: SharedArray) -> Array:
    """The array as calls use it; one that nobody shares any more is an ordinary one from now on."""
    memory: Any = array._memory
    if type(memory) is ExportedMemory and not memory.is_held:
        array._memory = memory.inner
        array.__class__ = Array  # type: ignore[assignment]
        return array
    return Array(memory, array._spec, array._device, array._event)


def copied_to(leaf: Array, device: Device) -> Array:
    """A leaf whose memory is shared, copied to another device."""
    return from_numpy(shared_memory_of_array(leaf).numpy(), device, own=True)


def shared_memory_of_array(leaf: Array) -> SharedArray:
    return SharedArray(leaf._memory, leaf._spec, leaf._device, leaf._event)


# borrowing


def gpu_of_foreign_array(value: Any) -> int | None:
    """The number of the GPU whose memory somebody's array lies in; None for any other value."""
    if isinstance(value, (type, np.ndarray, np.generic, Array)):
        return None
    place = dlpack_device_of(value)
    if place is not None:
        return place[1] if place[0] == dlpack.CUDA else None
    return 0 if isinstance(attribute_of_foreign_value(value, "__cuda_array_interface__"), dict) else None


def attribute_of_foreign_value(value: Any, name: str) -> Any:
    """What a value has of a name itself, or by its class; None for what it but makes up for every name it is asked."""
    if name in (dict_of_object(value) or ()) or any(name in vars(base) for base in type(value).__mro__):
        return getattr(value, name, None)
    return None


def dlpack_device_of(value: Any) -> tuple[int, int] | None:
    """DLPack's kind and number of a device; None for what has no DLPack. PyTorch's own method takes 25 us.
    Raises ArgumentsError for what has no memory any more."""
    method = attribute_of_foreign_value(value, "__dlpack_device__")
    if not callable(method):
        return None
    try:
        torchs = getattr(getattr(value, "device", None), "type", None)
        if isinstance(torchs, str) and torchs in _TORCH:
            return _TORCH[torchs], value.device.index or 0
        kind, index = method()
    except (RuntimeError, ValueError) as error:  # JAX's, of an array that was deleted; PyTorch's, of one without memory
        raise ArgumentsError(f"{library_type_name(value)} cannot be read: {str(error).rstrip('.')}") from None
    return int(kind), int(index)


_TORCH = {"cpu": 1, "cuda": dlpack.CUDA}


def import_array(value: Any, index: int, lasts: bool = False) -> SharedArray:
    """Somebody's array in the memory of GPU `index`, without a copy. lasts: for longer than one call.
    Raises ArgumentsError, DTypeError."""
    try:
        device = open_device(("cuda", index))
    except DeviceUnavailableError:
        raise foreign_array_device_error(value) from None
    if getattr(value, "is_neg", bool)():  # PyTorch's, which DLPack cannot tell
        raise ArgumentsError(
            f"{library_type_name(value)} cannot be read: its negative bit is set; write x.resolve_neg()"
        )
    library = type(value).__module__.partition(".")[0]
    stream = stream_of(library, device)
    known, event = stream is not None, None
    try:
        if hasattr(value, "__dlpack__"):
            side = stream or device.handshake_stream  # type: ignore[attr-defined]
            owner = _request_dlpack_capsule(value, device, side.handle)
            tensor = dlpack.read_capsule(owner)
            if 0 not in tensor.shape and hasattr(value, "data_ptr") and not has_torch_storage(value):
                raise BufferError("its storage was resized to nothing")
            event = None if stream and not lasts else side.record()
        else:
            tensor, handle = _read_cuda_array_interface(value.__cuda_array_interface__)
            owner, stream = value, stream or device.foreign_stream(handle)
            event = stream.record() if lasts else None
    except (BufferError, RuntimeError, ValueError, AttributeError, KeyError) as error:
        raise ArgumentsError(f"{library_type_name(value)} cannot be read: {export_refusal(error, value)}") from None
    except TypeError as error:
        raise DTypeError(f"{library_type_name(value)} cannot be read: {error}; convert it to float32, say") from None
    fixed = (stream or device.foreign_stream(LEGACY),)
    low, high = extent_of_shared_memory(tensor.shape, tensor.strides, tensor.dtype.itemsize)
    producer = MemoryProducer(lambda: [stream_of(library, device)] if known and lasts else fixed)
    memory = ImportedMemory(tensor.address - low, low + high, low, (owner, value), tensor.readonly, producer)
    spec = strided_spec(ArrayType(tensor.shape, tensor.dtype), tensor.strides, tensor.address % 16 == 0)
    return SharedArray(memory, spec, device, event)


def _request_dlpack_capsule(value: Any, device: Device, handle: int) -> Any:
    device.make_current()  # PyTorch hands over tensors of the current GPU only
    try:
        return value.__dlpack__(stream=handle, max_version=dlpack.VERSION)
    except TypeError:  # a producer from before DLPack 1.0
        return value.__dlpack__(stream=handle)


def export_refusal(error: Exception, value: Any) -> str:
    """Why a producer does not hand over an array, and what to write instead."""
    reason = str(error).rstrip(".")
    if getattr(value, "requires_grad", False):
        return f"{reason}; write x.detach()"
    return f"{reason}; write x.resolve_conj()" if getattr(value, "is_conj", bool)() else reason


def has_torch_storage(tensor: Any) -> bool:
    """Of a tensor of PyTorch, whether its storage was not resized to nothing: then its address is but an offset."""
    place, offset = tensor.data_ptr(), tensor.storage_offset()
    return bool(place and (not offset or place != offset * tensor.element_size()))


def _read_cuda_array_interface(given: dict[str, Any]) -> tuple[dlpack.DLPackTensor, int]:
    """What a `__cuda_array_interface__` says, and the stream to follow."""
    if given.get("mask") is not None:
        raise BufferError("it has a mask")
    dtype = np.dtype(given["typestr"])
    dtype = dtype_of(dtype)
    shape = tuple(map(int, given["shape"]))
    strides = given.get("strides")
    steps = dlpack.dlpack_byte_strides(shape, dtype.itemsize) if strides is None else tuple(map(int, strides))
    address, readonly = given["data"]
    return dlpack.DLPackTensor(int(address or 0), (2, 0), shape, steps, dtype, bool(readonly)), given.get(
        "stream"
    ) or LEGACY


def foreign_array_device_error(value: Any) -> ArgumentsError:
    return ArgumentsError(
        f"{library_type_name(value)} lies in the memory of another device; copy it first: x.cpu(), np.asarray(x), "
        "x.copy_to_host() or kg.asarray(..., device=...)"
    )


def library_type_name(value: Any) -> str:
    return with_article(f"{type(value).__module__.partition('.')[0]} {type(value).__name__}")


def check_shared_memory_writable(target: Array, others: Sequence[Any]) -> None:
    """Raises where a function may not assign to an array whose memory others share."""
    memory: Any = target._memory
    if memory.readonly:
        raise ReadOnlyError("the function assigns to an argument that is read-only; pass a copy")
    if type(memory) is ImportedMemory and not target._spec.contiguous:
        raise ReadOnlyError("the function assigns to an argument that is not contiguous; pass x.contiguous()")
    start, end = memory.address, memory.address + memory.nbytes
    for other in others:
        its = getattr(other, "_memory", None)
        if its is None or other._device is not target._device:
            continue
        if its.address < end and start < its.address + its.nbytes:
            raise ArgumentsError("the function assigns to an argument whose memory another shares; pass a copy")


def write_back_to_memory_owner(given: Any, leaf: Array, memory: Any) -> None:
    """What a call assigned to a leaf, for the caller. memory: the leaf's before the call."""
    if type(memory) is ExportedMemory or isinstance(given, SharedArray):  # who holds the memory keeps the old values
        given._memory, given._event, given._host = leaf._memory, leaf._event, None
        given.__class__ = Array
        return
    for stream in memory.streams()[:1]:
        if leaf._event is not None:
            stream.wait(leaf._event)
        stream.copy(memory.address, leaf._memory.address, memory.nbytes)
        if not stream.capturing:
            track_memory((stream.record(),), (leaf._memory, memory))


# lending


def export_array(array: Array, handle: int) -> tuple[ExportedMemory, object]:
    """Somebody is about to hold the array's memory, and to use it on a stream."""
    memory: Any = array._memory
    if type(memory) is ImportedMemory:
        raise BufferError("the array's memory is another library's; pass that array on, or copy it: kg.array(x)")
    if type(memory) is not ExportedMemory:
        if is_memory_lent(memory):
            own = copied_on_device(array, array._device)
            array._memory, array._event = own._memory, own._event
        note_memory_is_rewritten([array._memory])
        memory = ExportedMemory(array)
        array._memory, array._host = memory, None
        array.__class__ = SharedArray
    return memory, memory.add(handle)


def pending_events_of_exported_memory(array: Array, memory: Any) -> list[Any]:
    """The events that somebody who is to read and write the memory has to follow: its writer's and its readers'."""
    inner = getattr(memory, "inner", memory)
    own = [] if array._event is None else [array._event]
    return [*own, *events_using_memory(inner), *(events_using_memory(memory) if inner is not memory else ())]


def dlpack_capsule(array: Array, stream: Any, versioned: bool) -> Any:
    """The array in a DLPack capsule, writable. stream: the consumer's, as DLPack numbers them, which then waits on the
    device for what is still to be written and read."""
    if stream == 0 or (stream is not None and not isinstance(stream, int)):
        raise BufferError(f"stream={stream!r}: DLPack takes None, -1, 1, 2 or a CUDA stream's handle")
    handle = LEGACY if stream is None else stream
    memory, token = export_array(array, UNKNOWN if handle == NO_HANDSHAKE else handle)
    if handle != NO_HANDSHAKE:
        holder = array._device.foreign_stream(handle)
        for event in pending_events_of_exported_memory(array, memory):
            holder.wait(event)
    spec = array._spec
    place = (dlpack.CUDA, array._device.index)
    tensor = dlpack.DLPackTensor(memory.address, place, spec.shape, spec.strides, spec.dtype, False)
    return dlpack.make_capsule(tensor, versioned, lambda: memory.drop(token))


def cuda_array_interface(array: Array) -> dict[str, Any]:
    """`__cuda_array_interface__`, version 3. Whoever asks may hold the memory for as long as the array lives."""
    memory: Any = array._memory
    if type(memory) is not ExportedMemory or not memory.has_unknown_consumer:
        try:
            memory, _ = export_array(array, UNKNOWN)
        except BufferError as error:
            raise AttributeError(str(error)) from None
    side = array._device.handshake_stream  # type: ignore[attr-defined]
    events = [event for event in pending_events_of_exported_memory(array, memory) if not event.query()]
    for event in events:
        side.wait(event)
    return {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (memory.address, False),
        "strides": None,
        "version": 3,
        "stream": side.handle if events else None,
    }
