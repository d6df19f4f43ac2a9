"""Fourier transforms: both modes against differences, at lengths that cut and extend, by every scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .derivatives import check_function

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 5, 4))
WAYS = [(None, (0, 2)), ((4, 3), (1, 2)), ((2, -1), (2, 0)), ((3, 4), (1, 1)), (None, (0, 0))]


def squared(function: Any, *args: Any, **options: Any) -> Any:
    """So that the second order is not zero."""

    def f(x: Any) -> Any:
        y = function(x, *args, **options)
        return y * y

    return f


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 3, 6, 7])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name: str, n: int | None, norm: str | None) -> None:
    function = squared(getattr(np.fft, name), n, 1, norm)
    check_function(function, X)
    if name not in ("rfft", "ihfft"):
        check_function(function, X + 1j * Y)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("s, axes", WAYS)
@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "rfftn", "irfftn"])
def test_several_axes(name: str, s: Any, axes: Any, norm: str | None) -> None:
    function = squared(getattr(np.fft, name), s, axes, norm)
    if not name.startswith("r"):
        check_function(function, X + 1j * Y, order=1)
    elif len(set(axes)) == 2:
        check_function(function, X, order=1)


def test_default_axes() -> None:
    check_function(squared(np.fft.irfftn), X + 1j * Y)
    check_function(squared(np.fft.rfftn), X)
    check_function(squared(lambda x: np.fft.fftshift(np.fft.fft2(x))), X)


def test_single_precision_stays() -> None:
    x = X.astype(np.float32)
    for function in (np.fft.rfft, np.fft.fft):
        check_function(function, x, differences=False)
    check_function(np.fft.irfft, (X + 1j * Y).astype(np.complex64), differences=False)
