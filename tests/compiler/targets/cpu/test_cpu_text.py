"""Properties of the CPU's kernel text: pure, free of sizes, the right strategy, vectors in the machine code."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.core.types import BOOL, FLOAT32, FLOAT64, INT64, DType
from kernelgraph.compiler.kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Operand, Phase, Reduction
from kernelgraph.compiler.targets.cpu.kernel import choose_vector_axis, cpu_launch_units, print_llvm_kernel
from kernelgraph.compiler.targets.cpu.reduce import vector_values_to_buffer
from kernelgraph.runtime.codegen.llvm_jit import llvm_cpu_features
from tests.compiler.cpu_nests import random_nest


def load(operand: int, dtype: DType = FLOAT32) -> Instr:
    return Instr("load", dtype, (), (operand, 0))


def store(operand: int, value: int, dtype: DType = FLOAT32) -> Instr:
    return Instr("store", dtype, (value,), (operand, 0))


def copy(*layouts: str, dtype: DType = FLOAT32) -> LoopNest:
    """out = in, over parallel axes."""
    operands = Operand(dtype, "in", layouts[0]), Operand(dtype, "out", layouts[1])
    body = (load(0, dtype), store(1, 0, dtype))
    return LoopNest("kernel", len(layouts[0]), 0, operands, (), (Phase(POINT, 0, body),))


def total(layout: str, dtype: DType = FLOAT32, combine: str = "sum") -> LoopNest:
    """out = sum of in along the last axis."""
    operands = Operand(dtype, "in", layout), Operand(dtype, "out", "10")
    loop = Phase(LOOP, 0, (load(0, dtype),), (Reduction(combine, dtype, (0,)),))
    end = Phase(POINT, 1, (Instr("result", dtype, (), (0, 0, 0)), store(1, 1, dtype)))
    return LoopNest("kernel", 1, 1, operands, (), (loop, end))


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_text_is_a_function_of_the_form(seed: int) -> None:
    assert print_llvm_kernel(random_nest(seed)) == print_llvm_kernel(random_nest(seed))


def test_printing_imports_no_compiler() -> None:
    code = (
        "import sys; from kernelgraph.compiler.targets.cpu import kernel as cpu; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'llvmlite', 'numba', 'cuda'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_path())
    assert found.stdout.strip() == "[]"


def _path() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_kernel_is_the_only_public_function() -> None:
    for seed in range(30):
        text = print_llvm_kernel(random_nest(seed))
        assert re.findall(r"^define (?!internal)[^@]*@([\w.]+)", text, re.MULTILINE) == ["kernel"]


def test_equal_values_need_one_text() -> None:
    """Constants are written as bits: -0.0 and 0.0, and NaNs, stay apart."""

    def with_constant(raw: bytes) -> str:
        body = (Instr("const", FLOAT32, (), raw), store(0, 0))
        return print_llvm_kernel(
            LoopNest("kernel", 1, 0, (Operand(FLOAT32, "out", "1"),), (), (Phase(POINT, 0, body),))
        )

    texts = {with_constant(np.float32(v).tobytes()) for v in (0.0, -0.0, np.nan, np.inf, 1.0)}
    assert len(texts) == 5


@pytest.mark.parametrize(
    ("nest", "sizes", "count"),
    [
        (copy("1", "1"), (2048 * 3 + 1,), 4),
        (copy("s1", "s1"), (7, 2049), 14),
        (copy("ss", "s1"), (33, 129), 4),  # tiles of 32 by 128
        (total("s1"), (10, 1000), 10),
        (total("1s"), (1025, 1000), 3),  # blocks of 512 columns
        (copy("1", "1"), (0,), 0),
    ],
)
def test_units(nest: LoopNest, sizes: tuple[int, ...], count: int) -> None:
    found, grain = cpu_launch_units(nest, sizes)
    assert found == count
    assert grain >= 1


def test_large_launches_have_several_chunks_and_small_ones_one() -> None:
    for nest, large, small in [
        (copy("1", "1"), (1 << 24,), (4096,)),
        (total("s1"), (4096, 2048), (8, 64)),
        (copy("ss", "s1"), (4096, 4096), (32, 64)),
    ]:
        count, grain = cpu_launch_units(nest, large)
        assert 8 <= -(-count // grain) <= 64
        count, grain = cpu_launch_units(nest, small)
        assert -(-count // grain) == 1


def test_scalars_follow_strides_in_the_slots() -> None:
    body = (load(0, FLOAT64), Instr("scalar", FLOAT64, (), 0), Instr("add", FLOAT64, (0, 1)), store(1, 2, FLOAT64))
    operands = Operand(FLOAT64, "in", "s"), Operand(FLOAT64, "out", "1")
    text = print_llvm_kernel(LoopNest("kernel", 1, 0, operands, (FLOAT64,), (Phase(POINT, 0, body),)))
    numbers = [int(n) for n in re.findall(r"ptr %slots, i64 (\d+)", text)]
    assert numbers == [0, 1, 2, 3, 4]  # two pointers, a length, a stride, the scalar


def test_bools_are_bytes_in_memory() -> None:
    assert " i1, ptr" not in print_llvm_kernel(copy("1", "1", dtype=BOOL))


def machine_code(nest: LoopNest) -> str:
    pytest.importorskip("llvmlite")
    from tests.compiler.cpu_harness import Compiled, vector_library

    if "avx512f" not in llvm_cpu_features():
        pytest.skip("looks at AVX-512 code")
    return Compiled(nest, vector_library=vector_library()).assembly


def test_vectors_in_the_machine_code() -> None:
    assert "zmm" in machine_code(copy("1", "1"))
    code = machine_code(total("s1"))
    assert re.search(r"vcvtps2pd\s+.*zmm", code) and re.search(r"vaddpd\s+.*zmm", code)  # float64 lanes
    assert re.search(r"vaddps", code) is None
    assert re.search(r"vmaxps\s+.*zmm", machine_code(total("s1", combine="max")))
    assert re.search(r"vp?unpck\w+\s+.*zmm", machine_code(copy("1s", "s1")))  # transposed in registers


def test_only_light_bodies_stream() -> None:
    """Between long computations streaming stores are slower than ordinary ones."""
    heavy = (load(0), Instr("exp", FLOAT32, (0,)), store(1, 1))
    operands = Operand(FLOAT32, "in", "1"), Operand(FLOAT32, "out", "1")
    assert ", !nontemporal" in print_llvm_kernel(copy("1", "1"))
    assert ", !nontemporal" not in print_llvm_kernel(LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, heavy),)))
    in_place = Operand(FLOAT32, "inout", "1"), operands[1]
    light = (load(0), store(0, 0))
    assert ", !nontemporal" not in print_llvm_kernel(
        LoopNest("kernel", 1, 0, in_place[:1], (), (Phase(POINT, 0, light),))
    )


def test_products_and_sums_are_not_fused() -> None:
    body = (load(0), load(1), Instr("mul", FLOAT32, (0, 1)), Instr("add", FLOAT32, (2, 0)), store(2, 3))
    operands = Operand(FLOAT32, "in", "1"), Operand(FLOAT32, "in", "1"), Operand(FLOAT32, "out", "1")
    plain = LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, body),))
    fast = LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, body),), fastmath=True)
    assert "vfmadd" not in machine_code(plain)
    assert "vfmadd" in machine_code(fast)


def test_index_is_64_bits_wide() -> None:
    body = (Instr("index", INT64, (), 0), store(0, 0, INT64))
    text = print_llvm_kernel(LoopNest("kernel", 1, 0, (Operand(INT64, "out", "1"),), (), (Phase(POINT, 0, body),)))
    assert "<8 x i64>" in text


def test_a_whole_array_that_is_reduced_and_stored_runs_along_its_elements() -> None:
    """The one row has an axis of its own, along which only what is written seems to move."""
    operands = Operand(FLOAT64, "in", "01"), Operand(FLOAT64, "out", "11"), Operand(FLOAT64, "out", "10")
    body = (load(0, FLOAT64), Instr("mul", FLOAT64, (0, 0)), store(1, 1, FLOAT64))
    loop = Phase(LOOP, 0, body, (Reduction("sum", FLOAT64, (1,)),))
    end = Phase(POINT, 3, (Instr("result", FLOAT64, (), (0, 0, 0)), store(2, 3, FLOAT64)))
    assert choose_vector_axis(LoopNest("kernel", 1, 1, operands, (), (loop, end))) == 1


def chain(length: int, values: int = 1, dtype: DType = FLOAT64) -> LoopNest:
    """out = in times itself, again and again, from so many values at once."""
    operands = (*(Operand(dtype, "in", "1") for _ in range(values)), Operand(dtype, "out", "1"))
    body = [load(n, dtype) for n in range(values)]
    body += [Instr("mul", dtype, (at, at + values - 1)) for at in range(length)]
    body.append(store(values, len(body) - 1, dtype))
    return LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, tuple(body)),))


@pytest.mark.parametrize(("length", "values", "lanes"), [(10, 1, 8), (40, 1, 16), (100, 1, 32), (600, 20, 8)])
def test_a_long_chain_runs_in_several_vectors_side_by_side(length: int, values: int, lanes: int) -> None:
    """As many as it has latency to hide, and as find room in the registers."""
    text = print_llvm_kernel(chain(length, values), vector_bytes=64)
    assert f"fmul <{lanes} x double>" in text and text.count(f"fmul <{lanes} x double>") == text.count("fmul <")


def test_equal_values_are_told_apart_without_looking_through_all_that_they_are_made_of() -> None:
    """A value that is used twice at each of many levels is looked at once, not 2^levels times."""
    looks = 0

    class Attribute:
        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return 1

    attribute: Any = Attribute()
    f4 = np.dtype("f4")
    start = Instr("load", f4, (), (0, 0))
    steps = [Instr("add", f4, (at, at), attribute) for at in range(14)]
    cost = Instr("exp", f4, (14,))
    loop = Phase(LOOP, 0, (start, *steps, cost), (Reduction("sum", f4, (15,)),))
    moved = [replace(i, args=tuple(a + 16 for a in i.args)) for i in loop.instrs]
    again = Phase(LOOP, 16, (*moved, Instr("store", f4, (31,), (1, 0))))
    operands = (Operand(f4, "in", "01"), Operand(f4, "out", "01"))
    reuse = vector_values_to_buffer(LoopNest("levels", 1, 1, operands, (), (loop, again)))
    assert reuse.keep == (15,) and reuse.take == {31: 15}
    assert looks < 100


@pytest.mark.parametrize(
    ("op", "dtype", "width", "kind"),
    [
        ("exp", FLOAT32, 32, "<16 x float>"),
        ("exp", FLOAT64, 32, "<8 x double>"),
        ("exp", FLOAT32, 64, "<16 x float>"),
        ("tan", FLOAT32, 32, "<8 x float>"),
    ],
)
def test_two_vectors_share_the_constants_of_a_function_where_registers_are_few(
    op: str, dtype: DType, width: int, kind: str
) -> None:
    body = (load(0, dtype), Instr(op, dtype, (0,)), store(1, 1, dtype))
    operands = Operand(dtype, "in", "1"), Operand(dtype, "out", "1")
    nest = LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, body),))
    assert f"load {kind}, ptr" in print_llvm_kernel(nest, vector_bytes=width)


@pytest.mark.parametrize("combine", ["max", "min"])
def test_the_best_of_each_column_is_not_stored_under_a_mask(combine: str) -> None:
    """Which is many times as slow on an AMD core with AVX2."""
    pytest.importorskip("llvmlite")
    from tests.compiler.cpu_harness import AVX2, Compiled

    if "avx2" not in llvm_cpu_features():
        pytest.skip("looks at AVX2 code")
    code = Compiled(total("1s", combine=combine), AVX2, vector_bytes=32).assembly
    masked = re.findall(r"vp?maskmov\w+\s+%ymm\d+, %ymm\d+, .*\(", code)
    assert len(masked) == 1  # what is left over of the results


@pytest.mark.parametrize(("vector_bytes", "side"), [(32, 8), (64, 16)])
def test_squares_that_are_transposed_fit_in_the_registers(vector_bytes: int, side: int) -> None:
    text = print_llvm_kernel(copy("1s", "s1"), vector_bytes=vector_bytes)
    others = 4 * (side == 8)  # of every second element, where that is how far apart they lie
    assert text.count(f"load <{side} x i32>") == side + others and f"<{2 * side} x i32>" not in text


def test_functions_one_after_the_other_are_taken_in_several_vectors() -> None:
    """A core cannot look past their latency to the next vector. Where they are called, registers are not kept."""

    def chain(*functions: str) -> int:
        operands = Operand(FLOAT32, "in", "1"), Operand(FLOAT32, "out", "1")
        steps = [Instr(f, FLOAT32, (i,)) for i, f in enumerate(functions)]
        body = (load(0), *steps, store(1, len(steps)))
        nest = LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, body),))
        text = print_llvm_kernel(nest, "libmvec-avx512", 64)
        return max(int(n) for n in re.findall(r"load <(\d+) x float>", text))

    assert [chain("log"), chain("log", "erf"), chain("exp", "neg", "log1p")] == [16, 64, 64]
    assert chain("log", "atan") == chain("atan", "log") == 16
