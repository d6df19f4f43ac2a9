"""Calls of decorated functions on a GPU, by the short way and others; outputs that are waited for alone."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.in_flight import waitall
from kernelgraph.runtime.core.settings import override
from tests.dsl.jit.test_cuda_calls import differences
from tests.gpu.conftest import WORKERS


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_calls(device: Any, seed: int) -> None:
    assert differences(1000, seed, device.synchronize) == 0


def test_short_calls_from_many_threads(device: Any) -> None:
    """They share graphs; each call gets the result of its own argument."""
    f = kg.kernel_graph(device="cuda")(lambda x: x * 3 + 1)
    wrong = []

    def work(number: int) -> None:
        for turn in range(300):
            x = np.full(1000, number * 1000 + turn, "f4")
            a = kg.asarray(x, device="cuda").wait()
            if not np.array_equal(f(a).numpy(), x * 3 + 1):
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_short_calls_with_fresh_arguments_and_all_outputs_kept(device: Any) -> None:
    f = kg.kernel_graph(device="cuda")(lambda x, y: np.exp(x) - y)
    rng = np.random.default_rng(1)
    given = [rng.random((2, 5000), dtype="f4") for _ in range(300)]
    placed = [[kg.asarray(x, device="cuda").wait() for x in pair] for pair in given]
    kept = [f(*pair) for pair in placed]
    for result, (x, y) in zip(kept, given, strict=True):
        np.testing.assert_allclose(result.numpy(), np.exp(x) - y, rtol=1e-5, atol=1e-6)
    del kept, result
    gc.collect()
    waitall()


def test_an_output_is_waited_for_alone(device: Any) -> None:
    """The other one takes some milliseconds more, on streams and replayed."""

    def function(x: Any, y: Any) -> Any:
        for _ in range(4):
            y = y @ y * 1e-3
        return x * 2, y

    f = kg.kernel_graph(device="cuda", streams=2)(function)
    x = kg.asarray(np.ones(100, "f4"), device="cuda").wait()
    y = kg.asarray(np.ones((4096, 4096), "f4"), device="cuda").wait()
    before = 0
    for _ in range(12):
        first, second = f(x, y)
        first.wait()
        before += not second.is_ready()
        second.wait()
    assert before >= max(1, 8 // WORKERS)  # other processes have the GPU now and then


@pytest.mark.parametrize("way", ["streams", "replay"])
def test_what_follows_an_output_waits_for_it(device: Any, way: str) -> None:
    """A call on the late output of a call starts on another stream, when the early output is long there."""
    n = 2048

    def function(x: Any, y: Any) -> Any:
        for _ in range(6):
            y = y @ y * 1e-3
        return x * 2, y

    f, g = kg.kernel_graph(device="cuda", streams=2)(function), kg.kernel_graph(device="cuda")(lambda y: y - 1)
    opened: Any = kg.asarray(np.ones(4, "f4"), device="cuda")._device
    own = opened.prepare
    x = kg.asarray(np.ones(100, "f4"), device="cuda").wait()
    rng = np.random.default_rng(0)
    scales = [float(s) for s in rng.uniform(0.5, 0.7, 12)]
    given = [kg.asarray(np.full((n, n), s, "f4"), device="cuda").wait() for s in scales]
    with override(tune=False):
        opened.prepare = lambda plan, _="": own(plan, way)
        try:
            f.compile(x, given[0])
        finally:
            del opened.prepare
        g(given[0]).wait()
        kept = []
        for y in given:
            first, second = f(x, y)
            kept.append((g(second), second, first))
    for after, second, _ in kept:
        np.testing.assert_array_equal(after.numpy(), second.numpy() - 1)
    values = [float(second.numpy()[0, 0]) for _, second, _ in kept]
    assert len(set(values)) == len(values) and np.isfinite(values).all()
