"""CUDA kernels compiled without a GPU: the machine code has what makes it fast, and nothing that is wrong."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs the extra cuda")

from hypothesis import HealthCheck, given, settings

from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.compiler.kernel.loop_nest import LoopNest, Operand
from kernelgraph.compiler.kernel.primitives import PRIMITIVES
from kernelgraph.compiler.targets.cuda.kernel import cuda_kernel_of_nest, cuda_threads_of_resident_row
from kernelgraph.runtime.core.errors import CompileError
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda.compile import compile as cuda_compile
from kernelgraph.runtime.devices.cuda.compile import kernel_functions, numba_parts
from kernelgraph.runtime.devices.cuda.compile.compile import (
    compile_cubin,
    compile_ptx,
    link_ptx_to_cubin,
    negations_before_minima_as_complements,
)
from kernelgraph.runtime.devices.cuda.compile.kernel_functions import function_of_kernel_text
from kernelgraph.runtime.program.program import Kernel
from tests.compiler.cuda_nests import F32, F64, Builder
from tests.compiler.stencils import five_point
from tests.compiler.targets.cuda.test_cuda_text import elementwise, layout_changes, reductions, softmax

CC = (9, 0)
few = settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def one(op: str, *dtypes: Any, fastmath: bool = False, width: int = 1) -> LoopNest:
    """out = op(a, b, ...) over one axis."""
    b = Builder()
    b.point()
    args = [b.load(k, d) for k, d in enumerate(dtypes)]
    result = PRIMITIVES[op].result
    value = b(op, *args, dtype=result if isinstance(result, np.dtype) else dtypes[-1])
    b.store(len(dtypes), value)
    operands = [Operand(d, "in", "1") for d in dtypes] + [Operand(b.dtypes[value], "out", "1")]
    return b.nest("k", 1, 0, operands, index_bits=32, width=width, fastmath=fastmath)


def products(fastmath: bool) -> LoopNest:
    """a*b - c*c: of another sign where one product and the difference are rounded once."""
    b = Builder()
    b.point()
    x, y, z = (b.load(k) for k in range(3))
    b.store(3, b("sub", b("mul", x, y), b("mul", z, z)))
    operands = [Operand(F32, "in", "1")] * 3 + [Operand(F32, "out", "1")]
    return b.nest("k", 1, 0, operands, index_bits=32, fastmath=fastmath)


def ptx_of(nest: LoopNest, cc: tuple[int, int] = CC) -> str:
    return compile_ptx(cuda_kernel_of_nest(nest), cc)


@few
@given(elementwise())
def test_elementwise_compiles(case: Any) -> None:
    assert ".local" not in ptx_of(case[0])


@few
@given(reductions())
def test_reductions_compile(case: Any) -> None:
    assert ".local" not in ptx_of(case[0])


@settings(few, max_examples=3)
@given(layout_changes())
def test_layout_changes_compile(case: Any) -> None:
    assert ".local" not in ptx_of(case[0])


def test_vectors() -> None:
    """Contiguous aligned operands take 16 bytes at a time, smaller items as many elements."""
    ptx = ptx_of(one("add", F32, F32))
    assert ptx.count("ld.global.v4.f32") == 2 and ptx.count("st.global.v4.f32") == 1
    assert len(re.findall(r"\.param \.u64 k_param", ptx)) == 4  # three pointers and a length
    assert ptx_of(one("add", F64, F64)).count("ld.global.v2.f64") == 2
    mixed = ptx_of(one("lt", F32, F32))
    assert "ld.global.v4.f32" in mixed and "st.global.u32" in mixed
    i8 = DTYPES["i8"]
    assert ptx_of(one("add", i8, i8)).count("ld.global.v4.u32") == 2
    assert ptx_of(one("add", F32, F32, width=2)).count("ld.global.v4.f32") == 4


def test_divisions_of_a_thread_overlap() -> None:
    """The lanes of a vector are divided side by side, with the compiler's division only for what that cannot round."""
    ptx = ptx_of(one("div", F32, F32))
    lines = [line.split()[0] for line in ptx.splitlines() if "rcp." in line or "div.rn" in line]
    assert "".join("r" if line.startswith("rcp.approx") else "d" for line in lines).count("rrrrdddd") == 1
    assert "rcp.approx" not in ptx_of(one("div", F64, F64))


def test_approximate_divisions_are_one_instruction_without_branches() -> None:
    """Over all numbers, where the approximation by a reciprocal alone is not."""
    ptx = ptx_of(one("approx_div", F32, F32))
    assert ptx.count("div.full.f32") >= 4 and "div.rn" not in ptx and "ftz" not in ptx
    assert "div.rn.f64" in ptx_of(one("approx_div", F64, F64))


def test_shifted_operands_leave_no_gaps() -> None:
    """Single elements, a block's width apart, where 16-byte accesses are not aligned."""
    b = Builder()
    b.point()
    b.store(1, b.load(0, F32))
    nest = b.nest("k", 1, 0, [Operand(F32, "in", "1", False), Operand(F32, "out", "1", False)])
    assert (
        "load_f32_1x8(" in cuda_kernel_of_nest(nest).source
        and "step = bdim_x() * 1" in cuda_kernel_of_nest(nest).source
    )
    assert ".v4" not in ptx_of(nest)


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
def test_a_stencil_reads_its_rows_once(cc: tuple[int, int], tmp_path: Path) -> None:
    """Six rows of two columns for four, where five operands would be read twenty times; once more under a mask."""
    nest = five_point(vector=2)
    ptx = ptx_of(nest, cc)
    loads, stores = (len(re.findall(rf"{verb}\.global\.v2\..32", ptx)) for verb in ("ld", "st"))
    assert 2 * 4 <= loads <= 2 * 6 and stores == 2 * 4  # of the first and last row one column may do
    listing = sass(nest, tmp_path, cc)
    assert "LDG.E.64" in listing and "SHFL" in listing and "LDL" not in listing and "STL" not in listing


def test_a_row_is_read_once() -> None:
    width, _ = cuda_threads_of_resident_row(4096, 4)
    ptx = ptx_of(softmax("s1", width))
    assert width == 4 and ".local" not in ptx
    assert ptx.count("st.global.v4.f32") == 2 * width  # with and without a mask
    assert "bar.sync" in ptx and "shfl.sync" in ptx


@pytest.mark.parametrize("cc", [(8, 0), (10, 0)])
def test_other_architectures(cc: tuple[int, int]) -> None:
    assert link_ptx_to_cubin(ptx_of(softmax("s1", 1), cc), cc).startswith(b"\x7fELF")


def test_many_reductions_fit_shared_memory() -> None:
    b = Builder()
    b.loop()
    value = b.load(0, DTYPES["f16"])
    wide = b("cast", value, dtype=F64)
    found = [b.reduce("argmax", wide, b("index", dtype=DTYPES["i64"], attr=1))]
    found += [b.reduce(combine, wide) for combine in ("sum", "prod", "min", "max")]
    b.point()
    operands = [Operand(DTYPES["f16"], "in", "1s")]
    for where in found:
        b.store(len(operands), b.result(where, F64))
        operands.append(Operand(F64, "out", "10"))
    compile_cubin(cuda_kernel_of_nest(b.nest("k", 1, 1, operands)), CC)


def test_names_are_stable() -> None:
    kernel = cuda_kernel_of_nest(one("add", F32, F32))
    first = compile_ptx(kernel, CC)
    assert compile_ptx(kernel, CC) == first and ".visible .entry k(" in first and "NumbaEnv" not in first


def test_every_primitive_compiles() -> None:
    """All primitives on each dtype that they take, in one kernel a dtype; half of the float ones in each precision."""
    for name in ("f32", "f64", "i8", "i64", "u32", "u64", "b1"):
        dtype = DTYPES[name]
        b = Builder()
        b.point()
        args = [b.load(k, dtype) for k in range(3)]
        flag = b.const(True, DTYPES["b1"])
        outputs = []
        for k, (op, rule) in enumerate(PRIMITIVES.items()):
            other_half = dtype.kind == "f" and k % 2 == (name == "f32")
            if dtype not in rule.accepts or op in ("cast", "bitcast") or other_half:
                continue
            given_ = [flag] * rule.same_from + args[: rule.arity - rule.same_from]
            outputs.append(b(op, *given_, dtype=rule.result if isinstance(rule.result, np.dtype) else dtype))
        for target in ("f32", "f64", "i16", "u8", "u64", "b1", "f16", "bf16"):
            outputs.append(b("cast", args[0], dtype=DTYPES[target]))
        operands = [Operand(dtype, "in", "1")] * 3
        for value in outputs:
            b.store(len(operands), value)
            operands.append(Operand(b.dtypes[value], "out", "s"))
        ptx_of(b.nest("k", 1, 0, operands, index_bits=64))


def test_halves_and_bits() -> None:
    for name in ("f16", "bf16"):
        b = Builder()
        b.point()
        x = b.load(0, DTYPES[name])
        y = b("cast", b("cast", x, dtype=F64), dtype=DTYPES[name])
        chosen = b("select", b.const(True, DTYPES["b1"]), y, b.const(1.5, DTYPES[name]), dtype=DTYPES[name])
        b.store(1, chosen)
        b.store(2, b("bitcast", b("cast", x, dtype=F32), dtype=DTYPES["i32"]))
        half, word = DTYPES[name], DTYPES["i32"]
        operands = [Operand(half, "in", "1"), Operand(half, "out", "1"), Operand(word, "out", "1")]
        assert "cvt" in ptx_of(b.nest("k", 1, 0, operands))


def _disassembler() -> str | None:
    found = shutil.which("nvdisasm")
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob("**/bin/nvdisasm"):
            return found or str(path)
    return found


def sass(nest: LoopNest, tmp_path: Path, cc: tuple[int, int] = CC) -> str:
    tool = _disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    path = tmp_path / "k.cubin"
    path.write_bytes(compile_cubin(cuda_kernel_of_nest(nest), cc))
    return subprocess.run([tool, str(path)], capture_output=True, text=True, check=True).stdout


def test_products_are_not_contracted(tmp_path: Path) -> None:
    """a*b - c*c keeps its roundings unless fastmath allows otherwise."""
    listing = sass(products(False), tmp_path)
    assert "FMUL" in listing and "FADD" in listing and "FFMA" not in listing
    assert "LDG.E.128" in listing and "STG.E.128" in listing and "LDL" not in listing
    assert "FFMA" in sass(products(True), tmp_path)


@pytest.fixture
def _from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays in memory."""
    monkeypatch.setattr(cuda_compile, "_keep_cubins_in_memory", lambda codes: None)
    monkeypatch.setattr(cuda_compile, "_recent", {})


@pytest.mark.usefixtures("_from_disk")
def test_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = cuda_kernel_of_nest(one("add", F32, F32))
    with override(cache_dir=str(tmp_path)):
        (first,) = cuda_compile.compile_cubins([kernel], CC)
        monkeypatch.setattr(cuda_compile, "compile_cubin", lambda *a: pytest.fail("compiled again"))
        assert cuda_compile.compile_cubins([kernel], CC) == [first]
        assert cuda_compile.cubin_cache_key(kernel, (8, 0)) != cuda_compile.cubin_cache_key(kernel, CC)


@pytest.mark.usefixtures("_from_disk")
def test_a_warm_start_imports_no_numba(tmp_path: Path) -> None:
    kernel = cuda_kernel_of_nest(one("add", F32, F32))
    with override(cache_dir=str(tmp_path)):
        cuda_compile.compile_cubins([kernel], CC)
    program = f"""
import sys
from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubins
from kernelgraph.runtime.program.program import Kernel
from kernelgraph.runtime.core.errors import CompileError
from kernelgraph.runtime.core.settings import override
with override(cache_dir={str(tmp_path)!r}):
    assert compile_cubins([Kernel({kernel.name!r}, 'cuda', {kernel.source!r}, {kernel.signature!r},
    {kernel.options!r})], {CC})
assert not any(m.split('.')[0] in ('numba', 'llvmlite') for m in sys.modules), sorted(sys.modules)
"""
    path = {"PYTHONPATH": str(Path(cuda_compile.__file__).parents[5])}
    subprocess.run([sys.executable, "-c", program], check=True, env=path)


def test_what_does_not_compile_says_so() -> None:
    kernel = Kernel("k", "cuda", "THREADS = 1\ndef k(a0):\n    add(a0)\n", ("ptr",))
    with pytest.raises(cuda_compile.CompileError, match="kernel k does not compile"):
        compile_cubin(kernel, CC)


def test_elsewhere_gives_the_same() -> None:
    """What another process compiles; a kernel that ends it is left to be compiled here."""
    kernels = [cuda_kernel_of_nest(one(op, F32, F32)) for op in ("add", "mul")]
    waiting: SimpleQueue[int] = SimpleQueue()
    for i in (0, 1, 2):
        waiting.put(i)
    codes: dict[int, bytes] = {}
    counted: list[int] = []
    wrong = replace(kernels[0], source="no kernel")
    cuda_compile._compile_cubins_in_helper_process(
        [*kernels, wrong], CC, waiting, codes, lambda: counted.append(len(codes))
    )
    assert counted == [1, 2]
    assert codes == dict(enumerate(compile_cubin(k, CC) for k in kernels)) and waiting.empty()


def test_many_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads and processes, as one by one; the first that is wrong is told, and no other is begun."""
    monkeypatch.setattr(cuda_compile, "allowed_cores", lambda: 3)
    monkeypatch.setattr(cuda_compile, "TEXT", 200)
    kernels = [cuda_kernel_of_nest(one(op, F32, F32)) for op in ("add", "mul", "sub", "minimum")]
    assert cuda_compile._compile_cubins_in_parallel(kernels, CC) == [compile_cubin(k, CC) for k in kernels]
    wrong, begun = replace(kernels[0], source="THREADS = 1\ndef k(a0):\n    add(a0)\n" + "# the longest" * 1000), []
    monkeypatch.setattr(cuda_compile, "allowed_cores", lambda: 1)
    monkeypatch.setattr(cuda_compile, "compile_cubin", lambda k, cc: begun.append(k) or compile_cubin(k, cc))
    with pytest.raises(cuda_compile.CompileError, match="kernel k does not compile"):
        cuda_compile._compile_cubins_in_parallel([*kernels, wrong], CC)
    assert begun == [wrong]


@pytest.mark.parametrize(
    "nest", [one("div", F32, F32), products(True), softmax("s1", 1)], ids=["div", "fast", "softmax"]
)
def test_the_short_way_through_numba_gives_the_same(nest: LoopNest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out changes no letter, and it is left out: numba's own way would be as right, and twice as slow."""
    kernel = cuda_kernel_of_nest(nest)
    function_of_kernel_text.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(kernel_functions, "compile_cuda", lambda *a, **k: pytest.fail("numba's own way"))
        short = compile_ptx(kernel, CC)
    function_of_kernel_text.cache_clear()
    monkeypatch.setitem(sys.modules, "kernelgraph.runtime.devices.cuda.compile.numba_front_end", None)
    assert compile_ptx(kernel, CC) == short


def test_every_part_of_numba_cuda_is_there() -> None:
    """What a new release has not is named, with what it is for; no private name is behind a module's."""
    assert {name for name in numba_parts.PARTS if not hasattr(numba_parts, name)} == set()
    assert {name for name in numba_parts.PARTS if isinstance(getattr(numba_parts, name), ModuleType)} <= {
        "types",
        "models",
    }


def test_a_part_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in numba_parts.PARTS:
        monkeypatch.delitem(vars(numba_parts), name, raising=False)
    monkeypatch.delattr("numba.cuda.utils.OPERATORS_TO_BUILTINS")
    with pytest.raises(CompileError, match=r"no numba\.cuda\.utils\.OPERATORS_TO_BUILTINS \(for operators"):
        _ = numba_parts.OPERATORS_TO_BUILTINS
    monkeypatch.setitem(sys.modules, "numba.cuda.utils", None)
    with pytest.raises(CompileError, match=r"numba-cuda [\d.]+ has no numba\.cuda\.utils"):
        _ = numba_parts.OPERATORS_TO_BUILTINS


def test_kernels_compile_without_names_that_numpy_2_5_removed() -> None:
    """numba-cuda's own import of them is served, and NumPy is left as it was."""
    program = """
import numpy as np
if vars(np).pop("row_stack", None):
    np.__all__.remove("row_stack")
from tests.runtime.devices.cuda.test_cuda_compile import F32, one, ptx_of
assert ".entry k(" in ptx_of(one("add", F32, F32)) and not hasattr(np, "row_stack")
"""
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", program], check=True)


def test_without_a_part_of_the_short_way_kernels_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = cuda_kernel_of_nest(one("add", F32, F32))
    short = compile_ptx(kernel, CC)
    function_of_kernel_text.cache_clear()
    monkeypatch.delitem(sys.modules, "kernelgraph.runtime.devices.cuda.compile.numba_front_end")
    monkeypatch.delitem(vars(numba_parts), "PassManager", raising=False)
    monkeypatch.delattr("numba.cuda.core.compiler_machinery.PassManager")
    assert compile_ptx(kernel, CC) == short


def test_a_process_that_has_compiled_much_compiles_as_fast(monkeypatch) -> None:
    """numba-cuda finds what it has typed before: nothing that we pass on makes its keys differ."""
    from numba.cuda.typing import templates

    kernel, built = cuda_kernel_of_nest(one("add", F32, F32)), []
    build = templates._OverloadFunctionTemplate._build_impl
    compile_ptx(kernel, CC)
    monkeypatch.setattr(
        templates._OverloadFunctionTemplate, "_build_impl", lambda self, *a: built.append(self.key) or build(self, *a)
    )
    compile_ptx(kernel, CC)
    assert not built


def test_no_minimum_is_taken_of_a_negation() -> None:
    """ptxas of CUDA 13.0 to 13.3 loses the negation of the second of three, as of the third of four numbers."""
    ptx = "\tneg.s32 \t%r43, %r35;\n\tneg.s16 %rs1, %rs1;\n\tmin.s32 \t%r47, %r43, %r45;\n"
    found = negations_before_minima_as_complements(ptx)
    assert found.split("\n")[:4] == [
        "\tnot.b32 %r43, %r35;",
        "\tadd.s32 %r43, %r43, 1;",
        "\tnot.b16 %rs1, %rs1;",
        "\tadd.s16 %rs1, %rs1, 1;",
    ]
    assert negations_before_minima_as_complements(ptx.replace("min.s32", "add.s32")) == ptx.replace(
        "min.s32", "add.s32"
    )
    b = Builder()
    b.point()
    x, y, z = (b.load(k, np.dtype("int32")) for k in range(3))
    least = b("minimum", b("minimum", b("neg", x), b("neg", y)), b("neg", z))
    b.store(3, least)
    operands = [Operand(np.dtype("int32"), "in", "1")] * 3 + [Operand(np.dtype("int32"), "out", "1")]
    text = ptx_of(b.nest("k", 1, 0, operands, index_bits=32))
    assert "neg.s32" in text and "neg.s32" not in negations_before_minima_as_complements(text)
