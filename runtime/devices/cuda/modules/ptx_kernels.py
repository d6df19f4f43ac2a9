"""Small kernels that the device itself needs, as PTX. Copies between buffers, words into a table, relu in place.

All arguments lie in one block of parameters, 8 bytes each, pointers first. A kernel's source is what it does, to which
`ptx_text_of_kernel` writes the head of its form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ....program.device import GpuProperties
from ....program.program import Int, Kernel, Pointer, Task

WORDS = 480  # pointers that one launch writes: 4 KiB of parameters are the least that every GPU takes
COPIES = 160  # rows of one launch, for the same reason
THREADS = 256
BLOCKS = 8  # of a multiprocessor: what one copy takes at most

_HEAD = """.version 7.0
.target sm_60
.address_size 64
{declared}.visible .entry {name}(.param .align 8 .b8 arguments[{nbytes}])
.maxntid 256, 1, 1
{{
.reg .pred %p;
.reg .b32 %r<8>;
.reg .b64 %rd<16>;
"""

# Three more arguments: a guard.
_GUARD = """.reg .pred %guarded;
.reg .b64 %guard<4>;
ld.param.u64 %guard0, [arguments+{first}];
ld.param.u64 %guard1, [arguments+{first}+8];
ld.param.u64 %guard2, [arguments+{first}+16];
ld.global.u64 %guard3, [%guard0];
and.b64 %guard3, %guard3, %guard1;
setp.ne.u64 %guarded, %guard3, %guard2;
@%guarded ret;
"""


def ptx_text_of_kernel(kernel: Kernel) -> str:
    """The text of a kernel of the device's own, in its predicated form if that is asked for; of other kernels
    `compile/entries.py` makes these forms."""
    nbytes, options = 8 * len(kernel.signature), dict(kernel.options)
    guard = _GUARD.format(first=nbytes) if "guarded" in options else ""
    head = _HEAD.format(name=kernel.name, nbytes=nbytes + (24 if guard else 0), declared=options.get("declared", ""))
    return head + guard + kernel.source


# Row ctaid.y: (target, source) pointers from byte `first` on, then the sizes in bytes. 16 bytes at a time where all are
# multiples of 16. check: what comes first; it may branch to DONE.
COPY = """mov.u32 %r0, %ctaid.y;
mov.b64 %rd0, arguments;
mul.wide.u32 %rd1, %r0, 16;
add.s64 %rd1, %rd0, %rd1;
mul.wide.u32 %rd2, %r0, 8;
add.s64 %rd2, %rd0, %rd2;
{check}ld.param.u64 %rd3, [%rd1+{first}];
ld.param.u64 %rd4, [%rd1+{first}+8];
ld.param.u64 %rd5, [%rd2+{sizes}];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mov.u32 %r4, %nctaid.x;
mul.wide.u32 %rd6, %r1, %r2;
cvt.u64.u32 %rd7, %r3;
add.s64 %rd6, %rd6, %rd7;
mul.wide.u32 %rd7, %r4, %r2;
or.b64 %rd8, %rd3, %rd4;
or.b64 %rd8, %rd8, %rd5;
and.b64 %rd8, %rd8, 15;
setp.ne.u64 %p, %rd8, 0;
@%p bra BYTES;
shl.b64 %rd6, %rd6, 4;
shl.b64 %rd7, %rd7, 4;
WIDE:
setp.ge.u64 %p, %rd6, %rd5;
@%p bra DONE;
add.s64 %rd9, %rd4, %rd6;
add.s64 %rd10, %rd3, %rd6;
ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd9];
st.global.v4.u32 [%rd10], {{%r4, %r5, %r6, %r7}};
add.s64 %rd6, %rd6, %rd7;
bra WIDE;
BYTES:
setp.ge.u64 %p, %rd6, %rd5;
@%p bra DONE;
add.s64 %rd9, %rd4, %rd6;
add.s64 %rd10, %rd3, %rd6;
ld.global.u8 %r4, [%rd9];
st.global.u8 [%rd10], %r4;
add.s64 %rd6, %rd6, %rd7;
bra BYTES;
DONE:
ret;
}}
"""

# The first argument is the table; the rest goes into it.
_TABLE = """mov.u32 %r0, %tid.x;
mov.b64 %rd0, arguments;
ld.param.u64 %rd1, [arguments];
NEXT:
setp.ge.u32 %p, %r0, {words};
@%p bra DONE;
mul.wide.u32 %rd2, %r0, 8;
add.s64 %rd3, %rd0, %rd2;
ld.param.u64 %rd4, [%rd3+8];
add.s64 %rd5, %rd1, %rd2;
st.global.u64 [%rd5], %rd4;
add.u32 %r0, %r0, 256;
bra NEXT;
DONE:
ret;
}}
"""

# A matrix, its columns, rows, bytes between rows, how many matrices, bytes between these. NaN stays NaN: its bits, but
# for the sign, are more than those of infinity.
_RELU = """ld.param.u64 %rd1, [arguments];
ld.param.u64 %rd2, [arguments+8];
ld.param.u64 %rd3, [arguments+16];
ld.param.u64 %rd4, [arguments+24];
ld.param.u64 %rd5, [arguments+32];
ld.param.u64 %rd6, [arguments+40];
mov.u32 %r0, %ctaid.x;
mov.u32 %r1, %ntid.x;
mul.wide.u32 %rd7, %r0, %r1;
mov.u32 %r0, %tid.x;
cvt.u64.u32 %rd8, %r0;
add.s64 %rd7, %rd7, %rd8;
setp.ge.u64 %p, %rd7, %rd2;
@%p bra DONE;
mad.lo.s64 %rd1, %rd7, {itemsize}, %rd1;
mov.u32 %r0, %nctaid.y;
cvt.u64.u32 %rd9, %r0;
mov.u32 %r0, %nctaid.z;
cvt.u64.u32 %rd10, %r0;
mov.u32 %r0, %ctaid.z;
cvt.u64.u32 %rd8, %r0;
MATRIX:
setp.ge.u64 %p, %rd8, %rd5;
@%p bra DONE;
mad.lo.s64 %rd11, %rd8, %rd6, %rd1;
mov.u32 %r0, %ctaid.y;
cvt.u64.u32 %rd12, %r0;
ROW:
setp.ge.u64 %p, %rd12, %rd3;
@%p bra NEXT;
mad.lo.s64 %rd13, %rd12, %rd4, %rd11;
ld.global.u{bits} %r1, [%rd13];
and.b32 %r2, %r1, {magnitude};
setp.gt.u32 %p, %r2, {infinity};
@%p bra KEPT;
setp.le.u32 %p, %r1, {magnitude};
@%p bra KEPT;
mov.u32 %r3, 0;
st.global.u{bits} [%rd13], %r3;
KEPT:
add.s64 %rd12, %rd12, %rd9;
bra ROW;
NEXT:
add.s64 %rd8, %rd8, %rd10;
bra MATRIX;
DONE:
ret;
}}
"""
INFINITY = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}


@cache
def ptx_relu_kernel(dtype: str) -> Kernel:
    """See `_RELU`; a float dtype of 16 or 32 bits."""
    bits = 32 if dtype == "float32" else 16
    name = f"relu_{dtype}"
    numbers = {"magnitude": (1 << bits - 1) - 1, "infinity": INFINITY[dtype]}
    text = _RELU.format(itemsize=bits // 8, bits=bits, **numbers)
    return Kernel(name, "cuda", text, ("ptr", *("i64",) * 5), (("ptx", name),))


def make_ptx_relu_task(dtype: str, matrix: Pointer, sizes: tuple[int, int, int], strides: tuple[int, int]) -> Task:
    """max(x, 0) in place, of `sizes` matrices, rows and columns, `strides` bytes from one to the next of the first two.
    NaN stays NaN."""
    matrices, rows, columns = sizes
    numbers = (Int(n) for n in (columns, rows, strides[1], matrices, strides[0]))
    grid = (-(-columns // THREADS), min(rows, 1 << 13), min(matrices, 64))
    return Task("relu", ptx_relu_kernel(dtype), (matrix, *numbers), (), (), grid=grid, block=(THREADS, 1, 1))


@cache
def ptx_copy_kernel(rows: int) -> Kernel:
    """(target, source) for each row, then the bytes of each."""
    name = f"copy_{rows}"
    text = COPY.format(first=0, sizes=16 * rows, check="")
    return Kernel(name, "cuda", text, ("ptr",) * 2 * rows + ("i64",) * rows, (("ptx", "copy"),))


@cache
def ptx_pointer_table_kernel(words: int) -> Kernel:
    """The table, then its words."""
    name = f"table_{words}"
    return Kernel(name, "cuda", _TABLE.format(words=words), ("ptr",) * (words + 1), (("ptx", "table"),))


def thread_blocks_of_copy_kernel(nbytes: int, gpu: GpuProperties) -> int:
    """Blocks of one copy."""
    return min(BLOCKS * gpu.multiprocessors, max(1, -(-nbytes // (16 * THREADS))))


def make_ptx_copy_task(rows: Sequence[tuple[Pointer, Pointer, int]], gpu: GpuProperties) -> Task:
    """Copies of (target, source, bytes), at most COPIES, none of which overlaps another."""
    pointers = tuple(p for target, source, _ in rows for p in (target, source))
    sizes = tuple(Int(n) for _, _, n in rows)
    blocks = thread_blocks_of_copy_kernel(max(n for _, _, n in rows), gpu)
    return Task("copies", ptx_copy_kernel(len(rows)), (*pointers, *sizes), (), (), grid=(blocks, len(rows), 1),
                block=(THREADS, 1, 1))  # fmt: skip


def make_ptx_pointer_table_task(table: Pointer, words: Sequence[Pointer]) -> Task:
    """The addresses, at most WORDS, one after another into the table."""
    kernel = ptx_pointer_table_kernel(len(words))
    return Task("pointers", kernel, (table, *words), (), (), block=(THREADS, 1, 1))
