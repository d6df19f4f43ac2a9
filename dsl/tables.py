"""All modules with rows of the tables of what can be traced; see `dispatch.fill_tables`."""

# ruff: noqa: F401
from __future__ import annotations

from . import (
    bits,
    calculus,
    counting,
    creation,
    einsum,
    elementwise,
    formulas,
    fourier,
    joins,
    least_squares,
    linalg,
    linear,
    norms,
    numpy_inside,
    operators,
    reductions,
    refusals,
    scans,
    selection,
    shaping,
    sharing,
    sorting,
    statistics,
    topk,
    ufunc_methods,
    views,
    windows,
)
