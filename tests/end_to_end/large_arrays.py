"""What kernels compute on arrays of n elements, made on the device and looked at there: n may pass 2^31.

Places are checked through slices too, whose addresses the host computes, so that an index that wraps round is seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgraph as kg


def _spots(n: int) -> list[int]:
    """Where to look: at the ends, and around the powers of two at which indices change their sign or wrap."""
    return sorted({min(max(0, s), n - 4) for s in (0, 2**15, n // 2, 2**31 - 2, 2**31, 2**32 - 2, n - 4)})


def pattern(i: Any, dtype: Any) -> Any:
    """A number of element i that no power of two repeats."""
    return (i % 113).astype(dtype)


def filled(device: str, shape: tuple[int, ...], dtype: Any) -> Any:
    n = int(np.prod(shape))
    made: Any = kg.kernel_graph(device=device)(lambda: pattern(np.arange(n), dtype).reshape(shape))()
    return made


def pieces(device: str, x: Any) -> list[Any]:
    """Four elements of a vector at each spot."""
    spots = _spots(x.shape[0])
    found = kg.kernel_graph(device=device)(lambda x: [x[s : s + 4] * 1 for s in spots])(x)
    return [np.asarray(f) for f in found]


def check_vector(device: str, n: int, dtype: Any) -> None:
    """Elementwise, strided and reversed."""
    x = filled(device, (n,), dtype)
    programs = {
        "chain": (lambda x: x * 2 + 1, lambda i: pattern(i, dtype) * 2 + 1, n),
        "reversed": (lambda x: x[::-1] + 1, lambda i: pattern(n - 1 - i, dtype) + 1, n),
        "strided": (lambda x: x[1::2] + 1, lambda i: pattern(2 * i + 1, dtype) + 1, n // 2),
        "stencil": (lambda x: x[2:] - x[:-2], lambda i: pattern(i + 2, dtype) - pattern(i, dtype), n - 2),
    }
    for name, (program, meaning, length) in programs.items():
        y = kg.kernel_graph(device=device)(program)(x)
        assert y.shape == (length,)
        for spot, piece in zip(_spots(length), pieces(device, y), strict=True):
            np.testing.assert_array_equal(piece, meaning(np.arange(spot, spot + 4)).astype(dtype), f"{name} at {spot}")
        del y


def check_reductions(device: str, n: int, dtype: Any) -> None:
    """A sum, a maximum and its place near the end, in one kernel and apart."""
    x = filled(device, (n,), dtype)
    total = kg.kernel_graph(device=device)(lambda x: x.sum(dtype=np.float64))(x)
    assert float(total) == (n // 113) * sum(range(113)) + sum(range(n % 113))
    spike = kg.kernel_graph(device=device)(lambda x: np.where(np.arange(n) == n - 2, 120, x).astype(dtype))(x)
    greatest, where = kg.kernel_graph(device=device)(lambda x: (x.max(), x.argmax()))(spike)
    assert (float(greatest), int(where)) == (120, n - 2)


def check_matrix(device: str, rows: int, columns: int, dtype: Any) -> None:
    """Transposed, and reduced along either axis."""
    x = filled(device, (rows, columns), dtype)
    y = kg.kernel_graph(device=device)(lambda x: x.T + 1)(x)
    corner = kg.kernel_graph(device=device)(lambda y: y[-3:, -2:] * 1)
    i, j = np.arange(rows - 2, rows), np.arange(columns - 3, columns)[:, None]
    np.testing.assert_array_equal(np.asarray(corner(y)), (pattern(i * columns + j, dtype) + 1).astype(dtype))
    back = kg.kernel_graph(device=device)(lambda x, y: (x + 1 == y.T).all())
    assert bool(back(x, y))
    del y
    down, across = kg.kernel_graph(device=device)(lambda x: (x.sum(0, dtype=np.int64), x.sum(1, dtype=np.int64)))(x)
    for column in (0, columns - 1):
        want = pattern(np.arange(rows) * columns + column, np.int64).sum()
        assert int(np.asarray(down)[column]) == want
    for row in (0, rows - 1):
        want = pattern(np.arange(columns) + row * columns, np.int64).sum()
        assert int(np.asarray(across)[row]) == want
