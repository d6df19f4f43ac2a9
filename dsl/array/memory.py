"""`kg.memory`, `kg.memory_stats`, `kg.memory_limit`, `kg.empty_cache`, `kg.use_allocator`: what a device's memory holds
and for whom, how much it may, less, and from whom it comes."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

from ...runtime.core.allocators import LIBRARIES
from ...runtime.core.frozen import frozen
from ...runtime.core.readable_text import byte_count_in_words
from ...runtime.program.device import Device
from ..core.errors import OptionError
from . import array, in_flight
from .devices import device_named, name_of
from .made_of import forget_all_made_of_memory


@frozen
class MemoryAccount:
    """What a device's memory holds, by owner.

    Attributes
    ----------
    in_use
        Bytes by owner: the `results`, which are the arrays alive; `temporaries` of calls in flight; the memory of
        `graphs`, `workspaces` of libraries; `rounding` of all these.
    cached
        Free bytes, kept for reuse.
    peak
        The most bytes that were in use.
    limit
        That of `kg.memory_limit`, or 0.
    beside
        Bytes that are not in `reserved`: of code, stacks, libraries' handles, executable graphs, what the driver's pool
        keeps, and of the host's memory.
    system
        What is free, and all there is, by what the driver says; None where nobody knows.

    Examples
    --------
    >>> "results" in kg.memory("cpu").in_use
    True
    """

    device: str
    in_use: Mapping[str, int]
    cached: int
    peak: int
    limit: int
    beside: Mapping[str, int]
    system: tuple[int, int] | None

    @property
    def reserved(self) -> int:
        """Bytes that the device holds for this process: in use, or kept for reuse."""
        return sum(self.in_use.values()) + self.cached

    @property
    def held(self) -> int:
        """Bytes of the device that are this process' by this account, but for the context's."""
        return self.reserved + sum(nbytes for name, nbytes in self.beside.items() if "host" not in name)

    @property
    def others(self) -> int:
        """Bytes of the device that are neither free nor this process' by this account: the context's, and others'."""
        free, every = self.system or (0, 0)
        return max(0, every - free - self.held)

    def __str__(self) -> str:
        rows = [*self.in_use.items(), ("cached", self.cached), ("reserved", self.reserved), ("peak", self.peak)]
        rows += [("limit", self.limit)] * bool(self.limit) + [*self.beside.items()]
        if self.system is not None:
            rows += [("free, says the system", self.system[0]), ("others and the context", self.others)]
        lines = [f"  {name:<24}{byte_count_in_words(nbytes):>10}" for name, nbytes in rows if nbytes]
        return "\n".join([f"memory of {self.device}", *lines])

    __repr__ = __str__


def memory(device: str | None = None) -> MemoryAccount:
    """What a device's memory holds, by owner (None: the default device).

    It prints as a table. It walks over all of Python's objects that know the device, which takes milliseconds.

    Parameters
    ----------
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    MemoryAccount
        A `MemoryAccount`, which prints as a table.

    Raises
    ------
    OptionError
        For a device that there is no name for.
    DeviceUnavailableError
        For one that is not here.

    Examples
    --------
    >>> x = kg.array(np.zeros(1 << 20), device="cpu")
    >>> kg.memory("cpu").in_use["results"] >= x.nbytes
    True
    """
    return account_of_device(device_named(device))


def account_of_device(device: Device) -> MemoryAccount:
    """`memory` of a device."""
    held = {id(x._memory): x._memory for x in _arrays_on_device(device) if device.owns(x._memory)}
    flying = {id(thing): thing for thing in in_flight.memory_in_flight() if device.owns(thing)}
    temporaries = [thing.nbytes for key, thing in flying.items() if key not in held]
    owners = {"results": sum(m.nbytes for m in held.values()), "temporaries": sum(temporaries)}
    owners |= device.memory_by_owner()
    with device.memory_at_rest():
        stats, beside, system = device.statistics(), device.memory_beside(), device.system_memory()
    owners["rounding"] = stats["in_use"] - sum(owners.values())
    return MemoryAccount(
        name_of(device),
        owners,
        stats["cached"],
        stats["peak"],
        device.limit,
        beside,
        system,
    )


def _arrays_on_device(device: Device) -> list[array.Array]:
    # Not all objects: one of another thread that is being made must not be held.
    return [x for x in gc.get_referrers(device) if type(x) is array.Array]


def owners_in_words(device: Device) -> str:
    """Who holds a device's memory, the largest first."""
    account = account_of_device(device)
    owners = sorted(((n, owner) for owner, n in account.in_use.items() if n), reverse=True)
    held = ", ".join(f"{byte_count_in_words(n)} of {owner}" for n, owner in owners[:4])
    beside = ""
    if account.system is not None:
        free, every = map(byte_count_in_words, account.system)
        beside = f", and by what the system says {free} of {every} are free"
    return f"{account.device} holds {held or 'nothing'}{beside}"


def use_allocator(allocator: Any, device: str | None = None) -> None:
    """Take a device's memory from another allocator from now on.

    Parameters
    ----------
    allocator
        `"driver"` (what it is before: the driver's, or the system's), `"torch"`, `"cupy"`, `"rmm"`, or an object with
        `allocate(nbytes, stream)`, which returns an address, and `free(pointer, nbytes, stream)`. stream: the driver's
        handle; 0 on a CPU. A block goes back to the allocator as soon as nobody needs it: this process keeps no others.
        What is in use stays where it is.
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Raises
    ------
    OptionError
        For a GPU whose memory other GPUs reach.
    KernelGraphError
        For a GPU whose memory other GPUs reach.

    Examples
    --------
    >>> kg.use_allocator("driver", "cpu")
    """
    found = device_named(device)
    if allocator == "driver":
        found.use_allocator(None)
        return
    if isinstance(allocator, str):
        if allocator not in LIBRARIES:
            known = ", ".join(map(repr, ("driver", *LIBRARIES)))
            raise OptionError(f"allocator={allocator!r} is unknown; write one of {known}, or give an object")
        if found.properties is None:
            raise OptionError(
                f"{allocator}'s allocator has memory of GPUs, and this device is {name_of(found)}; write "
                "device='cuda', or give an object with allocate(nbytes, stream) and free(pointer, nbytes, stream)"
            )
        try:
            allocator = LIBRARIES[allocator](found.index)
        except (ImportError, AttributeError) as error:
            raise OptionError(f"{allocator}'s allocator cannot be used: {error}; install {allocator}") from None
    if not all(callable(getattr(allocator, name, None)) for name in ("allocate", "free")):
        raise OptionError(
            f"{type(allocator).__name__} is no allocator; give an object with allocate(nbytes, stream) and "
            "free(pointer, nbytes, stream)"
        )
    found.use_allocator(allocator)


def memory_stats(device: str | None = None) -> dict[str, int]:
    """Counts of a device (None: the default one).

    Bytes: `in_use` by arrays and by what runs; `cached`, free and kept for reuse; `reserved`, both; `peak`, the most
    ever reserved; `limit` (0: none); `graphs`, in use by replayed graphs; `in_flight`, held by calls that are not known
    to be over, of all devices. Numbers: `arrays`, the kg.Arrays alive; `calls`, those in flight; `executables`, the
    plans that are ready to run; `kernels`, those loaded.
    It walks over all of Python's objects to count them, which takes milliseconds.

    Parameters
    ----------
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    dict

    Raises
    ------
    OptionError
        For a device that there is no name for.
    DeviceUnavailableError
        For one that is not here.

    Examples
    --------
    >>> x = kg.array(np.zeros(1 << 20), device="cpu")
    >>> kg.memory_stats("cpu")["in_use"] >= x.nbytes
    True
    """
    found = device_named(device)
    stats = dict(found.statistics())
    stats["limit"] = found.limit
    stats["arrays"] = len(_arrays_on_device(found))
    stats["executables"] = sum(type(x).__name__.endswith("Executable") for x in gc.get_referrers(found))
    stats["kernels"] = found.kernels
    stats["graphs"] = found.graph_bytes
    stats["calls"], stats["in_flight"] = in_flight.in_flight_counts()
    return stats


def memory_limit(nbytes: int | None = None, device: str | None = None) -> int:
    """The bytes that a device may hold (0: no limit). They are set first if `nbytes` is given.

    It takes the place of the setting `memory_limit` for that device. A call that would need more gives back what is
    cached, waits for calls in flight, and raises OutOfMemory if that is not enough.

    Parameters
    ----------
    nbytes : int, optional
        How many bytes; 0 for no limit.
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    int

    Raises
    ------
    OptionError

    Examples
    --------
    >>> kg.memory_limit(1 << 30, "cpu"), kg.memory_limit(0, "cpu")
    (1073741824, 0)
    """
    found = device_named(device)
    if nbytes is not None:
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise OptionError(f"memory_limit={nbytes!r} is no number of bytes; write 0 for no limit")
        found.limit = nbytes
    return found.limit


def empty_cache(device: str | None = None) -> int:
    """Give a device's free memory back to the system.

    It gives back blocks of 256 KiB and more on the CPU, of 1 MiB and more on a GPU. Calls in flight are waited for,
    since what they hold is free after them. A GPU lets replayed graphs go, unloads the kernels that no function or call
    needs, gives back their stacks, and what was free in its driver's pool is any process' again.

    Parameters
    ----------
    device : str, optional
        A name such as 'cpu' or 'cuda:1'; None is the default device.

    Returns
    -------
    int
        How many bytes those are.

    Raises
    ------
    OptionError
        For a device that there is no name for.
    DeviceUnavailableError
        For one that is not here.

    Examples
    --------
    >>> kg.empty_cache("cpu") >= 0
    True
    """
    forget_all_made_of_memory()
    in_flight.waitall()
    found = device_named(device)
    return found.trim()
