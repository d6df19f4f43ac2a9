"""Which of NumPy's functions give views, which copies, and in which order of memory: one row for each.

A copy becomes an array of its own, however its values come about (`traced_results_as_copies` in `aliasing.py`);
a row that is checked against NumPy says how it lies in memory, on which depends whether its reshape is a view.
"""

from __future__ import annotations

from collections.abc import Sequence

from .aliasing import (
    COPY_ORDERS,
    Order,
    memory_layout_of_tracer,
    results_as_views_or_copies,
    traced_results_as_copies,
    tracer_layout_of_ufunc_result,
    unknown_layout_of_tracers,
)
from .dispatch import GIVES
from .memory_layout import C, CommonOrderTracerLayout, CopyTracerLayout, MemoryLayout
from .tracer import Tracer


def _tracer_layout_like_first(arrays: Sequence[Tracer]) -> MemoryLayout | None:
    return CopyTracerLayout((memory_layout_of_tracer(arrays[0]), arrays[0]._held.type)) if arrays else C


def _tracer_layout_common_to_arrays(arrays: Sequence[Tracer]) -> MemoryLayout | None:
    return CommonOrderTracerLayout(*((memory_layout_of_tracer(x), x._held.type) for x in arrays))


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
    tracer_layout_of_ufunc_result: "where clip round around isclose sinc angle fix isposinf isneginf isreal iscomplex",
    _tracer_layout_like_first: "sort partition fft.fftshift fft.ifftshift",
    unknown_layout_of_tracers: "unravel_index nonzero",
    _tracer_layout_common_to_arrays: """
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
COPY_ORDERS.update({name: order for order, names in COPIES.items() for name in names.split()})


GIVES.update(dict.fromkeys(COPY_ORDERS, traced_results_as_copies))
GIVES["einsum"] = results_as_views_or_copies
