"""What a store's updater makes of a push: a user's function in; out, one that gives new arrays, compiled once for all
keys of one shape and dtype, and what it means, for ranks to agree on.

updater(key, pushed, stored, *states) assigns to `stored` and to its states, of which it is given copies.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...compiler.graph.graph import Graph
from ...runtime.core.frozen import dataclass, frozen, replace
from ...runtime.engine.communicator import Agreement, rank_agreement_on_collective
from ...runtime.program.device import Device
from ..array.array import Array, on_device
from ..array.devices import name_of
from ..core.context import context
from ..core.errors import ArgumentsError, OptionError, Refusal, show_user_line
from ..core.spec import Spec, spec
from ..devices.collectives import all_reduce, broadcast
from ..devices.mesh import Mesh, Sharded
from ..devices.mesh_calls import MeshFunction
from ..jit.kernel_graph import KernelGraph
from ..jit.traced_function import TracedFunction
from .optimizer import Optimizer
from .stored_values import Key, Part, StoredValue

Updater = Callable[..., Any]
ALONE_BYTES = 256 << 10  # a value of no more is updated by one device for all, in a launch less for each other
SEES_ALL_NAMES = frozenset(("dir", "eval", "exec", "locals", "vars"))


@dataclass(slots=True)
class TracedMeaning:
    """What an updater means for one kind of arrays, while the guards of the trace hold."""

    traced: TracedFunction
    digest: str


@frozen
class MeshUpdate:
    """An updater on the devices of a mesh. home: the place of the value's; alone: whether that one updates for all."""

    program: MeshFunction
    mesh: Mesh
    home: int
    alone: bool

    def __call__(self, pushed: Sequence[Array], stored: StoredValue, numbers: Sequence[float]) -> StoredValue:
        mesh, before = self.mesh, stored.copies
        if self.alone:  # the others do not read it
            before = (Sharded([stored.value] * len(mesh), mesh, None),)
        elif not before or before[0].mesh != mesh:
            arrays = (stored.value, *stored.states)
            before = tuple(Sharded([on_device(x, d) for d in mesh.devices], mesh, None) for x in arrays)
        copies = self.program(Sharded(pushed, mesh, None), *before, *numbers)
        value, *states = [x.parts[self.home] for x in copies]
        return StoredValue(value, tuple(states), stored.count + 1, copies)


class StoreUpdater:
    """A user's updater, with so many states a value. name: for people."""

    def __init__(self, function: Updater, states: int, optimizer: Optimizer | None = None) -> None:
        """optimizer: whose `update` the function is. Raises OptionError, ArgumentsError."""
        if isinstance(states, bool) or not isinstance(states, int) or states < 0:
            raise OptionError(f"states={states!r}: write how many arrays the updater keeps, 0 or more")
        if not callable(function) or not (optimizer or _takes_arguments(function, 3 + states)):
            also = f", and of {states} states" if states else ""
            raise ArgumentsError(f"set_updater takes a function of (key, pushed, stored){also}, not {function!r}")
        self.function, self.states, self.optimizer = function, states, optimizer
        self._stateless = not (states or (optimizer is not None and optimizer.multi_precision))
        self.name = getattr(optimizer or function, "__name__", type(optimizer or function).__name__)
        self._knows_keys = _reads_first_argument(function)
        self._compiled: dict[tuple[Key | None, Spec, Device], KernelGraph] = {}  # by key, if it decides
        # the same, by the devices of what is pushed; None for what one device is to update
        self._on_meshes: dict[tuple[Key | None, Spec, Device, tuple[Device, ...]], MeshUpdate | None] = {}
        self._meanings: dict[KernelGraph, TracedMeaning] = {}

    def __call__(self, part: Part, pushed: Any, stored: StoredValue) -> StoredValue:
        """What is stored after a push; the updater changes copies. Raises what it raises."""
        before, count = stored.value, stored.count + 1
        spec, states = before._spec, stored.states
        if not (states or self._stateless):
            states = self._first_states(before)
        numbers = self._numbers_of_update(part[0], count)
        if type(pushed) is tuple:
            kind = (part[0] if self._knows_keys else None, spec, before._device, tuple([x._device for x in pushed]))
            on_mesh = self._on_meshes[kind] if kind in self._on_meshes else self._mesh_update(part[0], *kind[1:])
            self._on_meshes[kind] = None  # what fails here one device may be able to do, or tell better why not
            if on_mesh is not None and context.stream is None:  # no mesh is on a caller's stream
                with suppress(Exception):
                    updated = on_mesh(pushed, replace(stored, states=states), numbers)
                    self._check_type(updated.value, spec)
                    self._on_meshes[kind] = on_mesh
                    return updated
            pushed = sum_on_device(pushed, before._device)
        value, *states = self._compiled_for(part[0], spec, before._device)(pushed, before, *states, *numbers)
        self._check_type(value, spec)
        return StoredValue(value, tuple(states), count)

    def _check_type(self, value: Array, spec: Spec) -> None:
        if value._spec is not spec and value._spec.type != spec.type:
            raise ArgumentsError(f"{self} makes an array of shape {value.shape} of a stored one of shape {spec.shape}")

    def state_specs(self, stored: Spec) -> list[Spec]:
        """The specs of a value's states."""
        if self._widens(stored):
            return [spec(stored.shape, np.float32)] * (1 + self.states)
        return [stored] * self.states

    def _widens(self, stored: Spec) -> bool:
        wide = self.optimizer is not None and self.optimizer.multi_precision
        return wide and stored.dtype.itemsize == 2 and dtype_kind(stored.dtype) == "f"

    def _first_states(self, value: Array) -> tuple[Array, ...]:
        specs, device = self.state_specs(value._spec), value._device
        if not specs:
            return ()
        zeros = on_device(np.zeros(specs[0].shape, specs[0].dtype), device)
        return (value.astype(np.float32) if self._widens(value._spec) else zeros, *[zeros] * (len(specs) - 1))

    def _numbers_of_update(self, key: Key, count: int) -> tuple[float, ...]:
        return () if self.optimizer is None else self.optimizer.numbers_of_update(key, count)

    def meaning_of_push(self, key: Key, stored: StoredValue, pushed: Spec) -> str:
        """What tells apart updaters that would make something else of the next push of a key."""
        spec, device = stored.value._spec, stored.value._device
        meaning = self.meaning(key, spec, device, pushed)
        numbers = self._numbers_of_update(key, stored.count + 1)
        return _digest_of_texts((meaning, repr(numbers))) if numbers else meaning

    def meaning(self, key: Key, spec: Spec, device: Device, pushed: Spec | None = None) -> str:
        """What tells apart updaters that would store other values: a digest of the graph that is traced for arrays of a
        spec, or of the function's code, where that runs in NumPy. pushed: what is pushed, if not of that spec. Raises
        what the updater raises."""
        compiled = self._compiled_for(key, spec, device)
        known = self._meanings.get(compiled)
        if known is None or not known.traced.guards.hold():
            try:
                numbers = self._numbers_of_update(key, 1)
                traced = compiled.traced(pushed or spec, spec, *self.state_specs(spec), *numbers)
            except Refusal as error:
                if not error.needs_values:
                    raise
                return _digest_of_texts(_texts_of_code(self.function, set()))
            known = self._meanings[compiled] = TracedMeaning(traced, _digest_of_texts(_texts_of_trace(traced)))
        return known.digest

    def meaning_of_keys(self, specs: Mapping[Key, Spec], device: Device) -> str:
        """The same for several keys. What the updater raises is a part of what it means."""
        deciding = specs if self._knows_keys else {spec: key for key, spec in specs.items()}.values()
        found: dict[tuple[str, str], list[Key]] = {}  # the keys of a spec for which it means the same
        for key in deciding:
            try:
                meaning = self.meaning(key, specs[key], device)
            except Exception as error:  # which a push raises
                meaning = repr(error)
            found.setdefault((repr(specs[key]), meaning), []).append(key)
        several = len({spec for spec, _ in found}) < len(found)
        texts = sorted(repr((kind, sorted(map(repr, keys)) if several else 0)) for kind, keys in found.items())
        if self.optimizer is not None:
            texts += _texts_of_code(self.optimizer.settings, set())
        return _digest_of_texts(texts)

    def _compiled_for(self, key: Key, spec: Spec, device: Device) -> KernelGraph:
        kind = (key if self._knows_keys else None, spec, device)
        found = self._compiled.get(kind)
        if found is None:
            found = self._compiled[kind] = KernelGraph(self._traceable(key, spec), device=name_of(device))
        return found

    def _mesh_update(self, key: Key, spec: Spec, home: Device, devices: Sequence[Device]) -> MeshUpdate | None:
        """The same where each of several arrays lies on a device of its own, and the value on one of these: each then
        has what is stored."""
        if len({*devices}) < len(devices) or home not in devices:
            return None
        mesh, root = Mesh(tuple(map(name_of, devices))), devices.index(home)
        alone = self._stateless and spec.nbytes <= ALONE_BYTES
        traceable = self._traceable(key, spec, all_reduce, functools.partial(broadcast, root=root) if alone else tuple)
        return MeshUpdate(MeshFunction(traceable, mesh, None, None, same_bits=True), mesh, root, alone)

    def _traceable(
        self, key: Key, spec: Spec, join: Callable[[Any], Any] = lambda x: x, share: Callable[[Any], Any] = tuple
    ) -> Callable[..., Any]:
        """The updater as a function of what is pushed, the value, its states and numbers. join: of what is pushed;
        share: of the new value and states."""
        function, states, wide = self.function, len(self.state_specs(spec)), self._widens(spec)

        def call_updater(pushed: Any, stored: Any, *given: Any) -> Any:
            arrays, numbers = given[:states], given[states:]
            changed = arrays if wide else (stored, *arrays)
            own = [join(pushed).astype(changed[0].dtype), *[np.copy(x) for x in changed]]
            returned = function(key, *own, *numbers)
            if returned is not None and returned is not own[1]:
                raise ArgumentsError("an updater assigns to the stored array, as in `stored -= 0.1 * pushed`")
            return share((own[1].astype(stored.dtype), *own[1:]) if wide else (*own[1:],))

        call_updater.__name__ = self.name
        return call_updater

    def __str__(self) -> str:
        code = getattr(self.function, "__code__", None)
        return self.name if code is None else f"{self.name} ({show_user_line(code.co_filename, code.co_firstlineno)})"


@functools.cache
def updater_that_replaces() -> StoreUpdater:
    """What stores have that were given no other: the sum is the new value."""

    def keep_sum(key: Any, pushed: Any, stored: Any) -> None:
        stored[...] = pushed

    return StoreUpdater(keep_sum, 0)


def sum_on_device(parts: Sequence[Any], home: Device) -> Array:
    """The sum of arrays in their order, on a device."""
    found: Array = _program_of_sum(name_of(home))(*[on_device(x, home) for x in parts])
    return found


@functools.cache
def _program_of_sum(home: str) -> KernelGraph:
    def joined(*parts: Any) -> Any:
        return functools.reduce(np.add, parts)

    return KernelGraph(joined, device=home)


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


def _reads_first_argument(function: Updater) -> bool:
    """Whether a function may read its first argument; True where nobody can tell."""
    first = 0
    if isinstance(function, MethodType):
        function, first = function.__func__, 1
    if type(function) is not FunctionType or function.__code__.co_argcount <= first:
        return True
    code = function.__code__
    name = code.co_varnames[first]
    if name in code.co_cellvars or not SEES_ALL_NAMES.isdisjoint(code.co_names):
        return True
    return any(name == i.argval or (type(i.argval) is tuple and name in i.argval) for i in dis.get_instructions(code))


def _digest_of_texts(texts: Iterable[str]) -> str:
    text = re.sub(" at 0x[0-9a-f]+", "", "\n".join(texts))  # where an object lies in this process
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _texts_of_trace(traced: TracedFunction) -> Iterator[str]:
    """What a trace computes, in words that are the same in each process."""
    graph = traced.graph
    yield str(Graph(graph.nodes, graph.inputs, graph.numbers, graph.outputs))
    yield repr((traced.feeds, traced.results, traced.checks, traced.text))
    for array in traced.arrays:
        yield from _texts_of_code(array, set())


def _texts_of_code(value: Any, visited: set[int]) -> Iterator[str]:
    """What decides on what a function does, as far as it can be told: its code, and what that reads from outside."""
    yield type(value).__qualname__
    if isinstance(value, (np.ndarray, Array)):
        array = np.asarray(value)
        yield f"{array.dtype}{array.shape}{'' if array.dtype.hasobject else array.tobytes().hex()}"
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield repr(value)
    elif id(value) not in visited and not isinstance(value, (ModuleType, type)):
        visited.add(id(value))
        for part in _parts_of_code(value):
            yield from _texts_of_code(part, visited)


def _parts_of_code(value: Any) -> Any:
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, *value.co_consts
    if isinstance(value, FunctionType):
        code, outside = value.__code__, value.__globals__
        named = [outside[name] for name in code.co_names if name in outside]
        return code, value.__defaults__, value.__kwdefaults__, *map(_contents_of_cell, value.__closure__ or ()), *named
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, dict):
        return *value, *value.values()
    if isinstance(value, (list, tuple)):
        return value
    return vars(type(value)).get("__call__"), getattr(value, "__dict__", None)


def _contents_of_cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # which is empty
        return None


@functools.lru_cache(maxsize=4096)
def agreement_on_updates(doing: str, meaning: str, name: str, spec: Spec | None = None) -> Agreement:
    """Ranks that do the same with updaters of one meaning agree, whatever these are called. spec: of what is summed."""
    of = "" if spec is None else f" of {spec.dtype}{list(spec.shape)}"
    shown = f"{doing}{f' to {name}, meaning {meaning[:8]},' if name else ''}{of}"
    return Agreement((shown,), rank_agreement_on_collective(f"{doing}{of} {meaning}").digest, doing)
