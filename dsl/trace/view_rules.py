"""Which of NumPy's functions give views, which copies, and in which order of memory: one row for each.

A copy is made an array of its own here, however we come by its values; a row that is checked against NumPy says how it
lies in memory, on which depends whether its reshape is a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .aliasing import memory_layout_of, ufunc_result_layout
from .dispatch import GIVES
from .memory_layout import C, CommonOrderLayout, CopyLayout, MemoryLayout, UnknownLayout, has_one_dense_layout
from .tracer import SCALAR, Tracer

Order = Callable[[Sequence[Tracer]], MemoryLayout | None]  # the arrays that a copy is made of -> how it lies


def _layout_like_first(arrays: Sequence[Tracer]) -> MemoryLayout | None:
    return CopyLayout((memory_layout_of(arrays[0]), arrays[0]._held.type)) if arrays else C


def _common_layout(arrays: Sequence[Tracer]) -> MemoryLayout | None:
    return CommonOrderLayout(*((memory_layout_of(x), x._held.type) for x in arrays))


def _unknown_layout(arrays: Sequence[Tracer]) -> MemoryLayout | None:
    """Results that are parts of one array."""
    return UnknownLayout()


# views, arrays of other names, or views where NumPy can: these say so themselves, as do functions that take order=
VIEWS = """
    __getitem__ view T mT conj conjugate
    array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diag diagonal dsplit expand_dims flip
    fliplr flipud hsplit imag linalg.diagonal linalg.matrix_transpose matrix_transpose meshgrid moveaxis rollaxis real
    rot90 split squeeze swapaxes transpose permute_dims unstack vsplit ix_ lib.stride_tricks.sliding_window_view
    reshape ravel array asarray asanyarray ascontiguousarray asfortranarray require
    astype copy flatten zeros ones empty full zeros_like ones_like empty_like full_like eye ndarray nan_to_num
"""
COPIES: dict[Order | None, str] = {
    lambda arrays: C: """
        arange linspace identity indices tri fromiter
        take argsort argpartition argmax argmin bincount convolve correlate diagflat digitize
        ediff1d frombuffer histogram histogram2d histogram_bin_edges histogramdd interp lexsort
        polyadd polyder polyfit polyint polysub vander tile repeat
        fft.fftfreq fft.rfftfreq
    """,
    ufunc_result_layout: "where clip round around isclose sinc angle fix isposinf isneginf isreal iscomplex",
    _layout_like_first: "sort partition fft.fftshift fft.ifftshift",
    _unknown_layout: "unravel_index nonzero",
    _common_layout: """
        all any amax amin max min sum prod mean std var ptp count_nonzero average median percentile quantile
        nanargmax nanargmin nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar
        cumprod cumsum cumulative_prod cumulative_sum nancumprod nancumsum trapezoid trace linalg.trace
        append block column_stack concatenate dstack hstack stack vstack insert delete pad roll resize
        take_along_axis compress choose select searchsorted
        dot inner outer vdot matmul matvec vecmat vecdot tensordot kron cross einsum
        cov corrcoef diff gradient i0 isin piecewise polyval tril triu unwrap logspace geomspace
        ravel_multi_index tril_indices_from triu_indices_from
        reduce accumulate reduceat
        linalg.cond linalg.cross linalg.det linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power
        linalg.multi_dot linalg.norm linalg.outer linalg.slogdet linalg.tensordot linalg.vecdot linalg.vector_norm
        linalg.cholesky linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.solve linalg.svdvals
        linalg.matrix_rank
    """,
    None: """
        linalg.pinv linalg.qr linalg.svd linalg.lstsq linalg.tensorinv linalg.tensorsolve
        fft.fft fft.fft2 fft.fftn fft.hfft fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.irfft fft.irfft2 fft.irfftn
        fft.rfft fft.rfft2 fft.rfftn apply_along_axis apply_over_axes
    """,
}
# no arrays at all, or they write to an array
OTHERS = """
    __setitem__ allclose array_equal array_equiv can_cast copyto einsum_path fill fill_diagonal fromfunction
    iscomplexobj isrealobj isscalar ndim place put put_along_axis putmask result_type shape size
"""
# what NumPy makes a scalar of, and what an array of no axis, however we come by it
NO_AXIS = {**dict.fromkeys(("einsum", "inner", "kron", "take"), SCALAR), **dict.fromkeys(("i0", "piecewise", "select"))}
ORDERS: dict[str, Order | None] = {name: order for order, names in COPIES.items() for name in names.split()}


def own_copies(key: str, result: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of a function that gives copies, in memory of its own; what was given as `out` stays."""
    if type(result) is Tracer:
        return _own_copy(key, result, args, options)
    if isinstance(result, (tuple, list)) and any(type(r) is Tracer for r in result):
        found = [_own_copy(key, r, args, options) if type(r) is Tracer else r for r in result]
        return result._make(found) if hasattr(result, "_make") else type(result)(found)
    return result


def _own_copy(key: str, x: Tracer, args: Sequence[Any], options: dict[str, Any]) -> Tracer:
    if any(x is a for a in (*args[1:], *options.values())):
        return x
    if not x.shape and key in NO_AXIS:
        return Tracer(x._trace, x._value, NO_AXIS[key])
    if x._owner == SCALAR:
        return x
    order = ORDERS[key]
    simple = order is None or (has_one_dense_layout(x._held.type) and order is not _unknown_layout)
    layout = None if simple or order is None else order([*_array_arguments((*args, *options.values()))])
    if x._parent is None and x._owner is None and not any(x is a for a in args):
        x._layout = layout
        return x
    return Tracer(x._trace, x._value, layout=layout)


def _array_arguments(args: Sequence[Any]) -> Iterator[Tracer]:
    for a in args:
        if type(a) is Tracer:
            if a.shape:
                yield a
        elif isinstance(a, (tuple, list)):
            yield from _array_arguments(a)


GIVES.update(dict.fromkeys(ORDERS, own_copies))
