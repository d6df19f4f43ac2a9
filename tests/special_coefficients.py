"""Writes `compiler/ops/special_coefficients.py`: Chebyshev series of special functions, computed with mpmath.

    python -m tests.special_coefficients

A series is that of a smooth part of a function over one interval, mapped to [-1, 1]; `compiler/ops/special.py` says how
the function is made of it. Terms below 2**-57 of the largest are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath

OUTPUT = Path(__file__).parents[1] / "compiler" / "ops" / "special_coefficients.py"
DIGITS, NODES, LEAST = 50, 96, 2.0**-57

mpmath.mp.dps = DIGITS
Real = Any  # an mpmath number


def bessel_zeros(kind: Callable[..., Real], order: int) -> tuple[Real, Real]:
    return kind(order, 1), kind(order, 2)


def without_zeros(function: Callable[[Real], Real], zeros: tuple[Real, Real], x: Real) -> Real:
    return function(x) / ((x * x - zeros[0] ** 2) * (x * x - zeros[1] ** 2))


def modulus_parts(order: int, x: Real) -> tuple[Real, Real]:
    """P and Q of Hankel's expansions, J = sqrt(2 / (pi x)) (P cos chi - Q sin chi) (Abramowitz and Stegun 9.2.5)."""
    chi = x - (2 * order + 1) * mpmath.pi / 4
    size = mpmath.sqrt(mpmath.pi * x / 2)
    j, y = mpmath.besselj(order, x), mpmath.bessely(order, x)
    return size * (j * mpmath.cos(chi) + y * mpmath.sin(chi)), size * (y * mpmath.cos(chi) - j * mpmath.sin(chi))


def near_j(order: int) -> Callable[[Real], Real]:
    zeros = bessel_zeros(mpmath.besseljzero, order)

    def value(t: Real) -> Real:
        x = mpmath.sqrt(32 * (t + 1)) or mpmath.mpf("1e-30")
        return without_zeros(lambda x: mpmath.besselj(order, x) / x**order, zeros, x)

    return value


def near_y(order: int) -> Callable[[Real], Real]:
    """What is left of Y without its logarithm and pole, over x**order."""

    def value(t: Real) -> Real:
        x = mpmath.sqrt(32 * (t + 1)) or mpmath.mpf("1e-12")
        rest = mpmath.bessely(order, x) - 2 / mpmath.pi * mpmath.log(x) * mpmath.besselj(order, x)
        return (rest + order * 2 / (mpmath.pi * x)) / x**order

    return value


def near_k(order: int) -> Callable[[Real], Real]:
    """K without its logarithm, times x**order."""

    def value(t: Real) -> Real:
        x = mpmath.sqrt(2 * (t + 1)) or mpmath.mpf("1e-12")
        log = mpmath.log(x / 2) * mpmath.besseli(order, x)
        return (mpmath.besselk(order, x) + (log if order == 0 else -log)) * x**order

    return value


def far(function: Callable[[Real], Real], nearest: float) -> Callable[[Real], Real]:
    """Of t = 2 nearest / x - 1, x from `nearest` on."""
    return lambda t: function(2 * nearest / (t + 1 or mpmath.mpf("1e-9")))


def far_squared(function: Callable[[Real], Real], nearest: float) -> Callable[[Real], Real]:
    """Of t = 2 (nearest / x)**2 - 1."""
    return lambda t: function(nearest * mpmath.sqrt(2 / (t + 1 or mpmath.mpf("1e-8"))))


ROOT = mpmath.mpf("1.46163214496836234126265954232572132846819620400644629512959840859878644")  # of digamma

# name -> the function of t
SERIES: dict[str, Callable[[Real], Real]] = {
    "I0_NEAR": lambda t: mpmath.exp(-4 * (t + 1)) * mpmath.besseli(0, 4 * (t + 1)),
    "I1_NEAR": lambda t: mpmath.exp(-4 * (t + 1)) * (mpmath.besseli(1, 4 * (t + 1)) / (4 * (t + 1)) if t > -1 else 0.5),
    "I0_FAR": far(lambda x: mpmath.sqrt(x) * mpmath.exp(-x) * mpmath.besseli(0, x), 8),
    "I1_FAR": far(lambda x: mpmath.sqrt(x) * mpmath.exp(-x) * mpmath.besseli(1, x), 8),
    "K0_NEAR": near_k(0),
    "K1_NEAR": near_k(1),
    "K0_FAR": far(lambda x: mpmath.sqrt(x) * mpmath.exp(x) * mpmath.besselk(0, x), 2),
    "K1_FAR": far(lambda x: mpmath.sqrt(x) * mpmath.exp(x) * mpmath.besselk(1, x), 2),
    "J0_NEAR": near_j(0),
    "J1_NEAR": near_j(1),
    "Y0_NEAR": near_y(0),
    "Y1_NEAR": near_y(1),
    "P0": far_squared(lambda x: modulus_parts(0, x)[0], 8),
    "Q0": far_squared(lambda x: modulus_parts(0, x)[1] * x, 8),
    "P1": far_squared(lambda x: modulus_parts(1, x)[0], 8),
    "Q1": far_squared(lambda x: modulus_parts(1, x)[1] * x, 8),
    "ERFCX": lambda t: 1 if t == 1 else scaled_erfc(mpmath.mpf("3.75") * (1 + t) / (1 - t)),
    "DIGAMMA": lambda t: mpmath.digamma((t + 3) / 2) / ((t + 3) / 2 - ROOT),
}


def scaled_erfc(x: Real) -> Real:
    """(1 + 2x) exp(x**2) erfc(x) (Shepherd and Laframboise 1981)."""
    return (1 + 2 * x) * (
        mpmath.exp(x * x) * mpmath.erfc(x) if x < 1e4 else (1 - 0.5 / x**2) / x / mpmath.sqrt(mpmath.pi)
    )


def chebyshev_series(function: Callable[[Real], Real], nodes: int = NODES) -> list[float]:
    """Its coefficients, the first one halved, by the values at Chebyshev's nodes."""
    with mpmath.workdps(DIGITS):
        angles = [mpmath.pi * (k + 0.5) / nodes for k in range(nodes)]
        values = [function(mpmath.cos(a)) for a in angles]
        found = []
        for n in range(nodes):
            c = mpmath.fsum(v * mpmath.cos(n * a) for v, a in zip(values, angles, strict=True)) * 2 / nodes
            found.append(float(c / 2 if n == 0 else c))
    least = LEAST * max(map(abs, found))
    last = max(n for n, c in enumerate(found) if abs(c) > least)
    return found[: last + 1]


def text() -> str:
    lines = [
        '"""Chebyshev series of parts of special functions. Written by `python -m tests.special_coefficients`."""',
        "",
    ]
    with mpmath.workdps(DIGITS):
        for order, kind in ((0, mpmath.besseljzero), (1, mpmath.besseljzero)):
            squares = tuple(z * z for z in bessel_zeros(kind, order))
            pairs = tuple((float(z), float(z - mpmath.mpf(float(z)))) for z in squares)
            lines.append(f"J{order}_ZEROS_SQUARED = {pairs}  # each as a sum of two numbers")
        high = float(ROOT)
        lines.append(f"DIGAMMA_ROOT = {(high, float(ROOT - mpmath.mpf(high)))}")
    for name, function in SERIES.items():
        series = chebyshev_series(function)
        print(name, len(series))
        lines.append(f"{name} = ({', '.join(map(repr, series))})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
