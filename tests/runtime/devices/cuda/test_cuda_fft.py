"""Which calls of `np.fft` and `np.linalg` cuFFT and cuSOLVER take, told from the tasks alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.devices.cuda.libraries.cufft import FORWARD, INVERSE, cufft_transform_of_call
from kernelgraph.runtime.devices.cuda.libraries.steps import make_gpu_library_step
from kernelgraph.runtime.program.program import Library

X = kg.spec((6, 8, 10), "f4")
Z = kg.spec((6, 8, 10), "c16")


def host_task(call: Any, *specs: Any) -> Any:
    program = kg.kernel_graph(call, device="fake").program(*specs)
    (task,) = (t for t in program.tasks if isinstance(t.kernel, Library))
    return task


def transform(call: Any, *specs: Any) -> Any:
    task = host_task(call, *specs)
    attrs = dict(task.kernel.attrs)
    name = attrs["function"].removeprefix("fft.")
    return cufft_transform_of_call(name, dict(attrs["options"]), task.reads[0], task.writes[0])


@pytest.mark.parametrize(
    "call, spec, direction, lengths, batch, scale",
    [
        (lambda x: np.fft.fft(x), Z, FORWARD, (10,), 48, 1.0),
        (lambda x: np.fft.ifft(x), Z, INVERSE, (10,), 48, 0.1),
        (lambda x: np.fft.ifft(x, norm="forward"), Z, INVERSE, (10,), 48, 1.0),
        (lambda x: np.fft.fft(x, norm="ortho"), Z, FORWARD, (10,), 48, 10**-0.5),
        (lambda x: np.fft.rfft(x), X, FORWARD, (10,), 48, 1.0),
        (lambda x: np.fft.irfft(x), Z, INVERSE, (18,), 48, 1 / 18),
        (lambda x: np.fft.irfft(x, 19), Z, INVERSE, (19,), 48, 1 / 19),
        (lambda x: np.fft.fft2(x), Z, FORWARD, (8, 10), 6, 1.0),
        (lambda x: np.fft.rfftn(x), X, FORWARD, (6, 8, 10), 1, 1.0),
        (lambda x: np.fft.irfft2(x), Z, INVERSE, (8, 18), 6, 1 / 144),
    ],
)
def test_transforms(call: Any, spec: Any, direction: int, lengths: Any, batch: int, scale: float) -> None:
    found = transform(call, spec)
    assert (found.direction, found.lengths, found.batch) == (direction, lengths, batch)
    assert found.scale == pytest.approx(scale)


@pytest.mark.parametrize(
    "call, spec",
    [
        (lambda x: np.fft.fft(x, 7), Z),
        (lambda x: np.fft.fft(x, axis=0), Z),
        (lambda x: np.fft.fft(x), X),
        (lambda x: np.fft.rfft(x, 12), X),
        (lambda x: np.fft.irfft(x, 30), Z),
        (lambda x: np.fft.hfft(x), Z),
        (lambda x: np.fft.fftn(x, axes=(0, 2)), Z),
    ],
)
def test_what_stays_with_the_host(call: Any, spec: Any) -> None:
    assert transform(call, spec) is None


def step(call: Any, *specs: Any) -> Any:
    return make_gpu_library_step(None, None, host_task(call, *specs), None)  # type: ignore[arg-type]


def test_decompositions() -> None:
    big, small, tall = kg.spec((200, 200)), kg.spec((20, 20)), kg.spec((300, 100), "c8")
    calls = (
        lambda a: np.linalg.inv(a),
        lambda a: np.linalg.cholesky(a),
        lambda a: tuple(np.linalg.eigh(a)),
        lambda a: np.linalg.eigvalsh(a),
        lambda a: np.linalg.svdvals(a),
        lambda a: tuple(np.linalg.svd(a)),
        lambda a: np.linalg.solve(a, a[0]),
        lambda a: np.linalg.det(a),
        lambda a: np.linalg.inv(np.stack([a, a])),
        lambda a: tuple(np.linalg.qr(a)),
        lambda a: np.linalg.qr(a, "r"),
    )
    for call in calls:
        assert step(call, big) is not None
        assert step(call, small) is None
    assert step(lambda a: tuple(np.linalg.svd(a, full_matrices=False)), tall) is not None
    for call in (
        lambda a: np.linalg.svd(a)[0],  # not all of its results
        lambda a: np.linalg.cholesky(a, upper=True),
        lambda a: np.linalg.pinv(a),
        lambda a: np.linalg.qr(a, "raw")[1],
    ):
        assert step(call, big) is None
