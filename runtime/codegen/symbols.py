"""Names of C functions in, their addresses in this process out: what machine code may call."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from functools import cache

from ..core.errors import CompileError

# Searched in this order. libmvec: glibc's vector mathematics; libgcc_s: conversions of half floats and wide integers.
LIBRARIES: dict[str, tuple[str | None, ...]] = {
    "linux": (None, "libm.so.6", "libmvec.so.1", "libc.so.6", "libpthread.so.0", "libgcc_s.so.1"),
    "darwin": (None, "libSystem.dylib"),
    "win32": ("ucrtbase", "msvcrt", "kernel32"),
}


@cache
def _open_c_library(name: str | None) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except (OSError, TypeError):
        return None


@cache
def find_c_function(name: str) -> int | None:
    """The address of the C function `name`, or None."""
    for place in LIBRARIES.get(sys.platform, (None,)):
        library = _open_c_library(place)
        if library is not None and (function := getattr(library, name, None)) is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def resolve_c_functions(names: Iterable[str], what: str) -> dict[str, int]:
    """The address of every name. Raises CompileError that lists those that this system has not: `what` needs them."""
    found = {name: find_c_function(name) for name in names}
    missing = sorted(name for name, address in found.items() if address is None)
    if missing:
        raise CompileError(f"{what} calls {', '.join(missing)}, which no library of this system has", what)
    return {name: address for name, address in found.items() if address is not None}
