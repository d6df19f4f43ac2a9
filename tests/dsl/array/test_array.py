"""`kg.Array`: NumPy's meaning, one operation at a time, and what reads it."""

from __future__ import annotations

import copy
import itertools
import json
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.ops.table import OPS
from tests.dsl.tracing import assert_same

X = np.linspace(-2, 2, 12).reshape(3, 4)


def put(x: Any) -> kg.Array:
    return kg.asarray(x, device="cpu")


def test_what_it_is() -> None:
    a = put(X)
    assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes, a.itemsize) == (X.shape, X.dtype, 2, 12, 96, 8)
    assert a.device == "cpu" and len(a) == 3 and a.is_ready() and a.wait() is a
    assert repr(a) == repr(X) and str(a) == str(X) and a.tolist() == X.tolist()
    assert [r.tolist() for r in a] == X.tolist() and 0.5 not in a


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "c16", kg.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_round_trip(dtype: Any, shape: Any) -> None:
    x = np.ones(shape, dtype)
    a = put(x)
    assert_same(a.numpy().astype(np.complex128), x.astype(np.complex128))
    assert a.dtype == x.dtype and a.shape == shape
    assert not a.numpy().flags.writeable
    x[...] = 0
    assert np.all(np.asarray(a) == 1)


def test_scalars() -> None:
    a = put(3)
    assert (int(a), float(a), bool(a), complex(a), a.item(), list(range(a))) == (3, 3.0, True, 3 + 0j, 3, [0, 1, 2])
    assert f"{put(2.5):.3f}" == "2.500" and [5, 6, 7, 8][a] == 8
    with pytest.raises(TypeError):
        len(a)
    with pytest.raises(TypeError):
        iter(a).__next__()
    with pytest.raises(ValueError):
        bool(put(X))


def test_results_that_are_numbers() -> None:
    for dtype in ("f4", "f8", "i4"):
        r, x = put(np.asarray(2.5, dtype)), np.asarray(2.5, dtype)[()]
        assert (round(r), type(round(r))) == (round(x), int) and round(r, 1) == round(x, 1)
        assert (math.floor(r), math.ceil(r), math.trunc(r)) == (math.floor(x), math.ceil(x), math.trunc(x.item()))
        assert {r: "found"}[x] == {x: "found"}[r] == "found" and f"{r:.3f} {r}" == f"{x:.3f} {x}"
        assert json.dumps({"a": r.item()}) == json.dumps({"a": x.item()})
    a = put(X)
    for call, instead in (
        (lambda: round(a), r"write np\.round\(x, decimals\)"),
        (lambda: hash(a), "write np.asarray"),
        (lambda: f"{a:.3f}", "write np.array2string"),
        (lambda: math.floor(a), r"write np\.floor\(x\)"),
    ):
        with pytest.raises(TypeError, match=instead):
            call()
    with pytest.raises(AttributeError, match=r"write x\.item\(\)\.is_integer"):
        _ = put(2.0).is_integer


def test_what_no_array_of_ours_can_be_stays_numpys() -> None:
    a = put(X)
    assert a.view("V8").dtype == np.dtype("V8") and a.astype(str).dtype.kind == "U"
    assert a.astype("i8").astype("M8[s]").dtype == np.dtype("M8[s]")
    assert isinstance(put(np.ones(3, kg.bfloat16)) + 1, kg.Array)


OPERATIONS: list[Any] = [
    lambda a, b: (a + b, a - b, a * b, a / b, a // b, a % b, a**2, 2 - a, 1 / b, a @ b.T),
    lambda a, b: (-a, +a, abs(a), a < b, a == b, a != 1, divmod(a, b), divmod(1, b)),
    lambda a, b: (a.sum(), a.sum(0), a.mean(-1, keepdims=True), a.argmax(), a.reshape(4, 3), a.T, a.astype("f4")),
    lambda a, b: (np.exp(a), np.add(a, 1, dtype="c16"), np.where(a > 0, a, b), np.concatenate([a, b]), np.sum(a, 1)),
    lambda a, b: (a[0], a[1, 2], a[::-1], a[:, None], a[..., 1:3], a[a > 0], a[[0, 2]]),
    lambda a, b: (np.add.reduce(a), np.multiply.outer(a[0], b[0]), np.linalg.norm(a), np.sort(a), np.fft.fft(a)),
    lambda a, b: (a.real, a.imag, a.mT, a.clip(0, 1), a.round(1), a.conj(), a.ravel(), a.transpose(1, 0)),
    lambda a, b: (a + X, X + a, np.float32(2) * a, X @ a.T, a * [1, 2, 3, 4]),
]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_operations_are_numpys(number: int) -> None:
    with np.errstate(all="ignore"):
        result = OPERATIONS[number](put(X), put(X[::-1] + 3))
        assert_same(result, OPERATIONS[number](X, X[::-1] + 3))
    assert all(isinstance(r, (kg.Array, tuple)) for r in result)


def test_in_place_operators_make_new_arrays() -> None:
    a = b = put(X)
    a += 1
    assert_same(a, X + 1)
    assert_same(b, X)


def _outcome_of_operator(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """The dtype and text of what it gives, or the class of Python's that its error is of."""
    try:
        value = np.asarray(function(*args))
    except Exception as error:
        return (next(c for c in type(error).__mro__ if c.__module__ == "builtins"),)
    return value.dtype, value.shape, repr(value.tolist())


def _power_function(exponent: Any) -> Callable[[Any], Any]:
    return lambda x: x**exponent


OPERATORS = (*(row.operator for row in OPS.values() if row.operator and row.numpy.nin == 2), "__divmod__")
OTHERS = (2, -1, 0, 2.0, -1.0, 0.5, True, 1j, 300, "text", None, [2] * 4, np.int8(2), np.float64(0.5), np.float32(-1.0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_those_of_numpys_arrays(name: str) -> None:
    """Which are not the ufuncs where the other is a number, or no number at all."""
    python, wrong = getattr(operator, name, divmod), []
    for dtype, other, reflected in itertools.product("?bBldefFD", OTHERS, (False, True)):
        x = np.array([-2, 0, 3, -np.inf if dtype in "efdFD" else 4]).astype(dtype)
        numpys, ours = (
            _outcome_of_operator(python, *((other, a) if reflected else (a, other)))
            for a in (x, kg.asarray(x, device="cpu"))
        )
        if numpys != ours:
            wrong.append((dtype, other, reflected, numpys, ours))
    assert wrong == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", "?befFD")
def test_powers_are_those_of_numpys_arrays(dtype: str) -> None:
    x = np.array([-2, 0, 3, -np.inf if dtype in "efFD" else 4]).astype(dtype)
    for exponent in (2, -1, 0, 2.0, -1.0, 0.5, np.float64(0.5)):
        compiled = kg.kernel_graph(_power_function(exponent), device="cpu")
        numpys, ours = _outcome_of_operator(operator.pow, x, exponent), _outcome_of_operator(compiled, x)
        assert numpys[:2] == ours[:2], exponent
        if len(numpys) > 1:
            assert np.allclose(x**exponent, compiled(x), equal_nan=True), exponent


def test_operators_are_left_to_who_asks_for_it() -> None:
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.diag(np.arange(3.0)))
    x = kg.asarray(np.ones(3))
    assert np.array_equal(x @ sparse, np.arange(3.0)) and np.array_equal(sparse @ x, np.arange(3.0))


def test_the_namespace_outside_of_a_trace() -> None:
    a = put(X)
    assert_same(kg.exp(a), np.exp(X))
    assert_same(kg.exp(X), np.exp(X))
    assert_same(kg.sum(a, axis=1), X.sum(1))
    assert_same(kg.concatenate([a, X]), np.concatenate([X, X]))
    assert_same(kg.linspace(0, 1, 5, device="cpu"), np.linspace(0, 1, 5))
    assert_same(kg.relu(a), np.maximum(X, 0))
    assert isinstance(kg.zeros(3, device="cpu"), kg.Array) and kg.pi == np.pi and kg.float32 is np.float32
    assert {"exp", "sum", "erf", "where"} <= set(dir(kg)) and a.__array_namespace__() is kg
    with pytest.raises(AttributeError):
        _ = kg.no_such_function
    with pytest.raises(AttributeError, match="no_such_method"):
        _ = a.no_such_method


def test_every_public_name_exists() -> None:
    from kernelgraph.dsl.api.namespace import NAMESPACE

    assert all(hasattr(kg, name) for name in kg.__all__)
    functions = [getattr(kg, name) for name in dir(kg) if name in NAMESPACE]
    assert all(callable(f) or isinstance(f, str) or f.__name__.startswith("kernelgraph.") for f in functions)


def test_copies_and_pickles() -> None:
    a = put(X)
    for b in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a)), kg.array(a), a.to_device("cpu")):
        assert_same(b, X)
    assert kg.asarray(a) is a and kg.asarray(a, dtype=np.float64) is a
    assert kg.asarray(a, dtype=np.float32).dtype == np.float32
    assert not np.shares_memory(copy.deepcopy(a).numpy(), a.numpy())


def test_numpy_conversions() -> None:
    a = put(X)
    assert np.shares_memory(np.asarray(a), np.asarray(a))
    assert not np.shares_memory(np.array(a), np.asarray(a))
    assert np.asarray(a, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError):
        np.asarray(a, dtype=np.float32, copy=False)
    exported = np.from_dlpack(a)
    assert_same(exported, X)


def test_memory_stays_while_a_view_of_it_lives() -> None:
    views = [put(np.full(1000, i, np.float64)).numpy()[10:20] for i in range(50)]
    assert [float(v.sum()) for v in views] == [10.0 * i for i in range(50)]


def test_operations_on_another_device_are_compiled() -> None:
    a = kg.asarray(X, device="fake")
    assert a.device == "fake:0" and kg.asarray(a, device="cpu").device == "cpu"


def test_specs() -> None:
    s = kg.spec((2, 3), "f4")
    assert s is kg.spec([2, 3], np.float32) and s.strides == (12, 4) and s.nbytes == 24 and "float32" in repr(s)
    assert pickle.loads(pickle.dumps(s)) is s and kg.spec(3).dtype == np.float64
    with pytest.raises(kg.ShapeError):
        kg.spec((-1,))
    with pytest.raises(kg.DTypeError):
        kg.spec((1,), object)
    with pytest.raises(kg.DTypeError):
        kg.spec((1.5,))


def test_what_is_no_whole_array_says_so() -> None:
    """As tools see it that make an object without its `__init__`, or with other things in it."""
    empty = kg.Array.__new__(kg.Array)
    with pytest.raises(AttributeError, match="_spec"):
        empty.shape  # noqa: B018
    broken = kg.Array(None, (3,), None)  # type: ignore[arg-type]
    for name in ("dtype", "nbytes", "strides_of"):
        with pytest.raises(AttributeError, match="'tuple' object has no attribute"):
            getattr(broken, name)


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_ipython_shows_the_device(device):
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    x = kg.asarray(np.arange(2000.0).reshape(2, -1), device=device)
    assert pretty(x) == f"{x!r}  # on {x.device}"
    assert pretty([x[0, :1]]) == f"[{x[0, :1]!r}]"  # within others the array alone
