"""Functions of scipy.special with kernels: dtypes, values beside mpmath, derivatives, and what only shares a name."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.ops.special import SPECIAL_FUNCTIONS

special = pytest.importorskip("scipy.special")

OTHERS = ("erf", "erfc", "exp2", "expm1", "log1p", "cbrt", "gammaln", "expit")
NAMES = (*SPECIAL_FUNCTIONS, *OTHERS)


def compiled(name: str) -> kg.KernelGraph[Any, Any]:
    ufunc = getattr(special, name)
    return kg.kernel_graph(lambda *args: ufunc(*args), device="cpu", untraceable="refuse")


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_scipys(name: str) -> None:
    ufunc = getattr(special, name)
    for letter in "efdbBhilq?":
        args = [np.full(3, 1, letter)] * ufunc.nin
        assert np.asarray(compiled(name)(*args)).dtype == ufunc(*args).dtype, letter
    if ufunc.nin == 2:
        mixed = (np.full(3, 0.5, "f"), 2.0)
        assert np.asarray(compiled(name)(*mixed)).dtype == ufunc(*mixed).dtype


def entropy(x: Any) -> Any:
    return -x * mpmath.log(x)


# name -> (the function, arguments): values and derivatives to the second order are compared.
MEANINGS: dict[str, tuple[Any, list[tuple[float, ...]]]] = {
    "gamma": (mpmath.gamma, [(x,) for x in (-2.5, 0.1, 1.7, 30.2)]),
    "rgamma": (mpmath.rgamma, [(x,) for x in (-2.5, 0.1, 1.7, 30.2)]),
    "psi": (mpmath.digamma, [(x,) for x in (-3.3, 0.2, 1.4616, 1.9, 2.5, 40.0)]),
    "beta": (
        mpmath.beta,
        [(0.3, 2.5), (-0.5, 1.7), (30.0, 12.2), (200.0, 3.5), (1e7, 0.3), (12.0, 180.0), (-0.5, 250.0)],
    ),
    "betaln": (
        lambda a, b: mpmath.log(abs(mpmath.beta(a, b))),
        [(0.3, 2.5), (30.0, 12.2), (300.0, 300.5), (1e7, 0.3), (-2.5, 1.2), (-0.5, 250.0)],
    ),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [(x,) for x in (-3.0, 0.0, 0.5, 4.0, 50.0)]),
    "erfinv": (mpmath.erfinv, [(x,) for x in (-0.99, 1e-9, 0.3, 0.84, 0.999999)]),
    "erfcinv": (lambda x: mpmath.erfinv(1 - mpmath.mpf(x)), [(x,) for x in (1e-12, 0.2, 1.0001, 1.7)]),
    "ndtr": (mpmath.ncdf, [(x,) for x in (-9.0, -1.0, 0.0, 0.4, 3.0)]),
    "ndtri": (
        lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1),
        [(x,) for x in (1e-9, 0.2, 0.5001, 0.97)],
    ),
    "log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), [(x,) for x in (-40.0, -1.2, 0.3, 5.0)]),
    "logit": (lambda x: mpmath.log(x / (1 - x)), [(x,) for x in (0.01, 0.31, 0.52, 0.9)]),
    "log_expit": (lambda x: -mpmath.log1p(mpmath.exp(-x)), [(x,) for x in (-30.0, -0.5, 0.0, 7.0)]),
    "entr": (entropy, [(x,) for x in (0.01, 1.0, 3.0)]),
    "xlogy": (lambda x, y: x * mpmath.log(y), [(0.5, 0.2), (2.0, 3.0)]),
    "xlog1py": (lambda x, y: x * mpmath.log1p(y), [(0.5, 1e-9), (2.0, 3.0)]),
    "rel_entr": (lambda x, y: x * mpmath.log(x / y), [(0.5, 0.2), (2.0, 2.1)]),
    "kl_div": (lambda x, y: x * mpmath.log(x / y) - x + y, [(0.5, 0.2), (2.0, 3.0)]),
    **{
        f"{letter}{order}": ((lambda x, f=function, n=order: f(n, x)), [(x,) for x in places])
        for letter, function, places in (
            ("i", mpmath.besseli, (-3.0, 1e-9, 0.7, 7.9, 8.1, 40.0)),
            ("k", mpmath.besselk, (0.1, 1.9, 2.1, 30.0)),
            ("j", mpmath.besselj, (-3.0, 1e-9, 2.4, 3.83, 7.9, 8.1, 90.0)),
            ("y", mpmath.bessely, (0.1, 0.9, 2.2, 7.9, 8.1, 90.0)),
        )
        for order in (0, 1)
    },
    **{
        f"i{order}e": (
            (lambda x, n=order: mpmath.exp(-abs(x)) * mpmath.besseli(n, x)),
            [(-3.0,), (0.7,), (9.0,), (400.0,)],
        )
        for order in (0, 1)
    },
    **{
        f"k{order}e": ((lambda x, n=order: mpmath.exp(x) * mpmath.besselk(n, x)), [(0.1,), (1.9,), (2.1,), (400.0,)])
        for order in (0, 1)
    },
    "exp10": (lambda x: mpmath.power(10, x), [(-3.5,), (0.3,)]),
    "cosm1": (lambda x: mpmath.cos(x) - 1, [(1e-9,), (0.3,), (2.0,)]),
    "exprel": (lambda x: mpmath.expm1(x) / x, [(-2.0,), (1e-7,), (0.9,), (1.1,), (20.0,)]),
    "boxcox": (lambda x, p: (mpmath.power(x, p) - 1) / p, [(0.3, 0.5), (4.0, -1.5), (2.0, 1e-7)]),
    "boxcox1p": (lambda x, p: (mpmath.power(1 + x, p) - 1) / p, [(0.3, 0.5), (4.0, -1.5), (2.0, 1e-7)]),
    "inv_boxcox": (lambda y, p: mpmath.power(1 + p * y, 1 / p), [(0.3, 0.5), (0.2, -1.5), (2.0, 1e-7)]),
    "inv_boxcox1p": (lambda y, p: mpmath.power(1 + p * y, 1 / p) - 1, [(0.3, 0.5), (0.2, -1.5), (2.0, 1e-7)]),
    "huber": (lambda b, x: x * x / 2 if abs(x) <= b else b * (abs(x) - b / 2), [(1.0, 0.4), (1.0, -3.0)]),
    "pseudo_huber": (lambda b, x: b * b * (mpmath.sqrt(1 + (x / b) ** 2) - 1), [(1.0, 0.4), (2.0, -30.0)]),
}


def test_every_function_is_compared() -> None:
    assert MEANINGS.keys() == SPECIAL_FUNCTIONS.keys()
    assert all(isinstance(getattr(special, name), np.ufunc) for name in NAMES)


@pytest.mark.parametrize("name", MEANINGS)
def test_values_and_derivatives_beside_mpmath(name: str) -> None:
    meaning, places = MEANINGS[name]
    f = compiled(name)
    count = len(places[0])
    columns = [np.array(c) for c in zip(*places, strict=True)]
    with mpmath.workdps(40):
        want = [float(meaning(*map(mpmath.mpf, place))) for place in places]
        np.testing.assert_allclose(np.asarray(f(*columns)), want, rtol=4e-14, atol=4e-16)
        for k in range(count):
            first = kg.kernel_graph(kg.grad(lambda *xs: f(*xs).sum(), argnums=k), device="cpu")
            second = kg.kernel_graph(kg.grad(lambda *xs, g=first: g(*xs).sum(), argnums=k), device="cpu")
            for order, function in ((1, first), (2, second)):
                exact = [
                    float(mpmath.diff(meaning, place, tuple(order * (k == j) for j in range(count))))
                    for place in (tuple(map(mpmath.mpf, p)) for p in places)
                ]
                found = np.asarray(function(*columns))
                scale = np.maximum(np.abs(exact), np.abs(want))
                np.testing.assert_allclose(found / scale, np.array(exact) / scale, rtol=2e-9, atol=2e-11)


def test_out_and_where() -> None:
    """SciPy 1.17 writes elsewhere under a mask that is no run: what its function would give is chosen by hand."""
    x, mask = np.linspace(0.1, 5, 7), np.arange(7) % 2 == 0

    def program(x: Any, mask: Any, out: Any) -> Any:
        special.i0(x, out=out, where=mask)
        return special.xlogy(x, out) + special.psi(x, dtype=np.float32)

    ours, theirs = np.ones(7), np.where(mask, special.i0(x), 1.0)
    found = kg.kernel_graph(program, device="cpu")(x, mask, ours)
    np.testing.assert_allclose(found, special.xlogy(x, theirs) + special.psi(x, dtype=np.float32), rtol=1e-6)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_ufuncs_of_others_with_the_same_name_run_in_numpy() -> None:
    def i0(x: float) -> float:
        return x + 1

    other = np.frompyfunc(i0, 1, 1)
    assert other.__name__.startswith("i0")
    with pytest.warns(UserWarning, match="runs in NumPy"):
        assert kg.kernel_graph(lambda x: other(x).astype(float), device="cpu")(np.ones(2)).tolist() == [2.0, 2.0]


def test_beta_at_poles_zeros_and_infinities() -> None:
    values = np.array([-np.inf, -3.0, -2.5, -2.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 4.0, 300.0, 1e9, np.inf, np.nan])
    a, b = (part.ravel() for part in np.meshgrid(values, values))
    for name, atol in (("beta", 1e-300), ("betaln", 1e-14)):
        np.testing.assert_allclose(compiled(name)(a, b), getattr(special, name)(a, b), rtol=1e-9, atol=atol)


FAMILY = ("softmax", "log_softmax", "logsumexp")
ROWS = np.random.default_rng(3).normal(size=(3, 4, 2)) * 30


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("letter", "efdiq")
def test_the_softmax_family_is_scipys(name: str, letter: str) -> None:
    function, x = getattr(special, name), ROWS.astype(letter)
    for axis in (None, 0, -1, (0, 2)):
        f = kg.kernel_graph(lambda x, axis=axis: function(x, axis=axis), device="cpu", untraceable="refuse")
        want, found = function(x, axis=axis), np.asarray(f(x))
        assert found.dtype == want.dtype and found.shape == np.shape(want)
        tolerance = {"e": 2e-2, "f": 2e-5}.get(want.dtype.char, 1e-13)
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance * 1e-2)


def test_the_softmax_family_under_every_name() -> None:
    import scipy
    from scipy.special import logsumexp

    def program(x: Any) -> Any:
        return scipy.special.softmax(x, 1) + special.log_softmax(x, axis=0) + logsumexp(x, axis=1, keepdims=True)

    x = ROWS[:, :, 0]
    np.testing.assert_allclose(kg.kernel_graph(program, device="cpu", untraceable="refuse")(x), program(x), rtol=1e-12)
    constant = kg.kernel_graph(lambda x: x + special.softmax(np.ones(4)), device="cpu", untraceable="refuse")
    assert constant(np.zeros(4)).tolist() == [0.25] * 4


TERMS = {
    "cancelled": ([1.0, 1.0], [1.0, -1.0]),
    "cancelled largest": ([1.0, 1.0, 0.0], [1.0, -1.0, 1.0]),
    "nothing": ([-np.inf, -np.inf], None),
    "infinite": ([np.inf, 1.0], None),
    "both infinities": ([np.inf, -np.inf], [1.0, -1.0]),
    "nan": ([np.nan, 1.0], None),
    "negative": ([1.0, 2.0], [-1.0, -2.0]),
    "little beside much": ([0.0, -40.0], None),
    "large": ([1e4, 1e4 + 1], None),
    "no weight": ([np.inf, 1.0], [0.0, 2.0]),
    "integers": ([1, 2], [3, -1]),
    "number": ([1.0, 2.0], 2),
}


@pytest.mark.parametrize("name", TERMS)
def test_weighted_and_special_logsumexp(name: str) -> None:
    terms, weights = TERMS[name]
    for sign in (False, True):
        for keepdims in (False, True):
            options: Any = {"return_sign": sign, "keepdims": keepdims}

            def program(a: Any, b: Any, options: Any = options) -> Any:
                return special.logsumexp(a, b=b, **options)

            given = np.array(terms), np.array(weights) if isinstance(weights, list) else weights
            with np.errstate(all="ignore"):
                want = program(*given)
            found = kg.kernel_graph(program, device="cpu", untraceable="refuse")(*given)
            pairs = zip(found, want, strict=True) if sign else [(found, want)]
            for a, b in pairs:
                np.testing.assert_allclose(a, b, rtol=1e-13)
                assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)


@pytest.mark.parametrize("name", FAMILY)
def test_derivatives_of_the_softmax_family(name: str) -> None:
    function, x = getattr(special, name), np.array([0.3, -1.2, 2.0, 2.0, -900.0])
    weights = np.array([1.0, -2.0, 0.5, 3.0, 1.0])

    def loss(x: Any) -> Any:
        return (function(x) * (weights if name != "logsumexp" else 1.0)).sum()

    def exact(x: Any) -> Any:
        terms = [mpmath.exp(v) for v in x]
        total = mpmath.fsum(terms)
        if name == "logsumexp":
            return mpmath.log(total)
        parts = terms if name == "softmax" else [mpmath.log(t / total) * total for t in terms]
        return mpmath.fsum(float(w) * p / total for w, p in zip(weights, parts, strict=True))

    found = np.asarray(kg.kernel_graph(kg.grad(loss), device="cpu", untraceable="refuse")(x))
    with mpmath.workdps(500):
        for k in range(len(x)):
            step = mpmath.mpf(10) ** -60
            moved = [[mpmath.mpf(v) + (step * side if j == k else 0) for j, v in enumerate(x)] for side in (1, -1)]
            np.testing.assert_allclose(found[k], float((exact(moved[0]) - exact(moved[1])) / (2 * step)), atol=1e-13)


def test_complex_logsumexp_runs_in_numpy() -> None:
    z = np.array([1 + 2j, 0.5])
    with pytest.warns(UserWarning, match="logsumexp of complex numbers cannot be traced"):
        found = kg.kernel_graph(lambda z: special.logsumexp(z), device="cpu")(z)
    np.testing.assert_allclose(found, special.logsumexp(z))
