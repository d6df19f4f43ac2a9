"""Kernels in the kernel language: what their text says, and the Python functions that they are, run as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.compiler.targets.cuda.algorithms import (
    kernel_language,
    ordered_scatter,
    radix_select,
    radix_select_kernels,
    radix_sort_kernels,
    scan,
    scan_kernels,
    scatter,
    sort,
)
from kernelgraph.compiler.targets.cuda.algorithms.kernel_language import (
    DtypeWords,
    KernelLanguageError,
    Word,
    add,
    barrier,
    kernel_text,
    tid_x,
)
from tests.compiler import cuda_emulator

from .test_device_calls import agrees

F32 = DtypeWords(DTYPES["f32"])
RNG = np.random.default_rng(0)


@pytest.fixture
def stepped(monkeypatch: Any) -> list[str]:
    """The kernels of algorithms run as Python functions in what `agrees` compares; their names."""
    functions: dict[str, Any] = {}
    names: list[str] = []

    def kept(kernel: Any, *given: Any) -> str:
        text = kernel_text(kernel, *given)
        functions[text] = kernel
        return text

    for module in (ordered_scatter, radix_select, scan, scatter, sort):
        monkeypatch.setattr(module, "kernel_text", kept)
    emulate = cuda_emulator.run

    def run(source: str, name: str, grid: Any, block: Any, arguments: Any) -> None:
        kernel = functions.get(source.replace(name, "NAME"))
        if kernel is None:
            emulate(source, name, grid, block, arguments)
        else:
            names.append(kernel.__name__)
            cuda_emulator.step(kernel, grid, block, arguments)

    monkeypatch.setattr(cuda_emulator, "run", run)
    return names


def added(x: Any, i: Any, v: Any) -> Any:
    y = x.copy()
    np.add.at(y, i, v)
    return y


def test_sorts_run_as_python(stepped: list[str], monkeypatch: Any) -> None:
    monkeypatch.setitem(radix_sort_kernels.EACH, 1, 1)
    x = RNG.integers(-99, 99, (1, 300)).astype("i1")
    agrees(lambda x: np.argsort(x, kind="stable"), x[:, :40])
    agrees(lambda x: (np.sort(x), np.argsort(x, kind="stable")), x)
    assert set(stepped) == {"sort_row", "count_digits", "begin_digits", "sort_pass"}


def test_selects_run_as_python(stepped: list[str], monkeypatch: Any) -> None:
    for module in (radix_select, radix_select_kernels):
        for name, value in (("THREADS", 64), ("PICKING", 32), ("BINS", 256), ("EACH", 2)):
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(radix_select_kernels, "BITS", 4)
    x = RNG.integers(0, 9, (1, 60)).astype("u1")
    agrees(lambda x: np.median(x, axis=1), x)
    monkeypatch.setattr(radix_select, "keys_of_thread_in_block_sort", lambda length, dtype: 0)
    monkeypatch.setattr(radix_select, "gpu_sort_rows", sort.gpu_sort_rows)
    agrees(lambda x: kg.topk(x, 5), x)
    monkeypatch.setattr(radix_select, "ROWS", 0)
    agrees(lambda x: np.median(x, axis=1), x)
    assert {"pick", "count_digit", "pick_digit", "select_row", "write_values", "collect"} <= set(stepped)
    assert {"write_keys", "put_in_order"} <= set(stepped)


def test_scans_run_as_python(stepped: list[str], monkeypatch: Any) -> None:
    for module in (scan, scan_kernels):
        monkeypatch.setattr(module, "TOGETHER", 2)
        monkeypatch.setattr(module, "AHEAD", 1)
    monkeypatch.setattr(scan, "TILES", (64,))
    agrees(lambda x: np.cumsum(x, axis=1), RNG.integers(-9, 9, (1, 2600)).astype("f8"))
    agrees(lambda x: np.cumsum(x, axis=1), RNG.integers(-9, 9, (3, 20)))
    assert set(stepped) == {"scan_tile", "scan_column"}


def test_scatters_run_as_python(stepped: list[str], monkeypatch: Any) -> None:
    i, v = RNG.integers(0, 20, 200), RNG.integers(-9, 9, 200)
    agrees(added, np.zeros(20, "f4"), i, v.astype("f4"))
    agrees(added, np.zeros(20, "i8"), i, v)
    agrees(lambda x: np.bincount(x, minlength=30), i)
    assert {"number_indices", "begin_places", "count_numbers"} <= set(stepped)


def test_what_is_known_is_done_beforehand() -> None:
    """Loops are unrolled, lists are registers, branches are taken, functions are inlined."""
    length, doubled = 3, True

    def twice(x: Any) -> Any:
        y = add(x, x)
        return add(y, y) if length > 9 else y

    def kernel(a: Any, n: Any) -> None:
        x = tid_x()
        k = [F32.load(a, x + 32 * i) for i in range(length)]
        y = F32(0.5)
        for i in range(length):
            if doubled:
                y = add(y, twice(k[i]))
            if i == 2 and x < n:
                k[i] = y
        barrier()
        F32.store(a, x, k[2])

    assert (
        kernel_text(kernel, 64)
        == """THREADS = 64
def NAME(a, n):
    x = tid_x()
    k0 = load_f32_1x1(a, x + 0, i32(0), i32(0))
    k1 = load_f32_1x1(a, x + 32, i32(0), i32(0))
    k2 = load_f32_1x1(a, x + 64, i32(0), i32(0))
    y = f32(0.5)
    y_ = add(k0, k0)
    result1 = y_
    y = add(y, result1)
    y_ = add(k1, k1)
    result2 = y_
    y = add(y, result2)
    y_ = add(k2, k2)
    result3 = y_
    y = add(y, result3)
    if x < n:
        k2 = y
    barrier()
    store_f32_1x1(a, x, i32(0), i32(0), k2)
"""
    )


def test_two_calls_of_a_function_have_names_of_their_own() -> None:
    def larger(x: Any) -> Any:
        y = Word("maximum")(x, F32(1.0))
        return add(y, y)

    def kernel(a: Any, b: Any) -> None:
        F32.store(a, 0, add(larger(F32.load(a, 0)), larger(F32.load(b, 0))))

    def run(p: Any) -> None:
        cuda_emulator.run(kernel_text(kernel, 1), "NAME", (1, 1, 1), (1, 1, 1), p)

    def step(p: Any) -> None:
        cuda_emulator.step(kernel, (1, 1, 1), (1, 1, 1), p)

    for launch in (run, step):
        a, b = (np.full(1, value, "f4") for value in (3, 4))
        launch([cuda_emulator.pointer(a), cuda_emulator.pointer(b)])
        assert a[0] == 14


def test_what_kernels_cannot_say() -> None:
    def early(x: Any) -> Any:
        if x > 0:
            return x
        return x

    def kernel_of_early(a: Any) -> None:
        F32.store(a, 0, early(tid_x()))

    def several(x: Any) -> Any:
        y = add(x, x)
        return y

    def kernel_of_arm(a: Any, n: Any) -> None:
        F32.store(a, 0, several(n) if n > 0 else n)

    def kernel_of_string(a: Any) -> None:
        F32.store(a, 0, "x")

    for kernel, why in (
        (kernel_of_early, "returns at its end"), (kernel_of_arm, "an arm of a conditional expression"),
        (kernel_of_string, "'x' has no kernel text"),
    ):  # fmt: skip
        with pytest.raises(KernelLanguageError, match=why):
            kernel_text(kernel, 32)
    with pytest.raises(TypeError, match="exists in kernels alone"):
        kernel_language.tid_x()


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value


def made_with(value: Any) -> Any:
    def kernel(target):  # type: ignore[no-untyped-def]
        F32.store(target, tid_x(), F32(2.0 if value == 3 else value.value if isinstance(value, Held) else 1.0))

    return kernel


def test_a_text_is_read_once_of_kernels_made_of_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """However alike what they are made of is."""
    read: list[Any] = []
    plain = kernel_language._read_kernel
    monkeypatch.setattr(kernel_language, "_texts", {})
    monkeypatch.setattr(
        kernel_language, "_read_kernel", lambda kernel, *how: read.append(kernel) or plain(kernel, *how)
    )
    values = [3, 3.0, True, 1, 1.0, 0.0, -0.0, "3", (3,), [3], None, F32, Word("f32"), Held(1.5), Held(-0.0), Held(0.0)]
    for value in values:
        assert kernel_text(made_with(value), 32) == plain(made_with(value), 32, 0)
    assert len(read) == len(values)
    for value in values:
        kernel_text(made_with(Held(value.value) if isinstance(value, Held) else value), 32)
    assert len(read) == len(values)
    kernel_text(made_with(3), 64)
    for _ in range(2):
        kernel_text(made_with(object()), 32)  # of which nobody knows what it is
    assert len(read) == len(values) + 3
