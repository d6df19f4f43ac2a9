"""Calls on the CPU: every kind of argument in, the same structure out, memory owned as documented, caches that hit."""

from __future__ import annotations

import copy
import enum
import gc
import threading
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.jit.kernel_graph import KernelGraph
from kernelgraph.dsl.jit.specializations import Specializations
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.engine.engine import engine_of_process
from tests.counts import examples
from tests.dsl.tracing import assert_same

Pair = namedtuple("Pair", "left right")
X = np.arange(24, dtype=np.float32).reshape(4, 6)


@dataclass
class Parameters:
    weight: Any
    bias: Any
    name: str = "layer"


def cpu(function: Any, **options: Any) -> kg.KernelGraph:
    return kg.kernel_graph(device="cpu", **options)(function)


def test_any_number_of_arguments():
    def total(x, *rest, scale=None):
        return x + sum(rest)

    def plain(x, *rest):
        return x * 2 + sum(rest)

    for function in (total, plain):
        f = kg.kernel_graph(device="cpu")(function)
        for count in (1, 2, 4, 2, 1):
            arrays = [np.arange(3.0) + i for i in range(count)]
            for _ in range(2):
                np.testing.assert_array_equal(np.asarray(f(*arrays)), function(*arrays))
        np.testing.assert_array_equal(np.asarray(f(np.arange(3.0), 2, 0.5)), function(np.arange(3.0), 2, 0.5))
    with pytest.raises(kg.ArgumentsError):
        kg.kernel_graph(device="cpu")(plain)()


def test_structures_in_and_out() -> None:
    def function(items: Any, named: Any, *, scale: float = 2.0) -> Any:
        (a, b), table = items, named
        return {
            "list": [a, [b, None]],
            "pair": Pair(table["p"].left + scale, a * table["p"].right),
            "data": Parameters(table["q"].weight @ b.T, "text", table["q"].name),
            3: OrderedDict(z=a, a=(b,)),
        }

    arguments = ([X, X + 1], {"p": Pair(X, 2.0), "q": Parameters(X, 1)})
    f = cpu(function)
    for scale in (2.0, 3.0):
        result = f(*arguments, scale=scale)
        assert isinstance(result["pair"], Pair) and isinstance(result["data"], Parameters)
        assert isinstance(result["list"][0], kg.Array) and result["list"][1][1] is None
        assert_same(result, function(*arguments, scale=scale))
    assert f.why().count("traced for") == 1


def test_every_kind_of_parameter() -> None:
    def function(a: Any, /, b: Any, *rest: Any, c: Any = 3, **more: Any) -> Any:
        return [a + b, *[r * c for r in rest], *more.values()]

    f = cpu(function)
    for args, options in (((X, X), {}), ((X, 2.0, X, X), {"c": 1, "d": X}), ((X,), {"b": X, "e": 1.5})):
        assert_same(f(*args, **options), function(*args, **options))


LAYOUTS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, ::-1],
    "steps": lambda x: x[::2, 1::3],
    "mixed": lambda x: x.T[::-2, ::3],
    "broadcast": lambda x: np.broadcast_to(x[0], x.shape),
    "0-d": lambda x: x[1, 2].reshape(()),
    "empty": lambda x: x[:0],
    "empty inside": lambda x: x[:, 3:3],
    "fortran": np.asfortranarray,
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "read-only": lambda x: _read_only(x),
    "unaligned": lambda x: _unaligned(x, 1),
    "off by one item": lambda x: _unaligned(x, x.itemsize),
    "odd strides": lambda x: _odd_strides(x),
    "subclass": lambda x: x.view(_Named),
    "long": lambda x: x.astype(np.longlong),
}


class _Named(np.ndarray):
    pass


def _read_only(x: Any) -> Any:
    x = x.copy()
    x.flags.writeable = False
    return x


def _unaligned(x: Any, by: int) -> Any:
    raw = np.zeros(x.nbytes + 64, np.uint8)
    view = raw[by : by + x.nbytes].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def _odd_strides(x: Any) -> Any:
    records = np.zeros(x.shape, [("pad", "i1"), ("x", x.dtype)])
    records["x"] = x
    return records["x"]


def test_slices_as_arguments() -> None:
    """Python 3.11 has no hash of them."""
    x = np.arange(10.0)
    by_name = kg.kernel_graph(lambda x, i: x[i], device="cpu", static_argnames="i")
    for f in (kg.kernel_graph(lambda x, i: x[i], device="cpu"), by_name):
        for i in (slice(1, 3), slice(2, 8, 2), slice(None), slice(1, 3), slice(np.int64(1), 4), slice(None, None, -1)):
            np.testing.assert_array_equal(f(x, i), x[i])
    g = kg.kernel_graph(lambda x, d: x[d["rows"]], device="cpu")
    for rows in ((slice(0, 2),), slice(0, 3)):
        np.testing.assert_array_equal(g(x, {"rows": rows}), x[rows])
    with pytest.raises(kg.ArgumentsError, match="no hash"):
        by_name(x, slice(np.arange(2), 3))


@pytest.mark.parametrize("count", [1, 7, 300])
def test_numbers_of_a_list_that_decide_are_not_asked_for_one_by_one(count: int, monkeypatch: Any) -> None:
    traces = []
    trace = Specializations._trace_for_arguments
    monkeypatch.setattr(Specializations, "_trace_for_arguments", lambda *a: (traces.append(a), trace(*a))[1])
    numbers = [float(i * 11 % count) for i in range(count)]
    f = cpu(lambda x, numbers: (x * min(numbers), sorted(numbers)[-1]))
    assert_same(f(X, numbers), (X * 0.0, count - 1.0))
    assert len(traces) <= min(count + 1, 20)


class Choice(enum.Enum):
    ONE = 1


class Whole(enum.IntEnum):
    ONE = 1


VALUES: list[tuple[Any, Any]] = [  # an argument, and one of another key
    (Choice.ONE, Choice), (Whole.ONE, 1), (np.dtype("f4"), np.dtype("f8")), (np.float32, np.float64),
    (slice(1, 3), slice(True, 3)), (range(0, 3, 2), range(0, 4, 2)), (b"a", "a"), (frozenset([1]), frozenset([True])),
    (np.sin, np.cos), (len, max), (None, False), ("a", "b"), ([X, 1], [X]), (Ellipsis, 0),
]  # fmt: skip


HOWS: dict[str, Any] = {
    "by position": lambda of: of,
    "by name": lambda of: of,
    "by name alone": lambda of: lambda x, *, c=0, d=2: of(x, c),
    "by any name": lambda of: lambda x, **more: of(x, more["c"]),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("value", "other"), VALUES, ids=str)
def test_later_calls_with_any_value_go_a_fast_way(value: Any, other: Any, how: str, monkeypatch: Any) -> None:
    full = []
    whole = KernelGraph._call_in_full
    monkeypatch.setattr(KernelGraph, "_call_in_full", lambda *a: (full.append(a), whole(*a))[1])
    by_any = lambda x, c: (x + 1, repr(type(c)), repr(c) if isinstance(c, (range, slice, frozenset)) else 0)  # noqa: E731
    f = cpu(HOWS[how](by_any))
    call = (lambda c: f(X, c)) if how == "by position" else (lambda c: f(X, c=c))
    for c in (value, value, other, value, value, value):
        assert_same(call(c), by_any(X, c))
    full.clear()
    for _ in range(3):
        call(copy.copy(value))
    assert not full or (how in ("by name alone", "by any name") and type(value) not in (type(None), str, list))


SIGNATURES = ["x", "x, /, a=1", "x, a, b=2", "x, *rest", "x, *, a, b=2", "x, a=1, /, b=2, *, c=3", "x, a=1, *rest, c=2"]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_arguments_have_the_names_that_python_gives_them(data: Any) -> None:
    """Functions of every form, called with any numbers of arguments by position and by name."""
    signature = data.draw(st.sampled_from(SIGNATURES)) + data.draw(st.sampled_from(["", ", **more"]))
    scope: dict[str, Any] = {}
    held = "{k: v * 2 for k, v in locals().items() if k not in ('rest', 'more')}"
    rest = "dict(locals().get('more', {})), list(locals().get('rest', ()))"
    exec(f"def function({signature}):\n    return {held}, {rest}", scope)
    f = cpu(scope["function"])
    for _ in range(4):
        args = [2.0 + i for i in range(data.draw(st.integers(0, 3)))]
        options = {name: 5.0 for name in data.draw(st.lists(st.sampled_from("xabcd"), unique=True))}
        try:
            expected = scope["function"](*args, **options)
        except TypeError:
            with pytest.raises(kg.ArgumentsError):
                f(*args, **options)
            continue
        for _ in range(3):
            got = f(*args, **options)
            assert_same(got, expected)
            assert [[*part] for part in got] == [[*part] for part in expected] or expected[2]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str) -> None:
    function = lambda x, s: (x + s, x * x.sum(), x.max(initial=-9), -x)  # noqa: E731
    x = LAYOUTS[name](X)
    before = x.copy()
    f = cpu(function)
    plain = np.array(x, dtype=x.dtype.newbyteorder("="))
    for _ in range(2):
        assert_same(f(x, 1), function(plain, 1))
        assert_same(f(kg.asarray(x, device="cpu"), 1), function(plain, 1))
    np.testing.assert_array_equal(x, before)
    assert f.why().count("traced for") == 1 + (name == "0-d")  # a NumPy number may be asked for its value


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_views(data: Any) -> None:
    """One function, one trace for each shape, on views of random strides and offsets."""
    base = np.arange(7 * 8 * 9, dtype=data.draw(st.sampled_from(["f4", "f8", "i2", "u1"]))).reshape(7, 8, 9)
    steps = st.sampled_from([1, 2, 3, -1, -2])
    view = base[tuple(slice(None, None, data.draw(steps)) for _ in range(3))]
    view = view.transpose(data.draw(st.permutations(range(3))))
    view = view[data.draw(st.integers(0, view.shape[0] - 1)) :]
    assert_same(_TWICE(view), (view * 2, view[::-1] + view))


_TWICE = cpu(lambda x: (x * 2, x[::-1] + x))


def test_outputs_have_memory_of_their_own() -> None:
    f = cpu(lambda x, y: (x, x, x[1:], y, x.T, y.reshape(-1)))
    y = kg.asarray(X + 1, device="cpu")
    x = X.copy()
    results = f(x, y)
    expected = (X, X, X[1:], X + 1, X.T, (X + 1).ravel())
    x[...] = -1
    assert_same(results, expected)
    arrays = [np.asarray(r) for r in results] + [x, y.numpy()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


class Held:
    def __init__(self, x: Any) -> None:
        self.x = x


def an_array_in_objects(x: Any) -> Any:
    first = Held(x * 2)
    second = Held(first.x)
    return first.x, second.x, [first.x + 1], {"a": [second.x]}


def the_best_of_a_list(x: Any) -> Any:
    best, known = None, []
    for i in range(5):
        x = x * 0.5
        known.append(x)
        if i == 2:
            best = x
    return best, known


def changed_in_place(x: Any) -> Any:
    y = x + 1
    z = y
    z += 1
    return y, z, np.sort(y)


@pytest.mark.parametrize("untraceable", ["refuse", "numpy"])
@pytest.mark.parametrize("function", [an_array_in_objects, the_best_of_a_list, changed_in_place])
def test_an_array_that_a_result_holds_twice_is_one(function: Callable[..., Any], untraceable: str) -> None:
    f = kg.kernel_graph(function, device="cpu", untraceable=untraceable)
    for _ in range(4):
        expected, results = function(X.copy()), f(X.copy())
        for result in (expected, results):
            result[0][...] = -1
        assert_same(results, expected)


def test_the_callers_memory_is_read_before_the_call_returns() -> None:
    f = cpu(lambda x: np.exp(x) + x)
    x = np.zeros(1 << 20, np.float32)
    outs = []
    for i in range(10):
        x[:] = i
        outs.append(f(x))
    x[:] = -1
    for i, out in enumerate(outs):
        np.testing.assert_allclose(np.asarray(out)[::999], np.exp(np.float32(i)) + i, rtol=1e-6)


def test_chains_of_calls_on_arrays() -> None:
    step = cpu(lambda u, r: u + r * (np.roll(u, 1) - 2 * u + np.roll(u, -1)))
    start = np.random.default_rng(0).normal(size=5000)
    u, v = kg.asarray(start, device="cpu"), start
    for _ in range(50):
        u = step(u, 0.1)
        v = v + 0.1 * (np.roll(v, 1) - 2 * v + np.roll(v, -1))
    np.testing.assert_allclose(u.numpy(), v, rtol=1e-12)
    gc.collect()
    kg.waitall()


def test_results_outlive_their_arguments() -> None:
    f = cpu(lambda x: (x + 1, x * 2))
    results = [f(kg.asarray(np.full(1 << 16, i, np.float64), device="cpu"))[0] for i in range(20)]
    gc.collect()
    assert [float(r[5]) for r in results] == [i + 1 for i in range(20)]


def test_captured_arrays_are_read_at_every_call() -> None:
    weights = np.ones(6, np.float32)
    f = cpu(lambda x: x * weights)
    assert_same(f(X), X * weights)
    weights[:] = 3
    assert_same(f(X), X * weights)
    weights = np.full(6, 5, np.float64)
    assert_same(f(X), X * weights)
    assert f.why().count("has changed") == 1


SCALE = 2.0


def _scaled(x: Any) -> Any:
    return x * SCALE


def test_globals_and_cells_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = 1
    f = cpu(lambda x: _scaled(x) + offset)
    assert_same(f(X), X * 2.0 + 1)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert_same(f(X), X * 3.0 + 1)
    offset = 2.5
    assert_same(f(X), X * 3.0 + 2.5)
    assert_same(f(X), X * 3.0 + 2.5)
    assert f.why().count("traced again") == 2 and "SCALE has changed" in f.why() and "offset has changed" in f.why()


def test_methods_see_their_objects_attributes() -> None:
    class Inner:
        def __init__(self) -> None:
            self.bias = np.ones(6)

    class Model:
        def __init__(self) -> None:
            self.weight, self.power, self.inner, self.tags = X * 2, 2, Inner(), {1, 2}

        @kg.kernel_graph(device="cpu")
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return (x * self.weight) ** self.power * scale + self.inner.bias

    model, other = Model(), Model()
    other.weight = X * 3

    def expected(m: Any, scale: float = 1.0) -> Any:
        return (X * m.weight) ** m.power * scale + m.inner.bias

    assert_same(model.forward(X), expected(model))
    assert_same(other.forward(X, scale=2.0), expected(other, 2.0))
    model.weight, model.power = X + 1, 3
    model.inner.bias = np.full(6, 7.0)
    assert_same(model.forward(X), expected(model))
    assert_same(Model.forward(model, X), expected(model))
    assert len(model.forward.graph(X).outputs) == 1


def test_a_decorated_function_inside_another_is_traced_with_it() -> None:
    inner = cpu(lambda x: np.exp(x) * 2)
    outer = cpu(lambda x: inner(x) + inner(x + 1))
    assert_same(outer(X / 9), np.exp(X / 9) * 2 + np.exp(X / 9 + 1) * 2)
    assert len(outer.program(X).tasks) == 1 and "not been traced" in inner.why()


def test_equal_layouts_compile_once() -> None:
    f = cpu(lambda x, y: x + y)
    aligned = kg.asarray(X, device="cpu").numpy()
    f(aligned, aligned)
    f(kg.asarray(X, device="cpu"), aligned)
    f.compile(kg.spec((4, 6), np.float32), kg.spec((4, 6), "f4"))
    assert f.why().count("compiled") == 1 and f.why().count("traced for") == 1


def test_threads_compile_once_and_agree() -> None:
    f = cpu(lambda x, n: np.sin(x) * n)
    start, errors = threading.Barrier(6), []

    def work(n: int) -> None:
        start.wait()
        for i in range(30):
            if not np.allclose(np.asarray(f(X, float(n * i))), np.sin(X) * n * i, rtol=1e-5):
                errors.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and f.why().count("traced for") == 1 and f.why().count("compiled") == 1


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgraph.dsl.jit import specializations as module

    monkeypatch.setattr(module, "MAX_SPECIALIZATIONS", 8)
    f = kg.kernel_graph(lambda x, n: x[:n], device="fake")
    for n in range(30):
        f(X, n % 4)
        assert max(len(f._entries), len(f._versions.traces), len(f._versions.plans)) <= 9


def test_disabled_is_plain_numpy() -> None:
    seen: list[type] = []

    def function(x: Any, y: Any) -> Any:
        seen.append(type(x))
        if x.sum() > 0:
            return {"a": x + y, "b": 3}
        return x

    f = cpu(function)
    with kg.override(disable=True):
        result = f(X, kg.asarray(X, device="cpu"))
    assert seen == [np.ndarray] and isinstance(result["a"], kg.Array)
    assert_same(result, {"a": X + X, "b": 3})


def test_results_that_are_no_arrays() -> None:
    f = cpu(lambda x, n, s: (n, n * 2, s, None, True, x.shape, np.ones(3), np.float32(2), [x.dtype]))
    result = f(X, 3, "text")
    assert_same(result, (3, 6, "text", None, True, (4, 6), np.ones(3), np.float32(2), [X.dtype]))
    assert isinstance(result[6], kg.Array) and result[6].numpy() is not f(X, 3, "text")[6].numpy()


def test_no_arguments_and_no_results() -> None:
    assert_same(cpu(lambda: kg.arange(4) * 2)(), np.arange(4) * 2)
    assert cpu(lambda x: None)(X) is None
    assert cpu(lambda x: ())(X) == ()


def test_looking() -> None:
    f = cpu(lambda x, r: np.exp(x * r).sum(axis=1))
    spec = kg.spec((4, 6), np.float32)
    assert str(f.graph(spec, 0.5)) == str(f.graph(X, 0.5))
    assert "exp" in str(f.graph(X, 0.5)) and "test_calls.py" in str(f.graph(X, 0.5))
    assert len(f.program(spec, 0.5).tasks) == 1 and "define" in f.source(spec, 0.5)
    assert f.plan(spec, 0.5).steps and "float32[4,6]" in f.explain(spec, 0.5)
    assert "not been traced" not in f.why() and "kernel_graph" in repr(f)


def test_a_fake_device_takes_everything() -> None:
    f = kg.kernel_graph(lambda x, y: {"a": x @ y, "b": np.exp(x)}, device="fake", streams=2)
    out = f(X, X.T)
    assert out["a"].shape == (4, 4) and out["b"].dtype == np.float32 and out["a"].device == "fake:0"
    again = f(out["b"], out["b"].T if False else X.T)
    assert again["a"].numpy().shape == (4, 4)
    assert {type(s).__name__ for s in f.plan(X, X.T).steps} >= {"Launch", "Record"}


class Scaled:
    """An object that is called, and has a decorated method beside."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @kg.kernel_graph(device="cpu")
    def __call__(self, x: Any) -> Any:
        return x * self.factor

    @kg.kernel_graph(device="cpu")
    def shifted(self, x: Any, by: float = 1.0) -> Any:
        return self(x) + by


def test_decorated_methods_decorated_again() -> None:
    x = np.arange(3.0)
    scaled = Scaled(2.0)
    for call in (scaled, scaled.__call__, kg.kernel_graph(scaled, device="cpu"), kg.kernel_graph(scaled.__call__)):
        np.testing.assert_array_equal(call(x), x * 2)
    np.testing.assert_array_equal(kg.kernel_graph(kg.kernel_graph(scaled))(x), x * 2)
    for call in (scaled.shifted, kg.kernel_graph(scaled.shifted, device="cpu")):
        np.testing.assert_array_equal(call(x, 3.0), x * 2 + 3)
    scaled.factor = 5.0
    np.testing.assert_array_equal(scaled.shifted(x), x * 5 + 1)


def test_who_waits_anyway_runs_what_other_threads_could_not_share() -> None:
    @kg.kernel_graph(device="cpu")
    def products(a: Any, b: Any) -> Any:
        return (a @ b) @ b + 1

    a, b = np.random.default_rng(0).random((2, 200, 200))
    with override(threads=1):
        products(a, b)
        engine = engine_of_process()
        assert engine is not None
        before = engine.begun_and_ended_runs[1]
        np.testing.assert_allclose(np.asarray(products(a, b)), (a @ b) @ b + 1)
        assert engine.begun_and_ended_runs[1] == before


def test_who_waits_anyway_runs_candidates_too() -> None:
    @kg.kernel_graph(device="cpu")
    def branches(a: Any, b: Any) -> Any:
        return (a @ a) @ a + 1, (b @ b) @ b + 1

    a, b = np.random.default_rng(0).random((2, 150, 150))
    engine = engine_of_process()
    assert engine is not None
    with override(threads=1):
        before = engine.begun_and_ended_runs[1]
        for _ in range(4):
            for found, x in zip(branches(a, b), (a, b), strict=True):
                np.testing.assert_allclose(np.asarray(found), (x @ x) @ x + 1)
        assert engine.begun_and_ended_runs[1] == before


def test_loops_that_call_python_back_are_not_run_by_who_waits() -> None:
    """What a signal handler raises as a step is called back would be lost in the main thread."""

    @kg.kernel_graph(device="cpu")
    def powers(a: Any, b: Any) -> Any:
        for _ in range(40):
            a = np.tanh(a @ b)
        return a

    a, b = np.random.default_rng(0).random((2, 200, 200)) / 50
    with override(threads=1):
        expected = np.asarray(powers(a, b))
        engine = engine_of_process()
        assert engine is not None
        before = engine.begun_and_ended_runs[1]
        np.testing.assert_array_equal(np.asarray(powers(a, b)), expected)
        assert engine.begun_and_ended_runs[1] == before + 1


def test_lists_of_numbers_that_decide_each_trace_are_warned_of_once() -> None:
    @kg.kernel_graph(device="cpu")
    def chosen(x: Any, places: Any) -> Any:
        return [x[place] for place in places]

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for bits in product((0, 1), repeat=6):
            np.testing.assert_array_equal(chosen(np.arange(2.0), list(bits)), bits)
    assert [str(w.message).partition(",")[0] for w in told] == [
        "chosen was traced for more than 32 combinations of the values of numbers"
    ]
