"""`out=` and assignment outside of a trace: every function that takes `out` writes where NumPy writes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.ops.table import UFUNC_PARTS
from kernelgraph.dsl.jit.eager import eager_place_of_out
from kernelgraph.dsl.trace.dispatch import FUNCTIONS
from tests.dsl.tracing import assert_same

X = np.arange(12.0).reshape(3, 4) / 4 + 0.25
N = np.arange(1, 13).reshape(3, 4)
SQUARE = np.arange(9.0).reshape(3, 3)
# arguments of functions that take others than one array of floats
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "choose": (np.array([0, 1, 1]), [np.zeros(3), np.ones(3)]),
    "clip": (X, 1.0, 2.0),
    "compress": (np.array([True, False, True]), X),
    "concatenate": ([X, X],),
    "dot": (SQUARE, SQUARE),
    "einsum": ("ij,jk->ik", SQUARE, SQUARE),
    "multi_dot": ([SQUARE, SQUARE, SQUARE],),
    "nanpercentile": (X, 30.0),
    "nanquantile": (X, 0.3),
    "outer": (X[0], X[1]),
    "percentile": (X, 30.0),
    "quantile": (X, 0.3),
    "stack": ([X, X],),
    "take": (X, [2, 0]),
}
ARGUMENTS |= dict.fromkeys(("cumulative_prod", "cumulative_sum"), (X[0],))
ARGUMENTS |= dict.fromkeys(("matmul", "matvec", "vecmat", "vecdot"), (SQUARE, SQUARE))
ARGUMENTS |= {"matvec": (SQUARE, SQUARE[0]), "vecmat": (SQUARE[0], SQUARE), "ldexp": (X, N)}


def takes_out(function: Any) -> bool:
    if isinstance(function, np.ufunc):
        return True
    try:
        return "out" in inspect.signature(function).parameters
    except ValueError:
        return False


TAKING: list[Any] = sorted(
    {f for f in (*UFUNC_PARTS, *FUNCTIONS) if takes_out(f)}, key=lambda f: (f.__module__ or "", f.__name__)
)


def arguments(function: Any) -> tuple[Any, ...]:
    """Those of the table, else floats or, where it takes none, integers."""
    given = ARGUMENTS.get(function.__name__)
    if given is not None:
        return given
    for x in (X, N):
        args = (x,) * getattr(function, "nin", 1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(*args)
            return args
        except TypeError:
            continue
    raise AssertionError(f"{function.__name__} needs a row in ARGUMENTS")


def ours(x: Any) -> Any:
    """NumPy arrays as `kg.Array`s."""
    if isinstance(x, list):
        return [ours(i) for i in x]
    return kg.asarray(x, device="cpu") if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("function", TAKING, ids=lambda f: f.__name__)
def test_out_is_what_was_given(function: Any) -> None:
    args = arguments(function)
    with np.errstate(all="ignore"):
        expected = function(*args)
        several = isinstance(expected, tuple)
        wanted = expected if several else (expected,)

        def fresh() -> tuple[Any, ...]:
            return tuple(np.zeros(np.shape(w), np.asarray(w).dtype) for w in wanted)

        given = fresh()
        result = function(*args, out=given if several else given[0])
        if result is not given[0] and not several:
            return  # NumPy forgets it: np.fft.hfft, ifft2 and irfft2

        def check(outs: Any, call: Callable[[], Any]) -> None:
            result = call()
            assert all(r is o for r, o in zip(result if several else (result,), outs, strict=True))
            for out, want in zip(outs, wanted, strict=True):
                assert_same(np.asarray(out), np.asarray(want))

        for outs in (fresh(), tuple(map(ours, fresh()))):
            given = outs if several else outs[0]
            check(outs, lambda given=given: function(*map(ours, args), out=given))  # type: ignore[misc]
        outs = tuple(map(ours, fresh()))  # where nothing else is one of ours
        check(outs, lambda: function(*args, out=outs if several else outs[0]))
        place = eager_place_of_out(function)
        if place is not None and function not in (np.maximum, np.minimum):  # which will stop to take it there
            between = [p.default for p in _parameters(function)[len(args) : place]]
            outs = fresh()
            check(outs, lambda: function(*map(ours, args), *between, *outs))


def _parameters(function: Any) -> list[inspect.Parameter]:
    return [] if isinstance(function, np.ufunc) else list(inspect.signature(function).parameters.values())


def test_the_table_has_no_rows_too_many() -> None:
    assert {f.__name__ for f in TAKING} >= set(ARGUMENTS)
    assert len(TAKING) > 120


def test_methods_write_to_out_by_place_and_by_name() -> None:
    a, out = ours(X), np.zeros(4)
    for name in ("sum", "prod", "mean", "max", "min", "std", "var", "cumsum"):
        whole = out if name != "cumsum" else np.zeros((3, 4))
        method = getattr(a, name)
        by_place = method(0, whole) if name in ("max", "min") else method(0, None, whole)
        assert by_place is whole and method(axis=0, out=whole) is whole
        assert_same(whole, getattr(X, name)(axis=0))


def test_what_numpy_refuses_is_refused() -> None:
    integers = np.zeros((3, 4), int)
    with pytest.raises(TypeError):
        np.exp(ours(X), out=integers)
    with pytest.raises(ValueError):
        np.sum(ours(X), axis=0, out=np.zeros(3))
    with pytest.raises(TypeError):
        np.exp(ours(X), out=ours(integers))
    assert not integers.any()


def test_out_may_be_an_operand() -> None:
    a = ours(X)
    before = np.asarray(a)
    assert np.add(a[::-1], a, out=a) is a
    assert_same(a, X[::-1] + X)
    assert_same(before, X)
    x = X.copy()
    assert np.subtract(x, ours(X[::-1]), out=x, where=X > 1) is x
    assert_same(x, np.where(X > 1, X - X[::-1], X))


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "//", "%", "**", "@"])
def test_in_place_operators_change_the_callers_numpy_array(sign: str) -> None:
    given, expected = SQUARE + 1, SQUARE + 1
    u = view = given
    names = {"u": u, "v": ours(SQUARE + 2)}
    exec(f"u {sign}= v", names)
    exec(f"u {sign}= v", {"u": expected, "v": SQUARE + 2})
    assert names["u"] is given and view is given
    assert_same(given, expected)


def test_results_of_calls_add_up_in_the_callers_array() -> None:
    slope = kg.kernel_graph(lambda u: -0.1 * u, device="cpu")
    u = np.ones(4)
    for _ in range(10):
        u += slope(u)
    np.testing.assert_allclose(u, 0.9**10)


# where NumPy makes views

VIEWS: list[Callable[[Any], Any]] = [
    lambda a: a[0],
    lambda a: a[1:, ::2],
    lambda a: a[..., None],
    lambda a: a[1, 2, ...],
    lambda a: a.T,
    lambda a: a.real,
    lambda a: a.ravel(),
    lambda a: np.transpose(a),
    lambda a: a.reshape(4, 3),
    lambda a: np.split(a, 3)[1],
    lambda a: next(iter(a)),
    lambda a: np.broadcast_arrays(a, X)[0],
    lambda a: kg.expand_dims(a, axis=0),
    lambda a: np.atleast_3d(a),
    lambda a: a[0][1:],
]
COPIES: list[Callable[[Any], Any]] = [
    lambda a: a[[0, 1]],
    lambda a: a[a > 1],
    lambda a: a[:, [0, 1]],
    lambda a: a + 0,
    lambda a: +a,
    lambda a: a[0].copy(),
    lambda a: np.roll(a, 1),
    lambda a: np.stack([a, a])[:, 0].copy(),
    lambda a: kg.array(a.T),
    lambda a: kg.concatenate([a, a]),
    lambda a: a.sum(0),
    lambda a: kg.flip(a).copy(),
    lambda a: a.astype(np.float32),
]


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_a_write_that_numpy_would_do_twice_is_refused(number: int) -> None:
    a = ours(X)
    part = VIEWS[number](a)
    for write in (
        lambda: part.__setitem__(..., 5),
        lambda: part.fill(5),
        lambda: np.copyto(part, 5),
        lambda: np.add(part, 1, out=part),
        lambda: np.add.at(part, (0,) * part.ndim, 1),
    ):
        with pytest.raises(kg.ReadOnlyError, match=r"x\[0, 1\] = value"):
            write()
    assert_same(a, X)
    assert_same(part, VIEWS[number](X))


@pytest.mark.parametrize("number", range(len(COPIES)))
def test_copies_can_be_written(number: int) -> None:
    a = ours(X)
    copy = COPIES[number](a)
    copy[...] = 5
    assert_same(copy, np.full(copy.shape, 5, copy.dtype))
    assert_same(a, X)


def test_what_is_written_to_one_element_of_a_result() -> None:
    a = ours(X)
    a[0] += 1
    a[1, 0] = 7
    expected = X.copy()
    expected[0] += 1
    expected[1, 0] = 7
    assert_same(a, expected)


def test_methods_that_change_their_array() -> None:
    for change in (
        lambda x: x.fill(3),
        lambda x: x.sort(axis=0),
        lambda x: x.partition(1),
        lambda x: x.put([0, 5], [9.0, 8.0]),
    ):
        a, expected = ours(X[::-1]), X[::-1].copy()
        before = np.asarray(a)
        assert change(a) is change(expected) is None  # type: ignore[func-returns-value]
        assert_same(a, expected)
        assert_same(before, X[::-1])
