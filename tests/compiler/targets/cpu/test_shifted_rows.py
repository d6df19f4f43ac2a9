"""Sums of shifted rows: kernels of tiles and of lines agree with what they mean."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.targets.cpu.shifted_rows import cpu_shifted_products_task
from kernelgraph.runtime.interpret.convolution import numpy_shifted_products
from kernelgraph.runtime.program.program import Int, Kernel
from tests.compiler.targets.cpu.test_matmul import described, run
from tests.counts import examples


def taps_of(lengths: list[int], kernel: list[int], dilation: list[int], phases: int) -> list[int]:
    """Of windows in rows of lines, in one phase or two behind each other."""
    steps = [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
    found = [sum(p * d * s for p, d, s in zip(at, dilation, steps, strict=True)) for at in product(*map(range, kernel))]
    return found + [math.prod(lengths) + tap for tap in found[: len(found) // 2]] * (phases - 1)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["float32", "float64"]), st.sampled_from([16, 32, 64]), st.integers(1, 2), st.data())
def test_kernels_of_any_window(dtype: str, vector_bytes: int, phases: int, data: st.DataObject) -> None:
    """Near the sums in NumPy, whatever lies behind the array; any split of the units gives the same bits."""
    kernel = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(1, 3)))]
    dilation = [data.draw(st.integers(1, 2)) for _ in kernel]
    ends = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    lengths = [end + data.draw(st.integers(1, 19)) for end in ends]
    taps = taps_of(lengths, kernel, dilation, phases)
    line = lengths[-1] * dilation[-2] if len(kernel) > 1 else math.prod(lengths)
    length = math.prod(lengths) - sum(e * math.prod(lengths[i + 1 :]) for i, e in enumerate(ends))
    batch, groups, m, channels = (data.draw(st.integers(1, n)) for n in (2, 2, 7, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    w = rng.standard_normal((groups, m, channels * len(taps))).astype(dtype)
    shape = batch, groups, channels, phases * math.prod(lengths)
    room = np.full(math.prod(shape) + 64, np.nan, dtype)
    x = room[: math.prod(shape)].reshape(shape)
    x[...] = rng.standard_normal(shape)
    options = {"taps": tuple(taps), "length": length, "width": length + data.draw(st.integers(0, 5)), "line": line}
    expected = numpy_shifted_products(w.astype(float), x.astype(float), **options)[..., :length]
    found = np.full((batch, groups, m, options["width"]), 7, dtype)
    task = cpu_shifted_products_task(vector_bytes, [described(w, 0), described(x, 1)], described(found, 2), options, "")
    assert isinstance(task.kernel, Kernel)
    numbers = [argument.value for argument in task.arguments[3:] if isinstance(argument, Int)]
    slots = [w.ctypes.data, x.ctypes.data, found.ctypes.data, *numbers]
    run(task.kernel, vector_bytes, slots, 0, task.units)
    bound = 4 * w.shape[-1] * np.finfo(dtype).eps * (abs(w).sum(-1).max() * abs(x).max())
    assert abs(found[..., :length] - expected).max() <= bound
    assert (found[..., length:] == 7).all()
    before, cut = found.copy(), data.draw(st.integers(0, task.units))
    found[...] = 7
    run(task.kernel, vector_bytes, slots, 0, cut)
    run(task.kernel, vector_bytes, slots, cut, task.units)
    assert found.tobytes() == before.tobytes()


@pytest.mark.parametrize(("size", "stride", "lines"), [(7, 1, True), (5, 2, True), (3, 2, True), (3, 1, False)])
def test_channels_alone_are_done_line_by_line(size: int, stride: int, lines: bool) -> None:
    """What is loaded for one line serves all lines that it is a tap of; few taps of whole rows fuse."""

    def depthwise(x: Any, w: Any) -> Any:
        return kg.nn.conv2d(x, w, stride=stride, padding=size // 2, groups=6)

    x, w = np.ones((2, 6, 30, 30), np.float32), np.ones((6, 1, size, size), np.float32)
    assert ("k_line_products" in str(kg.kernel_graph(depthwise, device="cpu").source(x, w))) == lines
