"""Convolutions and correlations of every mode, the longer array first or second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .derivatives import check_function

rng = np.random.default_rng(0)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("function", [np.convolve, np.correlate])
@pytest.mark.parametrize("lengths", [(7, 3), (7, 4), (3, 7), (4, 7), (4, 4), (5, 5), (6, 1), (1, 6)])
def test_convolutions(function: Any, mode: str, lengths: tuple[int, int]) -> None:
    x, w = (rng.normal(size=n) for n in lengths)
    check_function(lambda x, w: function(x, w, mode), x, w)
    check_function(lambda x, w: function(x, w, mode), x + 1j * x[::-1] ** 2, w, order=1)
    check_function(lambda x, w: function(x, w, mode), x, w - 1j * w**2, order=1)
    check_function(lambda w: function(w, np.arange(3), mode), w, order=1)
    check_function(lambda x, w: function(x, w, mode), x.astype(np.float32), w, order=1, differences=False)
