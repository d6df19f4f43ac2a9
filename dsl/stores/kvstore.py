"""`kg.KVStore`: values by key that devices push to and pull from, with the names and meanings of MXNet's KVStore."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType, dtype_kind
from ...runtime.engine.collective_calls import EngineCollectiveCall
from ...runtime.engine.communicator import SMALL_BYTES, Agreement, EngineCommunicator, rank_agreement_on_collectives
from ...runtime.program.collective import Collective
from ...runtime.program.device import Device
from ..array.array import Array, asarray, from_numpy, on_device, snapshot
from ..array.devices import device as default_device
from ..array.devices import device_named, name_of
from ..array.in_flight import track_memory
from ..core.errors import ArgumentsError, DTypeError, OptionError, ShapeError
from ..core.spec import Host, Spec, spec_of
from ..devices.collectives import all_gather, all_reduce
from ..devices.copies import (
    check_targets_of_pull,
    copy_of_array,
    fill_target_of_pull,
    first_copy_of_array,
    is_laid_out_as_stored,
    snapshot_or_copy,
)
from ..devices.distributed import broadcast, current, reduce_arrays_of_ranks
from ..devices.mesh import Mesh, Sharded
from ..devices.mesh_calls import MeshFunction
from ..jit.specializations import remember_in_bounded_cache
from .compression import GradientCompression, checked_compression
from .optimizer import Optimizer
from .optimizer_states import read_optimizer_states, write_optimizer_states
from .row_sparse import RowSparse, check_row_sparse_target, checked_rows, rows_of_array
from .store_servers import NOTHING, KeyValueStoreWorker, pieces_of
from .stored_values import Key, Part, StoredValue, StoredValues
from .updaters import (
    StoreUpdater,
    Updater,
    agreement_on_updates,
    sum_on_device,
    updater_that_replaces,
)

KINDS = ("local", "device", "dist_sync", "dist_async")


class KVStore:
    """A store of values by key, which all devices, or ranks, push to and pull.

    Calls return at once where they can; a pull follows the pushes before it. priority: of no effect, since work starts
    as soon as what it reads is there.

    Parameters
    ----------
    kind : str, default 'local'
        `local` sums what is pushed on the CPU; `device` on the devices that push, which all have the new value then, or
        on the stored value's. `dist_sync`: the sum is over all ranks, and each updates its own copy of the value: every
        rank pushes the same keys in the same order.
        `dist_async`: a server beside each rank keeps some of the keys, and updates one at each push of any rank.

    Examples
    --------
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
        self._specs: dict[Key, Spec] = {}
        self._updater: StoreUpdater | None = None
        self._programs: dict[Any, Callable[..., Any]] = {}  # to sum over the GPUs of ranks
        self._compression: GradientCompression | None = None
        self._residuals: dict[tuple[Key, int], Array] = {}  # of each array of a push what compression has left
        self._lock = threading.RLock()
        self._ranks = current() if kind.startswith("dist") else None
        self._servers: KeyValueStoreWorker | None = None
        if self._ranks is not None and kind == "dist_async":
            self._servers = KeyValueStoreWorker(self._ranks)
            weakref.finalize(self, self._servers.leave).atexit = False
        sums = self._ranks is not None and self._ranks.world.size > 1  # what is pushed is nobody else's
        replaced = partial(_replaced_value, own=sums)
        self._values = StoredValues(replaced)  # of servers these keep them

    @property
    def rank(self) -> int:
        """Of this process."""
        return 0 if self._ranks is None else self._ranks.world.rank

    @property
    def num_workers(self) -> int:
        """How many processes push."""
        return 1 if self._ranks is None else self._ranks.world.size

    def init(self, key: Any, value: Any) -> None:
        """Give keys their first values; of ranks all call it, and rank 0's count.

        Parameters
        ----------
        key
            One of each, or lists of both.
        value
            One of each, or lists of both.

        Raises
        ------
        ArgumentsError
        """
        with self._lock:
            first: dict[Key, Array] = {}
            for one, given in _keys_with_values(key, value, "init"):
                if one in self._specs or one in first:
                    raise ArgumentsError(f"key {one!r} has a value already; push to it")
                if isinstance(given, (list, tuple)):
                    if not given:
                        raise ArgumentsError(f"nothing is given for key {one!r}; write an array")
                    given = given[0]
                first[one] = self._own_copy_of_value(given)
            if self._ranks is not None:
                self._agree_on_first_values(self._ranks, first)
            if self._servers is not None:
                self._servers.init({one: array.numpy() for one, array in first.items()})
            else:
                if self._ranks is not None:
                    first = {one: self._own_copy_of_value(broadcast(array.numpy())) for one, array in first.items()}
                self._values.replace({(one, 0): StoredValue(array) for one, array in first.items()})
            self._specs |= {one: array._spec for one, array in first.items()}

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add the arrays of a key up and give their sum to the updater.

        Parameters
        ----------
        value
            An array, or a list of one from each device. Without an updater the sum is the new value. A key that comes
            twice is pushed once, the sum of both. Where anything fails no key has changed; what fails later, a pull
            raises.

        Raises
        ------
        ArgumentsError
        ShapeError
        DTypeError
        """
        with self._lock:
            plain = type(value) is np.ndarray and type(key) in (int, str)
            if plain and self._servers is not None and is_laid_out_as_stored(value, self._spec_for_push(key)):
                self._servers.push({key: value})
                return
            given: dict[Key, list[Any]] = {}
            for one, arrays in _keys_with_values(key, value, "push"):
                given.setdefault(one, []).extend(self._arrays_to_push(one, arrays))
            if self._servers is not None:
                self._push_to_servers(self._servers, given)
                return
            residuals = self._residuals
            if self._compression is not None:
                self._residuals = {**residuals}
            try:
                joined = {one: self._sum_of_arrays(one, parts) for one, parts in given.items()}
                sources: Sequence[Array] = ()
                if self._ranks is not None and (self._ranks.world.size > 1 or self._compression is not None):
                    joined, sources = self._sums_over_ranks(self._ranks, joined)
                self._values.push({(one, 0): array for one, array in joined.items()}, sources)
            except BaseException:
                self._residuals = residuals
                raise

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> Any:
        """Copy the values of keys to arrays.

        Parameters
        ----------
        key : hashable or list of hashable
        out : array or list of arrays, optional
            An array of each key, or a list of arrays. Without it the values are the result, where they are stored.
        priority : int, default 0
            Takes no part; MXNet has it.
        ignore_sparse : bool, default True
            Whether a `kg.RowSparse` stays as it is; else it gets all rows.

        Returns
        -------
        Array or list of Array
            None with `out`.

        Raises
        ------
        ReadOnlyError
        ShapeError
        KernelGraphError
            What a push of the keys has failed with.
        """
        with self._lock:
            if out is None:
                several = isinstance(key, (list, tuple))
                keys = [_checked_key(one) for one in (key if several else [key])]
                found = self._copies_of_stored_values(keys)
                return found if several else found[0]
            targets_by_key = self._targets_by_key(key, out)
            self._fill_targets(targets_by_key)
            sparse = [(one, x) for one, targets in targets_by_key for x in targets if isinstance(x, RowSparse)]
            for one, target in [] if ignore_sparse else sparse:
                self._fill_rows(one, [target], np.arange(target.shape[0]))
        return None

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> Any:
        """Copy some rows of the values of keys, in any order and as often as they are named.

        Parameters
        ----------
        key : hashable or list of hashable
        out : RowSparse or list of RowSparse, optional
            Of each key. Without it they are the result.
        priority : int, default 0
            Takes no part; MXNet has it.
        row_ids : array_like or list of array_like
            Numbers of rows for each key, or a list with one array for each of `out`.

        Returns
        -------
        RowSparse or list of RowSparse
            None with `out`.

        Raises
        ------
        ArgumentsError
        ShapeError
        IndexingError
        KernelGraphError
            What a push of the keys has failed with.
        """
        several = isinstance(key, (list, tuple))
        keys = [_checked_key(one) for one in (key if several else [key])]
        outs, ids = ([given] if not several else given for given in (out, row_ids))
        outs = [None] * len(keys) if out is None else outs
        for name, given in (("out", outs), ("row_ids", ids)):
            if not isinstance(given, (list, tuple)) or len(given) != len(keys):
                raise ArgumentsError(f"row_sparse_pull of {len(keys)} keys takes as many {name}")
        with self._lock:
            jobs: list[tuple[Key, list[RowSparse] | None, Host]] = []
            for one, given, rows in zip(keys, outs, ids, strict=True):
                jobs += self._row_jobs(one, given, rows)
            found = [self._fill_rows(*job) for job in jobs]
        if out is not None:
            return None
        return found if several else found[0]

    def _row_jobs(self, key: Key, out: Any, row_ids: Any) -> list[tuple[Key, list[RowSparse] | None, Host]]:
        """Which targets get which rows of a key. Raises ArgumentsError, ShapeError, IndexingError."""
        shape = self._spec(key).shape
        if row_ids is None:
            raise ArgumentsError(f"row_ids= says which rows of key {key!r} are pulled; write numbers of rows")
        targets = None if out is None else _arrays_given(out)
        for target in targets or ():
            check_row_sparse_target(key, target, shape)
        each = isinstance(row_ids, (list, tuple)) and any(np.ndim(one) for one in row_ids)
        rows = [checked_rows(one, shape) for one in (row_ids if each else [row_ids])]
        if targets is None or len(rows) == 1:
            return [(key, targets, one) for one in rows]
        if len(rows) != len(targets):
            raise ArgumentsError(
                f"{len(targets)} arrays get rows of key {key!r}, and row_ids has {len(rows)}; write as many"
            )
        return [(key, [target], one) for target, one in zip(targets, rows, strict=True)]

    def _fill_rows(self, key: Key, targets: list[RowSparse] | None, rows: Host) -> RowSparse:
        """Rows of a key's value, which targets get, if there are any."""
        spec = self._spec(key)
        if self._servers is not None:
            data = np.empty((rows.size, *spec.shape[1:]), spec.dtype)
            self._servers.pull_rows(key, rows, data, spec.size)
            given: Any = from_numpy(data, device_named("cpu"), own=True)
        else:
            given = rows_of_array(self._values.settled((key, 0)).value, rows)
        for target in targets or ():
            target.data, target.indices = copy_of_array(given) if len(targets or ()) > 1 else given, rows.copy()
        return RowSparse(given, rows, spec.shape)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into what was pushed; for a key on a server in one message each way."""
        out = value if out is None else out
        with self._lock:
            if self._servers is not None and type(value) is type(out) is np.ndarray and type(key) in (int, str):
                spec = self._spec_for_push(key)
                if is_laid_out_as_stored(value, spec) and is_laid_out_as_stored(out, spec) and out.flags.writeable:
                    self._servers.push_and_pull(key, value, out)
                    return
            elif self._ranks is not None and self._push_and_pull_at_once(self._ranks, key, value, out):
                return
            checked = self._targets_by_key(key, out)
            self.push(key, value, priority)
            self._fill_targets(checked)

    def _push_and_pull_at_once(self, ranks: EngineCommunicator, key: Any, value: Any, out: Any) -> bool:
        """A push and pull of a small NumPy array, by the thread that waits for it. Whether it is done."""
        small = type(value) is type(out) is np.ndarray and type(key) in (int, str) and value.nbytes <= SMALL_BYTES
        if not small or self._compression is not None or ranks.world.size == 1 or self._values.may_fail:
            return False
        spec, part = self._spec(key), (key, 0)
        before = self._values.latest(part).value
        alike = is_laid_out_as_stored(value, spec) and is_laid_out_as_stored(out, spec) and out.flags.writeable
        if not alike or not before._device.host_memory or _spec_of_sum(spec) is not spec:
            return False
        (agreement,), total = self._agreements_on_push([key]), np.empty(spec.shape, spec.dtype)
        reduce_arrays_of_ranks(ranks, agreement, value, total, "sum", np.add)
        self._values.push({part: from_numpy(total, before._device, own=True)})
        np.copyto(out, self._values.settled(part).value.numpy())
        return True

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` into `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def barrier(self) -> None:
        """Wait until all ranks are here, and what they pushed before is with the servers."""
        if self._ranks is None:
            return
        with self._lock:
            agreement = agreement_on_updates("the store's barrier()", *self._meaning_of_servers_updates(self._specs))
        self._ranks.run(agreement)
        if self._servers is not None:
            self._servers.barrier()

    def set_updater(self, updater: Updater, states: int = 0) -> None:
        """Update values by a function of your own at each push.

        It is compiled once for all keys of one shape and dtype, or for each key, if it reads the key. Ranks all set one
        that computes the same: `dist_async` waits for all of them, other kinds find a difference at the next push.

        Parameters
        ----------
        updater : callable
            `updater(key, pushed, stored)` assigns to `stored`, e.g. `stored -= 0.1 * pushed`.
        states : int, default 0
            So many arrays more that it takes and may assign to: of the value's shape, zeros at first. On servers large
            arrays come in pieces, flat.

        Raises
        ------
        ArgumentsError
        OptionError
        PlanError
            `dist_async`, where ranks differ.
        """
        self._set_store_updater(StoreUpdater(updater, states))

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Update values by an optimizer, e.g. `kg.optimizer.SGD(0.1, momentum=0.9)`. Ranks all set one that computes
        the same. What is changed of it later, as its learning rate, counts from the next push on: of `dist_async` with
        the rank's own server.

        Raises
        ------
        ArgumentsError
        PlanError
        """
        if not isinstance(optimizer, Optimizer):
            raise ArgumentsError(
                f"set_optimizer takes an optimizer, such as kg.optimizer.SGD(0.1), not {optimizer!r}; write "
                "set_updater for a function"
            )
        self._set_store_updater(StoreUpdater(optimizer.update, optimizer.states, optimizer))

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Push gradients in one or two bits an element; what an element loses is added to the next.

        Parameters
        ----------
        compression_params
            `{"type": "2bit", "threshold": 0.5}`: an element counts as the threshold, its negative or zero; `1bit`: as 1
            above the threshold, else as -1. `device` stores compress each device's array, `dist_*` ones each rank's
            sum. Ranks all set the same. What `init` is given and `pull` gives is whole.

        Raises
        ------
        OptionError
        ArgumentsError
        """
        if self.type == "local":
            raise ArgumentsError("a local store copies nothing that could be compressed; make one of another kind")
        compression = checked_compression(compression_params)
        with self._lock:
            self._compression, self._residuals = compression, {}
            if self._servers is not None:
                self._servers.set_compression(compression)

    def _set_store_updater(self, made: StoreUpdater) -> None:
        with self._lock:
            if self._servers is None or self._ranks is None:
                self._values.set_update(made)
                self._updater = made
                return
            ranks, before, self._updater = self._ranks, self._updater, made
            try:
                self._servers.set_update(made, lambda: ranks.run(self._agreement_on_updater()))
            except BaseException:
                self._updater = before
                raise

    def _agreement_on_updater(self) -> Agreement:
        return agreement_on_updates("set_updater", *self._meaning_of_servers_updates(self._specs))

    def save_optimizer_states(self, path: str) -> None:
        """Write the updater's states to a file (NumPy's npz): of `dist_async` those of this rank's server."""
        if self._servers is not None:
            self._servers.meet()
        found = (self._servers or self._values).items()
        counts = self._updater is not None and self._updater.optimizer is not None
        states: list[tuple[Part, Sequence[Any]]] = [(part, stored.states) for part, stored in found]
        if counts:
            states = [(part, [*x.states, np.int64(x.count)]) for part, x in found if x.count]
        write_optimizer_states(path, states)

    def load_optimizer_states(self, path: Any) -> None:
        """Read them, after `init` and `set_updater`, and before a `barrier`: the files of all ranks that wrote any, for
        any number of ranks; or what this rank wrote, if they are as many.

        Raises
        ------
        ArgumentsError
            Where none fit.
        """
        alone = isinstance(path, (str, os.PathLike))
        if not (alone or isinstance(path, (list, tuple))):
            raise ArgumentsError(f"load_optimizer_states takes a path, or a list of paths, not {path!r}")
        loaded = read_optimizer_states([path] if alone else path)
        kept = self._servers or self._values
        stored = dict(kept.items())
        found: dict[Part, StoredValue] = {}
        for key, states in loaded.items():
            count = len(self._specs_of_states(key))
            counts = self._updater is not None and self._updater.optimizer is not None
            if sorted(states) != [*range(count + counts)]:
                raise ArgumentsError(f"{path} has {len(states)} states of {key!r}, not {count + counts}")
            for part, arrays, updates in self._states_here(key, [states[number] for number in sorted(states)], alone):
                found[part] = self._value_with_states(part, stored.get(part), arrays, updates)
        kept.replace(found)

    def _specs_of_states(self, key: Key) -> list[Spec]:
        return [] if self._updater is None else self._updater.state_specs(self._spec(key))

    def _states_here(
        self, key: Key, states: list[dict[int, Host]], own: bool
    ) -> Iterator[tuple[Part, list[Host], int]]:
        """What this rank keeps of a key's states, and after how many updates. states: of each its pieces; then, of an
        optimizer's, how often each piece was updated. own: which are this rank's."""
        spec, count = self._spec(key), len(self._specs_of_states(key))
        updates = max((int(x.max()) for pieces in states[count:] for x in pieces.values()), default=0)
        if self._servers is not None and own:
            here = {(key, piece): [pieces.get(piece, NOTHING) for pieces in states[:count]] for piece in states[0]}
        else:
            whole = [np.concatenate([pieces[i].reshape(-1) for i in sorted(pieces)]) for pieces in states[:count]]
            if self._servers is None:
                here = {(key, 0): whole}
            else:
                pieces = pieces_of(key, spec.size, self.num_workers)
                here = {p.part: [array[p.start : p.stop] for array in whole] for p in pieces if p.server == self.rank}
        yield from ((part, arrays, updates) for part, arrays in here.items())

    def _value_with_states(self, part: Part, stored: StoredValue | None, arrays: list[Host], count: int) -> StoredValue:
        """What is stored, with states that are read from a file, after so many updates. Raises ArgumentsError where
        they do not fit."""
        spec = self._spec(part[0])
        value = None if stored is None else stored.value
        if value is None or any(array.size != value.size for array in arrays):
            size = arrays[0].size if arrays else 0
            raise ArgumentsError(
                f"{size} elements of a state of {part[0]!r} are there, which has {spec.size}; give the files "
                "of all ranks that wrote them"
            )
        for array, wanted in zip(arrays, self._specs_of_states(part[0]), strict=True):
            if array.dtype != wanted.dtype:
                raise ArgumentsError(
                    f"a state of {part[0]!r} in the file is of {array.dtype}, where one of {wanted.dtype} is kept"
                )
        device = name_of(value._device)
        states = (asarray(array.reshape(value.shape), device=device, copy=True) for array in arrays)
        return StoredValue(value, tuple(states), count)

    def _agree_on_first_values(self, ranks: EngineCommunicator, first: Mapping[Key, Array]) -> None:
        """Raises PlanError where ranks differ in keys, shapes, dtypes or what their servers' updaters compute."""
        meaning, name = self._meaning_of_servers_updates({key: array._spec for key, array in first.items()})
        agreements = [
            agreement_on_updates(f"init of {key!r} of {array.dtype}{list(array.shape)}", meaning, name)
            for key, array in first.items()
        ]
        lines = [line for agreement in agreements for line in agreement.lines]
        digest = rank_agreement_on_collectives([repr(agreement.digest) for agreement in agreements], "").digest
        ranks.run(Agreement((*lines,), digest, lines[0]))

    def _meaning_of_servers_updates(self, specs: Mapping[Key, Spec]) -> tuple[str, str]:
        """What an updater makes of keys, and its name; of what is on servers, so that it makes no difference where."""
        servers, updater = self._servers, self._updater
        if updater is None or servers is None or servers.world.size == 1:
            return "", ""
        pieces = {key: servers.spec_of_piece(key, spec) for key, spec in specs.items()}
        return updater.meaning_of_keys(pieces, device_named("cpu")), str(updater)

    def _agreements_on_push(self, keys: Sequence[Key]) -> list[Agreement]:
        """On the sum of each key; a push of several is no push of one after another, since all or none is updated."""
        found, count = [], len(keys)
        for number, key in enumerate(keys):
            spec, meaning, name = self._specs[key], "", ""
            if self._updater is not None:
                stored = self._values.latest((key, 0))
                meaning, name = self._updater.meaning_of_push(key, stored, _spec_of_sum(spec)), str(self._updater)
            of = f", {number + 1} of {count}" if count > 1 else ""
            of += "" if self._compression is None else f", {self._compression}"
            found.append(agreement_on_updates(f"push of {key!r}{of}", meaning, name, spec))
        return found

    def _push_to_servers(self, servers: KeyValueStoreWorker, given: Mapping[Key, list[Any]]) -> None:
        joined = {key: self._sum_of_arrays(key, parts) for key, parts in given.items()}

        def read() -> dict[Key, Host]:
            return {key: array if type(array) is np.ndarray else array.numpy() for key, array in joined.items()}

        if all([type(array) is np.ndarray or array.is_ready() for array in joined.values()]):
            servers.push(read())
            return
        joined |= {key: array.copy() for key, array in joined.items() if type(array) is np.ndarray}
        servers.push_later(read)

    def _spec_for_push(self, key: Key) -> Spec:
        """The spec of a key's value. Raises ArgumentsError where a push to servers has no value or no updater."""
        spec = self._spec(key)
        if self._servers is not None and self._updater is None:
            raise ArgumentsError("a dist_async store needs set_updater before the first push")
        if self._compression is not None:
            self._compression.check(key, spec)
        return spec

    def _sums_over_ranks(
        self, ranks: EngineCommunicator, arrays: Mapping[Key, Array]
    ) -> tuple[dict[Key, Array], Sequence[Array]]:
        """The sums, on their way, and what they are made of. Whatever one fails with, all are begun: so do other
        ranks."""
        agreements, given = self._agreements_on_push([*arrays]), dict[Key, Array]()
        compression = self._compression
        for key, x in arrays.items():
            dtype = _spec_of_sum(x._spec).dtype
            if compression is None:
                given[key] = x if x.dtype == dtype else x.astype(dtype)
            else:
                given[key] = self._compressed(compression, key, 0, x)
        if compression is not None and ranks.world.size == 1:
            found = {key: packed[None] for key, packed in given.items()}
        else:
            found = {
                key: self._join_over_ranks(ranks, agreement, array)
                for (key, array), agreement in zip(given.items(), agreements, strict=True)
            }
        if compression is None:
            return found, ()
        specs = {key: _spec_of_sum(x._spec) for key, x in arrays.items()}
        sums = {key: compression.sum_of(every, specs[key], name_of(every._device)) for key, every in found.items()}
        return sums, [*found.values()]

    def _compressed(self, compression: GradientCompression, key: Key, number: int, array: Array) -> Array:
        """An array of a push in codes. number: its place in the push."""
        packed, self._residuals[key, number] = compression.compress(array, self._residuals.get((key, number)))
        return packed

    def _join_over_ranks(self, ranks: EngineCommunicator, agreement: Agreement, given: Array) -> Array:
        """The sum of all ranks' arrays; of compressed ones each, in the order of the ranks."""
        device, packed, size = given._device, self._compression is not None, ranks.world.size
        if not device.host_memory:
            return self._program_on_gpus(agreement, name_of(device))(given)
        step = Collective("all_gather" if packed else "all_reduce", (given.size,), str(given.dtype), "sum")
        target = device.allocate(given.nbytes * (size if packed else 1))
        call = EngineCollectiveCall(step, device, ranks)
        before = [] if given._event is None else [given._event]
        job = partial(call.run, before, [given._memory], [target], agreement)
        event = ranks.submit(job, agreement.doing, soon=call.nbytes > SMALL_BYTES)
        track_memory((event,), (given._memory, target))
        joined = spec_of(ArrayType((size, given.size), given.dtype)) if packed else given._spec
        return Array(target, joined, device, event)

    def _program_on_gpus(self, agreement: Agreement, device: str) -> Callable[[Array], Array]:
        """What joins an array over the ranks' GPUs. agreement: what the ranks agree on, by the program's name."""
        made, packed = self._programs.get((agreement.digest, device)), self._compression is not None
        if made is None:

            def add_over_ranks(x: Any) -> Any:
                return all_gather(x[None]) if packed else all_reduce(x)

            add_over_ranks.__name__ = f"{agreement.doing}, {agreement.digest.hex()[:8]}"
            with default_device(device):
                mesh = Mesh(self.num_workers)
            program = MeshFunction(add_over_ranks, mesh, None, None)

            def made(x: Array) -> Array:
                return program(Sharded([x], mesh, None)).parts[0]  # type: ignore[no-any-return]

            remember_in_bounded_cache(self._programs, (agreement.digest, device), made)
        return made

    def _arrays_to_push(self, key: Key, given: Any) -> list[Any]:
        """What is pushed to a key: where its value is, or one array that is read before the push is over. Raises
        ArgumentsError, ShapeError, DTypeError."""
        spec = self._spec_for_push(key)
        if is_laid_out_as_stored(given, spec) and self._reads_host_arrays(key):
            return [given]
        parts = _arrays_given(given)
        if not parts:
            raise ArgumentsError(f"nothing is pushed for key {key!r}")
        device = device_named("cpu") if self._servers else self._values.latest((key, 0)).value._device
        if len(parts) > 1 and _are_on_devices_like(device, spec, parts):
            return [snapshot(x) for x in parts]  # one program adds them up, where they are
        moves = self._compression is None or self.type != "device"  # else its codes do
        moved = []
        for part in parts:
            ours = type(part) is np.ndarray or type(part) is Array
            shape = part.shape if ours else np.shape(part)
            if shape != spec.shape:
                raise ShapeError(f"key {key!r} has shape {spec.shape}, and an array of shape {shape} comes")
            if isinstance(part, np.ma.MaskedArray):
                raise DTypeError("stores keep arrays without masks; write x.filled(value)")
            if moves or type(part) is not Array:
                array = on_device(part if ours else asarray(part, device=name_of(device)), device)
            else:
                array = part
            if array.dtype != spec.dtype:
                raise DTypeError(f"key {key!r} has dtype {spec.dtype}, and an array of {array.dtype} comes")
            moved.append(snapshot(array) if array is part else array)  # to which the caller may assign meanwhile
        return moved

    def _reads_host_arrays(self, key: Key) -> bool:
        """Whether a push takes NumPy's arrays as they are: it has read them when it returns, and is not done again."""
        if self._ranks is not None:
            return self._servers is not None
        stored = self._values.latest((key, 0)).value
        return self._compression is None and stored._device.host_memory and not self._values.may_fail

    def _sum_of_arrays(self, key: Key, parts: Sequence[Any]) -> Any:
        """In the order of the list, whichever array is there first."""
        compression = self._compression
        if compression is not None and self.type == "device":
            device = self._values.latest((key, 0)).value._device
            packed = [on_device(self._compressed(compression, key, i, part), device) for i, part in enumerate(parts)]
            return compression.sum_of(packed, self._spec(key), name_of(device))
        if len(parts) == 1:
            return parts[0]
        home = device_named("cpu") if self._servers else self._values.latest((key, 0)).value._device
        if self._ranks is not None:
            return sum_on_device(parts, home)
        return tuple([part if type(part) is Array else on_device(part, home) for part in parts])  # see `StoreUpdater`

    def _own_copy_of_value(self, value: Any) -> Array:
        """A copy that nobody else has."""
        found = value.parts[0] if isinstance(value, Sharded) else value
        moved = asarray(found, device="cpu") if self.type == "local" or self._servers else asarray(found)
        return moved if isinstance(found, (np.ndarray, np.generic)) else first_copy_of_array(moved)

    def _copies_of_stored_values(self, keys: Sequence[Key]) -> list[Array]:
        """Copies on the values' devices. Of a GPU's they may be on their way, and fail with a push before them."""
        specs = [self._spec(key) for key in keys]
        if self._servers is not None:
            return [self._value_from_servers(self._servers, key, spec) for key, spec in zip(keys, specs, strict=True)]
        values, parts = self._values, [(key, 0) for key in keys]
        if values.may_fail:
            values.raise_failure(parts)
            for part in parts:
                if values.latest(part).value._device.host_memory:
                    values.settled(part)
        return [snapshot_or_copy(values.latest(part).value) for part in parts]

    def _value_from_servers(self, servers: KeyValueStoreWorker, key: Key, spec: Spec) -> Array:
        values = np.empty(spec.shape, spec.dtype)
        servers.pull(key, values)
        return from_numpy(values, device_named("cpu"), own=True)

    def _targets_by_key(self, key: Any, out: Any) -> list[tuple[Key, list[Any]]]:
        """The arrays that each key is pulled into. Raises ArgumentsError, ShapeError, ReadOnlyError where one is not to
        be written to."""
        found = [(one, _arrays_given(given)) for one, given in _keys_with_values(key, out, "pull")]
        for one, targets in found:
            dense = [target for target in targets if not isinstance(target, RowSparse)]
            if dense or not targets:
                check_targets_of_pull(one, self._spec(one), dense)
            for target in targets:
                if isinstance(target, RowSparse):
                    check_row_sparse_target(one, target, self._spec(one).shape)
        return found

    def _fill_targets(self, targets_by_key: Sequence[tuple[Key, list[Any]]]) -> None:
        servers = self._servers
        dense = [(key, [x for x in targets if not isinstance(x, RowSparse)]) for key, targets in targets_by_key]
        targets_by_key = [(key, targets) for key, targets in dense if targets]
        if servers is None:
            stored = [self._stored_for_targets((key, 0), targets) for key, targets in targets_by_key]
            for (_, targets), found in zip(targets_by_key, stored, strict=True):
                for target in targets:
                    fill_target_of_pull(target, found.value_on(getattr(target, "_device", None)))
            return
        for key, targets in targets_by_key:
            spec = self._spec(key)
            if len(targets) == 1 and is_laid_out_as_stored(targets[0], spec):
                servers.pull(key, targets[0])
            else:
                value = self._value_from_servers(servers, key, spec)
                for target in targets:
                    fill_target_of_pull(target, value)

    def _stored_for_targets(self, part: Part, targets: Sequence[Any]) -> StoredValue:
        """What targets get. On GPUs it may be on its way, and fail with a push before it."""
        if any([type(x) is not Array or x._device.host_memory for x in targets]):
            return self._values.settled(part)
        if self._values.may_fail:
            self._values.raise_failure((part,))
        return self._values.latest(part)

    def _spec(self, key: Key) -> Spec:
        try:
            return self._specs[key]
        except KeyError:
            raise ArgumentsError(f"key {key!r} has no value; write store.init({key!r}, value)") from None

    def __repr__(self) -> str:
        return f"<kvstore {self.type} of {len(self._specs)} keys>"


def _arrays_given(given: Any) -> list[Any]:
    """Those of a key: one, a list of them, or those that lie on a mesh."""
    if isinstance(given, Sharded):
        return [*given.parts]
    return [target for one in given for target in _arrays_given(one)] if isinstance(given, (list, tuple)) else [given]


def _keys_with_values(keys: Any, values: Any, what: str) -> list[tuple[Key, Any]]:
    """Each key and what belongs to it. Raises ArgumentsError."""
    several = isinstance(keys, (list, tuple))
    if several and (not isinstance(values, (list, tuple)) or len(keys) != len(values)):
        raise ArgumentsError(f"{what} of {len(keys)} keys takes a list of as many values")
    pairs = list(zip(keys, values, strict=True)) if several else [(keys, values)]
    return [(_checked_key(key), value) for key, value in pairs]


def _checked_key(key: Any) -> Key:
    """A key as a string or an int of Python's own, which all ranks write alike. Raises ArgumentsError."""
    if type(key) is str or type(key) is int:
        return key
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return int(key)
    raise ArgumentsError(f"{key!r} is no key; write a string or a whole number")


def _replaced_value(part: Part, pushed: Array | tuple[Array, ...], stored: StoredValue, own: bool) -> StoredValue:
    """What is stored without an updater. own: what is pushed may be kept as it is."""
    before = stored.value
    if isinstance(pushed, tuple):
        return updater_that_replaces()(part, pushed, stored)
    if not isinstance(pushed, Array):
        return StoredValue(from_numpy(pushed, before._device))
    if pushed.dtype != before.dtype:
        return StoredValue(pushed.astype(before.dtype))
    return StoredValue(pushed if own else snapshot_or_copy(pushed))


def _spec_of_sum(spec: Spec) -> Spec:
    """Arrays of narrow floats are summed in float32."""
    narrow = spec.dtype.itemsize == 2 and dtype_kind(spec.dtype) == "f"
    return spec_of(ArrayType(spec.shape, np.dtype(np.float32))) if narrow else spec


def _are_on_devices_like(home: Device, spec: Spec, parts: Sequence[Any]) -> bool:
    """Whether one program reads arrays where they are; nothing is read of empty ones."""
    alike = [type(x) is Array and x._spec is spec and x._device.kind == home.kind for x in parts]
    return spec.size > 0 and all(alike)
