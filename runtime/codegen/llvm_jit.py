"""LLVM IR text in, addresses of its functions in this process out. Compiled once per machine, kept on disk.

A warm start reads the object file from the disk cache and loads it without LLVM. The text carries neither triple nor
data layout: it is compiled for this CPU, or for the one that the settings `cpu_name` and `cpu_features` describe.
The same decides what kernels may use: the width of vector registers, and vector mathematics.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import takewhile
from typing import Any

from ..core.disk_cache import DiskCache, sha256_digest
from ..core.errors import CompileError
from ..core.frozen import frozen
from ..core.progress import progress_counter
from ..core.settings import settings
from . import elf_loader

_CACHE = DiskCache("cpu")
_FORMAT = 2
SCALAR = ("@user_", "@k_seq_")  # how names in texts begin that leave it to LLVM to make vectors; others come as such
_OBJECTS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\x64\x86", b"\x64\xaa")  # how object files begin: ELF, Mach-O, COFF


@frozen
class MachineCode:
    """Loaded machine code: address of each function; `keep` owns the memory."""

    functions: dict[str, int]
    keep: Any

    def function(self, name: str, result: Any, *arguments: Any, gil: bool = False) -> Any:
        """A ctypes function; the interpreter lock is kept during the call only if `gil`."""
        kind = ctypes.PYFUNCTYPE if gil else ctypes.CFUNCTYPE
        made: Any = kind(result, *arguments)(self.functions[name])
        made.keep = self.keep
        return made


@cache
def _identity_of_cpu_and_libraries() -> tuple[str, ...]:
    """What tells this machine's CPU and libraries from another's, without LLVM."""
    cpu = ""
    if sys.platform == "linux":
        wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part", "CPU implementer")
        with open("/proc/cpuinfo") as file:
            first = takewhile(str.strip, file)  # the first core's lines
            cpu = "".join(line for line in first if line.startswith(wanted))
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {}) else ""
    return (sys.platform, platform.machine(), cpu or platform.processor(), libc or "")


@cache
def _llvm_version() -> str:
    import llvmlite  # the package alone: its binding loads LLVM

    return str(llvmlite.__version__)


def llvm_cache_key(text: str) -> str:
    """The cache key of a text on this machine under the settings in force."""
    return sha256_digest(
        _FORMAT, text, _llvm_version(), _identity_of_cpu_and_libraries(), settings.cpu_name, settings.cpu_features
    )


@cache
def _import_and_initialize_llvmlite() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


@cache
def _llvm_jit_target(cpu_name: str, cpu_features: str) -> tuple[Any, str, str]:
    """LLVM's target and the CPU's name and features: this CPU's, then the changes asked for."""
    llvm = _import_and_initialize_llvmlite()
    features = "" if cpu_name else llvm.get_host_cpu_features().flatten()
    chosen = ",".join(part for part in (features, cpu_features) if part)
    if cpu_name or cpu_features:
        words = _why_llvm_jit_refuses_cpu(cpu_name or llvm.get_host_cpu_name(), chosen)
        if words:
            raise CompileError(f"KERNELGRAPH_CPU_NAME={cpu_name!r}, KERNELGRAPH_CPU_FEATURES={cpu_features!r}: {words}")
    return llvm.Target.from_triple(llvm.get_process_triple()), cpu_name or llvm.get_host_cpu_name(), chosen


@cache
def _why_llvm_jit_refuses_cpu(cpu: str, features: str) -> str:
    """What LLVM says against a CPU, or nothing. It ends the process over some: so another process asks."""
    import subprocess

    tried = subprocess.run([sys.executable, "-c", _TRY, cpu, features], capture_output=True, text=True)
    said = next((line for line in tried.stderr.splitlines() if "not a recognized" in line or "ERROR" in line), "")
    return said or (f"LLVM ends with {tried.returncode}" if tried.returncode else "")


_TRY = """
import sys
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
target = llvm.Target.from_triple(llvm.get_process_triple())
machine = target.create_target_machine(cpu=sys.argv[1], features=sys.argv[2], opt=0)
machine.emit_object(llvm.parse_assembly("define void @f() { ret void }"))
"""


def _create_llvm_target_machine() -> Any:
    target, cpu, features = _llvm_jit_target(settings.cpu_name, settings.cpu_features)
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")


def optimise_llvm_ir(text: str, name: str = "text") -> Any:
    """The optimised LLVM module of a text, and its target machine. Raises CompileError with LLVM's message."""
    llvm, machine = _import_and_initialize_llvmlite(), _create_llvm_target_machine()
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"{name}: LLVM refuses the text: {error}", name) from None
    options = llvm.create_pipeline_tuning_options(speed_level=2)  # 3 takes longer, and makes no kernel faster
    options.loop_vectorization = any(name in text for name in SCALAR)
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    _call_without_llvmlite_lock("LLVMPY_RunNewModulePassManager", builder.getModulePassManager(), module, builder)
    return module, machine


def compile_llvm_ir_to_object_file(text: str, name: str = "text") -> bytes:
    """The object file of a text."""
    module, machine = optimise_llvm_ir(text, name)
    ffi = _import_and_initialize_llvmlite().ffi
    with ffi.OutputString() as message:
        buffer = _call_without_llvmlite_lock("LLVMPY_TargetMachineEmitToMemory", machine, module, 1, message)
        if not buffer:
            raise CompileError(f"{name}: {message}", name)
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _call_without_llvmlite_lock(name: str, *arguments: Any) -> Any:
    """Call a function of LLVM's that takes long, without the one lock that llvmlite puts around every call.

    LLVM is safe for threads that share no context, and every text has a context of its own. Where a release of llvmlite
    hides the bare function, the locked one serves."""
    function = getattr(_import_and_initialize_llvmlite().ffi.lib, name)
    return getattr(function, "_cfn", function)(*arguments)


def assembly_of_llvm_ir(text: str, name: str = "text") -> str:
    """The assembler text of a text, to read."""
    module, machine = optimise_llvm_ir(text, name)
    return str(machine.emit_assembly(module))


def compile_llvm_ir(text: str, name: str = "text") -> MachineCode:
    """Compile a text, or take its object from the disk cache, and load it. Raises CompileError."""
    return compile_llvm_ir_lazily(text, partial(str, text), name)


def compile_llvm_ir_lazily(identity: str, text: Callable[[], str], name: str) -> MachineCode:
    """`compile_llvm_ir` for a text that is written only where the cache has no entry. `identity` decides it."""
    return _load_cached_object_code(identity, text, name) or _compile_and_cache_object_code(identity, text, name)


def compile_llvm_ir_in_parallel(texts: Sequence[tuple[str, Callable[[], str], str]]) -> list[MachineCode]:
    """`compile_llvm_ir_lazily` for several (identity, text, name). What the cache has not is compiled in parallel (see
    `_call_without_llvmlite_lock`)."""
    codes = [_load_cached_object_code(identity, text, name) for identity, text, name in texts]
    missing = [i for i, code in enumerate(codes) if code is None]
    if len(missing) < 2:
        return [_compile_and_cache_object_code(*texts[i]) if code is None else code for i, code in enumerate(codes)]
    errors: list[Exception] = []

    def compile_next_llvm_ir() -> None:
        while missing and not errors:
            try:
                i = missing.pop()
            except IndexError:
                return
            try:
                codes[i] = _compile_and_cache_object_code(*texts[i])
                done()
            except Exception as error:
                errors.append(error)

    with progress_counter(len(missing), "compiling kernels") as done:
        helpers = [
            threading.Thread(target=compile_next_llvm_ir) for _ in range(min(len(missing), os.cpu_count() or 1) - 1)
        ]
        for helper in helpers:
            helper.start()
        compile_next_llvm_ir()
        for helper in helpers:
            helper.join()
    if errors:
        raise errors[0]
    return [code for code in codes if code is not None]


def _load_cached_object_code(identity: str, text: Callable[[], str], name: str) -> MachineCode | None:
    data = _CACHE.get(llvm_cache_key(identity))
    try:
        return _load_object_code(data, text, name) if data is not None and data.startswith(_OBJECTS) else None
    except (CompileError, struct.error, ValueError, IndexError, OverflowError):
        return None  # another machine's symbols; no object file


def _compile_and_cache_object_code(identity: str, text: Callable[[], str], name: str) -> MachineCode:
    data = compile_llvm_ir_to_object_file(text(), name)
    code = _load_object_code(data, text, name)
    _CACHE.put(
        llvm_cache_key(identity),
        data,
        {"name": name, "llvmlite": _llvm_version(), "machine": _identity_of_cpu_and_libraries()},
    )
    return code


def _load_object_code(data: bytes, text: Callable[[], str], name: str) -> MachineCode:
    try:
        parsed = elf_loader.ElfObject(data)
        image = elf_loader.load_elf_object(
            parsed, elf_loader.resolve_c_function_addresses(parsed.undefined_symbols(), name)
        )
        return MachineCode(image.functions, image)
    except elf_loader.UnsupportedObjectFile:
        return _load_with_llvm_engine(data, text(), name)


_DECLARED = re.compile(r'^declare\b[^@\n]*@"?([\w.$]+)"?\(', re.MULTILINE)
_DEFINED = re.compile(r'^define\b(?![^@\n]*\b(?:internal|private)\b)[^@\n]*@"?([\w.$]+)"?\(', re.MULTILINE)
_loading = threading.Lock()


def c_functions_declared_in_llvm_ir(text: str) -> list[str]:
    """The names of the C functions that a text calls."""
    return [n for n in _DECLARED.findall(text) if not n.startswith("llvm.")]


def link_llvm_ir(text: str, others: Sequence[tuple[str, str]]) -> str:
    """A text with other texts, whose functions it may call: each is (the name of one to be inlined, the text)."""
    llvm = _import_and_initialize_llvmlite()
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    exported = {f.name for f in module.functions if not f.is_declaration}
    for entry, other in others:
        module.link_in(llvm.parse_assembly(other, context))
        module.get_function(entry).add_function_attribute("alwaysinline")
    for thing in (*module.functions, *module.global_variables):
        if not thing.is_declaration and thing.name not in exported:
            thing.linkage = "internal"
    return str(module)


def _load_with_llvm_engine(data: bytes, text: str, name: str) -> MachineCode:
    """LLVM's own loader, for other systems. It ignores missing symbols, so the text's are resolved before."""
    llvm = _import_and_initialize_llvmlite()
    known = elf_loader.resolve_c_function_addresses(c_functions_declared_in_llvm_ir(text), name)
    with _loading:
        for symbol, address in known.items():
            llvm.add_symbol(symbol, address)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _create_llvm_target_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        functions = {n: engine.get_function_address(n) for n in _DEFINED.findall(text)}
    return MachineCode(functions, engine)


def llvm_cpu_features() -> frozenset[str]:
    """The CPU features that kernels are compiled with, as LLVM and the system name them alike (avx2, avx512f).

    A `cpu_name` of another machine has none but those that `cpu_features` adds.
    """
    return _cpu_features_under_settings(settings.cpu_name, settings.cpu_features)


@cache
def _cpu_features_under_settings(cpu_name: str, cpu_features: str) -> frozenset[str]:
    flags: set[str] = set()
    if not cpu_name:
        for line in _identity_of_cpu_and_libraries()[2].splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.split(":", 1)[1].split())
    for change in filter(None, cpu_features.split(",")):
        (flags.add if change[0] == "+" else flags.discard)(change.lstrip("+-"))
    return frozenset(flags)


def jit_vector_register_bytes() -> int:
    """The width of a vector register."""
    have = llvm_cpu_features()
    return 64 if "avx512f" in have else 32 if "avx2" in have else 16


def widest_vector_libm_of_cpu() -> str | None:
    """The widest vector mathematics that can be called: `libmvec-avx512`, `libmvec-avx2` or None."""
    have = llvm_cpu_features()
    for name, feature, probe in (("avx512", "avx512f", "_ZGVeN16v_expf"), ("avx2", "avx2", "_ZGVdN8v_expf")):
        if feature in have and elf_loader.find_c_function_address(probe) is not None:
            return f"libmvec-{name}"
    return None
