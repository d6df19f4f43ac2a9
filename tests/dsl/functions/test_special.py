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
