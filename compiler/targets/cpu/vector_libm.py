"""Calls into the C math library. Vector routines of glibc's libmvec where the machine has them, else lane by lane.

The same routine serves every lane count (a scalar is lane 0 of a vector), so a value gives the same bits at any
position of an array.
"""

from __future__ import annotations

from ...kernel.primitives import PRIMITIVES
from .llvm_ir import LlvmFunction, LlvmValue, llvm_intrinsic_suffix, llvm_type, llvm_type_bits

# libmvec's names: _ZGV, instruction set (d: AVX2, e: AVX-512), N (no mask), lanes, one `v` a parameter, name.
VECTOR_LIBRARIES = {"libmvec-avx512": ("e", 512), "libmvec-avx2": ("d", 256)}


def llvm_libm_call(name: str, *args: LlvmValue, scalar_only: bool = False) -> LlvmValue:
    """C's `name` (float variant `namef`) of float or double values; `scalar_only`: not the vector library's."""
    f, elem, lanes = args[0].f, args[0].elem, max(a.lanes for a in args)
    wide = [a.splat(lanes) for a in args]
    symbol = name + ("f" if elem == "float" else "")
    library = f.module.vector_library
    if library is not None and PRIMITIVES[name].libmvec and not scalar_only:
        return _llvm_vector_libm_call(f, library, symbol, wide)
    scalar = "@" + symbol
    f.module.declare(scalar, f"{elem} {scalar}({', '.join([elem] * len(args))}) nounwind willreturn memory(none)")
    return llvm_libm_call_for_each_lane(scalar, wide) if lanes > 1 else f.call(scalar, elem, *wide)


def llvm_libm_call_for_each_lane(scalar: str, args: list[LlvmValue]) -> LlvmValue:
    """Apply the scalar function to every lane, in a loop of a helper function."""
    f, elem, lanes = args[0].f, args[0].elem, args[0].lanes
    helper = f"@map.{scalar[1:]}.{llvm_intrinsic_suffix(elem, lanes)}"

    def write_lane_loop(*params: LlvmValue) -> LlvmValue:
        g = params[0].f
        places = [g.slot(p.kind) for p in params]
        for place, p in zip(places, params, strict=True):
            place.store(p, 64)
        with g.loop(0, lanes) as i:
            one = [place.at(i, elem) for place in places]
            one[0].store(g.call(scalar, elem, *(o.load(elem) for o in one)))
        return places[0].load(elem, lanes, 64)

    f.module.function(helper, elem, (elem,) * len(args), (lanes,) * len(args), write_lane_loop, "noinline")
    return f.call(helper, elem, *args)


def _llvm_vector_libm_call(f: LlvmFunction, library: str, symbol: str, args: list[LlvmValue]) -> LlvmValue:
    letter, width = VECTOR_LIBRARIES[library]
    elem, lanes, count = args[0].elem, args[0].lanes, width // llvm_type_bits(args[0].elem)
    name = f"@_ZGV{letter}N{count}{'v' * len(args)}_{symbol}"
    kind = llvm_type(elem, count)
    f.module.declare(name, f"{kind} {name}({', '.join([kind] * len(args))}) nounwind willreturn memory(none)")
    if lanes == count:
        return f.call(name, elem, *args)
    if lanes < count:
        order = [i % lanes for i in range(count)]
        wide = [a.splat(count) if lanes == 1 else a.shuffle(order) for a in args]
        return f.call(name, elem, *wide).shuffle(list(range(lanes)))
    parts = [
        f.call(name, elem, *(a.shuffle(list(range(start, start + count))) for a in args))
        for start in range(0, lanes, count)
    ]
    while len(parts) > 1:
        parts = [a.shuffle(list(range(2 * a.lanes)), b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
