"""An x86-64 ELF object file in; its functions out. They are relocated in executable memory of this process.

A loader of our own starts in a millisecond, where importing LLVM takes a hundred. It knows the few relocations that
LLVM's position-independent small code model emits (System V ABI, AMD64 supplement, 2018, section 4.4) and raises
Unsupported for anything else, which then goes to LLVM's loader. It trusts the bytes: the cache has checked them.
The C functions that machine code may call are found by name, in this process.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from ..core.errors import CompileError

_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 2, 4, 8
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS = 1, 2, 4, 0x400
_SHN_UNDEF, _SHN_ABS, _SHN_COMMON = 0, 0xFFF1, 0xFFF2
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_PAGE = mmap.PAGESIZE


class UnsupportedObjectFile(Exception):
    """The file needs something that this loader does not know."""


class _ElfSection(NamedTuple):
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


class _ElfSymbol(NamedTuple):
    name: str
    binding: int
    section: int
    value: int


class ElfObject:
    """The parsed tables of an object file."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
            raise UnsupportedObjectFile("not a relocatable x86-64 ELF file")
        self.data = data
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = []
        for i in range(count):
            header = struct.unpack_from("<IIQQQQIIQQ", data, start + i * size)
            _, kind, flags, _, offset, length, link, info, align, _ = header
            self.sections.append(_ElfSection(kind, flags, offset, length, link, info, max(1, align)))
        self.symbols = [symbol for s in self.sections if s.type == _SHT_SYMTAB for symbol in self._read_symbol_table(s)]

    def _read_symbol_table(self, table: _ElfSection) -> list[_ElfSymbol]:
        strings = self.sections[table.link].offset
        found = []
        for at in range(table.offset, table.offset + table.size, 24):
            name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
            end = self.data.index(b"\0", strings + name)
            found.append(_ElfSymbol(self.data[strings + name : end].decode(), info >> 4, section, value))
        return found

    def undefined_symbols(self) -> list[str]:
        """The names that it calls and does not define."""
        return sorted({s.name for s in self.symbols if s.section == _SHN_UNDEF and s.name})


class LoadedElfImage(NamedTuple):
    """An object file in memory. functions: addresses by its global names. memory: what they lie in, to be kept."""

    functions: dict[str, int]
    memory: mmap.mmap


def load_elf_object(parsed: ElfObject, externals: Mapping[str, int]) -> LoadedElfImage:
    """An object file and the addresses of what it calls in, its code in memory out. Raises UnsupportedObjectFile."""
    loading = _ElfLoading(parsed, externals)
    return LoadedElfImage(loading.functions, loading.memory)


class _ElfLoading:
    """An object file while it is loaded: executable pages, then the others."""

    def __init__(self, parsed: ElfObject, externals: Mapping[str, int]) -> None:
        self._object = parsed
        self._stubs: dict[str, int] = {}
        self._slots: dict[int, int] = {}
        loaded = [i for i, s in enumerate(parsed.sections) if s.flags & _SHF_ALLOC]
        if any(parsed.sections[i].flags & _SHF_TLS for i in loaded):
            raise UnsupportedObjectFile("thread-local data")
        self._place: dict[int, int] = {}
        at = 0
        for i in (i for i in loaded if parsed.sections[i].flags & _SHF_EXEC):
            at = self._copy_section(i, at)
        self._next_stub, code_end = at + -at % 16, at + 16 * (len(externals) + 1)
        code_end += -code_end % _PAGE
        at = code_end
        for i in (i for i in loaded if not parsed.sections[i].flags & _SHF_EXEC):
            at = self._copy_section(i, at)
        self._next_slot = at + -at % 8
        relocations = sum(s.size // 24 for s in parsed.sections if s.type == _SHT_RELA)
        total = self._next_slot + 8 * relocations
        total += -total % _PAGE
        self.memory = mmap.mmap(-1, max(total, _PAGE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._externals = externals
        for i in loaded:
            section = parsed.sections[i]
            if section.type != _SHT_NOBITS:
                at = self._place[i]
                self.memory[at : at + section.size] = parsed.data[section.offset : section.offset + section.size]
        for section in parsed.sections:
            if section.type == _SHT_RELA and section.info in self._place:
                self._apply_relocations(section)
        _make_pages_executable(self._base, code_end)
        self.functions = {
            s.name: self._base + self._place[s.section] + s.value
            for s in parsed.symbols
            if s.binding and s.section in self._place
        }

    def _copy_section(self, section: int, at: int) -> int:
        self._place[section] = at = at + -at % self._object.sections[section].align
        return at + self._object.sections[section].size

    def _symbol_address(self, symbol: _ElfSymbol) -> int:
        if symbol.section == _SHN_UNDEF:
            return self._externals[symbol.name] if symbol.name else 0
        if symbol.section == _SHN_ABS:
            return symbol.value
        if symbol.section not in self._place:
            raise UnsupportedObjectFile(f"symbol {symbol.name} in section {symbol.section}")
        return self._base + self._place[symbol.section] + symbol.value

    def _apply_relocations(self, table: _ElfSection) -> None:
        data, symbols = self._object.data, self._object.symbols
        for entry in range(table.offset, table.offset + table.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", data, entry)
            symbol, kind = symbols[info >> 32], info & 0xFFFFFFFF
            at = self._place[table.info] + offset
            target = self._symbol_address(symbol)
            if kind == _R_64:
                struct.pack_into("<Q", self.memory, at, (target + addend) & (1 << 64) - 1)
            elif kind == _R_PC64:
                struct.pack_into("<q", self.memory, at, target + addend - (self._base + at))
            elif kind in (_R_PC32, _R_PLT32, _R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX):
                if kind in (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX):
                    target = self._global_offset_slot(target)
                elif symbol.section == _SHN_UNDEF:
                    target = self._jump_stub(symbol.name, target)
                distance = target + addend - (self._base + at)
                if not -(1 << 31) <= distance < 1 << 31:
                    raise UnsupportedObjectFile(f"{symbol.name} is out of reach")
                struct.pack_into("<i", self.memory, at, distance)
            else:
                raise UnsupportedObjectFile(f"relocation {kind}")

    def _jump_stub(self, name: str, target: int) -> int:
        """The address of a jump to `target`: jmp [rip + 0] and the address."""
        if name not in self._stubs:
            self.memory[self._next_stub : self._next_stub + 14] = b"\xff\x25\0\0\0\0" + struct.pack("<Q", target)
            self._stubs[name] = self._base + self._next_stub
            self._next_stub += 16
        return self._stubs[name]

    def _global_offset_slot(self, target: int) -> int:
        """The address of eight bytes that hold `target` (an entry of the global offset table)."""
        if target not in self._slots:
            struct.pack_into("<Q", self.memory, self._next_slot, target)
            self._slots[target] = self._base + self._next_slot
            self._next_slot += 8
        return self._slots[target]


def _make_pages_executable(address: int, length: int) -> None:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if length and mprotect(address, length, mmap.PROT_READ | mmap.PROT_EXEC):
        raise UnsupportedObjectFile(f"executable memory refused (errno {ctypes.get_errno()})")


# Searched in this order. libmvec: glibc's vector mathematics; libgcc_s: conversions of half floats and wide integers.
LIBRARIES: dict[str, tuple[str | None, ...]] = {
    "linux": (None, "libm.so.6", "libmvec.so.1", "libc.so.6", "libpthread.so.0", "libgcc_s.so.1"),
    "darwin": (None, "libSystem.dylib"),
    "win32": ("ucrtbase", "msvcrt", "kernel32"),
}


@cache
def _open_c_runtime_library(name: str | None) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except (OSError, TypeError):
        return None


@cache
def find_c_function_address(name: str) -> int | None:
    """The address of the C function `name`, or None."""
    for place in LIBRARIES.get(sys.platform, (None,)):
        library = _open_c_runtime_library(place)
        if library is not None and (function := getattr(library, name, None)) is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def resolve_c_function_addresses(names: Iterable[str], what: str) -> dict[str, int]:
    """The address of every name. Raises CompileError that lists those that this system has not: `what` needs them."""
    found = {name: find_c_function_address(name) for name in names}
    missing = sorted(name for name, address in found.items() if address is None)
    if missing:
        raise CompileError(f"{what} calls {', '.join(missing)}, which no library of this system has", what)
    return {name: address for name, address in found.items() if address is not None}
