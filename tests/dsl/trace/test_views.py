"""Views and copies: for every function of the namespace, on each layout in memory, NumPy's own answer."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.dsl.environment.numpy_proxy import numpy_proxy_of
from kernelgraph.dsl.environment.value_kinds import environment_of
from kernelgraph.dsl.functions.numpy_creation import TRACED_CREATION
from kernelgraph.dsl.jit.signature import argument_of
from kernelgraph.dsl.jit.trace_function import _tracer_for_argument
from kernelgraph.dsl.jit.write_back import write_to_numpy_array
from kernelgraph.dsl.trace import view_rules
from kernelgraph.dsl.trace.aliasing import COPY_ORDERS, memory_layout_of_tracer, root_of_view, unwrap_contiguous_view
from kernelgraph.dsl.trace.dispatch import FUNCTIONS, METHODS, public_numpy_name
from kernelgraph.dsl.trace.memory_layout import resolve_layout_of_tracer
from kernelgraph.dsl.trace.trace import Trace, trace_in_progress
from kernelgraph.dsl.trace.tracer import SCALAR, Tracer
from tests.dsl.api.test_every_name import BY_DATA, DATA, ROWS

Array = np.ndarray[Any, Any]


def strided(a: Array) -> Array:
    wide = np.zeros(tuple(2 * n + 1 for n in a.shape), a.dtype)
    part = wide[(*(slice(0, 2 * n, 2) for n in a.shape), ...)]
    part[...] = a
    return part


def reversed_(a: Array) -> Array:
    every = (*(slice(None, None, -1) for _ in a.shape), ...)
    return a[every].copy()[every]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda a: np.array(a, order="C"),
    "F": lambda a: np.array(a, order="F"),
    "strided": strided,
    "reversed": reversed_,
    "swapped": lambda a: np.array(a.swapaxes(0, -1), order="C").swapaxes(0, -1) if a.ndim else a.copy(),
}


def spread(a: Array) -> Array:
    """Read-only, all elements in one place."""
    return np.broadcast_to(a[(slice(1),) * a.ndim].copy(), a.shape) if a.ndim else a.copy()


SPREAD = {**LAYOUTS, "spread": spread}


def arrays(found: Any) -> Iterator[Any]:
    if isinstance(found, (tuple, list)):
        for x in found:
            yield from arrays(x)
    else:
        yield found


def differences(row: Callable[..., Any], args: list[Array], counted: dict[str, int]) -> Iterator[str]:
    """Where the traced results share memory with other arguments than NumPy's, or lie in another order."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = [*arrays(row(np, *args))]
        trace = Trace("views")
        trace.world, trace.reruns = environment_of(trace), True
        with trace_in_progress(trace):
            stand_ins = [_tracer_for_argument(trace, i, argument_of(a, True)) for i, a in enumerate(args)]
            for want, got in zip(wanted, arrays(row(numpy_proxy_of(np), *stand_ins)), strict=True):
                if not isinstance(want, np.ndarray) or type(got) is not Tracer:
                    continue
                if want.ndim and got._owner == SCALAR:
                    yield "a scalar"
                counted["results"] += 1
                try:
                    found = resolve_layout_of_tracer(
                        memory_layout_of_tracer(unwrap_contiguous_view(got)), got._held.type
                    )
                    mine = [_shares(got, x) for x in stand_ins]
                except kg.TraceError:
                    found = None
                    mine = [np.shares_memory(want, a) for a in args]
                if found is None:
                    counted["of unknown order"] += 1
                elif (mine, _long(found)) != ([np.shares_memory(want, a) for a in args], _long(want)):
                    yield f"shares {mine}, strides {found.strides}; NumPy's are {want.strides}"


def _shares(x: Tracer, argument: Tracer) -> bool:
    from kernelgraph.dsl.trace.aliasing import settle_reshapes_of_tracers

    settle_reshapes_of_tracers(x)
    return root_of_view(x) is argument and x.size > 0


def _long(a: Array) -> list[int]:
    return [s for s, n in zip(a.strides, a.shape, strict=True) if n != 1] if a.size else []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_function_of_the_namespace(layout: str) -> None:
    counted, wrong = {"results": 0, "of unknown order": 0}, []
    for (group, name), row in ROWS.items():
        if name not in BY_DATA:
            args = [LAYOUTS[layout](DATA[p]) for p in [*inspect.signature(row).parameters][1:]]
            wrong += [f"{group} {name}: {d}" for d in differences(row, args, counted)]
    assert not wrong
    assert counted["results"] > 250 and counted["of unknown order"] < 120, counted


def test_every_function_has_a_row() -> None:
    names = {public_numpy_name(f).removeprefix("np.") for f in (*FUNCTIONS, *TRACED_CREATION)} | {*METHODS}
    rows = {*COPY_ORDERS, *view_rules.VIEWS.split(), *view_rules.OTHERS.split()}
    assert not names - rows
    assert len(rows) == sum(map(len, (COPY_ORDERS, view_rules.VIEWS.split(), view_rules.OTHERS.split())))


# what gives views, or may: each is written to, and looked at while its source is written to

A, Z = np.arange(1.0, 25.0).reshape(2, 3, 4), np.arange(12.0).reshape(3, 4) * (1 + 2j)
SOURCES: dict[str, Array] = {
    "matrix": np.arange(1.0, 13.0).reshape(3, 4),
    "cube": A,
    "vector": np.arange(6.0),
    "row": np.arange(1.0, 5.0).reshape(1, 4),
    "thin": np.arange(6.0).reshape(2, 1, 3),
    "empty": np.zeros((0, 3)),
    "single": np.array(3.0),
    "complex": Z,
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: np.reshape(x, -1),
    "reshape halves": lambda x: x.reshape((x.shape[0], -1)[: x.ndim]) if x.size else x,
    "reshape F": lambda x: x.reshape(-1, order="F"),
    "reshape A": lambda x: np.reshape(x, -1, order="A"),
    "reshape split": lambda x: x.reshape((2, x.size // 2)) if x.size % 2 == 0 and x.size else x,
    "ravel": lambda x: np.ravel(x),
    "ravel F": lambda x: x.ravel("F"),
    "ravel A": lambda x: x.ravel("A"),
    "ravel K": lambda x: x.ravel("K"),
    "flatten": lambda x: x.flatten(),
    "flatten F": lambda x: x.flatten("F"),
    "T": lambda x: x.T,
    "transpose": lambda x: np.transpose(x),
    "transposed and raveled": lambda x: x.T.ravel(),
    "swapaxes": lambda x: x.swapaxes(0, -1) if x.ndim else x,
    "moveaxis": lambda x: np.moveaxis(x, 0, -1) if x.ndim else x,
    "squeeze": lambda x: np.squeeze(x),
    "expand_dims": lambda x: np.expand_dims(x, 0),
    "flip": lambda x: np.flip(x),
    "flipped and raveled": lambda x: np.flip(x).reshape(-1),
    "rot90": lambda x: np.rot90(x) if x.ndim > 1 else x,
    "rot90 twice": lambda x: np.rot90(x, 2) if x.ndim > 1 else x,
    "atleast_1d": lambda x: np.atleast_1d(x),
    "atleast_2d": lambda x: np.atleast_2d(x),
    "atleast_3d": lambda x: np.atleast_3d(x),
    "slice": lambda x: x[1:],
    "steps": lambda x: x[::2],
    "steps back": lambda x: x[::-1].reshape(-1),
    "dots": lambda x: x[...],
    "new axis": lambda x: x[None, ..., None],
    "last": lambda x: x[..., -1:],
    "integer": lambda x: x[0] if x.size and x.ndim > 1 else x,
    "split": lambda x: np.array_split(x, 2)[0],
    "unstack": lambda x: np.unstack(x)[0] if x.size and x.ndim > 1 else x,
    "array": lambda x: np.array(x),
    "array no copy": lambda x: np.array(x, copy=None),
    "asarray": lambda x: np.asarray(x),
    "asarray C": lambda x: np.asarray(x, order="C"),
    "asarray F": lambda x: np.asarray(x, order="F"),
    "asarray A": lambda x: np.asarray(x, order="A"),
    "asanyarray": lambda x: np.asanyarray(x),
    "ascontiguousarray": lambda x: np.ascontiguousarray(x),
    "asfortranarray": lambda x: np.asfortranarray(x),
    "asfortranarray of T": lambda x: np.asfortranarray(x.T),
    "contiguous and raveled": lambda x: np.ascontiguousarray(x.T).reshape(-1),
    "require": lambda x: np.require(x, requirements="F"),
    "astype": lambda x: x.astype(x.dtype),
    "astype no copy": lambda x: x.astype(x.dtype, copy=False),
    "astype C": lambda x: x.astype(x.dtype, order="C", copy=False),
    "astype F": lambda x: x.astype(x.dtype, order="F", copy=False),
    "astype f4": lambda x: x.astype("c8", copy=False),
    "copy": lambda x: np.copy(x),
    "copy and raveled": lambda x: np.copy(x).ravel("K"),
    "real": lambda x: np.real(x),
    "real raveled": lambda x: x.real.ravel(),
    "imag": lambda x: x.imag if x.dtype.kind == "c" else x,
    "diagonal": lambda x: np.diagonal(x) if x.ndim > 1 else x,
    "diag": lambda x: np.diag(x) if x.ndim == 2 else x,
    "view": lambda x: x.view(),
    "bits": lambda x: x.view("i8" if x.dtype.kind == "f" else x.dtype),
    "computed integer": lambda x: x[np.argmax(x.shape[0] + 0 * x[:, 0].real)] if x.size and x.ndim == 2 else x,
    "index of no axis": lambda x: x[np.array(0)] if x.size and x.ndim > 1 else x,
    "list": lambda x: x[[0]] if x.size and x.ndim else x,
    "plus": lambda x: +x,
    "conj": lambda x: np.conj(x),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, x)[0],
    "nan_to_num": lambda x: np.nan_to_num(x, copy=False) if x.ndim else x,
    "flat": lambda x: x.flat[:2],
    "meshgrid": lambda x: np.meshgrid(x, x, copy=False)[1] if x.ndim == 1 else x,
    "sparse meshgrid": lambda x: np.meshgrid(x, x, sparse=True)[1] if x.ndim == 1 else x,
    "tile": lambda x: np.tile(x, 1),
    "roll": lambda x: np.roll(x, 0),
    "sum": lambda x: np.sum(x, axis=()),
    "where": lambda x: np.where(True, x, x),
    "clip": lambda x: np.clip(x.real, None, 100),
    "concatenate": lambda x: np.concatenate([x]) if x.ndim else x,
    "take": lambda x: np.take(x, [0, 1], axis=-1) if x.size > 2 and x.shape[-1] > 1 else x,
    "sort": lambda x: np.sort(x, axis=None),
    "pad": lambda x: np.pad(x, 0),
}
COMPUTED = {"argument": lambda x: x, "value": lambda x: x * 1, "copy": lambda x: x.copy(), "part": lambda x: x[..., :2]}


def program(look: Callable[[Any], Any], made: Callable[[Any], Any], writes: bool) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = made(x) if x.ndim else x
        z, w = look(y), look(y)
        y[(..., slice(1))[: 1 + bool(y.ndim)]] = 100
        seen = z + 0
        if writes and isinstance(z, np.ndarray):
            z[(slice(-1, None),)[: z.ndim]] = 7
        return y + 0, seen, z + 0, w + 0

    return function


def traced(function: Any, x: Array) -> Any:
    """What the function returns and assigns, by way of its graph."""
    captured, _, leaves = kg.kernel_graph(function, device="cpu")._trace_for_inspection((x,), {})
    outputs = interpret_graph(captured.graph, [*(np.asarray(leaves[i]) for i in captured.feeds), *captured.arrays])
    before = x.copy()
    if captured.assigned:
        x[...] = before  # NumPy refuses it of read-only memory, whatever is written
    for write in captured.writes:
        write_to_numpy_array(write, x, [outputs[i] for i in write.outputs], before)
    return [x if kind == "argument" else outputs[i] for kind, i in captured.results]


CASES = [(source, layout, made) for source in SOURCES for layout in SPREAD for made in COMPUTED]
REFUSED = {"ravel K": 50, "meshgrid": 60}  # at most: elements that share memory, and NumPy warns of


def different(name: str, cases: Sequence[tuple[str, str, str]]) -> list[Any]:
    wrong, refused = [], 0
    for source, layout, made in cases:
        try:
            what = source, layout, made
            wrong += compared(VIEWS[name], COMPUTED[made], SOURCES[source], SPREAD[layout], what)
        except (kg.UnsupportedError, kg.ReadOnlyError):
            refused += 1
    return wrong if refused <= REFUSED.get(name, 0) else [*wrong, f"{refused} refused"]


@pytest.mark.parametrize("number, name", list(enumerate(VIEWS)))
def test_what_is_written_to_views_and_sources(number: int, name: str) -> None:
    assert not different(name, CASES[number % 7 :: 7])


@pytest.mark.parametrize("source", ["matrix", "vector", "complex"])
def test_what_is_written_to_a_result_is_seen_in_no_other(source: str) -> None:
    looks = [look for name, look in VIEWS.items() if name not in {*REFUSED, "nan_to_num"}]  # which writes to x

    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        y = x * 2
        return [(look(x), look(y)) for look in looks], x, y

    x = SOURCES[source].copy()
    found = [*{id(r): r for r in arrays(f(x)) if r.shape}.values()]  # one that comes twice is one
    assert len(found) > 100 and not any(np.shares_memory(np.asarray(r), x) for r in found)
    before = [np.array(r) for r in found]
    x[...] = 7
    for i in range(0, len(found), 5):
        found[i][...] = before[i][...] = 100 + i
    for r, b in zip(found, before, strict=True):
        np.testing.assert_array_equal(np.asarray(r), b)


def compared(look: Any, made: Any, source: Array, layout: Callable[[Array], Array], what: Any) -> Iterator[Any]:
    """Where what NumPy gives, and writes to its argument, differs."""
    for writes in (True, False):
        function = program(look, made, writes)
        mine, theirs = layout(source), layout(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wanted = function(theirs)
            except (ValueError, IndexError) as error:
                try:
                    traced(function, mine)
                    yield (*what, error)
                except type(error):
                    pass
                continue
            got = traced(function, mine)
        for i, (a, b) in enumerate(zip((*got, mine), (*wanted, theirs), strict=True)):
            if not np.array_equal(a, b):
                yield (*what, ["y", "z", "z", "w", "x"][i], a, b)
        break


if __name__ == "__main__":  # every case: python -m tests.dsl.trace.test_views
    found = {name: different(name, CASES) for name in VIEWS}
    print(f"{len(VIEWS)} ways to look, {len(VIEWS) * len(CASES)} cases, {sum(map(len, found.values()))} wrong")
    print(*(f"{name}: {wrong[:2]}" for name, wrong in found.items() if wrong), sep="\n")
