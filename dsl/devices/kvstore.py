"""`kg.KVStore`: values by key that devices push to and pull from, with the names and meanings of MXNet's KVStore."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...runtime.core.readable_text import with_article
from ...runtime.engine.collective_calls import EngineCollectiveCall
from ...runtime.engine.communicator import SMALL_BYTES, EngineCommunicator, rank_agreement_on_collective
from ...runtime.program.multi_device import Collective
from ..array.array import Array, asarray, from_numpy
from ..array.devices import device as default_device
from ..array.devices import device_named, name_of
from ..array.in_flight import track_memory
from ..core.errors import ArgumentsError, DTypeError, OptionError, ShapeError
from ..core.spec import Spec
from ..jit.kernel_graph import KernelGraph
from .collectives import all_reduce
from .distributed import broadcast, current
from .mesh import Mesh, Sharded
from .mesh_calls import MeshFunction
from .store_servers import Host, Key, KeyValueStoreWorker, Part, pieces_of

KINDS = ("local", "device", "dist_sync", "dist_async")
Updater = Callable[..., Any]


class KVStore:
    """A store of values by key, which all devices, or ranks, push to and pull.

    kind: `local` sums what is pushed on the CPU, `device` on the device of the stored value. `dist_sync`: the sum is
    over all ranks, and each updates its own copy of the value: every rank pushes the same keys in the same order.
    `dist_async`: a server beside each rank keeps some of the keys, and updates one at each push of any rank.

    Calls return at once where they can; a pull follows the pushes before it. priority: of no effect, since work starts
    as soon as what it reads is there.

    >>> store = kg.KVStore("local")
    >>> store.init("w", np.zeros(2))
    >>> store.push("w", [np.ones(2), np.ones(2)])
    >>> store.pull("w").tolist()
    [2.0, 2.0]
    """

    def __init__(self, kind: str = "local") -> None:
        """Raises OptionError; ArgumentsError for `dist_*` before `kg.distributed.init()`."""
        if kind not in KINDS:
            raise OptionError(f"kg.KVStore({kind!r}): write one of {', '.join(map(repr, KINDS))}")
        self.type = kind
        self._values: dict[Key, Array] = {}
        self._specs: dict[Key, Spec] = {}
        self._updater: Updater | None = None
        self._state_count = 0
        self._compiled: dict[Part, KernelGraph] = {}
        self._states: dict[Part, list[Any]] = {}
        self._programs: dict[tuple[str, str], Callable[[Array], Array]] = {}
        self._lock = threading.RLock()
        self._ranks = current() if kind.startswith("dist") else None
        self._servers = (
            KeyValueStoreWorker(self._ranks, self._update_stored_value)
            if self._ranks and kind == "dist_async"
            else None
        )

    @property
    def rank(self) -> int:
        """Of this process."""
        return 0 if self._ranks is None else self._ranks.world.rank

    @property
    def num_workers(self) -> int:
        """How many processes push."""
        return 1 if self._ranks is None else self._ranks.world.size

    def init(self, key: Any, value: Any) -> None:
        """Give keys their first values; of ranks all call it, and rank 0's count. key, value: one of each, or lists of
        both. Raises ArgumentsError."""
        for one, given in self._keys_with_values(key, value, "init"):
            with self._lock:
                if one in self._specs:
                    raise ArgumentsError(f"key {one!r} has a value already; push to it")
                if isinstance(given, (list, tuple)):
                    if not given:
                        raise ArgumentsError(f"nothing is given for key {one!r}; write an array")
                    given = given[0]
                first = self._own_copy_of_value(given)
                if self._ranks is not None:
                    agreement = rank_agreement_on_collective(f"init of {one!r}", first.dtype, first.shape)
                    self._ranks.run(agreement)
                self._specs[one] = first._spec
                if self._servers is not None:
                    self._servers.init(one, first.numpy())
                elif self._ranks is not None:
                    self._values[one] = self._own_copy_of_value(broadcast(first.numpy()))
                else:
                    self._values[one] = first

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add the arrays of a key up and give their sum to the updater.

        value: an array, or a list of one from each device. Without an updater the sum is the new value. Raises
        ArgumentsError, ShapeError."""
        for one, given in self._keys_with_values(key, value, "push"):
            with self._lock:
                if self._servers is not None:
                    self._push_to_servers(self._servers, one, given)
                    continue
                joined = self._sum_of_pushed_arrays(one, given)
                if self._ranks is not None and self._ranks.world.size > 1:
                    joined = self._sum_over_ranks(self._ranks, one, joined)
                if self._updater is None:
                    self._values[one] = self._own_copy_of_value(joined)
                else:
                    self._update_stored_value((one, 0), joined, self._values[one])

    def pull(self, key: Any, out: Any = None, priority: int = 0) -> Any:
        """Copy the values of keys to arrays. out: an array of a key or a list of arrays; None: the values are the
        result, where they are stored."""
        if out is None:
            keys = key if isinstance(key, (list, tuple)) else [key]
            with self._lock:
                values = [self._stored_value_of_key(one) for one in keys]
            found = values if self._servers else [_kvstore_copy_to_device(name_of(one._device))(one) for one in values]
            return found if isinstance(key, (list, tuple)) else found[0]
        for one, given in self._keys_with_values(key, out, "pull"):
            with self._lock:
                for target in given if isinstance(given, (list, tuple)) else [given]:
                    _require_writeable_target(one, target)
                if self._servers is not None and _is_laid_out_like_stored_value(given, self._spec(one)):
                    self._servers.pull(one, given)
                    continue
                stored = self._stored_value_of_key(one)
                for target in given if isinstance(given, (list, tuple)) else [given]:
                    _assign_kvstore_value(target, stored)
        return None

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into what was pushed; for a key on a server in one message each way."""
        out = value if out is None else out
        if self._servers is not None and type(value) is type(out) is np.ndarray and type(key) in (int, str):
            with self._lock:
                spec = self._spec_for_push(key)
                if _is_laid_out_like_stored_value(value, spec) and _is_laid_out_like_stored_value(out, spec):
                    _require_writeable_target(key, out)
                    self._servers.push_and_pull(key, value, out)
                    return
        self.push(key, value, priority)
        self.pull(key, out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` into `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def barrier(self) -> None:
        """Wait until all ranks are here, and what they pushed before is with the servers."""
        if self._servers is not None:
            self._servers.barrier()
        elif self._ranks is not None:
            self._ranks.run(rank_agreement_on_collective("the store's barrier()"))

    def set_updater(self, updater: Updater, states: int = 0) -> None:
        """updater(key, pushed, stored) assigns to `stored`, e.g. `stored -= 0.1 * pushed`. It is compiled once for each
        key and kind of arrays. Ranks all set the same one.

        states: it takes as many arrays more, which it may assign to: of the value's shape, zeros at first. On servers
        large arrays come in pieces, flat."""
        if isinstance(states, bool) or not isinstance(states, int) or states < 0:
            raise OptionError(f"states={states!r}: write how many arrays the updater keeps, 0 or more")
        if not callable(updater) or not _takes_arguments(updater, 3 + states):
            also = f", and of {states} states" if states else ""
            raise ArgumentsError(f"set_updater takes a function of (key, pushed, stored){also}, not {updater!r}")
        with self._lock:
            self._updater, self._state_count = updater, states
            self._compiled.clear()
            self._states.clear()

    def save_optimizer_states(self, path: str) -> None:
        """Write the updater's states to a file (NumPy's npz): of `dist_async` those of this rank's server."""
        if self._servers is not None:
            self._servers.barrier()
        with self._lock:
            names = {
                f"{i}/{part[1]}/{kvstore_key_as_text(part[0])}": np.asarray(array)
                for part, states in self._states.items()
                for i, array in enumerate(states)
            }
        with open(path, "wb") as file:
            np.savez(file, **names)  # type: ignore[arg-type]

    def load_optimizer_states(self, path: Any) -> None:
        """Read them, after `init` and `set_updater`, and before a `barrier`: the files of all ranks that wrote any, for
        any number of ranks; or what this rank wrote, if they are as many. Raises ArgumentsError where none fit."""
        alone = isinstance(path, (str, os.PathLike))
        if not (alone or isinstance(path, (list, tuple))):
            raise ArgumentsError(f"load_optimizer_states takes a path, or a list of paths, not {path!r}")
        loaded: dict[Key, dict[int, dict[int, Host]]] = {}  # by key, number of the state, and piece
        for one in [path] if alone else path:
            try:
                with np.load(one) as content:
                    for name in content.files:
                        number, piece, text = name.split("/", 2)
                        states = loaded.setdefault(kvstore_text_key(text), {})
                        states.setdefault(int(number), {})[int(piece)] = content[name]
            except (ValueError, LookupError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
                raise ArgumentsError(f"{one} is no file that save_optimizer_states has written: {error}") from None
        with self._lock:
            for key, states in loaded.items():
                if len(states) != self._state_count:
                    raise ArgumentsError(f"{path} has {len(states)} states of {key!r}, not {self._state_count}")
                for part, made in self._states_here(key, states, alone):
                    self._states[part] = made

    def _states_here(self, key: Key, states: dict[int, dict[int, Host]], own: bool) -> Iterator[tuple[Part, list[Any]]]:
        """What this rank keeps of a key's states. states: by number, their pieces. own: which are this rank's."""
        spec, ordered = self._spec(key), [states[number] for number in sorted(states)]
        if self._servers is not None and own:
            here: dict[Part, list[Host]] = {(key, piece): [pieces[piece] for pieces in ordered] for piece in ordered[0]}
            stored = self._servers.server.values
        else:
            whole = [np.concatenate([pieces[i].reshape(-1) for i in sorted(pieces)]) for pieces in ordered]
            if self._servers is None:
                here, stored = {(key, 0): whole}, {(key, 0): self._values[key]}
            else:
                pieces = pieces_of(key, spec.size, self.num_workers)
                here = {p.part: [array[p.start : p.stop] for array in whole] for p in pieces if p.server == self.rank}
                stored = self._servers.server.values
        for part, arrays in here.items():
            value = stored.get(part)
            if value is None or any(array.size != value.size for array in arrays):
                raise ArgumentsError(
                    f"{arrays[0].size} elements of a state of {key!r} are there, which has {spec.size}; give the files "
                    "of all ranks that wrote them"
                )
            device = name_of(value._device)
            yield part, [asarray(array.reshape(value.shape), device=device, copy=True) for array in arrays]

    def _push_to_servers(self, servers: KeyValueStoreWorker, key: Key, given: Any) -> None:
        if _is_laid_out_like_stored_value(given, self._spec_for_push(key)):
            servers.push(key, given)
            return
        joined = self._sum_of_pushed_arrays(key, given)
        if joined.is_ready():
            servers.push(key, joined.numpy())
        else:
            servers.push_later(key, joined.numpy)

    def _spec_for_push(self, key: Key) -> Spec:
        """The spec of a key's value. Raises ArgumentsError where a push to servers has no value or no updater."""
        spec = self._spec(key)
        if self._updater is None:
            raise ArgumentsError("a dist_async store needs set_updater before the first push")
        return spec

    def _update_stored_value(self, part: Part, joined: Any, stored: Array) -> None:
        """What is stored is changed in place."""
        made = self._compiled.get(part)
        if made is None:
            updater, key = self._updater, part[0]
            if updater is None:
                raise ArgumentsError("this rank has set no updater")

            def call_updater(pushed: Any, stored: Any, *states: Any) -> None:
                result = updater(key, pushed, stored, *states)
                if result is not None and result is not stored:
                    raise ArgumentsError("an updater assigns to the stored array, as in `stored -= 0.1 * pushed`")

            call_updater.__name__ = getattr(updater, "__name__", "update")
            made = self._compiled[part] = KernelGraph(call_updater, device=name_of(stored._device))
        states = self._states.get(part)
        if states is None:
            zeros, device = np.zeros(stored.shape, stored.dtype), name_of(stored._device)
            states = self._states[part] = [asarray(zeros, device=device) for _ in range(self._state_count)]
        made(joined, stored, *states)

    def _sum_over_ranks(self, ranks: EngineCommunicator, key: Key, joined: Array) -> Array:
        """The sum of all ranks' arrays, on its way."""
        how = "" if self._updater is None else f" to {getattr(self._updater, '__name__', 'its updater')}"
        pushed = f"push of {key!r}{how}"
        if not joined._device.host_memory:
            return self._program_to_sum_over_ranks(pushed, name_of(joined._device))(joined)
        narrow = joined.dtype if _is_narrow_float(joined.dtype) else None
        given = joined if narrow is None else joined.astype(np.float32)
        agreement = rank_agreement_on_collective(pushed, joined.dtype, joined.shape)
        step = Collective("all_reduce", (0,), (1,), (given.size,), str(given.dtype), "sum")
        target = given._device.allocate(given.nbytes)
        call = EngineCollectiveCall(step, given._device, ranks)
        before = [] if given._event is None else [given._event]
        job = partial(call.run, before, [given._memory], [target], agreement)
        event = ranks.submit(job, agreement.doing, soon=call.nbytes > SMALL_BYTES)
        track_memory((event,), (given._memory, target))
        result = Array(target, given._spec, given._device, event)
        return result if narrow is None else result.astype(narrow)

    def _program_to_sum_over_ranks(self, pushed: str, device: str) -> Callable[[Array], Array]:
        """What sums an array over the ranks' GPUs. pushed: what the ranks agree on."""
        made = self._programs.get((pushed, device))
        if made is None:

            def add_over_ranks(x: Any) -> Any:
                narrow = x.dtype if _is_narrow_float(x.dtype) else None
                return all_reduce(x) if narrow is None else all_reduce(x.astype(np.float32)).astype(narrow)

            add_over_ranks.__name__ = pushed
            with default_device(device):
                mesh = Mesh(self.num_workers)
            program = MeshFunction(add_over_ranks, mesh, None, None)
            made = self._programs[pushed, device] = lambda x: program(Sharded([x], mesh, None)).parts[0]
        return made

    def _sum_of_pushed_arrays(self, key: Key, given: Any) -> Array:
        """In the order of the list, whichever array is there first."""
        spec = self._spec(key)
        parts = list(given.parts) if isinstance(given, Sharded) else given
        parts = parts if isinstance(parts, (list, tuple)) else [parts]
        if not parts:
            raise ArgumentsError(f"nothing is pushed for key {key!r}")
        at = "cpu" if self._servers else name_of(self._values[key]._device)
        moved: list[Array] = []
        for part in parts:
            if tuple(np.shape(part)) != spec.shape:
                raise ShapeError(f"key {key!r} has shape {spec.shape}, and an array of shape {np.shape(part)} comes")
            moved.append(asarray(part, device=at))
            if moved[-1].dtype != spec.dtype:
                raise DTypeError(f"key {key!r} has dtype {spec.dtype}, and an array of {moved[-1].dtype} comes")
        if len(moved) == 1:
            return moved[0]
        return _kvstore_sum_of_arrays(at, len(moved))(moved)  # type: ignore[no-any-return]

    def _own_copy_of_value(self, value: Any) -> Array:
        """A copy that nobody else has."""
        found = value.parts[0] if isinstance(value, Sharded) else value
        moved = asarray(found, device="cpu") if self.type == "local" or self._servers else asarray(found)
        return _kvstore_copy_to_device(name_of(moved._device))(moved) if moved is found else moved

    def _stored_value_of_key(self, key: Key) -> Array:
        spec = self._spec(key)
        if self._servers is None:
            return self._values[key]
        values = np.empty(spec.shape, spec.dtype)
        self._servers.pull(key, values)
        return from_numpy(values, device_named("cpu"), own=True)

    def _spec(self, key: Key) -> Spec:
        try:
            return self._specs[key]
        except KeyError:
            raise ArgumentsError(f"key {key!r} has no value; write store.init({key!r}, value)") from None

    @staticmethod
    def _keys_with_values(keys: Any, values: Any, what: str) -> list[tuple[Key, Any]]:
        """Each key and what belongs to it. Raises ArgumentsError."""
        several = isinstance(keys, (list, tuple))
        if several and (not isinstance(values, (list, tuple)) or len(keys) != len(values)):
            raise ArgumentsError(f"{what} of {len(keys)} keys takes a list of as many values")
        pairs = list(zip(keys, values, strict=True)) if several else [(keys, values)]
        for key, _ in pairs:
            if not isinstance(key, (int, str)) or isinstance(key, bool):
                raise ArgumentsError(f"{key!r} is no key; write a string or a whole number")
        return pairs

    def __repr__(self) -> str:
        return f"<kvstore {self.type} of {len(self._specs)} keys>"


def _is_laid_out_like_stored_value(given: Any, spec: Spec) -> bool:
    """Whether this is a NumPy array that lies in memory as a key's value does."""
    return (
        type(given) is np.ndarray
        and given.shape == spec.shape
        and given.dtype == spec.dtype
        and given.flags.c_contiguous
    )


def _require_writeable_target(key: Key, target: Any) -> None:
    """Raises ArgumentsError where a key is pulled into an array that is read-only."""
    if isinstance(target, np.ndarray) and not target.flags.writeable:
        raise ArgumentsError(f"key {key!r} is pulled into an array that is read-only")


def _takes_arguments(function: Callable[..., Any], count: int) -> bool:
    """Whether a function may be called with so many; True where nobody can tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def kvstore_key_as_text(key: Key) -> str:
    """A key, a string or a number, as a text that `kvstore_text_key` reads."""
    return f"i{key}" if isinstance(key, int) else f"s{key}"


def kvstore_text_key(text: str) -> Key:
    return int(text[1:]) if text[0] == "i" else text[1:]


def _is_narrow_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is so narrow that sums over ranks are in float32 instead."""
    return dtype.itemsize == 2 and dtype_kind(dtype) == "f"


@functools.cache
def _kvstore_copy_to_device(device: str) -> KernelGraph:
    """A copy on a device, which may still be on its way."""

    def copied(x: Any) -> Any:
        return np.copy(x)

    return KernelGraph(copied, device=device)


@functools.cache
def _kvstore_sum_of_arrays(device: str, count: int) -> KernelGraph:
    """The sum of so many arrays, on a device."""

    def joined(parts: Sequence[Any]) -> Any:
        return functools.reduce(np.add, parts)

    return KernelGraph(joined, device=device)


def _assign_kvstore_value(target: Any, stored: Array) -> None:
    if isinstance(target, Sharded):
        for part in target.parts:
            _assign_kvstore_value(part, stored)
        return
    if not isinstance(target, (Array, np.ndarray)):
        raise ArgumentsError(f"values are pulled into arrays, not {type(target).__name__}")
    if target.shape != stored.shape or target.dtype != stored.dtype:
        raise ShapeError(
            f"{with_article(stored.dtype)} value of shape {stored.shape} does not fit into {target.dtype} "
            f"{target.shape}"
        )
    if isinstance(target, Array):
        copy = asarray(asarray(stored, device=name_of(target._device)), copy=True)
        target._memory, target._event, target._host = copy._memory, copy._event, None
    else:
        target[...] = stored.numpy()
