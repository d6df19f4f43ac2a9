"""Text to machine code: the same functions from LLVM, from the cache, and from either loader; bad input is an error."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kernelgraph.runtime.codegen import elf_loader, llvm_jit
from kernelgraph.runtime.core.disk_cache import DiskCache
from kernelgraph.runtime.core.errors import CompileError
from kernelgraph.runtime.core.settings import override

# Reaches for all that a loader must relocate: constants, a table of addresses, zeroed data, calls out and across.
TEXT = """
declare double @hypot(double, double)
declare double @erf(double)
@table = internal constant [2 x ptr] [ptr @half, ptr @erf]
@weights = internal constant [16 x float] [float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0, float 7.0,
  float 8.0, float 9.0, float 10.0, float 11.0, float 12.0, float 13.0, float 14.0, float 15.0, float 16.0]
@calls = internal global i64 0
define double @half(double %x) noinline {
  %y = fmul double %x, 0.5
  ret double %y
}
define double @through_table(double %x, i64 %which) {
  %e = getelementptr ptr, ptr @table, i64 %which
  %f = load volatile ptr, ptr %e
  %y = call double %f(double %x)
  ret double %y
}
define double @far(double %x, double %y) {
  %h = call double @hypot(double %x, double %y)
  %n = call double @half(double %h)
  ret double %n
}
define i64 @count() {
  %old = load i64, ptr @calls
  %new = add i64 %old, 1
  store i64 %new, ptr @calls
  ret i64 %new
}
define void @weigh(ptr %x) {
  %v = load <16 x float>, ptr %x, align 4
  %w = load <16 x float>, ptr @weights
  %r = fmul <16 x float> %v, %w
  store <16 x float> %r, ptr %x, align 4
  ret void
}
"""
MISSING = """
declare void @no_such_function()
define void @f() {
  call void @no_such_function()
  ret void
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / "cpu"


def check(code):
    real = ctypes.c_double
    far = code.function("far", real, real, real)
    table = code.function("through_table", real, real, ctypes.c_int64)
    count = code.function("count", ctypes.c_int64)
    assert far(3.0, 4.0) == 2.5
    assert table(3.0, 0) == 1.5
    assert table(0.5, 1) == pytest.approx(0.5204998778130465, rel=1e-15)
    first = count()
    assert count() == first + 1
    x = np.ones(16, np.float32)
    code.function("weigh", None, ctypes.c_void_p)(x.ctypes.data)
    assert x.tolist() == list(range(1, 17))


def test_compiled_cached_and_loaded_by_llvm(own_cache, monkeypatch):
    check(llvm_jit.compile_llvm_ir(TEXT, "test"))
    (entry,) = own_cache.iterdir()
    monkeypatch.setattr(llvm_jit, "compile_llvm_ir_to_object_file", None)  # from here on nothing may compile
    check(llvm_jit.compile_llvm_ir(TEXT, "test"))
    check(llvm_jit._load_with_llvm_engine(DiskCache("cpu").get(entry.name), TEXT, "test"))


def test_llvm_takes_over_what_our_loader_does_not_know(monkeypatch):
    def refuse(*_):
        raise elf_loader.UnsupportedObjectFile("today")

    monkeypatch.setattr(elf_loader, "load_elf_object", refuse)
    check(llvm_jit.compile_llvm_ir(TEXT, "test"))
    with pytest.raises(CompileError, match="no_such_function"):
        llvm_jit.compile_llvm_ir(MISSING)


def test_a_missing_symbol_is_a_clear_error_and_not_cached(own_cache):
    for _ in range(2):
        with pytest.raises(CompileError, match="my_kernel calls no_such_function"):
            llvm_jit.compile_llvm_ir(MISSING, "my_kernel")
    assert not own_cache.exists() or not list(own_cache.iterdir())


BAD = ["", "define void @k() {", "define void @k() { ret i32 0 }", "nonsense"]


@pytest.mark.parametrize("text", [*BAD, "define i32 @k(i32 %x) { %y = fadd i32 %x, %x\nret i32 %y }"])
def test_bad_text_is_a_compile_error(text):
    if text == "":
        assert llvm_jit.compile_llvm_ir(text).functions == {}
    else:
        with pytest.raises(CompileError, match="the_name"):
            llvm_jit.compile_llvm_ir(text, "the_name")


def test_damaged_entries_are_compiled_again(own_cache):
    llvm_jit.compile_llvm_ir(TEXT, "test")
    (entry,) = own_cache.iterdir()
    good = entry.read_bytes()
    for bad in (b"", good[: len(good) // 2], good[:-1], good[:-100] + bytes(100), b"\0" * len(good)):
        entry.write_bytes(bad)
        check(llvm_jit.compile_llvm_ir(TEXT, "test"))
        assert entry.read_bytes() == good


def test_the_key_tells_texts_machines_and_features_apart():
    keys = {llvm_jit.llvm_cache_key(TEXT), llvm_jit.llvm_cache_key(TEXT + ";")}
    with override(cpu_features="-avx512f"):
        keys.add(llvm_jit.llvm_cache_key(TEXT))
    with override(cpu_name="x86-64-v3"):
        keys.add(llvm_jit.llvm_cache_key(TEXT))
    assert len(keys) == 4
    assert llvm_jit.llvm_cache_key(TEXT) in keys


def lazily(pair):
    text, name = pair
    return text, lambda: text, name


def test_several_at_once_keep_their_order_and_their_code(monkeypatch):
    texts = [(f"define i64 @k() {{\nret i64 {i}\n}}\n" + TEXT, f"k{i}") for i in range(12)]
    alone = [llvm_jit.compile_llvm_ir_to_object_file(text) for text, _ in texts]
    monkeypatch.setattr(llvm_jit.os, "cpu_count", lambda: 4)
    together = []
    compiled = llvm_jit.compile_llvm_ir_to_object_file
    monkeypatch.setattr(
        llvm_jit, "compile_llvm_ir_to_object_file", lambda *a: together.append(compiled(*a)) or together[-1]
    )
    codes = llvm_jit.compile_llvm_ir_in_parallel([lazily(t) for t in texts])
    assert [c.function("k", ctypes.c_int64)() for c in codes] == list(range(12))
    for code in codes:
        check(code)
    assert sorted(alone) == sorted(together)
    with pytest.raises(CompileError, match="wrong"):
        again = [*texts, ("nonsense", "wrong"), *((text + ";", name) for text, name in texts)]
        llvm_jit.compile_llvm_ir_in_parallel([lazily(t) for t in again])


def test_with_llvmlite_s_own_lock(monkeypatch):
    def locked(name, *arguments):
        return getattr(llvm_jit._import_and_initialize_llvmlite().ffi.lib, name)(*arguments)

    free = llvm_jit.compile_llvm_ir_to_object_file(TEXT)
    monkeypatch.setattr(llvm_jit, "_call_without_llvmlite_lock", locked)
    assert llvm_jit.compile_llvm_ir_to_object_file(TEXT) == free


WIDE = """
define void @k(ptr %x) {
  %v = load <16 x float>, ptr %x
  %w = fadd <16 x float> %v, %v
  store <16 x float> %w, ptr %x
  ret void
}
"""


def test_features_can_be_taken_away():
    if "avx512f" not in llvm_jit.llvm_cpu_features() or "avx2" not in llvm_jit.llvm_cpu_features():
        pytest.skip("asks for a CPU with AVX-512")
    assert "zmm" in llvm_jit.assembly_of_llvm_ir(WIDE)
    with override(cpu_features="-avx512f"):
        assert llvm_jit.llvm_cpu_features() & {"avx2", "avx512f"} == {"avx2"}
        narrow = llvm_jit.assembly_of_llvm_ir(WIDE)
        assert "ymm" in narrow and "zmm" not in narrow
        check(llvm_jit.compile_llvm_ir(TEXT, "test"))
    with override(cpu_name="x86-64"):
        assert "avx2" not in llvm_jit.llvm_cpu_features()
        assert "ymm" not in llvm_jit.assembly_of_llvm_ir(WIDE)
        check(llvm_jit.compile_llvm_ir(TEXT, "test"))


def test_a_second_process_compiles_nothing_and_imports_no_llvm(own_cache):
    llvm_jit.compile_llvm_ir(TEXT, "test")
    script = f"""
        import sys
        from kernelgraph.runtime.codegen import llvm_jit as machine_code
        code = machine_code.compile_llvm_ir({TEXT!r}, "test")
        print(len(code.functions), machine_code._CACHE.hits, "llvmlite.binding" in sys.modules, "numba" in sys.modules)
    """
    folder = str(own_cache.parent)
    environment = {**os.environ, "KERNELGRAPH_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.stdout.split() == ["5", "1", "False", "False"], done.stderr


def test_without_a_folder_it_compiles_each_time(tmp_path):
    (tmp_path / "file").write_text("")
    with override(cache_dir=str(tmp_path / "file" / "below")):
        check(llvm_jit.compile_llvm_ir(TEXT, "test"))
        check(llvm_jit.compile_llvm_ir(TEXT, "test"))


def test_symbols():
    assert elf_loader.resolve_c_function_addresses(["cos"], "t")["cos"] == elf_loader.find_c_function_address("cos")
    assert elf_loader.find_c_function_address("surely_not_there") is None
    with pytest.raises(CompileError, match=r"t calls a_b, surely_not_there, which"):
        elf_loader.resolve_c_function_addresses(["cos", "surely_not_there", "a_b"], "t")


def test_objects_of_other_kinds_are_not_ours():
    for data in (b"", b"\x7fELF\x02\x01" + bytes(100), b"MZ" + bytes(100)):
        with pytest.raises(elf_loader.UnsupportedObjectFile):
            elf_loader.ElfObject(data.ljust(128, b"\0"))
