"""Random convolutions and attention in every dtype and layout of memory, beside float64 NumPy; gradients beside
differences.

python -m tests.layer_cases [--count N] [--seed S] [--first K] [--seconds T]

Values may differ by BOUNDS of the largest sum of absolute terms; gradients are of float64, and their directional
derivative may differ from a central difference by 1e-6 of it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import kernelgraph as kg

# of the dtype's own step, and what sums in another order add
BOUNDS = {"float64": 1e-13, "float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
DTYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
STEP = 1e-5
DIFFERENCE = 1e-6
Case = tuple[str, Callable[..., Any], Callable[..., Any], list[Any], str]


def laid_out(pick: random.Random, x: Any) -> Any:
    """The same values, elsewhere in memory."""
    way = pick.randrange(6)
    if way == 0:
        return np.asfortranarray(x)
    if way == 1 and x.ndim:
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if way == 2 and x.ndim:
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1] + 1), np.nan, x.dtype)
        wide[..., 1::2] = x
        return wide[..., 1::2]
    if way == 3 and x.ndim > 1:
        axes = pick.sample(range(x.ndim), x.ndim)
        return np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))
    if way == 4 and x.ndim and x.shape[0] > 1:
        return np.broadcast_to(x[:1], x.shape)  # a stride of 0
    return x


def convolution(pick: random.Random, rng: Any, array: Callable[..., Any]) -> tuple[str, Any, Any, list[Any]]:
    rank, groups = pick.choice((1, 2, 2, 3)), pick.choice((1, 1, 2, 3, 5))
    n, each, out = pick.choice((1, 1, 2, 3)), pick.choice((1, 2, 3, 5, 17)), pick.choice((1, 1, 2, 3, 8, 17))
    kernel, stride = ([pick.choice(of) for _ in range(rank)] for of in ((1, 2, 3, 3, 5, 7), (1, 1, 2, 3)))
    dilation, padding = ([pick.choice(of) for _ in range(rank)] for of in ((1, 1, 2, 3), (0, 0, 1, 2, 3)))
    most = (40, 13, 6)[rank - 1]
    image = [
        max(1, d * (k - 1) + 1 - 2 * p) + pick.randrange(most)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    options = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups}
    transposed = pick.random() < 0.25
    name = f"conv{'_transpose' * transposed}{rank}d"
    arrays = [array(n, each * groups, *image)]
    arrays += [array(each * groups, out, *kernel) if transposed else array(out * groups, each, *kernel)]
    if pick.random() < 0.5:
        arrays.append(array(out * groups))
    if transposed:
        whole = [(m - 1) * s + d * (k - 1) + 1 for m, s, d, k in zip(image, stride, dilation, kernel, strict=True)]
        options["padding"] = padding = tuple(min(p, (w - 1) // 2) for p, w in zip(padding, whole, strict=True))
    function = getattr(kg.nn, name)

    def expected(x: Any, w: Any, b: Any = None) -> Any:
        """A term after another."""
        size, steps = w.shape[2:], zip(stride, dilation, strict=True)
        if transposed:
            lengths = [(m - 1) * s + d * (k - 1) + 1 for m, k, (s, d) in zip(x.shape[2:], size, steps, strict=True)]
            result = np.zeros((n, out * groups, *lengths))
            for c, o, *place in np.ndindex(*w.shape):
                reached = _reached(place, x.shape[2:], stride, dilation)
                result[(slice(None), c // each * out + o, *reached)] += x[:, c] * w[(c, o, *place)]
            cut = (slice(p, m - p) for p, m in zip(padding, lengths, strict=True))
            result = result[(..., *cut)]
        else:
            x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
            lengths = [(m - d * (k - 1) - 1) // s + 1 for m, k, (s, d) in zip(x.shape[2:], size, steps, strict=True)]
            result = np.zeros((n, out * groups, *lengths))
            for o, c, *place in np.ndindex(*w.shape):
                reached = _reached(place, lengths, stride, dilation)
                result[:, o] += x[(slice(None), o // out * each + c, *reached)] * w[(o, c, *place)]
        return result if b is None else result + b.reshape(-1, *(1,) * rank)

    text = f"{name} {options} {[a.shape for a in arrays]}"
    return text, lambda *args: function(*args, **options), expected, arrays


def _reached(place: Sequence[int], lengths: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    starts = [i * d for i, d in zip(place, dilation, strict=True)]
    return tuple(slice(a, a + s * (m - 1) + 1, s) for a, s, m in zip(starts, stride, lengths, strict=True))


def attention(pick: random.Random, rng: Any, array: Callable[..., Any]) -> tuple[str, Any, Any, list[Any]]:
    batch = pick.choice(((), (2,), (2, 3), (1, 4)))
    n, m = pick.choice((1, 2, 7, 16, 33, 70)), pick.choice((1, 3, 8, 32, 65, 130))
    d, e = pick.choice((1, 4, 8, 16, 33)), pick.choice((1, 4, 8, 16))
    arrays = [array(*batch, n, d), array(*batch, m, d), array(*batch, m, e)]
    causal, scale = pick.random() < 0.3, pick.choice((None, None, 0.5, 1.0))
    kind = pick.choice(("none", "none", "booleans", "numbers", "by rows"))
    mask = None
    if kind in ("booleans", "by rows"):
        mask = rng.random((n, m) if kind == "booleans" else (*batch[:1], *(1,) * max(len(batch) - 1, 0), 1, m)) < 0.7
        mask[..., 0] = True  # each query sees a key
        mask = laid_out(pick, mask)
    elif kind == "numbers":
        arrays.append(array(*batch[-1:], n, m))

    def found(q: Any, k: Any, v: Any, *bias: Any) -> Any:
        return kg.nn.attention(q, k, v, bias[0] if bias else mask, causal=causal, scale=scale)

    def expected(q: Any, k: Any, v: Any, *bias: Any) -> Any:
        s = q @ k.swapaxes(-1, -2) * (d**-0.5 if scale is None else scale)
        s = s + bias[0] if bias else s
        s = s if mask is None else np.where(mask, s, -np.inf)
        s = np.where(np.arange(m) <= np.arange(n)[:, None], s, -np.inf) if causal else s
        weights = np.exp(s - s.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    text = f"attention {causal=} {scale=} mask: {kind} {[a.shape for a in arrays]}"
    return text, found, expected, arrays


def case(seed: str) -> Case:
    pick = random.Random(seed)
    rng = np.random.default_rng(pick.getrandbits(64))
    dtype = pick.choice(sorted(DTYPES))

    def array(*shape: int) -> Any:
        return laid_out(pick, rng.standard_normal(shape).astype(DTYPES[dtype]))

    return *(attention if pick.random() < 0.4 else convolution)(pick, rng, array), dtype


def judge(made: Case) -> str:
    """What is wrong, if anything is."""
    text, function, expected, arrays, dtype = made
    wide = [a.astype(float) for a in arrays]
    result = np.asarray(kg.kernel_graph(function, device="cpu")(*arrays))
    reference = expected(*wide)
    if result.shape != reference.shape or result.dtype != arrays[0].dtype:
        return f"{result.dtype}{result.shape} for {arrays[0].dtype}{reference.shape}"
    largest = float(expected(*(map(np.abs, wide) if "conv" in text else wide)).max(initial=1))
    largest = max(largest, *(float(np.abs(a).max(initial=0)) for a in wide))
    away = float(np.abs(result.astype(float) - reference).max(initial=0))
    if not away <= BOUNDS[dtype] * largest:
        return f"values by {away / largest:.1e}"
    return gradients(function, expected, wide) if dtype == "float64" else ""


def gradients(function: Any, expected: Any, arrays: list[Any]) -> str:
    """Along one direction, of a weighted sum of the results."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(expected(*arrays).shape)
    every = tuple(range(len(arrays)))
    found = kg.kernel_graph(kg.grad(lambda *args: (function(*args) * weights).sum(), every), device="cpu")(*arrays)
    along = [rng.standard_normal(a.shape) for a in arrays]
    ends = [
        float((expected(*(a + s * STEP * t for a, t in zip(arrays, along, strict=True))) * weights).sum())
        for s in (1, -1)
    ]
    central = (ends[0] - ends[1]) / (2 * STEP)
    slope = sum(float((np.asarray(g) * t).sum()) for g, t in zip(found, along, strict=True))
    size = sum(float(np.abs(np.asarray(g) * t).sum()) for g, t in zip(found, along, strict=True)) + 1
    return "" if abs(slope - central) <= DIFFERENCE * size else f"gradients: {slope} for {central}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further case begins after so many")
    given = parser.parse_args()
    start, counts, wrong = time.monotonic(), Counter[str](), 0
    for n in range(given.first, given.first + given.count):
        if time.monotonic() - start > given.seconds:
            break
        made = case(f"{given.seed}:{n}")
        counts[f"{made[0].split()[0]} {made[-1]}"] += 1
        if problem := judge(made):
            wrong += 1
            print(f"{given.seed}:{n} {made[-1]} {made[0]}: {problem}", flush=True)
    print(f"{counts.total()} cases, {wrong} wrong, {time.monotonic() - start:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {count:5} {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
