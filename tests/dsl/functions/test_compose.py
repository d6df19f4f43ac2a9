"""Functions composed of other operations mean what NumPy means, for random arrays and options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.agreement import ANY, FLOATS, NUMBERS, REALS, agrees, arrays, axes_of, axis_of
from tests.dsl.tracing import assert_same, interpreted
from tests.interop import library

few = settings(max_examples=examples(60), deadline=None)
many = settings(max_examples=examples(120), deadline=None)
data_of = st.data()


# einsum

SIZES = dict(zip("abcde", (2, 3, 1, 4, 2), strict=True))


@st.composite
def contractions(draw: Any) -> tuple[str, list[np.ndarray[Any, Any]]]:
    """Subscripts with repeated labels and ellipses, and arrays for them."""
    dots = draw(st.sampled_from([(), (), (3,), (2, 3)]))
    terms, operands = [], []
    dtype = draw(st.sampled_from([("i2",), ("f8",), ("f4", "f8"), ("c16", "f4"), ("?",), ("i1", "f4")]))
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.sampled_from("abcde"), max_size=3))
        own = dots[draw(st.integers(0, len(dots))) :] if dots else ()
        place = draw(st.integers(0, len(labels)))
        text = "".join(labels[:place]) + ("..." if dots else "") + "".join(labels[place:])
        shape = (*(SIZES[c] for c in labels[:place]), *own, *(SIZES[c] for c in labels[place:]))
        if draw(st.booleans()) and labels:  # an axis of length 1 gives way
            c = draw(st.sampled_from(labels))
            shape = (
                *(1 if x == c else SIZES[x] for x in labels[:place]),
                *own,
                *(1 if x == c else SIZES[x] for x in labels[place:]),
            )
        terms.append(text)
        operands.append(draw(arrays(dtype, shape=shape)))
    subscripts = ",".join(terms)
    if draw(st.booleans()):
        known = sorted(set(subscripts) & set("abcde"))
        chosen = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        subscripts += "->" + draw(st.sampled_from(["...", "..."] if dots else [""])) + "".join(chosen)
    return subscripts, operands


@given(contractions())
@settings(max_examples=examples(150), deadline=None)
def test_einsum(case: Any) -> None:
    subscripts, operands = case
    agrees(lambda operands: np.einsum(subscripts, *operands), operands, ulps=100)


def test_einsum_takes_lists_of_numbers_and_options() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12, dtype=np.float32).reshape(3, 4)
    agrees(lambda a, b: (np.einsum(a, [0, 1], b, [1, 2], [2, 0]), np.einsum(a, [30, 2], b, [2, 5])), a, b)
    agrees(lambda a, b: np.einsum(a, [..., 1], b, [1, ...]), a, b)
    agrees(lambda a, b: (np.einsum("ij,jk", a, b, optimize=True), np.einsum("ij->", b, dtype="f8")), a, b)
    agrees(lambda a, b: np.einsum("ij,jk->ik", a, b, out=np.zeros_like(a @ b)), a, b)
    agrees(lambda a, b: np.einsum("ij->i", a, dtype="f4"), a, b)


def test_einsum_fuses_what_is_no_product_of_matrices() -> None:
    shown = kg.kernel_graph(lambda x, y: np.einsum("ij,ij->i", np.exp(x), y) * 2, device="fake")
    assert len(shown.program(kg.spec((100, 200)), kg.spec((100, 200))).tasks) == 1
    product = kg.kernel_graph(lambda x, y: np.einsum("bij,bjk->bik", x, y), device="fake")
    tasks = product.program(kg.spec((3, 20, 20)), kg.spec((3, 20, 20))).tasks
    assert [t.name for t in tasks] == ["matmul"]


@pytest.mark.parametrize(
    "subscripts, words",
    [
        ("ij,jk", "2 operands"),
        ("ij->k", "no operand"),
        ("i->", "2"),
        ("ij->ii", "twice"),
        ("i$->i", "letters"),
        ("...i->i", "..."),
    ],
)
def test_einsum_mistakes(subscripts: str, words: str) -> None:
    with pytest.raises(kg.ShapeError, match=words):
        kg.kernel_graph(lambda x: np.einsum(subscripts, x), device="cpu").graph(np.ones((2, 3)))


# differences


@given(arrays((*REALS, "?", "c16"), (1, 3)), data_of)
@many
def test_differences(x: Any, data: Any) -> None:
    axis, n = data.draw(axis_of(x.ndim)), data.draw(st.integers(0, 3))
    agrees(lambda x: np.diff(x, n, axis), x)
    agrees(lambda x: np.diff(x, n, axis, prepend=1, append=x), x)
    agrees(lambda x: (np.ediff1d(x), np.ediff1d(x, x[:1], 3)), x)
    agrees(lambda x: (np.trapezoid(x, dx=2, axis=axis), np.trapezoid(x, x, axis=axis)), x)
    agrees(lambda x: np.unwrap(x, axis=axis, period=4), x)
    agrees(lambda x: (np.unwrap(x, axis=axis), np.unwrap(x, 2.5, axis)), x)


@given(arrays((*REALS, "c8", "f2"), (1, 3), 1), data_of)
@many
def test_gradient(x: Any, data: Any) -> None:
    axis, order = data.draw(axes_of(x.ndim)), data.draw(st.sampled_from([1, 2]))
    agrees(lambda x: np.gradient(x, axis=axis, edge_order=order), x)
    agrees(lambda x: np.gradient(x, 0.5, axis=axis, edge_order=order), x)
    at = data.draw(axis_of(x.ndim))
    places = np.cumsum(np.arange(1.0, x.shape[at] + 1)).astype(data.draw(st.sampled_from(["f4", "f8", "i8"])))
    agrees(lambda x, places: np.gradient(x, places, axis=at, edge_order=order), x, places, ulps=400)


@given(arrays(ANY, (1, 1), 0, 9), arrays(ANY, (1, 1), 0, 9), st.sampled_from(["full", "same", "valid"]))
@settings(max_examples=examples(150), deadline=None)
def test_convolutions(a: Any, v: Any, mode: str) -> None:
    agrees(lambda a, v: np.convolve(a, v, mode), a, v)
    agrees(lambda a, v: np.correlate(a, v, mode), a, v)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_long_convolutions_and_infinite_weights(mode: str) -> None:
    rng = np.random.default_rng(0)
    a, v = rng.normal(size=100), rng.normal(size=50)
    agrees(lambda a, v: (np.convolve(a, v, mode), np.convolve(v, a, mode), np.correlate(a, v, mode)), a, v)
    agrees(lambda a: np.convolve(a, [np.inf, 1.0, np.nan], mode), a[:8])


# statistics


@given(arrays((*REALS, "c16"), (1, 2), 2), data_of)
@many
def test_covariances(x: Any, data: Any) -> None:
    rowvar, bias = data.draw(st.booleans()), data.draw(st.booleans())
    ddof = data.draw(st.sampled_from([None, 0, 1]))
    agrees(lambda x: (np.cov(x, None, rowvar, bias, ddof), np.cov(x, x, rowvar)), x, ulps=400)
    n = x.shape[-1] if rowvar or x.ndim == 1 else x.shape[0]
    f, a = np.arange(1, n + 1), np.linspace(0.5, 2, n)
    agrees(lambda x, f, a: np.cov(x, None, rowvar, bias, ddof, f, a), x, f, a, ulps=400)
    agrees(lambda x, f, a: np.cov(x, rowvar=rowvar, ddof=ddof, aweights=a), x, f, a, ulps=400)
    noise = np.random.default_rng(0).normal(size=x.shape)
    agrees(lambda x: np.corrcoef(x, rowvar=rowvar), x + noise, ulps=400)


@given(arrays((*REALS, "f2"), (1, 3), 1, special=True), data_of)
@many
def test_statistics_that_skip_nan(x: Any, data: Any) -> None:
    axis, keepdims, ddof = data.draw(axes_of(x.ndim)), data.draw(st.booleans()), data.draw(st.sampled_from([0, 1, 2]))
    finite = np.where(np.isinf(x), 1, x)
    agrees(lambda x: (np.nanmean(x, axis), np.nanmean(x, axis, keepdims=keepdims)), x)
    agrees(lambda x: np.nanmean(x, axis, where=x > 0), x)
    agrees(lambda x: (np.nanvar(x, axis, ddof=ddof, keepdims=keepdims), np.nanstd(x, axis)), finite, ulps=400)
    agrees(lambda x: (np.nanmin(x, axis, keepdims=keepdims), np.nanmax(x, axis)), x)
    agrees(lambda x: np.nanmin(x, axis, initial=3, where=x > 0), x)
    agrees(lambda x: (np.nansum(x, axis), np.nanprod(x, axis)), x)
    if axis is None or isinstance(axis, int):
        agrees(lambda x: (np.nanargmin(x, axis), np.nanargmax(x, axis=axis)), x)


@given(arrays(REALS, (1, 3), 1), data_of)
@many
def test_averages(x: Any, data: Any) -> None:
    axis, keepdims = data.draw(axes_of(x.ndim)), data.draw(st.booleans())
    agrees(lambda x: np.average(x, axis, returned=True, keepdims=keepdims), x)
    agrees(lambda x: np.average(x, axis, abs(x) + 1, keepdims=keepdims), x)
    if isinstance(axis, tuple) and axis:
        w = np.arange(1.0, 1 + np.prod([x.shape[i] for i in axis])).reshape([x.shape[i] for i in axis])
        agrees(lambda x, w: np.average(x, axis, w, returned=True), x, w)
    elif isinstance(axis, int):
        w = np.arange(1, 1 + x.shape[axis])
        agrees(lambda x, w: np.average(x, axis, w, True), x, w)


@given(arrays(ANY, special=True), arrays(ANY, special=True))
@few
def test_whole_arrays_compared(a: Any, b: Any) -> None:
    compared = interpreted(
        lambda a, b: (np.array_equal(a, a), np.allclose(a, a, equal_nan=True), np.array_equal(a, a, True)), a, b
    )
    if a.dtype != bool:
        for found, wanted in zip(compared, (np.array_equal(a, a), True, True), strict=True):
            assert bool(found) == bool(wanted)
    found = interpreted(lambda a, b: (np.array_equal(a, b), np.array_equiv(a, b)), a, b)
    assert tuple(map(bool, found)) == (np.array_equal(a, b), np.array_equiv(a, b))


# choosing


@given(arrays(NUMBERS), arrays(REALS, (0, 1), 1, 1))
@many
def test_select(x: Any, y: Any) -> None:
    agrees(lambda x, y: np.select([x.real > 1, y < 0, x.real > 0], [x, y, 2 * x], 7), x, y)
    agrees(lambda x, y: np.select([x.real > 1], [y], default=np.float32(1)), x, y)
    agrees(lambda x, y: np.select([x.real > 1], [3]), x, y)


@given(arrays(REALS))
@many
def test_piecewise(x: Any) -> None:
    agrees(lambda x: np.piecewise(x, [x < 0, x > 1], [lambda v: -v, lambda v: v * 2]), x)
    agrees(lambda x: np.piecewise(x, [x < 0, x > 1], [lambda v, k: v + k, 3, lambda v, k: v * k], 2), x)
    agrees(lambda x: np.piecewise(x, x < 0, [1.5]), np.append(x.ravel(), [2, -3]))


def test_piecewise_refuses_functions_of_more_than_one_element() -> None:
    for mean in (lambda v: v - v.mean(), lambda v: v[::-1], lambda v: np.cumsum(v), lambda v: v + v.max()):
        with pytest.raises(kg.UnsupportedError, match="elementwise"):
            kg.kernel_graph(lambda x, f=mean: np.piecewise(x, [x > 0], [f, 0]), device="cpu").graph(np.ones(4))

    def function(x: Any) -> Any:
        largest = x.max()
        return np.piecewise(x, [x > 0], [lambda v: v / largest])

    agrees(function, np.arange(-3.0, 4))


@given(arrays(NUMBERS, (2, 2), 1), arrays(NUMBERS, (0, 0)))
@few
def test_assigning_functions(x: Any, v: Any) -> None:
    assume(np.can_cast(v.dtype, x.dtype, "same_kind"))

    def function(x: Any, v: Any) -> Any:
        a, b, c, d = x.copy(), x.copy(), x.copy(), x.copy()
        np.fill_diagonal(a, v)
        np.putmask(b, b.real > 0, v)
        np.copyto(c, v, where=x.real > 1)
        np.copyto(d[:1], v)
        d[1:].fill(3)
        return a, b, c, d

    agrees(function, x, v)


# putting together and taking apart


@given(arrays(ANY, (1, 3), 1), data_of)
@many
def test_joins_and_cuts(x: Any, data: Any) -> None:
    axis, n = data.draw(axis_of(x.ndim)), data.draw(st.integers(1, 4))
    place = data.draw(st.integers(-x.shape[axis], x.shape[axis] - 1))
    cuts = data.draw(st.one_of(st.integers(1, 3), st.lists(st.integers(-2, 6), max_size=3)))
    agrees(lambda x: (np.array_split(x, n, axis), np.append(x, x, axis), np.append(x, 3), np.dstack([x, x])), x)
    agrees(lambda x: np.split(x, cuts, axis), x)
    agrees(lambda x: np.hsplit(x, cuts), x)
    agrees(lambda x: (np.vsplit(x, cuts), np.dsplit(x, cuts)), x)
    agrees(lambda x: (np.delete(x, place, axis), np.delete(x, [place, 0], axis), np.delete(x, slice(0, 2))), x)
    agrees(lambda x: (np.insert(x, place, 2, axis), np.insert(x, 0, x.ravel()[:1])), x)
    agrees(lambda x: (np.resize(x, (n, 5)), np.atleast_3d(x), np.block([[x, x], [x, x]]), np.block([x, x])), x)
    agrees(lambda x: np.apply_over_axes(np.sum, x, (0, axis)), x)


@given(arrays(NUMBERS, (1, 3), 1, 4), data_of)
@few
def test_functions_along_an_axis(x: Any, data: Any) -> None:
    axis = data.draw(axis_of(x.ndim))
    agrees(lambda x: (np.apply_along_axis(np.sum, axis, x), np.apply_along_axis(lambda v: v[::-1] * 2, axis, x)), x)
    agrees(lambda x: np.apply_along_axis(lambda v, k: np.multiply.outer(v, v) + k, axis, x, 1), x)


def test_an_edge_is_one_part_however_wide() -> None:
    """It was a store for each row of it: most of the tasks of the demo."""
    f = kg.kernel_graph(device="cpu")(lambda x: np.pad(x, 24, mode="edge"))
    x = np.arange(30.0).reshape(5, 6)
    np.testing.assert_array_equal(f(x), np.pad(x, 24, mode="edge"))
    assert len(f.plan(x).tasks) <= 5


@given(arrays(REALS, (1, 3), 1), data_of)
@many
def test_padding_rolling_repeating(x: Any, data: Any) -> None:
    mode = data.draw(st.sampled_from(["constant", "edge", "wrap", "reflect", "symmetric"]))
    width = data.draw(st.one_of(st.integers(0, 7), st.just(((1, 3),) * x.ndim), st.just((2, 0))))
    agrees(lambda x: np.pad(x, width, mode), x)
    shift, axis = data.draw(st.integers(-7, 7)), data.draw(st.one_of(st.none(), axis_of(x.ndim)))
    agrees(lambda x: (np.roll(x, shift, axis), np.flip(x, axis), np.repeat(x, 2, axis), np.tile(x, (2, 1))), x)
    counts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    agrees(lambda x: np.repeat(x, counts, axis), x)
    k = data.draw(st.integers(-5, 5))
    agrees(lambda x: (np.rot90(x, k), np.fliplr(x)), x)
    agrees(lambda x: (np.tril(x, k), np.triu(x, k), np.trace(x, k), np.diagonal(x, k, -2, -1)), x)


@given(arrays(ANY, (1, 2)), st.integers(-4, 4))
@many
def test_diagonals(x: Any, k: int) -> None:
    agrees(lambda x: np.diag(x, k), x)
    agrees(lambda x: np.diagflat(x, k), x)


@given(arrays(ANY), arrays(ANY))
@many
def test_products(a: Any, b: Any) -> None:
    agrees(lambda a, b: (np.kron(a, b), np.outer(a, b), np.tensordot(a, b, 0)), a, b)
    agrees(lambda a, b: np.inner(a, b), a, b, ulps=100)
    agrees(lambda a, b: np.dot(a, b), a, b, ulps=100)


@given(arrays(NUMBERS, shape=(2, 3, 3)), arrays(NUMBERS, shape=(3, 3)), st.integers(-2, 1), st.integers(-2, 1))
@few
def test_products_of_vectors(a: Any, b: Any, axisb: int, axisc: int) -> None:
    agrees(lambda a, b: (np.cross(a, b), np.cross(a, b, axisb=axisb, axisc=axisc), np.cross(a[0], b, axis=axisb)), a, b)
    agrees(lambda a, b: (np.matvec(a, b), np.vecmat(b, a), np.vecdot(a, b)), a, b, ulps=100)


# formulas


@given(arrays(ANY, special=True))
@many
def test_formulas(x: Any) -> None:
    agrees(lambda x: (np.isreal(x), np.iscomplex(x), np.iscomplexobj(x), np.isrealobj(x)), x)
    agrees(lambda x: (np.isposinf(x), np.isneginf(x)), x)
    agrees(lambda x: np.fix(x), x)
    agrees(lambda x: np.sinc(x), np.where(np.isfinite(x), x, 0).astype(x.dtype))
    agrees(lambda x: np.i0(x), x)


@given(arrays(NUMBERS, (1, 1), 1), arrays(NUMBERS), arrays(NUMBERS, (1, 1), 1), st.integers(0, 3))
@many
def test_polynomials(p: Any, x: Any, q: Any, m: int) -> None:
    agrees(lambda p, x, q: (np.polyval(p, x), np.polyadd(p, q), np.polysub(p, q)), p, x, q, ulps=100)
    agrees(lambda p: np.polyder(p, m), p)
    agrees(lambda p: (np.polyint(p, m), np.polyint(p, m, 3.0)), p)
    agrees(lambda p: np.vander(p, m), p)


@given(arrays((*FLOATS, "i4")), st.integers(0, 6), st.booleans(), st.sampled_from([None, "f4", "i8"]))
@many
def test_spaced_points(x: Any, num: int, endpoint: bool, dtype: Any) -> None:
    assume(x.size)
    agrees(lambda x: np.linspace(x, 3, num, endpoint, dtype=dtype), x)
    agrees(lambda x: np.logspace(x, 1.5, num, endpoint), x, ulps=100)
    agrees(lambda x: np.geomspace(abs(x) + 1, 40.0, num, endpoint), x, ulps=100)
    agrees(lambda x: np.meshgrid(x.ravel(), x.ravel()[:2], sparse=endpoint), x)


def test_new_arrays() -> None:
    def made(np: Any) -> Any:
        return (
            np.tri(3),
            np.tri(2, 4, 1, dtype=int),
            np.identity(3, dtype=np.float32),
            np.indices((2, 3)),
            np.indices((2, 3), sparse=True),
            np.fromfunction(lambda i, j: i * 2 + j, (3, 2)),
        )

    _, found = interpreted(lambda x: (x + 1, made(kg)), np.ones(2))
    assert_same(found, made(np))
    assert_same(kg.tri(3).numpy(), np.tri(3))


def test_shapes_alone() -> None:
    agrees(lambda x: x[1:] * 2 if np.iscomplexobj(x) else x, np.ones(3))
    agrees(lambda x: (np.tril_indices_from(x), np.triu_indices_from(x, 1)), np.ones((2, 3)))


def test_compiled_and_run() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(6, 7)), rng.normal(size=5)

    def function(x: Any, w: Any) -> Any:
        return (
            np.gradient(x, 0.1),
            np.convolve(x[0], w, "same"),
            np.cov(x),
            np.einsum("ij,kj,k->i", x, x, x[:, 0]),
            np.select([x > 1, x > 0], [x, -x], 2.0),
            np.kron(x[:2], x[:1]),
            np.nanstd(np.where(x > 1, np.nan, x), axis=0),
            np.diag(x[0], 1),
        )

    for a, b in zip(kg.kernel_graph(function, device="cpu")(x, w), function(x, w), strict=True):
        for found, wanted in zip(a, b, strict=True) if isinstance(b, tuple) else [(a, b)]:
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_functions_of_shapes_alone_and_of_scipy() -> None:
    special = library("scipy.special")
    agrees(lambda x: np.einsum_path("ij,jk,kl->il", x, x, x)[0] and x, np.ones((3, 3)))
    agrees(lambda i, j: np.ix_(i, j), np.array([0, 2]), np.array([1]))
    x = np.linspace(-3, 3, 7)
    agrees(lambda x: (special.erf(x), special.erfc(x), special.expit(x)), x)
    agrees(lambda x: (special.gammaln(x), special.erf(x.astype(np.float32))), x + 4)


@pytest.mark.parametrize("parts", [2**31, 2**63, 2**64])
def test_a_split_into_more_parts_than_memory_holds_is_refused(parts: int) -> None:
    function = kg.kernel_graph(lambda x: np.array_split(x, parts), device="cpu")
    with pytest.raises(kg.UnsupportedError, match=r"write min\(parts, x\.shape\[0\]\)"):
        function(np.ones(3))
