"""`kg.Array`: an array in a device's memory that may still be on its way; reading it waits for it alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Generator, Iterator
from functools import lru_cache
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, overload

import numpy as np

from ...compiler.core.types import ArrayType, dtype_of
from ...runtime.core.errors import OutOfMemory
from ...runtime.core.readable_text import with_article
from ...runtime.program.device import Device, Event, Memory, error_of_event
from ..core.context import context
from ..core.errors import ArgumentsError, DTypeError, MissingAttributeError, TraceError, error_at_user_line
from ..core.spec import SCALAR_TYPES, Host, Spec, address, spec_of
from .devices import DeviceName, device_named, device_place_of_name, name_of, open_device
from .in_flight import forget_finished_calls, make_room, track_memory

if TYPE_CHECKING:
    from .methods import ArrayMethods, Scalar  # what `jit/eager` and `__getattr__` give, for type checkers
else:
    Scalar = TypeVar("Scalar")

    class ArrayMethods:
        """What `kg.Array[np.float64]` means in annotations."""

        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)


S = TypeVar("S", bound=np.generic)

CPU_DEVICE = (1, 0)
WRITES_ALL = frozenset({"torch"})  # libraries whose DLPack disregards that memory is read-only
WRITABLE = 1  # inspect.BufferFlags.WRITABLE


class NumpyMemory:
    """The memory of a NumPy array that nobody else writes."""

    __slots__ = ("address", "array", "nbytes")

    def __init__(self, array: Host) -> None:
        self.array = array
        self.address = address(array)
        self.nbytes = array.nbytes


class KgArrayOperations(Protocol):
    """What arrays do by means of the folders above, of which `jit/eager` gives `Array` this."""

    def get_item(self, array: Array, key: Any) -> Array: ...

    def set_item(self, array: Array, key: Any, value: Any) -> None: ...

    def run_ufunc(self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any: ...

    def run_function(self, function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any: ...

    def bound_method(self, array: Array, name: str) -> Any: ...

    def method_names(self) -> list[str]: ...

    def traced(self, x: Any, dtype: Any, copy: bool | None) -> Array | None:
        """`asarray` in a trace; None where x holds no traced value."""
        ...

    def imported(self, x: Any) -> Any:
        """Another library's array as an Array of its GPU's memory, or as NumPy's; anything else as it is."""
        ...

    def capsule(self, array: Array, stream: Any, versioned: bool) -> Any: ...

    def interface(self, array: Array) -> dict[str, Any]: ...

    def owners_in_words(self, device: Device) -> str:
        """Who holds a device's memory."""
        ...

    def restore(self, values: Host, device: str) -> Array:
        """An array that was pickled."""
        ...


class Array(ArrayMethods[Scalar]):
    """A C-contiguous array on a device. Operations outside of a decorated function are queued, with NumPy's meaning;
    they give new arrays, and only `x[...] = value` changes one.

    Examples
    --------
    >>> x = kg.asarray([[1.0, 2.0]])
    >>> (x + 1).sum().item(), x.device, x.shape
    (5.0, 'cpu', (1, 2))
    """

    __slots__ = ("__weakref__", "_device", "_event", "_host", "_memory", "_part", "_spec")
    operations: ClassVar[KgArrayOperations]

    def __init__(self, memory: Memory, spec: Spec, device: Device, event: Event | None = None) -> None:
        """event: when the memory holds the values; None if it does already."""
        self._memory = memory
        self._spec = spec
        self._device = device
        self._event = event
        self._host: Host | None = None
        self._part = False  # set where NumPy's result would be a view of an array that this one is a copy of

    # what it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spec.shape

    @property
    def dtype(self) -> np.dtype[Scalar]:
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        return len(self._spec.shape)

    @property
    def size(self) -> int:
        return self._spec.size

    @property
    def nbytes(self) -> int:
        return self._spec.nbytes

    @property
    def itemsize(self) -> int:
        return self._spec.dtype.itemsize

    @property
    def device(self) -> DeviceName:
        """`cpu`, or `cuda:0` and the like."""
        return name_of(self._device)

    # waiting and reading

    def wait(self) -> Self:
        """Wait for this array alone. Raises, at every call, what the work that makes it raised."""
        if self._event is not None:
            try:
                self._event.wait()
            except Exception as error:
                raise error_at_user_line(error)  # noqa: B904  # the same one
            self._event = None
            forget_finished_calls()
        return self

    def is_ready(self) -> bool:
        """Whether `wait` would return at once."""
        return self._event is None or self._event.query()

    def __await__(self) -> Generator[Any, None, Self]:
        """`await x` waits as `wait` does, while other tasks of the event loop run."""
        if (event := self._event) is not None and not event.query():
            from asyncio import get_running_loop

            yield from get_running_loop().run_in_executor(None, error_of_event, event)
        return self.wait()

    def numpy(self) -> np.ndarray[tuple[Any, ...], np.dtype[Scalar]]:
        """The values as a read-only NumPy array. On the CPU it is a view of the memory, else a copy made once."""
        if self._event is not None:
            try:
                self.wait()
            except Exception as error:
                raise error_at_user_line(error)  # noqa: B904  # the same one
        host = self._host
        if host is None:
            memory = self._memory
            self._host = host = self._read()
            if self._memory is not memory:  # another thread has assigned to it since
                self._host = None
        return host

    def _read(self) -> Host:
        if self._device.host_memory:
            host = self._host_view()
        else:
            host = self._device.read(self._memory, self._spec.shape, self._spec.dtype)
        host.setflags(write=False)
        return host

    def _host_view(self) -> Host:
        """The CPU's memory as a NumPy array, which can be written to."""
        memory: Any = self._memory
        spec = self._spec
        return memory.array.view() if type(memory) is NumpyMemory else np.ndarray(spec.shape, spec.dtype, memory)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Host:
        host = self.numpy()
        if dtype is not None and np.dtype(dtype) != host.dtype:
            if copy is False:
                raise ValueError(f"{with_article(host.dtype)} array cannot become {np.dtype(dtype)} without a copy")
            return host.astype(dtype)
        return host.copy() if copy else host

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of the values, without a copy: on the CPU once they are there, read-only; on a GPU at once,
        writable: the consumer's `stream` waits for the values on the device, and the memory is pinned until it lets go.

        A library that writes to what is read-only (PyTorch) gets a copy. A consumer from before DLPack 1.0 knows
        nothing of read-only and gets a copy, but for one that asks for the memory itself (`copy=False`). One that asks
        for the CPU (`dl_device=(1, 0)`) gets a copy from other devices.
        Raises BufferError where that is not possible."""
        on_cpu = self._device.host_memory
        if self._device.foreign_streams and dl_device in (None, self.__dlpack_device__()):
            given = array(self) if copy else self
            return self.operations.capsule(given, stream, max_version is not None and max_version >= (1, 0))
        if not on_cpu and (dl_device != CPU_DEVICE or copy is False):
            raise BufferError(f"__dlpack__ of an array on {self.device} is not supported; write np.asarray(x)")
        knows = max_version is not None and max_version >= (1, 0)
        if on_cpu and sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] in WRITES_ALL:
            if copy is False:
                raise BufferError("the consumer would write to memory that it must not; leave copy=False out")
            knows, copy = False, True
        values: Host = self.wait()._host_view() if on_cpu and not knows and copy is False else self.numpy()
        options: Any = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        if copy is None and not (knows and on_cpu):
            options["copy"] = True
        return values.__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind and number of the device."""
        if self._device.exchange is None:
            raise BufferError(f"an array on {self.device} has no values to exchange")
        return (self._device.exchange, 0 if self._device.host_memory else self._device.index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, for numba, CuPy and others. The memory is pinned for as long as the array lives: calls that use it
        come after what other libraries do on their streams, and before what they do later."""
        if not self._device.foreign_streams:
            raise AttributeError(f"an array on {self.device} has no __cuda_array_interface__")
        return self.operations.interface(self)

    def to_device(self, device: str, /, *, stream: None = None) -> Array[Scalar]:
        """The same values on another device. From one GPU to another they go directly, and nobody waits.

        Parameters
        ----------
        stream : None, optional
            None only, since the copy has a stream of its own.
        """
        if stream is not None:
            raise ArgumentsError("to_device chooses the stream itself; leave stream out")
        return asarray(self, device=device)

    def item(self, *index: Any) -> Any:
        return self.numpy().item(*index)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __complex__(self) -> complex:
        return complex(self.numpy())

    def __index__(self) -> int:
        host: Host = self.numpy()
        return host.__index__()

    def __round__(self, digits: Any = None) -> Any:
        return round(self._scalar_value("round(x)", "np.round(x, decimals)"), digits)

    def __trunc__(self) -> Any:
        return math.trunc(self._scalar_value("math.trunc(x)", "np.trunc(x)").item())

    def __floor__(self) -> Any:
        return math.floor(self._scalar_value("math.floor(x)", "np.floor(x)").item())

    def __ceil__(self) -> Any:
        return math.ceil(self._scalar_value("math.ceil(x)", "np.ceil(x)").item())

    def __hash__(self) -> int:
        return hash(self._scalar_value("hash(x), as of a dict's key,", "np.asarray(x).tobytes()"))

    def _scalar_value(self, what: str, instead: str) -> Any:
        """The value of a 0-d array, as a NumPy scalar. Raises DTypeError."""
        if self.shape:
            raise DTypeError(f"{what} takes one number, and this array has shape {self.shape}; write {instead}")
        return self.numpy()[()]

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("a 0-d array has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array[Scalar]]:
        if not self.shape:
            raise DTypeError("a 0-d array cannot be iterated over; use float(x) or x.item()")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return value in self.numpy()

    def __getitem__(self, key: Any) -> Array[Scalar]:
        return self.operations.get_item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if context.trace is not None:
            raise TraceError("a traced function cannot assign to an array from outside; pass it as an argument")
        self.operations.set_item(self, key, value)

    def __repr__(self) -> str:
        return repr(self.numpy())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython and notebooks show: the array and, where it stands alone, its device."""
        printer.text(f"{self!r}  # on {self.device}" if len(printer.stack) < 2 else repr(self))

    def __str__(self) -> str:
        return str(self.numpy())

    def __format__(self, spec: str) -> str:
        if spec and self.shape:
            self._scalar_value(f"the format {spec!r}", "np.array2string(x, precision=3), or f'{x}'")
        return format(self.numpy()[()] if not self.shape else self.numpy(), spec)

    def __reduce__(self) -> Any:
        return self.operations.restore, (np.array(self.numpy()), self.device)

    def __copy__(self) -> Array[Scalar]:
        return from_numpy(self.numpy(), self._device)

    def __deepcopy__(self, memo: Any) -> Array[Scalar]:
        return from_numpy(self.numpy(), self._device)

    def __buffer__(self, flags: int) -> memoryview:
        """Python's buffer protocol (from Python 3.12 on), read-only, on the CPU. Raises BufferError."""
        if not self._device.host_memory:
            raise BufferError(f"an array on {self.device} has no host memory; write np.asarray(x)")
        if flags & WRITABLE:
            raise BufferError("a kg.Array is read-only as a buffer; write np.array(x) for a copy")
        host: Any = self.numpy()
        return memoryview(host)

    # operations: see `eager`

    @property
    def T(self) -> Array[Scalar]:
        return self.transpose()

    @property
    def mT(self) -> Array[Scalar]:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> Array:
        part: Array = np.real(self)
        return part

    @property
    def imag(self) -> Array:
        part: Array = np.imag(self)
        return part

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return self.operations.run_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self.operations.run_function(function, args, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return sys.modules[__name__.partition(".")[0]]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name[:2] == "__":  # NumPy asks for two protocols at each np.asarray
                raise AttributeError(f"'Array' object has no attribute {name!r}")
            try:
                return self.operations.bound_method(self, name)
            except MissingAttributeError as error:
                raise error_at_user_line(error)  # noqa: B904  # the same one

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.operations.method_names()})


def from_numpy(values: Any, device: Device, own: bool = False, later: bool = False) -> Array:
    """NumPy's values on a device. own: nobody else writes to them, so that the CPU may keep the memory as it is. later:
    they may be read until the result is ready, by a GPU that reads them itself."""
    host = np.asarray(values)
    spec = _spec_of_host_array(host.shape, host.dtype)
    dtype = spec.dtype
    fits = host.flags.c_contiguous and host.dtype == dtype
    if own and fits and device.host_memory and address(host) % 16 == 0:
        return Array(NumpyMemory(host), spec, device)
    memory = _allocate_memory_of_array(device, spec.nbytes)
    dense = np.ascontiguousarray(host, dtype).reshape(spec.shape)
    if later:
        event = device.upload_later(dense, memory)
        track_memory((event,), (memory, dense))
        return Array(memory, spec, device, event)
    event = device.upload(dense, memory)
    return Array(memory, spec, device, None if device.host_memory else event)  # the CPU has copied on return


def _allocate_memory_of_array(device: Device, nbytes: int) -> Memory:
    """Memory, as soon as there is room for it. Raises OutOfMemory, which names who has it."""
    while True:
        try:
            return device.allocate(nbytes)
        except OutOfMemory as error:
            if not make_room(device):
                raise OutOfMemory(f"{error}; {Array.operations.owners_in_words(device)}") from None


def own_numpy_array(host: Host, device: Device) -> Array | None:
    """A new NumPy array that nobody else has, as it lies in the CPU's memory; None where it has to be copied."""
    if not host.flags.carray or host.base is not None or not device.host_memory:
        return None
    spec, memory = _spec_of_array_in_place(host.shape, host.dtype), NumpyMemory(host)
    return None if spec is None or memory.address & 15 else Array(memory, spec, device)


@lru_cache(4096)
def _spec_of_array_in_place(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spec | None:
    """The spec of NumPy's values as they lie; None for those that no `kg.Array` has, or in another byte order."""
    spec = _spec_of_host_array(shape, dtype) if dtype.type in SCALAR_TYPES else None
    return spec if spec is not None and spec.dtype == dtype else None


@lru_cache(4096)
def _spec_of_host_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spec:
    """The spec of NumPy's values, in this machine's byte order."""
    try:
        return spec_of(ArrayType(shape, dtype_of(dtype if dtype.isnative else dtype.newbyteorder("="))))
    except TypeError as error:
        raise DTypeError(str(error)) from None


def snapshot(x: Any) -> Any:
    """An array's values as they are now, whatever is assigned to it later; what is no array comes back itself.

    A NumPy array is copied; a `kg.Array` shares its memory, which assignment leaves alone while two hold it."""
    if isinstance(x, Array):
        return Array(x._memory, x._spec, x._device, x._event)
    return x.copy() if isinstance(x, np.ndarray) else x


@overload
def asarray(
    x: Any, dtype: type[S] | np.dtype[S], *, device: str | None = None, copy: bool | None = None
) -> Array[S]: ...


@overload
def asarray(
    x: Array[S] | np.ndarray[Any, np.dtype[S]],
    dtype: None = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
) -> Array[S]: ...


@overload
def asarray(x: Any, dtype: Any = None, *, device: str | None = None, copy: bool | None = None) -> Array: ...


def asarray(x: Any, dtype: Any = None, *, device: str | None = None, copy: bool | None = None) -> Array:
    """Values in a `kg.Array`; a `kg.Array` that already is as asked for comes back itself.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    dtype : optional
        A dtype, as NumPy takes it.
    device : str, optional
        `cpu`, `cuda`, ... (default: where `x` is, else the default device).
    copy : bool, optional
        Whether the result has memory of its own; None as needed.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
        Where copy=False but a copy is needed.
    ValueError
        Where copy=False but a copy is needed.

    Examples
    --------
    >>> kg.asarray([1, 2]) + 1
    array([2, 3])
    """
    place = device_place_of_name(device)
    if context.trace is not None and (traced := Array.operations.traced(x, dtype, copy)) is not None:
        return traced
    if isinstance(x, Array):
        same_place = place is None or (x._device.kind, x._device.index) == place
        if same_place and (dtype is None or x.dtype == np.dtype(dtype)) and not copy:
            return x
        _check_asarray_copy_allowed(copy)
        target = x._device if place is None else open_device(place)
        near = target is not x._device and target.kind == x._device.kind
        if near and dtype in (None, x.dtype) and not hasattr(x._memory, "streams"):  # which others work on
            return copied_on_device(x, target)
        return from_numpy(np.asarray(x.numpy(), dtype), target)
    found = Array.operations.imported(x)
    if isinstance(found, Array):
        return asarray(found, dtype, device=device, copy=copy)
    _check_asarray_copy_allowed(copy)
    return from_numpy(np.asarray(found, dtype), device_named(device))


def copied_on_device(x: Array, target: Device) -> Array:
    """A copy on another device of its kind. It may still be on its way."""
    source, memory, event = x._device, x._memory, x._event
    copy = _allocate_memory_of_array(target, x.nbytes)
    done = target.copy_from(source, memory, copy, x.nbytes, event)
    if done.query() and error_of_event(done) is None:
        return Array(copy, x._spec, target)
    track_memory((done,), (memory, copy))
    return Array(copy, x._spec, target, done)


def on_device(given: Any, device: Device) -> Array:
    """Values where a device can read them: an array that lies there, or a copy, which may be on its way."""
    if not isinstance(given, Array):
        return from_numpy(given, device)
    return given if given._device is device else asarray(given, device=f"{device.kind}:{device.index}")


def _check_asarray_copy_allowed(copy: bool | None) -> None:
    if copy is False:
        raise ValueError("only a kg.Array of this dtype on this device comes without a copy; leave copy=False out")


@overload
def array(x: Any, dtype: type[S] | np.dtype[S], *, device: str | None = None) -> Array[S]: ...


@overload
def array(x: Array[S] | np.ndarray[Any, np.dtype[S]], dtype: None = None, *, device: str | None = None) -> Array[S]: ...


@overload
def array(x: Any, dtype: Any = None, *, device: str | None = None) -> Array: ...


def array(x: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """As `asarray`, always with memory of its own.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    dtype : optional
        A dtype, as NumPy takes it.
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> mine = np.zeros(2)
    >>> copy = kg.array(mine)
    >>> mine[0] = 5.0
    >>> copy
    array([0., 0.])
    """
    return asarray(x, dtype, device=device, copy=True)
