"""Assignment to elements, with NumPy's aliasing: what is written through one name is seen under all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.tracing import assert_same, interpreted

X = np.arange(24.0).reshape(4, 6)


def same(function: Any, *args: Any) -> None:
    """Interpreted, compiled and NumPy agree, on results and on what becomes of the arguments."""
    mine, reference = [np.array(a) for a in args], [np.array(a) for a in args]
    expected = function(*reference)
    assert_same(interpreted_results(function, *args), expected)
    assert_same(kg.kernel_graph(function, device="cpu")(*mine), expected)
    for a, b in zip(mine, reference, strict=True):
        np.testing.assert_array_equal(a, b)


def interpreted_results(function: Any, *args: Any) -> Any:
    return interpreted(lambda *arrays: function(*[a.copy() for a in arrays]), *args)


PROGRAMS: list[Any] = [
    lambda u: (u.__setitem__((slice(1, -1), slice(1, -1)), 0), u + 1)[1],
    lambda u: (u.__setitem__(0, u[1]), u.__setitem__((slice(None), 2), u[:, 3] * 2), u * 1)[2],
    lambda u: (u.__setitem__(slice(None, None, -2), u[1::2]), u + 0)[1],
    lambda u: (u.__setitem__(..., u[::-1]), u + 0)[1],
    lambda u: (u.__setitem__(u > 5, -1), u.__setitem__(np.array([True, False, True, False]), u[1]), u + 0)[2],
    lambda u: (u[1:].__setitem__(0, 9), u.T.__setitem__(0, [1, 2, 3, 4]), u[:, None, 2].__iadd__(5), u + 0)[3],
    lambda u: (np.add(u, 1, out=u), np.multiply(u[0], 2, out=u[1]), u + 0)[2],
    lambda u: (np.copyto(u[2], 7), np.copyto(u, 3, where=u > 10), u.fill(2), u + 0)[3],
    lambda u: (np.sum(u, axis=0, out=u[0]), np.mean(u, 0, out=u[1]), u + 0)[2],
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs(number: int) -> None:
    same(PROGRAMS[number], X)


def test_views_see_what_is_assigned() -> None:
    def function(x: Any) -> Any:
        u = x * 1
        v, w = u[1:], u.T
        z = v[0][::2]
        u[1] = 5
        before = z + 0
        v[0, 0] = 7
        w[1, 1] += 100
        z *= 2
        copy = u.copy()
        u[:] = 0
        return u, v, w, z, before, copy

    same(function, X)


def sorted_twice(u: Any) -> Any:
    v = np.sort(u[0])
    u[1] = v
    u[1] = u[0].max() + u[0]
    return np.cumsum(v)


def put_back(u: Any) -> Any:
    v = np.cumsum(u[0])
    u[1] = v
    u[1] = np.sort(-u[1])
    u[1] = v


def joined(u: Any) -> Any:
    v = np.sort(u[0])
    c = np.concatenate([v, u[1]])
    c[:2] = c.max()
    c[4:9] += u[2, :5]
    return c, np.concatenate([u[1], v]), v.sum()


def joined_twice(u: Any) -> Any:
    v = np.sort(u[0])
    w = v + 0
    w[0] = 7
    c = np.concatenate([np.concatenate([w, v[1:]]), u[1]])
    c[:9] = c.max()
    return c, np.cumsum(w), np.sort(v)


@pytest.mark.parametrize("function", [sorted_twice, put_back, joined, joined_twice])
def test_values_that_are_assigned_are_read_after_they_are_overwritten(function: Any) -> None:
    same(function, X)


def test_a_time_loop() -> None:
    def function(u: Any, steps: int) -> Any:
        for _ in range(steps):
            u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
            u[0] = u[1]
        return u

    mine, reference = np.random.default_rng(0).random((2, 17, 23))
    mine = reference.copy()
    result = kg.kernel_graph(function, device="cpu")(mine, 5)
    function(reference, 5)
    assert result is mine
    np.testing.assert_allclose(mine, reference, rtol=1e-13)


def test_assigned_arguments() -> None:
    def function(u: Any, v: Any) -> Any:
        u[1:] += v[1:]
        return u, u[0], v

    f = kg.kernel_graph(function, device="cpu")
    u, v = X.copy(), X + 1
    result = f(u, v)
    assert result[0] is u and not np.shares_memory(result[1].numpy(), u)
    assert_same(result[1:], (X[0], X + 1))
    np.testing.assert_array_equal(u[1:], X[1:] + X[1:] + 1)
    a, b = kg.asarray(X, device="cpu"), kg.asarray(X + 1, device="cpu")
    old = a.numpy()
    assert f(a, b)[0] is a
    assert_same(a, u)
    np.testing.assert_array_equal(old, X)


@pytest.mark.parametrize("kind", ["transposed", "big endian", "unaligned", "every second", "one"])
def test_assigned_arguments_of_any_layout(kind: str) -> None:
    raw = np.zeros(X.nbytes + 8, np.uint8)
    base: Any = {
        "transposed": lambda: X.T.copy().T,
        "big endian": lambda: X.astype(">f8"),
        "unaligned": lambda: raw[1 : 1 + X.nbytes].view(np.float64).reshape(X.shape),
        "every second": lambda: np.zeros((8, 12))[::2, ::-2],
        "one": lambda: np.zeros(()),
    }[kind]()
    base[...] = X if base.ndim else 3

    def function(u: Any) -> Any:
        u += 1
        u *= u
        return u

    result = kg.kernel_graph(function, device="cpu")(base)
    assert result is base
    np.testing.assert_array_equal(base, (X + 1) ** 2 if base.ndim else 16)


def test_numpy_scalars_do_not_change() -> None:
    def function(s: Any) -> Any:
        s += 1
        return s

    s = np.float64(2)
    assert_same(kg.kernel_graph(function, device="cpu")(s), np.float64(3))
    assert s == 2


def test_what_may_not_be_assigned() -> None:
    def function(u: Any, v: Any) -> Any:
        u[0] = 1
        return v

    f = kg.kernel_graph(function, device="cpu")
    x = X.copy()
    x.flags.writeable = False
    with pytest.raises(kg.ReadOnlyError, match="read-only"):
        f(x, X)
    y = X.copy()
    with pytest.raises(kg.ReadOnlyError, match="share memory"):
        f(np.lib.stride_tricks.as_strided(y, y.shape, (0, 8)), X)
    np.testing.assert_array_equal(y, X)
    with pytest.warns(UserWarning, match="runs in NumPy.*shares"):
        assert np.array_equal(f(y, y[1:]), X[1:])
    assert np.all(y[0] == 1) and np.array_equal(y[1:], X[1:])


@pytest.mark.usefixtures("refusing")
def test_globals_are_not_assigned() -> None:
    table = np.zeros(4)

    def function(x: Any) -> Any:
        np.add(x, 1, out=table)
        return x

    with pytest.raises(kg.TraceError):
        kg.kernel_graph(function, device="cpu")(np.ones(4))
    assert not table.any()


def test_new_arrays_can_be_filled() -> None:
    def function(x: Any) -> Any:
        u = kg.zeros(x.shape)
        u[1:-1] = x[1:-1]
        e = np.zeros_like(x)
        for i in range(4):
            e[i, i] = x[i].sum()
        return u, e

    def plain(x: Any) -> Any:
        u, e = np.zeros(x.shape), np.zeros_like(x)
        u[1:-1] = x[1:-1]
        for i in range(4):
            e[i, i] = x[i].sum()
        return u, e

    assert_same(kg.kernel_graph(function, device="cpu")(X), plain(X))


@st.composite
def steps(draw: Any) -> list[tuple[Any, ...]]:
    """A program: views of arrays made so far, and assignments to them."""
    key = st.sampled_from(
        [
            0,
            -1,
            slice(1, None),
            slice(None, -1),
            slice(None, None, 2),
            slice(None, None, -1),
            slice(2, 0, -1),
            None,
            ...,
        ]
    )
    keys = st.tuples(key) | st.tuples(key, key)
    program = []
    for _ in range(draw(st.integers(1, 7))):
        which, other = draw(st.integers(0, 9)), draw(st.integers(0, 9))
        program.append(
            draw(
                st.sampled_from(
                    [
                        ("view", which, draw(keys)),
                        ("transpose", which),
                        ("set", which, draw(keys), draw(st.integers(-9, 9))),
                        ("set from", which, draw(keys), other),
                        ("add", which, draw(st.integers(1, 3))),
                        ("mask", which, draw(st.integers(0, 20))),
                        ("new", which),
                    ]
                )
            )
        )
    return program


def run(program: list[tuple[Any, ...]], x: Any) -> Any:
    arrays = [x * 1]
    for step in program:
        a = arrays[step[1] % len(arrays)]
        if a.ndim == 0 and step[0] not in ("add", "new"):  # NumPy's scalars take no assignment
            continue
        try:
            if step[0] == "view":
                arrays.append(a[step[2]])
            elif step[0] == "transpose":
                arrays.append(a.T)
            elif step[0] == "set":
                a[step[2]] = step[3]
            elif step[0] == "set from":
                a[step[2]] = arrays[step[3] % len(arrays)].sum() + a[step[2]] * 2
            elif step[0] == "add":
                a += step[2]
            elif step[0] == "mask":
                a[a > step[2]] = -step[2]
            else:
                arrays.append(a + 1)
        except IndexError:
            continue
    return [a + 0 for a in arrays]


@settings(max_examples=examples(150), deadline=None)
@given(steps())
def test_random_programs_interpreted(program: list[tuple[Any, ...]]) -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert_same(interpreted(lambda x: run(program, x), x), run(program, x))


@settings(max_examples=examples(25), deadline=None)
@given(steps())
def test_random_programs_compiled(program: list[tuple[Any, ...]]) -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert_same(kg.kernel_graph(lambda x: run(program, x), device="cpu")(x), run(program, x))


def test_arguments_that_share_no_byte_may_be_interleaved() -> None:
    def f(u: Any, v: Any) -> Any:
        u[:] = v + 1
        return v * 2

    whole, expected = np.arange(10.0), np.arange(10.0)
    result = kg.kernel_graph(device="cpu")(f)(whole[::2], whole[1::2])
    assert np.array_equal(result, f(expected[::2], expected[1::2])) and np.array_equal(whole, expected)
    z, expected = np.arange(4) * (1 + 2j), np.arange(4) * (1 + 2j)
    kg.kernel_graph(device="cpu")(f)(z.real, z.imag)
    f(expected.real, expected.imag)
    assert np.array_equal(z, expected)
    expected = whole.copy()
    with pytest.warns(UserWarning, match="runs in NumPy.*shares"):
        result = kg.kernel_graph(device="cpu")(f)(whole[1:], whole[:-1])
    assert np.array_equal(result, f(expected[1:], expected[:-1])) and np.array_equal(whole, expected)


def test_elements_of_an_argument_that_share_memory() -> None:
    """What NumPy does there depends on its order of writing."""

    def f(u: Any) -> Any:
        u[:] = u * 2

    a = np.arange(6.0)
    strided = np.lib.stride_tricks.as_strided
    for shape, strides in (((3, 2), (8, 8)), ((2, 3), (16, 8)), ((3, 2), (0, 8))):
        with pytest.raises(kg.ReadOnlyError, match="share memory"):
            kg.kernel_graph(device="cpu")(f)(strided(a, shape, strides))
    for legal in (strided(a, (2, 3), (24, 8)), a[::-2], a.reshape(2, 3).T, a[:0], a.reshape(2, 1, 3)[:, :, ::2]):
        kg.kernel_graph(device="cpu")(f)(legal)


@pytest.mark.parametrize("dtype", ["?", "f8", "c16"])
def test_the_conjugate_of_what_is_not_complex_is_the_array_itself(dtype: str) -> None:
    def function(u: Any) -> Any:
        method, ufunc = u.conj(), np.conj(u)
        u[0] = 1
        return method, ufunc, u.conjugate()

    same(function, X.astype(dtype))


# in place, in NumPy's ways


def product_in_place(a: Any, b: Any) -> Any:
    view = a[0]
    a @= b
    return view + 0


def two_results(a: Any, b: Any) -> Any:
    np.divmod(a, 2, out=(a, b))
    np.modf(b / 3, out=(b, a))
    mantissa = np.zeros((3, 3))
    np.frexp(a, out=(a, mantissa.astype("i4")))


def not_numbers(a: Any, b: Any) -> Any:
    same = np.nan_to_num(np.divide(a, b - b, out=a), copy=False, nan=-1.0)
    other = np.nan_to_num(a)
    other[0] = 5
    return same[0] + 0


def products_into(a: Any, b: Any) -> Any:
    np.matmul(a, b, out=b)
    np.matvec(a, b[0], out=a[0])
    np.vecmat(b[1], a, out=b[1])
    np.vecdot(a, b, out=a[:, 1])
    np.vecdot(a, b, axis=0, out=b[2])


def rows_by_computed_integers(a: Any, b: Any) -> Any:
    i, j = a.sum(1).argmax(), b[0].argmin() - 3
    row, column = a[i], a[:, j, None]
    row *= 2
    before = column + 0
    a[j, 1:] = -1
    row[1:][0] = b[i, j]
    column[1:] += 10
    at = a[i, j, ...]
    at[...] = 4
    b[i][::2] = row[::-2]
    return before, row, column, at, b[j]


def masks_and_integers(a: Any, b: Any) -> Any:
    i, mask = b.argmax(), a[0] > a[1]
    a[mask, i % 3] = -1
    a[i % 2, ~mask] = 7
    a[:, i % 2][mask] += 5
    return a[mask, i % 3].sum()


def halves(a: Any, b: Any) -> Any:
    z = a + 1j * b
    re, im = z.real, z.imag.T
    z[0] = 100 - 1j
    re[1] = np.nan
    im[:] += re.ravel()[2]
    z.real[:, 0] = np.inf
    z.imag = 3
    z.real *= 2
    return z, re + 0, im + 0, a.real is a


def shapes_assigned(a: Any, b: Any) -> Any:
    y = a.copy()
    other, view = y, y[1:]
    y.shape = (9,)
    flat = y[::2]
    y[0] = 50
    view[0] = 3
    other.shape = 3, 1, 3
    return y, view, flat, other.shape


def through_flat(a: Any, b: Any) -> Any:
    c = a.T
    part = c.flat[:4]
    c.flat[2:5] = [7, 8, 9]
    part[0] = 1000
    b.flat = [1, 2]
    return part, c.flat[3], b


def made_by_its_type(a: Any, b: Any) -> Any:
    c = np.empty_like(a.T)
    c.ravel()[:] = 1
    c.T.ravel()[:] = 2
    return c


IN_PLACE = [
    product_in_place, two_results, not_numbers, products_into, rows_by_computed_integers, masks_and_integers, halves,
    shapes_assigned, through_flat, made_by_its_type,
]  # fmt: skip


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place(function: Any, order: Any) -> None:
    with np.errstate(all="ignore"):
        rng = np.random.default_rng(1)
        given = [np.array(rng.integers(1, 9, (3, 3)), np.float64, order=order) for _ in range(2)]
        mine, reference = ([np.array(a, order=order) for a in given] for _ in range(2))
        expected = function(*reference)
        result = kg.kernel_graph(function, device="cpu")(*mine)
    assert_same(result, expected)
    for a, b in zip(mine, reference, strict=True):
        np.testing.assert_array_equal(a, b)


def test_arguments_of_another_layout_have_a_trace_of_their_own() -> None:
    """Whether a reshape is a view is asked only where something is assigned while it matters."""

    def writes(x: Any) -> Any:
        y = x.reshape(-1)
        y[0] = 9
        return y

    decorated, reading = (
        kg.kernel_graph(writes, device="cpu"),
        kg.kernel_graph(lambda x: x.reshape(-1) + 1, device="cpu"),
    )
    for layout in (X.copy(), np.asfortranarray(X), np.repeat(X, 2, 0)[::2], X.copy(), kg.asarray(X, device="cpu")):
        mine, reference = (np.array(layout, order="K") if isinstance(layout, np.ndarray) else layout for _ in range(2))
        if isinstance(layout, np.ndarray):
            assert_same(decorated(mine), writes(reference))
            np.testing.assert_array_equal(mine, reference)
        else:
            decorated(layout)
            assert np.asarray(layout)[0, 0] == 9
        reading(layout)
    assert decorated.why().count("traced for") == 2 and reading.why().count("traced for") == 1


@pytest.mark.usefixtures("refusing")
def test_a_shape_of_an_argument_is_the_callers() -> None:
    def function(x: Any) -> Any:
        x.shape = (24,)
        return x + 0

    with pytest.raises(kg.TraceError, match="caller's"):
        kg.kernel_graph(function, device="cpu")(X.copy())


def test_a_computed_integer_out_of_range_is_reported() -> None:
    def function(x: Any) -> Any:
        x[x.argmax() + 20][0] = 1
        return x

    with pytest.raises(IndexError):
        np.asarray(kg.kernel_graph(function, device="cpu")(X.copy()))


PLACES: dict[str, Callable[..., Any]] = {
    "channels": lambda z, a, b, c: (
        _put(z, np.s_[..., 2], a),
        _put(z, np.s_[..., 0], b),
        _put(z, np.s_[..., 1], c),
    ),
    "pairs": lambda z, a, b, c: (_put(z[..., :2], np.s_[..., 1], b), _put(z, np.s_[..., ::2], np.stack([a, c], -1))),
    "rows": lambda z, a, b, c: (_put(z, np.s_[1:], a[1:, :, None]), _put(z, np.s_[:1], b[:1, :, None])),
    "every other row": lambda z, a, b, c: (
        _put(z, np.s_[::2], a[::2, :, None]),
        _put(z, np.s_[1::2], c[1::2, :, None]),
    ),
    "twice": lambda z, a, b, c: (
        _put(z, np.s_[..., 0], a),
        _put(z, np.s_[..., 0], b),
        _put(z, np.s_[..., 1:], c[..., None]),
    ),
    "most": lambda z, a, b, c: (_put(z, np.s_[..., 0], a), _put(z, np.s_[..., 2], b)),
}


def _put(z: Any, key: Any, value: Any) -> None:
    z[key] = value


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "?", "c8"])
@pytest.mark.parametrize("name", PLACES)
def test_assigned_parts_that_lie_side_by_side(name: str, dtype: str) -> None:
    def parts(a, b, c):
        a, b, c = a.astype(dtype), b.astype(dtype), c.astype(dtype)
        z = np.full((*a.shape, 3), 7, dtype)
        old = z[..., 1] * 1
        PLACES[name](z, a, b, c)
        return z, old

    for shape in ((6, 5), (4, 301)):
        arrays = [np.random.default_rng(i).integers(-9, 9, shape) for i in range(3)]
        for found, wanted in zip(kg.kernel_graph(parts, device="cpu")(*arrays), parts(*arrays), strict=True):
            np.testing.assert_array_equal(np.asarray(found), wanted)


def test_an_argument_that_was_assigned_to_in_another_order() -> None:
    def function(x: Any) -> Any:
        x += 1
        return np.asfortranarray(x), np.ascontiguousarray(x.T)

    mine, theirs = np.ones((3, 4)), np.ones((3, 4))
    for got, want in zip(kg.kernel_graph(function, device="cpu")(mine), function(theirs), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("value", [[[3]], [np.array([3])], np.array([[3.0]]), [[3, 4]], [3], [np.array(3)]], ids=repr)
def test_a_mask_of_all_axes_takes_values_in_one_axis(value: Any) -> None:
    def assigning(x: Any) -> Any:
        x[x > 2] = value
        return x

    try:
        want = assigning(np.arange(4.0))
    except TypeError:
        with pytest.raises(TypeError, match="values in one axis"):
            kg.kernel_graph(assigning, device="cpu")(np.arange(4.0))
    else:
        np.testing.assert_array_equal(np.asarray(kg.kernel_graph(assigning, device="cpu")(np.arange(4.0))), want)


def test_an_argument_of_no_axis_is_out_of_a_product() -> None:
    """Its layout is known, and is not asked for without end."""

    def squared(a: Any, b: Any) -> Any:
        return np.dot(b, b, out=a)

    a = np.array(3, "i1")
    np.testing.assert_array_equal(kg.kernel_graph(squared, device="cpu")(a, np.array(2, "i1")), 4)
    assert a == 4


def _of_known(a: Any, v: Any) -> None:
    a[[True, False, True][: a.shape[0]]] = v


ASSIGNING: dict[str, Callable[[Any, Any], Any]] = {
    "x[x > 0]": lambda a, v: a.__setitem__(a > 0, v),
    "x[x[:, 0] > 0]": lambda a, v: a.__setitem__(a[:, 0] > 0, v),
    "x[x.sum(1) > 0]": lambda a, v: a.__setitem__(a.sum(1) > 0, v),
    "x[list]": _of_known,
    "place": lambda a, v: np.place(a, a > 0, v),
    "copyto": lambda a, v: np.copyto(a, v, where=a > 0),
}
VALUES = [(), (0,), (1,), (2,), (3,), (2, 0), (0, 0), (0, 3), (2, 3), (1, 3), (2, 1), (1, 1), (1, 1, 2)]


@pytest.mark.parametrize("way", ASSIGNING)
@pytest.mark.parametrize("options", [{}, {"untraceable": "split"}], ids=str)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_of_any_shape_for_a_mask_are_taken_or_refused_as_in_numpy(way: str, options: Any) -> None:
    def assigning(a: Any, v: Any) -> Any:
        a = a * 1
        ASSIGNING[way](a, v)
        return a

    decorated = kg.kernel_graph(assigning, device="cpu", **options)
    for shape in [(3, 0), (0, 3), (3, 2), (3, 1), (0,), (3,)]:
        for value in VALUES:
            x, v = np.arange(np.prod(shape)).reshape(shape) - 1.0, np.arange(np.prod(value)).reshape(value) + 5.0
            try:
                want = assigning(x, v)
            except Exception:
                with pytest.raises(Exception):  # noqa: B017
                    np.asarray(decorated(x, v))
                continue
            try:
                np.testing.assert_array_equal(np.asarray(decorated(x, v)), want)
            except kg.KernelGraphError:  # values of no element that fit by the number of places alone
                assert not v.size


@pytest.mark.parametrize("shape", [(0, 3), (3,)])
@pytest.mark.parametrize("way", ["slice", "same", "add"])
def test_what_is_read_only_is_so_through_a_reshape(shape: Any, way: str) -> None:
    def assigning(a: Any) -> Any:
        b = a.reshape(-1)
        if way == "slice":
            b[1:] = 0.5
        elif way == "same":
            b[...] = b
        else:
            b += 1
        return b

    x = np.broadcast_to(np.zeros(shape), (2, *shape))
    try:
        want = assigning(x)
    except ValueError:
        with pytest.raises(ValueError, match="read-only"):
            kg.kernel_graph(assigning, device="cpu")(x)
    else:
        np.testing.assert_array_equal(kg.kernel_graph(assigning, device="cpu")(x), want)


EINSUMS = [
    *("ij->ji", "ij", "ii->i", "ij->ij", "ji", "i...->...i", "...ij->...ji", "...ii->...i", "i...i->...i"),
    *("ij->i", "ii", "ij->", "...->...", "...ij->...j"),
]


@pytest.mark.parametrize("subscripts", EINSUMS)
@pytest.mark.parametrize("options", [{}, {"dtype": "f4", "casting": "unsafe"}, {"optimize": True}], ids=str)
def test_einsum_of_one_array_without_a_sum_is_a_view(subscripts: str, options: Any) -> None:
    def assigning(a: Any) -> Any:
        found = np.einsum(subscripts, a, **options)
        if found.ndim:
            found[1:] = -1
            found[0] += 5
        return a, found

    for shape in [(3, 3), (2, 3, 3), (3, 2, 3)]:
        x = np.arange(np.prod(shape), dtype=float).reshape(shape)
        for laid in (x, x[..., ::-1], np.asfortranarray(x)):
            mine, theirs = laid.copy("K"), laid.copy("K")
            try:
                want = assigning(theirs)
            except ValueError:
                with pytest.raises(ValueError):
                    kg.kernel_graph(assigning, device="cpu")(mine)
                continue
            got = kg.kernel_graph(assigning, device="cpu")(mine)
            for g, w in zip((*got, mine), (*want, theirs), strict=True):
                np.testing.assert_array_equal(np.asarray(g), w, strict=True)


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "c16"])
@pytest.mark.parametrize(
    "layout", [lambda x: x, lambda x: x.T, lambda x: x[:, ::2], lambda x: x[::-1], lambda x: x[:1].T]
)
def test_other_sizes_of_elements_want_a_contiguous_last_axis(dtype: str, layout: Any) -> None:
    def assigning(a: Any) -> Any:
        b = a.view(dtype)
        b[0] = 1
        return b * 1

    mine, theirs = layout(np.arange(16.0).reshape(4, 4)), layout(np.arange(16.0).reshape(4, 4))
    try:
        want = assigning(theirs)
    except ValueError:
        with pytest.raises(ValueError, match="last axis"):
            kg.kernel_graph(assigning, device="cpu")(mine)
    else:
        np.testing.assert_array_equal(np.asarray(kg.kernel_graph(assigning, device="cpu")(mine)), want, strict=True)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("key", [[0, 1], (slice(None), [0, 2]), (slice(None), [0, 5]), ([], [0]), (..., 0)], ids=str)
@pytest.mark.parametrize("ufunc", [np.add, np.subtract], ids=["add", "subtract"])
@pytest.mark.parametrize(
    "x", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((0, 3), bool)], ids=["rows", "columns", "bool"]
)
def test_at_of_no_elements_raises_what_numpy_raises(key: Any, ufunc: Any, x: Any) -> None:
    def assigning(a: Any) -> Any:
        ufunc.at(a, key, True)
        return a

    try:
        want = assigning(x.copy())
    except Exception as error:
        with pytest.raises(type(error)):
            kg.kernel_graph(assigning, device="cpu")(x.copy())
    else:
        np.testing.assert_array_equal(kg.kernel_graph(assigning, device="cpu")(x.copy()), want)


def test_the_result_of_einsum_is_cast_to_out_as_casting_says() -> None:
    def summed(a: Any, out: Any, casting: str) -> Any:
        return np.einsum("ij->i", a, out=out, casting=casting)

    a, narrow = np.arange(6.0).reshape(2, 3), np.zeros(2, "f4")
    with pytest.raises(TypeError, match="cast"):
        summed(a, narrow, "safe")
    with pytest.raises(TypeError, match="cannot cast float64 to float32 of out="):
        kg.kernel_graph(summed, device="cpu")(a, narrow, "safe")
    assert not narrow.any()
    kg.kernel_graph(summed, device="cpu")(a, narrow, "same_kind")
    np.testing.assert_array_equal(narrow, [3, 12])
