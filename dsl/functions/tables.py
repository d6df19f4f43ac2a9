"""All modules with rows of the tables of what can be traced; see `dispatch.fill_tables`."""

# ruff: noqa: F401
from __future__ import annotations

from ..environment import numpy_proxy
from ..trace import view_rules
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
