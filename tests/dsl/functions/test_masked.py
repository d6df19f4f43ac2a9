"""`x[mask]` with a mask that only the call decides: what needs no number of chosen elements is NumPy's; the rest says
what to write."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.decompose.rules import decompose_host_calls
from tests.counts import examples
from tests.dsl.agreement import FLOATS, REALS, agrees, arrays
from tests.dsl.core.test_errors import graph, line_in, refused
from tests.dsl.tracing import assert_same

many = settings(max_examples=examples(60), deadline=None)
X = np.linspace(-2.0, 3.0, 12).reshape(3, 4)


def two(x: Any, y: Any) -> Any:
    m = x > y.mean()
    z = np.zeros_like(x) + y
    z[m] = 2 * x[m] + np.sqrt(np.abs(y[m])) - z[m] ** 2
    z[m] += 1
    z[~m] *= x[~m]
    n = np.zeros(x.shape, int)
    n[m] = 7
    n[m] -= 2
    z[x < 0] = np.where(y[x < 0] > 0, x[x < 0], 1).astype(np.float32)
    z[x > 1] = np.clip(x[x > 1], 0, 1.5).round(1)
    return z, n


REDUCED: list[Any] = [
    lambda x, m: x[m].sum(),
    lambda x, m: (x[m] * 2 + x[m]).mean(),
    lambda x, m: np.sum(x[m] ** 2) / np.count_nonzero(x[m]),
    lambda x, m: (np.prod(x[m]), np.any(x[m] > 1), np.all(x[m] > 0)),
    lambda x, m: (x[m].max(), np.min(x[m]), np.amax(-x[m])),
    lambda x, m: (x[m].var(), np.std(x[m]), np.mean(x[m] > 0)),
    lambda x, m: (np.dot(x[m], x[m]), x[m] @ (2 * x[m]), x[m].dot(x[m])),
    lambda x, m: (np.add.reduce(x[m]), np.maximum.reduce(x[m]), x[m].T.sum()),
    lambda x, m: x[m].astype(np.float32).sum(dtype=np.float64),
    lambda x, m: np.float64(2) * x[m].sum() + x.sum() * x[m].mean(),
    lambda x, m: (np.exp(x)[m] / (1 + x[m].max())).sum(),
    lambda x, m: divmod(x[m], 2)[1].sum() + (3 - x[m]).sum() + (-abs(x[m])).sum(),
]


@given(arrays(FLOATS, (1, 3), 1))
@many
def test_assignments(x: Any) -> None:
    agrees(two, x, x[::-1] * x.dtype.type(0.7) + x.dtype.type(0.1))


@pytest.mark.parametrize("number", range(len(REDUCED)))
def test_reductions(number: int) -> None:
    for mask in (X > 0.3, X > -9, X[1, 1] == X):
        agrees(REDUCED[number], X, mask)
        agrees(REDUCED[number], X[0], mask[1])


@given(arrays(REALS, (2, 3), 1), st.data())
@many
def test_masks_of_leading_axes(x: Any, data: Any) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))))
    assume(mask.any())
    axis = data.draw(st.sampled_from([None, 0, -x.ndim, (0,), 1, (0, 1)]))

    def function(x: Any, mask: Any) -> Any:
        y = x * 1
        y[mask] = x[mask] * 2 + x[0]
        y[mask, 0] = x[mask, 0]
        y[mask, ..., -1] += 1
        chosen = x[mask]
        total = chosen.sum(axis=axis) if axis != 1 else chosen.sum(axis=1).sum(axis=0)
        return y, total, chosen[:, 0].sum(axis=0), chosen.ndim

    agrees(function, x, mask)


def test_integers_beside_masks() -> None:
    def function(x: Any, m: Any) -> Any:
        out = np.zeros((4, 2, 3))
        out[m, 0, 1] = (x * 2)[m]
        out[1, m[:2]] = 5
        out[m, 1:, 0] = 3
        return out, out[m, 0, 1].sum(), out[0, m[:2], 2].sum()

    agrees(function, np.arange(4.0), np.array([True, False, True, True]))


def test_several_values_through_a_mask() -> None:
    def function(x: Any, y: Any) -> Any:
        x = x * 1
        x[x > 0] = y
        z = np.zeros((3, 4, 2))
        z[x[:, 0] < 9] = np.arange(24.0).reshape(3, 4, 2)
        return x, z

    agrees(function, X, np.arange(float((X > 0).sum())))


def test_as_many_values_as_are_chosen() -> None:
    def function(x: Any, y: Any) -> Any:
        x = x * 1
        x[x > 0] = y
        return x

    f = kg.kernel_graph(function, device="cpu")
    with pytest.raises(ValueError, match="5 input values to the 12 output values"):
        f(np.ones((3, 4)), np.ones(5)).numpy()
    np.testing.assert_array_equal(f(np.ones((3, 4)), np.arange(12.0)), np.arange(12.0).reshape(3, 4))


def test_one_kernel() -> None:
    def mandelbrot(c: Any) -> Any:
        z, n = np.zeros_like(c), np.zeros(c.shape, int)
        for i in range(5):
            inside = np.less(abs(z), 2.0)
            n[inside] = i
            z[inside] = z[inside] ** 2 + c[inside]
        return z, n

    c = X * 0.5 + 1j * X.T.reshape(3, 4) * 0.3
    agrees(mandelbrot, c)
    assert len(kg.kernel_graph(mandelbrot, device="fake").program(c).tasks) <= 2


def test_masks_that_are_known_choose() -> None:
    def function(x: Any) -> Any:
        m = np.arange(4) % 2 == 0
        sieve = np.ones(4, bool)
        sieve[1] = False
        y = x[:, m] * 1
        y[:, [True, False]] = 0
        return x[:, m], x[0][sieve], x[0][sieve].size, y

    agrees(function, X)


@pytest.mark.parametrize("dtype", ["f8", "u1", "?", "c16"])
@pytest.mark.parametrize("reduction", [lambda v: np.min(v), lambda v: np.maximum.reduce(v * 1, axis=0)])
def test_extremes_of_nothing(reduction: Any, dtype: str) -> None:
    def function(x: Any, m: Any) -> Any:
        return np.sort(x), 1 + np.where(m, x, 0) * reduction(x[m])

    x, none = np.arange(4).astype(dtype), np.zeros(4, bool)
    f = kg.kernel_graph(function, device="cpu")
    some = np.arange(4) > 1
    assert_same(f(x, some), function(x, some))
    with pytest.raises(ValueError, match="zero-size array to reduction operation m") as caught:
        f(x, none)
    assert f"test_masked.py:{line_in(reduction, 0)}" in caught.value.__notes__[-1]


def test_extremes_of_nothing_on_a_gpu_are_not_looked_for() -> None:
    """No step on the host waits there, but where all calls are verified; nor where the mask is known, or `initial`."""

    def steps(function: Any, device: Any) -> list[str]:
        program = kg.kernel_graph(function, device=device, untraceable="refuse").program(X, X > 1)
        return [task.name for task in program.tasks if task.name == "require"]

    def plain(x: Any, m: Any) -> Any:
        return x[m].max()

    def initial(x: Any, m: Any) -> Any:
        return x[m].max(initial=0.0), x[0][np.arange(4) > 1].min(), x[m].sum()

    assert steps(plain, "cpu") and not steps(initial, "cpu")
    graph = kg.kernel_graph(plain, device="cpu", untraceable="refuse").graph(X, X > 1)
    assert not any(node.op == "host" for node in decompose_host_calls(graph, "cuda").nodes)


def raise_by(b: Any, m: Any, step: Any) -> Any:
    b[m] += step
    return b


@pytest.mark.parametrize("step", [2, 0.5, 1j, np.int8(1)])
def test_a_selection_keeps_its_dtype(step: Any) -> None:
    b = np.array([True, False, True, True])
    with pytest.raises(TypeError):
        raise_by(b.copy(), b, step)
    for options in ({}, {"untraceable": "split"}):
        f = kg.kernel_graph(lambda b, m: raise_by(b, m, step), device="cpu", **options)
        with pytest.raises(TypeError):
            f(b.copy(), b)
    agrees(lambda b, m: raise_by(b * True, m, True), b, b)


WRITTEN: list[Any] = [  # what is written to a selection, `v`, and read there again
    lambda v: (np.add(v, 1, out=v) is v, v.sum(), v.max()),
    lambda v: (np.sqrt(abs(v), v).sum(), np.clip(v, 0, 1, out=v).sum(), np.round(v, out=v).max()),
    lambda v: [w := v[:], np.multiply(v, v, w), v.sum(), w.sum()][2:],
    lambda v: [q := v * 1, np.divmod(v, 2, out=(q, v)), q.sum(), v.sum()][2:],
    lambda v: [n := v > 0, np.less(v, 1, n), n.sum(), np.add(v, v[:] * 2, out=v, where=True).sum()][2:],
]
PLACED: list[Any] = [  # what needs the places of a mask
    lambda x, m: [x[:, m], x[1:, m] * 2, x[..., m], x[None, :, m], x[[0, 1]][:, m]],
    lambda x, m: [x.__setitem__((slice(None), m), 7), x.__setitem__((slice(1, None), m), x[:2, m]), x][2],
    lambda x, m: [np.compress(m, x, 1), np.compress(m[:2], x, axis=0), np.compress(x.ravel() > 0, x), x.compress(m, 1)],
    lambda x, m: [np.add(x[m[:3]], 1, out=x[m[:3]], where=x[m[:3]] > 0), x][1],
]


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_out_may_be_a_selection(number: int) -> None:
    agrees(lambda x, m: WRITTEN[number](x[m]), X, X > 0.3)
    agrees(lambda x, m: [WRITTEN[number](x[m]), x][1], X, X > 0.3)
    f = kg.kernel_graph(lambda x, m, z: np.add(z, 1, out=x[m]).sum(), device="cpu", untraceable="split")
    assert f(X, X > 0.3, np.arange(float((X > 0.3).sum()))) == np.arange(1.0, (X > 0.3).sum() + 1).sum()


@pytest.mark.parametrize("number", range(len(PLACED)))
def test_places_of_a_mask_split(number: int) -> None:
    def function(x: Any, y: Any) -> Any:
        return PLACED[number](x, y > 0)

    f = kg.kernel_graph(function, device="cpu", untraceable="split")
    for y in (np.array([1, -1, 1, 1]), np.array([-1, 1, -1, -1]), np.zeros(4)):
        mine, theirs = X.copy(), X.copy()
        assert_same(f(mine, y), function(theirs, y))
        assert_same(mine, theirs)
    with pytest.raises(kg.UnsupportedError, match="untraceable='split'"):
        graph(function)(X.copy(), X[0])


def test_known_masks_anywhere() -> None:
    many = np.arange(6000) % 3 == 0

    def function(x: Any) -> Any:
        m = np.arange(6000) % 2 == 0
        x[:, many] += 1
        return x[:, m], x[..., many], np.compress(m, x, 1), np.compress([True, False], x, 0)

    agrees(function, np.arange(12000.0).reshape(2, 6000))


def test_selections_of_other_numbers_of_axes_do_not_go_together() -> None:
    """One element for each chosen row does not meet the rows: NumPy looks at the last axis."""
    refused(lambda: graph(lambda x, m: (x[m] + x[:, 0][m]).sum())(X, X[:, 0] > 0), kg.UnsupportedError)
    refused(lambda: graph(lambda x, m: (x[m] + x[None, :1]).sum())(X, X[:, 0] > 0), kg.UnsupportedError)


def test_values_that_repeat() -> None:
    def function(x: Any, values: Any) -> Any:
        x = x * 1
        np.place(x, x > 1, values)
        np.putmask(x, x < 0, values * 3)
        np.place(x, x == 0, [1, 2.5])
        np.putmask(x, x > 0, np.zeros(0))
        return x

    agrees(function, X, np.arange(5.0))
    agrees(function, np.arange(-6, 6), np.arange(3))
    with pytest.raises(ValueError, match="same size"):
        graph(lambda x: np.place(x, x[0] > 0, 1))(X.copy())


REFUSED: list[tuple[Any, tuple[str, ...]]] = [
    (lambda x: x[x > 0], ("depends on data", "np.where(mask, x, 0)", "untraceable='split'")),
    (lambda x: x[x > 0].size, ("depends on data", "where=mask")),
    (lambda x: len(x[x > 0]), ("depends on data",)),
    (lambda x: x[x > 0].shape, ("depends on data",)),
    (lambda x: [*x[x > 0]], ("depends on data",)),
    (lambda x: np.sort(x[x > 0]), ("depends on data",)),
    (lambda x: x[x > 0] + x[x > 1], ("depends on data",)),
    (lambda x: np.concatenate([x[x > 0], x[0]]), ("depends on data",)),
    (lambda x: x[x > 0][0], ("depends on data",)),
    (lambda x: x[x > 0].sum(keepdims=True), ("depends on data",)),
    (lambda x: x[x > 0].flatten(), ("depends on data",)),
    (lambda x: x * x[x > 0], ("depends on data",)),
    (lambda x: x[x > 0] * np.arange(3), ("depends on data",)),
    (lambda x: x.__setitem__(x > 0, x[x > 1]), ("depends on data",)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_needs_the_mask_is_refused(number: int) -> None:
    function, words = REFUSED[number]
    decorated = graph(function)
    refused(lambda: decorated(X.copy()), kg.UnsupportedError, *words, line=line_in(function, 0))


def test_the_line_is_that_of_the_mask() -> None:
    def function(x: Any) -> Any:
        y = x[x > 0]
        z = y * 2
        return z

    refused(lambda: graph(function)(X), kg.UnsupportedError, "np.where", line=line_in(function))


def test_shapes_that_do_not_fit() -> None:
    f = graph(lambda x, y: x[y > 0])
    refused(lambda: f(X, X[0]), IndexError, "(4,)", "(3, 4)", line=line_in(f, 0))


KNOWN = np.array([True, False, True, True])


def halve(v: Any) -> None:
    v /= 2


ALIASES: list[Any] = [  # what is done with a selection, and all that looks at it afterwards
    lambda v: (halve(v), v.sum()),
    lambda v: (v.__iadd__(1) is v, v.sum(), (v * 2).max()),
    lambda v: [(w := v[:]).__imul__(3), v.sum(), w.sum()][1:],
    lambda v: [v.__setitem__(slice(None), 7), v.sum()][1:],
    lambda v: [v.__setitem__(Ellipsis, v * 2), v.mean()][1:],
]
WHOLE: list[Any] = [  # what needs the selection as an array
    lambda v: np.asarray(v),
    lambda v: [np.zeros_like(v), np.size(v), np.sum([v, v], axis=0)],
    lambda v: [np.inner(v, v), np.vdot(v, v), np.dot(v, v)],
    lambda v: [(w := v[::2]), v.__setitem__(0, 9), halve(v), v, w][3:],
    lambda v: [(w := v[:]), len(v), w.__iadd__(5), v, w][3:],
    lambda v: [(w := v[:]), w.size, v.__iadd__(5), v, w][3:],
]


@pytest.mark.parametrize("number", range(len(ALIASES)))
def test_a_selection_is_an_array_that_all_its_names_share(number: int) -> None:
    agrees(lambda x, m: ALIASES[number](x[m]), np.arange(4.0), KNOWN)
    agrees(lambda x: ALIASES[number](x[KNOWN]), np.arange(4.0))
    x = np.arange(4.0)
    agrees(lambda x, m: [ALIASES[number](x[m]), x][1], x, KNOWN)  # which is a copy


@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_a_selection_by_a_known_mask_is_any_array(number: int) -> None:
    agrees(lambda x: WHOLE[number](x[KNOWN]), np.arange(4.0))
    agrees(lambda x: WHOLE[number](x[np.nonzero(KNOWN)]), np.arange(4.0))
    f = kg.kernel_graph(lambda x, m: WHOLE[number](x[m]), device="cpu", untraceable="split")
    for x in (np.arange(4.0), np.arange(4.0)):
        expected = WHOLE[number](x[KNOWN])
        assert_same(f(x, KNOWN.copy()), expected)


def test_values_for_a_known_mask() -> None:
    def function(x: Any, y: Any) -> Any:
        x = x * 1
        x[KNOWN] = y
        x[KNOWN] = x[::-1][KNOWN] * 2
        return x

    agrees(function, np.arange(4.0), np.array([7.0, 8.0, 9.0]))
    agrees(function, np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2))
    with pytest.raises(ValueError, match="4 input values to the 3 output values"):
        kg.kernel_graph(function, device="cpu")(np.arange(4.0), np.arange(4.0))


MASKS_OF_ROWS: list[Any] = [  # written in place through one name, looked at through others
    lambda v, a: [v, v.T, operator.imatmul(v, a)],
    lambda v, a: [v, v[:], operator.imatmul(v, a)],
    lambda v, a: [v, v[...], operator.imatmul(v[:], a)],
    lambda v, a: [v, v.real, v[:, 0], operator.imatmul(v, a)],
]


@pytest.mark.parametrize("number", range(len(MASKS_OF_ROWS)))
@pytest.mark.parametrize("given", [False, True])
def test_a_product_in_place_is_seen_under_all_names(number: int, given: bool) -> None:
    x, m = np.arange(6.0).reshape(3, 2), np.array([True, False, True])
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    if given:
        f = kg.kernel_graph(lambda x, m, a: MASKS_OF_ROWS[number](x[m], a), device="cpu")
        assert_same(f(x, m, a), MASKS_OF_ROWS[number](x[m], a))
    else:
        agrees(lambda x, a: MASKS_OF_ROWS[number](x[m], a), x, a)


NOT_IN_PLACE: list[Any] = [
    lambda v, x: operator.imatmul(v, v),
    lambda v, x: operator.imatmul(v[:], v),
    lambda v, x: operator.imatmul(x, v),
    lambda v, x: operator.imatmul(x[0], x[0]),
    lambda v, x: operator.imatmul(x, [1, 2]),
]


@pytest.mark.parametrize("number", range(len(NOT_IN_PLACE)))
def test_a_product_of_vectors_is_not_in_place(number: int) -> None:
    f = kg.kernel_graph(lambda x: NOT_IN_PLACE[number](x[0][x[0] > 0], x), device="cpu")
    with pytest.raises(ValueError, match="inplace matrix multiplication requires"):
        f(np.ones((2, 2)))


@pytest.mark.parametrize(
    "function", [np.sum, np.max, np.any, np.mean, np.var, np.nansum, np.add.reduce, np.hypot.reduce]
)
def test_none_is_no_mask(function: Any) -> None:
    """NumPy takes it for False in some functions and fails in others."""
    options = {"initial": 0.0} if function is np.max else {}
    program = kg.kernel_graph(lambda x: function(x, where=None, **options), device="cpu")
    try:
        expected = function(X, where=None, **options)
    except TypeError:
        with pytest.raises(TypeError):
            program(X)
    else:
        np.testing.assert_array_equal(program(X), expected)


@pytest.mark.parametrize("name", ["matmul", "vecdot", "matvec", "vecmat"])
def test_products_of_vectors_that_a_known_mask_has_chosen(name: str) -> None:
    if not hasattr(np, name):
        pytest.skip("NumPy is older")
    product = getattr(np, name)

    def f(a: Any) -> Any:
        v = a[np.arange(a.shape[0]) % 2 == 0]
        matrix = np.ones((2, 2))
        left, right = {"matvec": (matrix, v), "vecmat": (v, matrix)}.get(name, (v, v))
        return product(left, right), v[0]

    def g(a: Any) -> Any:
        v = a[np.arange(a.shape[0]) % 2 == 0]
        np.matmul(v, v, out=v)
        return v

    x = np.array([1.0, 7.0, 2.0, 8.0])
    assert_same(kg.kernel_graph(f, device="cpu")(x), f(x))
    assert_same(kg.kernel_graph(g, device="cpu")(x), g(x.copy()))
