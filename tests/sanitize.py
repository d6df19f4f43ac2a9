"""Programs of every family of kernels on a GPU, small enough for a checker of memory accesses and of races:

    make sanitize

Each program runs on streams and, where its plan is replayed, as a graph; every result is compared with the CPU's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from kernelgraph.runtime.core.settings import override
from tests.fault_programs import PROGRAMS as SMALL

CALLS = 5  # the later ones are replayed


def numbers(*shape: int, dtype: str = "f4", seed: int = 0) -> Any:
    found = np.random.default_rng(seed).uniform(0.1, 1, shape)
    return (found * 1000 if dtype[0] in "iu" else found).astype(dtype)


def unaligned(x):
    return x[1:] * 2 + x[:-1], x[::-3].sum()


def long_rows(x):
    return x - x.max(-1, keepdims=True), x.argmax(-1), x.var(-1)


def many_rows(x):
    return np.exp(x).sum(0), x.min(0), x.mean(0)


def middle(x):
    return x.sum(1), (x * x).sum((0, 2)), x.max()


def layouts(x, y):
    return x.T + 2 * y, x.T.copy(), np.swapaxes(x.reshape(7, -1, x.shape[1]), 0, 2) + 1


def half(x):
    return np.sqrt(x) * 2, x.sum(0), x.T + 1


def pairs(z):
    return z * np.conj(z) + z.sum(0), np.abs(z), np.sort(z, axis=-1)


def cube(u):
    inner = u[1:-1, 1:-1, 1:-1]
    return u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, 1:-1, :-2] - 4 * inner


def scans(x):
    return np.cumsum(x), np.cumprod(x.reshape(-1, 37)[:, :12], axis=1), np.maximum.accumulate(x)


def orders(x, keys):
    return np.sort(x), np.argsort(keys, kind="stable"), np.sort(x.reshape(-1, 37), axis=0), np.lexsort((x, keys))


def selections(x):
    return np.median(x), np.quantile(x, [0.1, 0.9]), np.partition(x, 100)[:100].sum(), kg.topk(x, 50)[0]


def counts(keys, x):
    return np.bincount(keys, minlength=1000), np.bincount(keys % 9, x, 9), np.histogram(x, 50, (0.0, 1.0))[0]


def scattered(out, keys, x):
    np.add.at(out, keys, x)
    out[keys[:50]] = 3
    return out, x[keys % 100], np.searchsorted(np.sort(x), x[:500])


def stacked(x):
    return np.stack([np.exp(x[i]) * 2 + i for i in range(16)])


def factored(a):
    return np.linalg.qr(a)[1].shape[0] * np.linalg.det(a), np.linalg.inv(a)


def layer(x, w, b):
    return kg.nn.relu(x @ w + b), kg.nn.gelu(x @ w + b)


def halving(x):
    return kg.while_loop(lambda x: x.sum() > 1, lambda x: x * 0.5 + 0.0 * np.roll(x, 1), x)


def halved(x):
    x = x * 0.5 + 0.0 * np.roll(x, 1)
    return x, x.sum() > 1


def steps(x):
    return kg.fori_loop(0, 20, lambda i, x: 0.5 * x + 0.5 * np.roll(x, 1), x)


LARGER: dict[Callable[..., Any], tuple[Any, ...]] = {
    unaligned: (numbers(40_003)[1:],),
    long_rows: (numbers(3, 70_001),),
    many_rows: (numbers(9_001, 65),),
    middle: (numbers(13, 301, 17),),
    layouts: (numbers(133, 210), numbers(210, 133)),
    half: (numbers(301, 65, dtype="f2"),),
    pairs: (numbers(65, 40) + 1j * numbers(65, 40, seed=1),),
    cube: (numbers(20, 33, 41),),
    scans: (numbers(37 * 1200),),
    orders: (numbers(37 * 600), numbers(37 * 600, dtype="i4")),
    selections: (numbers(30_001),),
    counts: (numbers(30_001, dtype="i4"), numbers(30_001)),
    scattered: (np.zeros(1000, "f4"), numbers(5_000, dtype="i4"), numbers(5_000)),
    stacked: (numbers(16, 1000),),
    factored: (numbers(12, 12) + 3 * np.eye(12, dtype="f4"),),
    layer: (numbers(33, 48), numbers(48, 20), numbers(20)),
    halving: (numbers(3_000),),
    halved: (numbers(3_000),),
    steps: (numbers(3_000),),
}


def leaves(results: Any) -> list[Any]:
    found: list[Any] = []
    flatten(results, found)
    return [np.asarray(leaf) for leaf in found]


def copied(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(a) for a in arrays)


def check(function: Callable[..., Any], arrays: tuple[Any, ...], device: str) -> None:
    """Raises AssertionError where a result is not that of the CPU."""
    wanted = leaves(kg.kernel_graph(function, device="cpu")(*copied(arrays)))
    program = kg.kernel_graph(function, device=device, streams="max")
    for _ in range(CALLS):
        for got, want in zip(leaves(program(*copied(arrays))), wanted, strict=True):
            step = 2e-2 if want.dtype == np.float16 else 2e-4
            np.testing.assert_allclose(got, want, rtol=step, atol=step, err_msg=function.__name__)


def main(names: Sequence[str] = (), device: str = "cuda") -> None:
    """names: of the programs to run, all by default."""
    programs = {f: arrays for f, arrays in (SMALL | LARGER).items() if not names or f.__name__ in names}
    with override(tune=False):
        for function, arrays in programs.items():
            print(function.__name__, flush=True)
            check(function, arrays, device)
    kg.waitall()
    print(f"{len(programs)} programs, {CALLS} calls each: as on the CPU")


if __name__ == "__main__":
    main(sys.argv[1:])
