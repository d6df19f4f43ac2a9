"""Every refusal that the language documents: its type, the user's line, and what it says to write instead."""

from __future__ import annotations

import functools
import inspect
import math
import pickle
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import Kept, refused
from tests.dsl.tracing import assert_same

X = np.ones((3, 4), np.float32)
TABLE = np.ones(4)
NAMES = {"a": 1}
COUNT = 0
RESULTS: list[Any] = []


def decides_for_several(x: Any) -> Any:
    y = x * 2
    if y > 0:  # here
        return y
    return x


def decides_in_a_generator(x: Any) -> Any:
    return tuple(v for v in x[0] if v > 0)  # here


def decides_among_its_names(x: Any) -> Any:
    if x.sum() > 0:  # here
        return locals()["x"]
    return -x


def decides_in_a_finally(x: Any) -> Any:
    for _ in range(3):
        try:
            x = x - 1 if x.sum() > 3 else x  # here
        finally:
            continue  # noqa: B012
    return x


def bound_on_one_side(x: Any) -> Any:
    if x.sum() > 0:
        t = 2
    return x * t  # here


def shapes_of_sides(x: Any) -> Any:
    y = x
    if x.sum() > 0:  # here
        y = x[0]
    return y


def dtypes_of_sides(x: Any) -> Any:
    return x.sum() if x.sum() > 0 else x.argmax()  # here


def structures_of_sides(x: Any) -> Any:
    if x.sum() > 0:
        return x, x
    return x  # here


def texts_of_sides(x: Any) -> Any:
    name = "small"
    if x.sum() > 0:  # here
        name = "large"
    return x, name


def lists_of_sides(x: Any) -> Any:
    p, q = [1, 2], [3, 4]
    if x.sum() > 0:  # here
        q = p
    p[0] = 5
    return q[0]


def grows_on_a_side(x: Any) -> Any:
    found: list[Any] = []
    if x.sum() > 0:  # here
        found.append(x)
    return len(found)


def both_sides_raise(x: Any) -> Any:
    if x.sum() > 0:
        raise ValueError("positive")
    raise KeyError("negative")  # here


def caught_within(x: Any) -> Any:
    try:
        if x.sum() > 0:  # here
            raise ValueError("positive")
    except ValueError:
        return x
    return -x


def shapes_of_turns(x: Any) -> Any:
    while x.sum() > 3:  # here
        x = x[1:]
    return x


def as_item(x: Any) -> Any:
    return x.sum().item()  # here


def as_index(x: Any) -> Any:
    return [0 for _ in range(x.argmax())]  # here


def as_numpy(x: Any) -> Any:
    return memoryview(x.__array__())  # here


def chosen(x: Any) -> Any:
    y = x + 1
    return y[y > 1] * 2  # here


def found(x: Any) -> Any:
    return np.nonzero(x)  # here


def unique(x: Any) -> Any:
    return np.unique(x)  # here


def unsupported(x: Any) -> Any:
    return np.poly(x[0])  # here


def unsupported_argument(x: Any) -> Any:
    return x.sum(order="F")  # here


def assigns_global(x: Any) -> Any:
    global COUNT
    COUNT = 1  # here
    return x


def assigns_array(x: Any) -> Any:
    TABLE[0] = 1  # here
    return x + TABLE


def assigns_dict(x: Any) -> Any:
    NAMES["a"] = 2  # here
    return x


def draws(x: Any) -> Any:
    return x + np.random.rand(4)  # here


def nearest_function(x: Any) -> Any:
    return np.sort_complex(x[0])  # here


def nearest_of_another_module(x: Any) -> Any:
    return np.emath.sqrt(x)  # here


def reads_bytes(x: Any) -> Any:
    return np.frombuffer(x)  # here


def iterates(x: Any) -> Any:
    return [v * 2 for v in np.nditer(x)]  # here


def formats(x: Any) -> Any:
    return f"{x[0, 0]:.2f}"  # here


def into_scipy(x: Any) -> Any:
    import scipy.ndimage

    return scipy.ndimage.gaussian_filter(x, 1)  # here


def assigns_nonlocal(x: Any) -> Any:
    count = 0

    def helper() -> None:
        nonlocal count
        count = 1

    helper()  # a local of the traced function itself may be assigned
    return counter(x)


def _counter() -> Any:
    calls = 0

    def counter(x: Any) -> Any:
        nonlocal calls
        calls = 1  # here
        return x

    return counter


counter = _counter()


class Model:
    def __init__(self) -> None:
        self.state = 0

    def step(self, x: Any) -> Any:
        self.state = 1  # here
        return x


MODEL = Model()


def assigns_attribute(x: Any) -> Any:
    return MODEL.step(x)


def changes_list(x: Any) -> Any:
    RESULTS.append(x)  # here
    return x


def sorts(x: Any) -> Any:
    return sorted(x[0])  # here


def switches(x: Any) -> Any:
    match x[0, 0]:
        case 1:  # here
            return x
    return -x


def as_key(x: Any) -> Any:
    return {x[0, 0]: 1}  # here


def sets_shape(x: Any) -> Any:
    x.shape = (12,)  # here
    return x


def as_object(x: Any) -> Any:
    return x.astype(object)  # here


def copies(x: Any) -> Any:
    return pickle.dumps(x)  # here


def by_shape(x: Any) -> Any:
    return np.zeros(x.sum().astype(int))  # here


def too_wide(x: Any) -> Any:
    return x.astype(np.int8) + 1000  # here


def no_integer(x: Any) -> Any:
    y = np.zeros(3, np.int32)
    y[:] = math.nan  # here
    return x[0, :3] + y


def no_such_axis(x: Any) -> Any:
    return x.sum(axis=2)  # here


def no_such_index(x: Any) -> Any:
    return x[3]  # here


def no_such_shape(x: Any) -> Any:
    return x @ x  # here


def through_broadcast(x: Any) -> Any:
    wide = np.broadcast_to(x[0], (3, 4))
    wide[0] = 1  # here
    return wide


# the function, the error, and words of what it says to write instead
REFUSALS: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    (decides_for_several, kg.TraceError, ("cannot decide an if", "np.where(condition, a, b)")),
    (decides_in_a_generator, kg.TraceError, ("cannot decide", "np.where(condition, a, b)")),
    (decides_among_its_names, kg.TraceError, ("cannot decide", "is not compiled, since it looks at its own names")),
    (decides_in_a_finally, kg.TraceError, ("cannot decide", "is not compiled, since it jumps out of a finally")),
    (bound_on_one_side, kg.TraceError, ("'t' has a value on one side only", "assign it before")),
    (shapes_of_sides, kg.UnsupportedError, ("y has shape (4,) or (3, 4)", "give it one shape")),
    (dtypes_of_sides, kg.UnsupportedError, ("float32[] or int64[]", "x.astype(...)")),
    (structures_of_sides, kg.UnsupportedError, ("what the function returns", "the same structure on both sides")),
    (texts_of_sides, kg.TraceError, ("name is 'large' or 'small'", "only arrays and numbers")),
    (lists_of_sides, kg.TraceError, ("which list this is", "copy it")),
    (grows_on_a_side, kg.TraceError, ("found changes its size", "collect values in an array")),
    (both_sides_raise, kg.UnsupportedError, ("a KeyError is raised, or a ValueError", "return for one")),
    (caught_within, kg.UnsupportedError, ("a ValueError", "let the call raise it")),
    (
        shapes_of_turns,
        kg.UnsupportedError,
        ("begins with shape (3, 4)", "a turn gives (2, 4)", "begin with what it gives"),
    ),
    (as_item, kg.TraceError, (".item()", "return it and call .item() on the result")),
    (as_index, kg.TraceError, ("loop count", "Python int argument")),
    (as_numpy, kg.TraceError, ("cannot become a NumPy array", "np.stack")),
    (chosen, kg.UnsupportedError, ("depends on data", "np.where(mask, x, 0)", "untraceable='split'")),
    (found, kg.UnsupportedError, ("depends on data", "np.where(mask, a, b)")),
    (unique, kg.UnsupportedError, ("depends on data", "outside of the traced function")),
    (unsupported, kg.UnsupportedError, ("np.poly cannot be traced", "outside of the traced function")),
    (unsupported_argument, kg.ArgumentsError, ("order=", "write one of", "keepdims")),
    (assigns_global, kg.TraceError, ("global 'COUNT'", "return the value instead")),
    (assigns_array, kg.TraceError, ("no argument", "pass it as an argument")),
    (assigns_dict, kg.TraceError, ("the dict NAMES", "return the value instead")),
    (draws, kg.UnsupportedError, ("np.random.rand", "pass the random numbers as an argument")),
    (nearest_function, kg.UnsupportedError, ("np.sort_complex", "the nearest supported function is np.sort")),
    (nearest_of_another_module, kg.UnsupportedError, ("scimath.sqrt", "the nearest supported function is np.sqrt")),
    (reads_bytes, kg.UnsupportedError, ("np.frombuffer", "outside of the traced function")),
    (iterates, kg.UnsupportedError, ("np.nditer", "write whole-array operations")),
    (formats, kg.TraceError, ("has no text", "kg.debug.print(x)")),
    (assigns_nonlocal, kg.TraceError, ("the outer function's 'calls'", "return the value instead")),
    (assigns_attribute, kg.TraceError, ("the attribute 'state'", "return the value instead")),
    (changes_list, kg.TraceError, ("the list RESULTS", "return the value instead")),
    (sorts, kg.TraceError, ("cannot decide", "np.where(condition, a, b)")),
    (switches, kg.TraceError, ("cannot decide", "np.where(condition, a, b)")),
    (as_key, kg.TraceError, ("dict key", "use a list")),
    (sets_shape, kg.TraceError, ("shape", "x.reshape(...)")),
    (as_object, kg.DTypeError, ("object", "np.asarray(x, dtype=np.float64)")),
    (copies, kg.TraceError, ("pickle.dumps", "outside of the traced function")),
    (by_shape, kg.TraceError, ("shape", "Python int argument")),
    (too_wide, kg.NumberError, ("1000", "int8", "astype")),
    (no_integer, kg.ConversionError, ("NaN", "int32", "np.nan_to_num(x)")),
    (no_such_axis, kg.AxisError, ("axis 2", "dimension 2")),
    (no_such_index, kg.IndexingError, ("index 3", "size 3")),
    (no_such_shape, kg.ShapeError, ("(3, 4)", "transpose")),
    (through_broadcast, kg.ReadOnlyError, ("read-only", "x.copy()")),
]


if find_spec("scipy"):
    REFUSALS.append((into_scipy, kg.TraceError, ("cannot become a NumPy array", "use it as it is")))

MARKED = {assigns_nonlocal: counter, assigns_attribute: Model.step}  # those whose mistake stands elsewhere


def here(function: Any) -> int:
    """The number of the line that the function marks."""
    lines, first = inspect.getsourcelines(MARKED.get(function, function))
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))


@pytest.mark.parametrize("function, kind, words", REFUSALS, ids=lambda p: getattr(p, "__name__", ""))
def test_refusals(function: Any, kind: type[Exception], words: tuple[str, ...]) -> None:
    decorated = kg.kernel_graph(function, device="fake")
    for _ in range(2):  # a refusal leaves nothing behind
        refused(lambda: decorated(X.copy()), kind, *words, line=here(function))
    refused(lambda: decorated.graph(kg.spec((3, 4), "f4")), kind, *words, line=here(function))


@pytest.mark.usefixtures("refusing")
def test_what_runs_after_the_trace() -> None:
    """Coroutines and generators, decorated or returned, in any wrapping."""

    async def later(x: Any) -> Any:
        return x + 1

    class Called:
        async def __call__(self, x: Any) -> Any:
            return x + 1

    for function in (later, functools.partial(later), Called(), Called().__call__):
        with pytest.raises(kg.OptionError, match="is a generator or async"):
            kg.kernel_graph(function)
    f, g = (kg.kernel_graph(function, device="cpu") for function in (lambda x: (later(x), x), lambda x: (v for v in x)))
    refused(lambda: f(X), kg.TraceError, "returns a coroutine", "return arrays")
    refused(lambda: g(X), kg.TraceError, "returns a generator", "return arrays")


def test_a_value_that_escaped() -> None:
    def keeps(x: Any) -> Any:
        later = x + 1
        raise Kept(lambda: later)

    def uses(x: Any) -> Any:
        return x + kept[0]  # here

    with pytest.raises(Kept) as raised:
        kg.kernel_graph(keeps, device="fake").graph(X)
    kept = [raised.value.args[0]()]
    refused(lambda: kept[0] * 2, kg.EscapedValueError, "return it from the traced function")
    refused(lambda: kg.kernel_graph(uses, device="fake")(X), kg.EscapedValueError, "return it from", line=here(uses))


def test_arguments_that_cannot_be_assigned() -> None:
    def assigns(x: Any, y: Any) -> Any:
        x[0] = 1
        return x + y

    decorated = kg.kernel_graph(assigns, device="cpu")
    frozen = np.ones(4)
    frozen.flags.writeable = False
    refused(lambda: decorated(frozen, X[0]), kg.ReadOnlyError, "read-only", "pass x.copy()")
    wide = np.lib.stride_tricks.as_strided(np.ones(1), (4,), (0,))
    refused(lambda: decorated(wide, np.ones(4)), kg.ReadOnlyError, "share memory", "pass x.copy()")
    both, native = np.arange(5.0), np.arange(5.0)
    with pytest.warns(UserWarning, match="another argument shares; pass x.copy()"):
        found = decorated(both[1:], both[:-1])
    assert_same(found, assigns(native[1:], native[:-1]))
    assert_same(both, native)


def test_many_values_of_one_number_warn() -> None:
    def program(x: Any, n: int) -> Any:
        return x * 2 if n > 3 else x

    decorated = kg.kernel_graph(program, device="fake")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(8):
            decorated(X, n)
    with pytest.warns(UserWarning, match=r"more than 8 values.*np\.where") as caught:
        decorated(X, 8)
    assert caught[0].filename == __file__


def test_a_warning_of_the_users_is_no_assignment() -> None:
    def program(x: Any) -> Any:
        warnings.warn("tracing", stacklevel=1)
        return x + 1

    f = kg.kernel_graph(program, device="cpu")
    for _ in range(2):
        with pytest.warns(UserWarning, match="tracing"):
            f(X)


def test_every_kind_of_error_has_a_refusal_or_another_test() -> None:
    elsewhere = {"EscapedValueError", "OptionError", "DeviceUnavailableError", "NotFiniteError"}
    raised = {kind.__name__ for _, kind, _ in REFUSALS}
    every = {
        name for name in kg.__all__ if isinstance(kind := getattr(kg, name), type) and issubclass(kind, kg.UserError)
    }
    assert every - raised == elsewhere | {"UserError"}


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnames": None},
        {"static_argnames": 3},
        {"fastmath": "no"},
        {"precision": "half"},
        {"precision": 2},
    ],
)
def test_options_of_a_wrong_kind(options: Any) -> None:
    (name,) = options
    with pytest.raises(kg.OptionError, match=f"{name}={options[name]!r}"):
        kg.kernel_graph(lambda x: x, **options)


def test_an_option_of_the_past_says_what_it_is_now() -> None:
    options: Any = {"tf32": True}
    with pytest.raises(kg.OptionError, match="precision='tf32'"):
        kg.kernel_graph(lambda x: x, **options)


def test_a_bool_is_no_axis() -> None:
    """NumPy's reductions raise TypeError for one; here all do, which is never another answer."""
    for f in (
        lambda x: x.sum(axis=True),
        lambda x: np.max(x, axis=(True,)),
        lambda x: x.argmax(axis=False),
        lambda x: x.cumsum(axis=True),
        lambda x: np.concatenate([x, x], axis=True),
        lambda x: np.repeat(x, 2, True),
        lambda x: x.transpose(True, False),
    ):
        with pytest.raises(TypeError):
            f(X)
        with pytest.raises(kg.DTypeError, match="an integer is required"):
            kg.kernel_graph(f, device="cpu")(X)
    for reps in ((True, 2), [False, True], True):
        f = functools.partial(np.tile, reps=reps)
        assert np.array_equal(kg.kernel_graph(lambda x, f=f: f(x), device="cpu")(X), f(X))


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_ddof_and_correction_are_one_option(name: str) -> None:
    function = getattr(np, name)
    f = kg.kernel_graph(lambda x, **options: function(x, **options), device="cpu")
    x = np.arange(4.0)
    for options in ({"ddof": 1}, {"correction": 1}, {"correction": 1, "ddof": 0}):
        np.testing.assert_allclose(f(x, **options), function(x, **options))
    for g in (function, f):
        with pytest.raises(ValueError, match="ddof and correction"):
            g(x, ddof=1, correction=0.5)
