"""All modules with rows of the tables of what can be traced."""

# ruff: noqa: F401
from __future__ import annotations

from ..trace import numpy_fallback, view_rules
from . import (
    bitcast,
    calculus,
    composites,
    creation,
    cumulative,
    einsum,
    elementwise,
    fft,
    histograms,
    joining,
    least_squares,
    linalg,
    manipulation,
    norms,
    numpy_creation,
    operators,
    products,
    reductions,
    selection,
    sliding_window,
    sorting,
    statistics,
    topk,
    ufunc_methods,
    unsupported,
    views,
)
