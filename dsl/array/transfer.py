"""Batches on their way to and from a device while it computes: page-locked arrays, copies that are not waited for,
and iterables that are read ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Queue
from typing import Any, TypeVar

import numpy as np

from ...compiler.core.types import ArrayType
from ...runtime.program.device import Device
from ..core.errors import OptionError
from ..core.pytree import flatten, unflatten
from ..core.spec import Host, checked_dtype, spec_of, to_shape
from .array import Array, NumpyMemory, asarray, from_numpy
from .devices import device_named
from .in_flight import track_memory

T = TypeVar("T")


def pinned_empty(shape: Any, dtype: Any = np.float64, *, device: str | None = None) -> Host:
    """An uninitialised NumPy array in page-locked memory, which a GPU copies fastest.

    On the CPU it is an ordinary array.

    Parameters
    ----------
    shape
        An int or a sequence of ints.
    dtype : optional
        A dtype, as NumPy takes it.
    device : str, optional
        Whose copies it is for.

    Returns
    -------
    numpy.ndarray

    Raises
    ------
    DTypeError
    ShapeError
    OutOfMemory

    Examples
    --------
    >>> kg.pinned_empty((2, 3), "f4", device="cpu").shape
    (2, 3)
    """
    lengths, kind = to_shape(shape), checked_dtype(dtype)
    pinned = device_named(device).pinned_empty(lengths, kind)
    return np.empty(lengths, kind) if pinned is None else pinned


def to_device(x: Any, device: str | None = None, *, non_blocking: bool = False) -> Array:
    """The values on `device` (default: the default device). A `kg.Array` that is there already comes back itself.

    Parameters
    ----------
    x : array_like
        An array, or a tuple, list, dict or dataclass of arrays.
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.
    non_blocking : bool, default False
        Return at once where the copy can go on by itself. From a page-locked array (`pinned_empty`) to a GPU: leave the
        array as it is until the result is ready (`wait`). From a GPU to the CPU: the result is a `kg.Array` in
        page-locked memory that is still on its way. Anything else has been read on return, as without it.

    Returns
    -------
    Array

    Raises
    ------
    OptionError
        For a device that there is no name for.
    DeviceUnavailableError
        For one that is not here.

    Examples
    --------
    >>> kg.to_device(np.ones(3), "cpu").device
    'cpu'
    """
    target = device_named(device)
    if not non_blocking or (isinstance(x, Array) and x._device is target):
        return asarray(x, device=f"{target.kind}:{target.index}")
    if type(x) is Array and target.host_memory and x._device.copies_later:
        return _start_copy_of_array(x, target)
    host = x.numpy() if isinstance(x, Array) else x
    later = target.copies_later and isinstance(host, np.ndarray)
    return from_numpy(host, target, later=True) if later else asarray(host, device=f"{target.kind}:{target.index}")


def wait(x: T) -> T:
    """Wait for every array in a result, and give the result back.

    Parameters
    ----------
    x : object
        An array, or a tuple, list, dict or dataclass that holds some. Anything else in it is left alone.

    Returns
    -------
    object
        `x` itself.

    Raises
    ------
    KernelGraphError
        Or what else the work that makes the arrays raised.

    Examples
    --------
    >>> f = kg.kernel_graph(lambda x: (x + 1, {"mean": x.mean()}), device="cpu")
    >>> kg.wait(f(np.array([1.0, 3.0])))
    (array([2., 4.]), {'mean': array(2.)})
    """
    leaves: list[Any] = []
    flatten(x, leaves)
    for leaf in leaves:
        if hasattr(leaf, "is_ready"):  # an array, or one on a mesh
            leaf.wait()
    return x


def _start_copy_of_array(x: Array, target: Device) -> Array:
    """A GPU's array on its way to the CPU."""
    host, event = x._device.read_later(x._memory, x.shape, x.dtype, x._event)
    track_memory((event,), (x._memory, host))
    return Array(NumpyMemory(host), spec_of(ArrayType(x.shape, x.dtype)), target, event)


def prefetch(iterable: Iterable[Any], depth: int = 2, *, device: str | None = None) -> Iterator[Any]:
    """Items with their arrays on the device, read ahead of their use by a thread.

    The thread takes the next item while the caller works on one, and copies its arrays (in tuples, lists, dicts and
    dataclasses) before it takes another; so the iterable may use its arrays again.

    Parameters
    ----------
    iterable
        Of arrays, or of tuples, lists and dicts of arrays.
    depth : int, default 2
        How many items may be ready before they are asked for. What the iterable raises is raised here, in its turn.
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    iterator

    Raises
    ------
    OptionError

    Examples
    --------
    >>> batches = (np.full(2, i) for i in range(3))
    >>> [int(x.sum()) for x in kg.prefetch(batches, device="cpu")]
    [0, 2, 4]
    """
    if not isinstance(depth, int) or depth < 1:
        raise OptionError(f"depth={depth!r}: write a whole number, 1 or more")
    return _PrefetchThread(iterable, depth, device_named(device)).items()


class _PrefetchThread:
    """A thread that is some items ahead of its reader."""

    def __init__(self, iterable: Iterable[Any], depth: int, device: Device) -> None:
        self._iterable, self._device = iterable, device
        self._ready: Queue[tuple[str, Any]] = Queue(depth)
        self._stopped = threading.Event()

    def items(self) -> Iterator[Any]:
        thread = threading.Thread(target=self._prefetch_batches, name="kernelgraph prefetch", daemon=True)
        thread.start()
        try:
            while True:
                what, value = self._ready.get()
                if what == "item":
                    yield value
                elif what == "end":
                    return
                else:
                    raise value
        finally:  # the reader may leave early
            self._stopped.set()
            while not self._ready.empty():
                self._ready.get()

    def _prefetch_batches(self) -> None:
        try:
            for item in self._iterable:
                self._ready.put(("item", self._item_on_device(item)))
                if self._stopped.is_set():
                    return
            self._ready.put(("end", None))
        except BaseException as error:
            self._ready.put(("error", error))

    def _item_on_device(self, item: Any) -> Any:
        leaves: list[Any] = []
        tree = flatten(item, leaves)
        return unflatten(tree, [from_numpy(x, self._device) if isinstance(x, np.ndarray) else x for x in leaves])
