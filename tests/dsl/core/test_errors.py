"""Bad input: each mistake gets an error of a documented type, at the user's line, that says what to write instead."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

X = np.ones((3, 4), np.float32)
Y = np.ones(5, np.float32)
Z = kg.asarray(Y, device="cpu")


def graph(function: Callable[..., Any]) -> kg.KernelGraph:
    return kg.kernel_graph(device="fake")(function)


def refused(call: Callable[[], Any], kind: type[Exception], *words: str, line: int | None = None) -> str:
    """The text of the error that `call` raises. line: of the mistake, by default of the call's own first line."""
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, kg.KernelGraphError)
    text = str(error)
    if line is None:
        line = inspect.getsourcelines(call)[1]
    file = Path(call.__code__.co_filename).name
    assert text.startswith(f"{file}:{line}: "), f"{text!r} is not at line {line}"
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    assert error.__suppress_context__ or error.__context__ is None
    return text


def line_in(function: Any, offset: int = 1) -> int:
    """The number of a line of `function`, counted from its `def` (decorators included)."""
    return inspect.getsourcelines(getattr(function, "__wrapped__", function))[1] + offset


# one mistake a row: arguments, the expression on the traced x and y, the error, words of its text
MISTAKES: list[tuple[str, Callable[[Any, Any], Any], type[Exception], tuple[str, ...]]] = [
    ("shapes", lambda x, y: x + y, ValueError, ("(3, 4)", "(5,)", "reshape")),
    ("matmul", lambda x, y: x @ y, ValueError, ("(3, 4)", "(5,)", "transpose")),
    ("reshape", lambda x, y: x.reshape(5, 5), ValueError, ("(3, 4)", "(5, 5)")),
    ("broadcast", lambda x, y: np.broadcast_to(x, (7,)), ValueError, ("(7,)",)),
    ("concatenate", lambda x, y: np.concatenate([x, x[0]]), ValueError, ("(3, 4)", "(4,)")),
    ("stack", lambda x, y: np.stack([x, y]), ValueError, ("(3, 4)", "(5,)", "concatenate")),
    ("empty max", lambda x, y: x[:0].max(), ValueError, ("identity",)),
    ("squeeze", lambda x, y: x.squeeze(0), ValueError, ("reshape",)),
    ("axis", lambda x, y: x.sum(axis=2), np.exceptions.AxisError, ("axis 2", "dimension 2")),
    ("axis twice", lambda x, y: x.sum(axis=(0, -2)), ValueError, ("twice",)),
    ("axis of a float", lambda x, y: x.sum(axis=1.5), TypeError, ("must be an int",)),
    ("index", lambda x, y: x[3], IndexError, ("index 3", "size 3")),
    ("negative index", lambda x, y: x[:, -5], IndexError, ("index -5", "size 4")),
    ("too many indices", lambda x, y: x[0, 0, 0], IndexError, ("2 axes",)),
    ("float index", lambda x, y: x[1.5], IndexError, ("integers, slices",)),
    ("mask", lambda x, y: x[x > 0], NotImplementedError, ("depends on data", "np.where")),
    ("list index", lambda x, y: x[[0, 3]], IndexError, ("index 3", "size 3")),
    (
        "if",
        lambda x, y: 1 if next(iter([y > 0])) else 2,
        kg.TraceError,
        ("traced bool[5]", "np.where(condition, a, b)"),
    ),
    ("and", lambda x, y: (x > 0) and (x < 1), kg.TraceError, ("&, |, ~",)),
    ("while", lambda x, y: [None for _ in iter(lambda: bool(y[0] > 0), False)], kg.TraceError, ("np.where",)),
    ("bool", lambda x, y: [*map(bool, x[0])], kg.TraceError, ("np.where",)),
    ("int", lambda x, y: [*map(int, x[0])], kg.TraceError, ("astype",)),
    ("float", lambda x, y: [*map(float, x[0])], kg.TraceError, ("astype",)),
    ("complex", lambda x, y: [*map(complex, x[0])], kg.TraceError, ("astype",)),
    ("range", lambda x, y: range(x.argmax()), kg.TraceError, ("Python int argument",)),
    ("item", lambda x, y: x.sum().item(), kg.TraceError, (".item()",)),
    ("tolist", lambda x, y: x.tolist(), kg.TraceError, (".tolist()",)),
    ("asarray", lambda x, y: x.__array__(), kg.TraceError, ("NumPy array", "np.stack")),
    ("ragged list", lambda x, y: x * [y[0], y[1:3]], ValueError, ("shapes (), (2,)", "one shape")),
    ("hash", lambda x, y: {x: 1}, kg.TraceError, ("dict key",)),
    ("in", lambda x, y: 1.0 in x, kg.TraceError, (".any()",)),
    ("mask's shape", lambda x, y: x.__setitem__(y > 0, 1), IndexError, ("(5,)", "(3, 4)")),
    ("assigned shape", lambda x, y: x.__setitem__(0, y), ValueError, ("(5,)", "(4,)")),
    ("assigned number", lambda x, y: x.astype("i1").__setitem__(0, 300), OverflowError, ("300", "int8")),
    ("assigned to a global", lambda x, y: np.add(y, 1, out=Z), kg.TraceError, ("use the result",)),
    (
        "assigned through reshape",
        lambda x, y: np.fft.fft(x).reshape(-1).__setitem__(0, 1),
        kg.TraceError,
        ("order of its memory", ".copy()"),
    ),
    ("read-only view", lambda x, y: np.broadcast_to(y, (2, 5)).__setitem__(0, 1), ValueError, ("read-only",)),
    ("in place dtype", lambda x, y: (x + 1).__iadd__(1j), TypeError, ("astype",)),
    ("in place shape", lambda x, y: (x + 1)[0].copy().__iadd__(x), ValueError, ("(3, 4)",)),
    ("out of a global", lambda x, y: np.add(x, 1, out=X), kg.TraceError, ("no argument", "pass it as an argument")),
    ("shape attribute", lambda x, y: setattr(x, "shape", (12,)), kg.TraceError, ("reshape",)),
    ("unsupported function", lambda x, y: np.poly(y), NotImplementedError, ("np.poly cannot be traced",)),
    ("near function", lambda x, y: np.sort_complex(x), NotImplementedError, ("np.sort_complex", "nearest")),
    ("unsupported ufunc", lambda x, y: np.frompyfunc(abs, 1, 1)(x), NotImplementedError, ("cannot be traced",)),
    ("unsupported method", lambda x, y: x.tobytes(), NotImplementedError, (".tobytes",)),
    ("unsupported argument", lambda x, y: x.sum(order="F"), TypeError, ("order=", "keepdims")),
    ("where of one", lambda x, y: np.where(x > 0), NotImplementedError, ("depends on data", "np.where(mask, a, b)")),
    ("no such loop", lambda x, y: x & 1, TypeError, ("bitwise_and", "float32")),
    ("shift of float", lambda x, y: x << 2, TypeError, ("left_shift",)),
    ("overflow", lambda x, y: x.astype(np.int8) + 1000, OverflowError, ("1000", "int8", "astype")),
    ("power", lambda x, y: x.astype(int) ** -1, ValueError, ("negative integer powers", "astype")),
    ("string", lambda x, y: x + "a", TypeError, ("'a'",)),
    ("none", lambda x, y: x + None, TypeError, ("None",)),
    ("compared with none", lambda x, y: x < None, TypeError, ("None",)),
    ("object array", lambda x, y: x + np.array([None] * 4), TypeError, ("object", "np.float64")),
    ("astype object", lambda x, y: x.astype(object), TypeError, ("object",)),
    ("astype date", lambda x, y: x.astype("M8[s]"), TypeError, ("datetime64", "int64")),
    ("unsafe cast", lambda x, y: x.astype(int, casting="safe"), TypeError, ("casting",)),
    ("unsafe ufunc", lambda x, y: np.add(x, 1, dtype=int), TypeError, ("astype",)),
    ("length of 0-d", lambda x, y: len(x.sum()), TypeError, ("0-d",)),
    ("iteration over 0-d", lambda x, y: list(x.sum()), TypeError, ("0-d",)),
    ("negative num", lambda x, y: np.linspace(y[0], 1, -1), ValueError, ("num=-1",)),
    ("zero step", lambda x, y: kg.arange(0, 5, 0), ValueError, ("step 0",)),
    ("slice step", lambda x, y: x[::0], ValueError, ("zero",)),
    ("float slice", lambda x, y: x[1.0:], TypeError, ("slice",)),
    ("pickle", lambda x, y: __import__("pickle").dumps(x), kg.TraceError, ("pickle.dumps", "outside")),
]


@pytest.mark.parametrize("name, function, kind, words", MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistakes_in_a_traced_function(
    name: str, function: Callable[[Any, Any], Any], kind: type[Exception], words: tuple[str, ...]
) -> None:
    decorated = graph(function)
    refused(lambda: decorated.graph(X, Y), kind, *words, line=inspect.getsourcelines(function)[1])
    refused(lambda: decorated(X, Y), kind, *words, line=inspect.getsourcelines(function)[1])
    good = graph(lambda x, y: x * 2)
    assert good.graph(X, Y).outputs  # still usable


def test_the_line_is_the_innermost_of_the_users() -> None:
    def helper(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    f = graph(lambda x: helper(x))
    refused(lambda: f(X), kg.TraceError, "np.where", line=line_in(helper))


def test_no_internal_frames_in_the_traceback() -> None:
    f = graph(lambda x: x + Y)
    with pytest.raises(ValueError) as caught:
        f(X)
    files = [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert sum("kernel_graph.py" in name for name in files) <= 1
    assert not [name for name in files if "kernelgraph" in name and "kernel_graph.py" not in name]
    assert all("numpy" not in name for name in files)


def test_the_users_own_exceptions_pass_through() -> None:
    def function(x: Any, n: int) -> Any:
        if n > 2:
            raise KeyError(n)
        return x / (n - 1)

    f = graph(function)
    with pytest.raises(KeyError, match="3"):
        f(X, 3)
    f(X, 2)


def test_python_arithmetic_raises_at_the_users_line() -> None:
    def function(x: Any, n: int) -> Any:
        return x * (1 / n)

    f = kg.kernel_graph(function, device="cpu")
    f(X, 2)
    with pytest.raises(ZeroDivisionError) as caught:
        f(X, 0)
    assert any(e.lineno == line_in(function) for e in traceback.extract_tb(caught.value.__traceback__))
    np.testing.assert_array_equal(f(X, 4), X / 4)


class Kept(Exception):
    """Carries traced values out of a trace."""


def test_escaped_values() -> None:
    def keep(x: Any, n: float) -> Any:
        values = x, x + 1, n, n * 2
        raise Kept(lambda: values)

    with pytest.raises(Kept) as raised:
        graph(keep).graph(X, 1.5)
    x, y, n, m = raised.value.args[0]()
    refused(lambda: x + 1, kg.EscapedValueError, "escaped the trace", "return it")
    refused(lambda: np.exp(y), kg.EscapedValueError, "escaped")
    refused(lambda: y[0], kg.EscapedValueError, "escaped")
    refused(lambda: y.sum(), kg.EscapedValueError, "escaped")
    refused(lambda: bool(y), kg.EscapedValueError, "escaped")
    refused(lambda: float(n), kg.EscapedValueError, "escaped")
    refused(lambda: m * 2, kg.EscapedValueError, "escaped")
    refused(lambda: graph(lambda a: a)(y), kg.EscapedValueError, "escaped")
    refused(lambda: graph(lambda a: a)(m), kg.EscapedValueError, "escaped")

    def other(a: Any) -> Any:
        return a + y

    refused(lambda: graph(other).graph(X), kg.EscapedValueError, "escaped", line=line_in(other))


def test_arguments() -> None:
    def price(s: Any, k: Any, r: float = 0.5) -> Any:
        return s * k * r

    f = graph(price)
    refused(lambda: f(X), kg.ArgumentsError, "missing a required argument: 'k'", "price(s, k, r=0.5)")
    refused(lambda: f(X, X, 1.0, 2.0), TypeError, "too many positional arguments")
    refused(lambda: f(X, X, q=1), TypeError, "'q'")
    refused(lambda: f(X, X, s=1), TypeError, "multiple values")
    refused(lambda: f.graph(X), TypeError, "missing")
    refused(lambda: f(X, {1, 2}), TypeError, "has no hash", "tuples, lists, dicts")
    refused(lambda: f(kg.spec(3), X), TypeError, "spec", "compile")


def test_static_arguments() -> None:
    def power(x: Any, n: Any) -> Any:
        return x ** n[0]

    f = kg.kernel_graph(device="fake", static_argnames="n")(power)
    f(X, (2,))
    refused(lambda: f(X, [2]), kg.ArgumentsError, "static argument 'n'", "no hash", "tuple")
    refused(lambda: kg.kernel_graph(power, static_argnames=("m",)), TypeError, "'m'", "power")


@pytest.mark.parametrize("streams", [float("nan"), float("inf"), -1, 0, 1.5, "many", None, True])
def test_streams(streams: Any) -> None:
    refused(lambda: kg.kernel_graph(lambda x: x, streams=streams), ValueError, "streams=", "auto")


def test_options() -> None:
    refused(lambda: kg.kernel_graph(lambda x: x, memory="tiny"), ValueError, "'tiny'", "'balanced'")
    refused(lambda: kg.kernel_graph(lambda x: x, device="gpu"), ValueError, "'gpu'", "'cuda'")
    refused(lambda: kg.kernel_graph(lambda x: x, device="cuda:x"), ValueError, "cuda:x")
    refused(lambda: kg.kernel_graph(lambda x: x, device=3), ValueError, "device=3")
    refused(lambda: kg.kernel_graph(lambda x: x, speed=3), ValueError, "'speed'", "fastmath")
    refused(lambda: kg.kernel_graph(3), ValueError, "decorates functions")


@pytest.mark.parametrize("name", ["cpu:1", "cpu:", "cpu:x", "cuda:-1", "gpu", "", " cpu", 0])
def test_a_device_that_cannot_be_is_refused(name: Any) -> None:
    refused(lambda: kg.kernel_graph(device=name)(lambda x: x), kg.OptionError, "'cpu'")
    refused(lambda: kg.asarray(X, device=name), kg.OptionError, "'cpu'")
    assert kg.asarray(X, device="cpu:0").device == "cpu"


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgraph.dsl.array import devices

    def missing(name: str, package: str | None = None) -> Any:
        raise ImportError("No module named 'cuda'")

    f = kg.kernel_graph(lambda x: x + 1, device="cuda:7")
    unavailable = kg.DeviceUnavailableError
    monkeypatch.setattr(devices.importlib, "import_module", missing)
    refused(lambda: f(X), unavailable, "pip install '.[cuda]'", "device='cpu'")
    assert f.program(X).tasks  # its text needs no device
    monkeypatch.undo()

    def broken(index: int) -> Any:
        raise RuntimeError("no driver")

    monkeypatch.setattr(
        devices.importlib, "import_module", lambda *a: type("M", (), {"CUDADevice": staticmethod(broken)})
    )
    refused(lambda: f(X), RuntimeError, "no driver", "pip install '.[cuda]'")


@pytest.mark.parametrize(
    "array, word",
    [
        (np.array([None, 1]), "object"),
        (np.array(["a"]), "<U1"),
        (np.array([b"a"]), "|S1"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        (np.array([1], "m8[s]"), "timedelta64"),
        (np.zeros(2, [("a", "f4")]), "[('a', '<f4')]"),
        (np.zeros(2, np.longdouble), "float128"),
        (np.zeros(2, np.clongdouble), "complex256"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_unsupported_dtypes(array: Any, word: str) -> None:
    f = graph(lambda x: x)
    refused(lambda: f(array), kg.DTypeError, word, "write")
    refused(lambda: kg.spec(3, array.dtype), TypeError, word)
    refused(lambda: kg.asarray(array, device="cpu"), TypeError, word)


def test_arrays_with_a_meaning_of_their_own() -> None:
    f = graph(lambda x: x)
    refused(lambda: f(np.ma.masked_array([1, 2], [0, 1])), TypeError, "MaskedArray", "write x.filled")
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1, 2]])
    refused(lambda: f(matrix), TypeError, "matrix", "write np.asarray")
    for other in (np.ma.masked_array([1, 2], [0, 1]), matrix):  # not an argument, but met in the function
        g = graph(lambda x, other=other: x * other)
        with pytest.raises(kg.DTypeError, match="meaning of its own"):
            g(np.ones(2))
        h = graph(lambda x: x * other)  # noqa: B023
        with pytest.raises(kg.DTypeError, match="meaning of its own"):
            h(np.ones(2))


def test_more_dimensions_than_numpy_has() -> None:
    x = np.ones((1,) * 64, np.float32)
    assert graph(lambda x: x + 1)(x).shape == x.shape
    refused(lambda: graph(lambda x: x[None])(x), ValueError, "65 dimensions")
    refused(lambda: graph(lambda x: np.stack([x, x]))(x), IndexError, "within [0, 64], indexing result would have 65")
    refused(lambda: graph(lambda x: x.sum() + x.sum(0))(x), ValueError, "dimensions")


def test_what_is_no_plain_function() -> None:
    def generates(x: Any) -> Any:
        yield x

    async def waits(x: Any) -> Any:
        return x

    refused(lambda: graph(generates), ValueError, "generator", line=line_in(graph))
    refused(lambda: graph(waits), ValueError, "async", line=line_in(graph))
    refused(lambda: graph(dict), ValueError, "class dict", line=line_in(graph))
    assert np.asarray(kg.kernel_graph(device="cpu")(np.negative)(X)).tolist() == (-X).tolist()


def test_an_argument_that_refuses_to_be_hashed() -> None:
    class Refuses(set):  # type: ignore[type-arg]
        def __hash__(self) -> int:  # type: ignore[override]
            raise ValueError("no hash")

    refused(lambda: graph(lambda x: 1)(Refuses()), TypeError, "Refuses", "tuples, lists, dicts")


def test_round_and_pow_follow_numpys_scalars() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x: round(x.sum(), 1))
    assert f(np.array([2.54, 1.0])) == round(np.float64(3.54), 1)
    refused(lambda: graph(lambda x: round(x, 1))(X), TypeError, "np.round(x, decimals)")
    refused(lambda: graph(lambda x: round(x.sum()))(X), TypeError, "no value yet")
    with pytest.raises(TypeError, match="unsupported operand"):
        graph(lambda x: pow(x, 2, 3))(X)


def test_a_warning_for_many_values() -> None:
    f = graph(lambda x, n: x if n > 3 else -x)
    for n in range(8):
        f(X, n)
    with pytest.warns(UserWarning, match="more than 8 values"):
        f(X, 8)


def test_methods_may_not_assign_attributes_of_what_is_no_argument() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = np.ones(4)

    model = Model()

    @kg.kernel_graph(device="fake")
    def step(x: Any) -> Any:
        model.w = x * 2
        return x

    with pytest.raises(kg.TraceError, match="attribute 'w'"):
        step(X)


@pytest.mark.parametrize(
    "call",
    [
        lambda: graph(lambda x, y: x + y)(X, Y),
        lambda: graph(lambda x: x.sum(axis=7))(X),
        lambda: graph(lambda x: x[9])(X),
        lambda: kg.kernel_graph(streams=-1),
    ],
)
def test_errors_that_cross_processes_keep_their_text(call: Callable[[], Any]) -> None:
    """Pools of processes pickle them: the line is the user's still, once."""
    with pytest.raises(kg.KernelGraphError) as caught:
        call()
    error = caught.value
    error.add_note("seen in a worker")
    for other in (pickle.loads(pickle.dumps(error)), pickle.loads(pickle.dumps(error, 0)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error) and other.__notes__ == ["seen in a worker"]
