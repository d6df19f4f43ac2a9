"""NumPy's functions that cannot be traced although they have a place in `kg.*`: why, and what to write instead."""

from __future__ import annotations

import numpy as np

from ..trace.dispatch import REFUSED
from .sorting import unique_values

_SHAPE = "the shape of its result depends on data; "
_INSTEAD = {
    "nonzero argwhere flatnonzero": (
        "write np.where(mask, a, b), for np.where(mask) is np.nonzero(mask), or a reduction with where=mask; or "
        "decorate with @kg.kernel_graph(untraceable='split')"
    ),
    "extract": "write np.where(condition, x, 0), or a reduction with where=condition",
    "unique unique_all unique_counts unique_inverse unique_values union1d intersect1d setdiff1d setxor1d": (
        "call it on the result, outside of the traced function; np.isin and np.sort can be traced"
    ),
    "trim_zeros": "call it on the result, outside of the traced function",
    "polymul": "write np.convolve(a, b), which keeps leading zeros",
    "roots": "np.linalg.eigvals of the companion matrix can be traced",
}
_OTHER = {
    np.real_if_close: "the dtype of its result depends on data; write x.real",
    np.polydiv: _SHAPE + "call it outside of the traced function",
    np.poly: "its result's dtype depends on data; call it outside of the traced function",
    np.vectorize: "write the function with whole-array operations",
    np.nditer: "write whole-array operations, or for i in np.ndindex(x.shape): x[i]",
    np.array2string: "print the result, outside of the traced function",
    np.array_repr: "print the result, outside of the traced function",
    np.array_str: "print the result, outside of the traced function",
    np.shares_memory: "traced values have no memory yet; copy with x.copy() where it matters",
    np.may_share_memory: "traced values have no memory yet; copy with x.copy() where it matters",
    np.lib.stride_tricks.as_strided: "write slices, or np.lib.stride_tricks.sliding_window_view",
    np.packbits: "write sums of x.reshape(-1, 8) << np.arange(8)",
    np.unpackbits: "write x[:, None] >> np.arange(8) & 1",
}

EXPOSED = [getattr(np, name) for names in _INSTEAD for name in names.split()]  # `kg.*` has them for arrays
EXPOSED += [np.polydiv, np.poly, np.real_if_close]
for _names, _instead in _INSTEAD.items():
    for _name in _names.split():
        REFUSED[getattr(np, _name)] = _SHAPE + _instead
REFUSED.update(_OTHER)
REFUSED[unique_values] = REFUSED[np.unique_values]
