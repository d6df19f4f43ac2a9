"""Small kernels that the device itself needs, as PTX: copies between buffers, and words into a table.

All arguments lie in one block of parameters, 8 bytes each, pointers first; `compile_cuda` only links the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ..program import Int, Kernel, Pointer, Task

WORDS = 480  # pointers that one launch writes: 4 KiB of parameters are the least that every GPU takes
COPIES = 160  # rows of one launch, for the same reason
THREADS = 256
MOST_BLOCKS = 1056  # of one copy

HEAD = """.version 7.0
.target sm_60
.address_size 64
.visible .entry {name}(.param .align 8 .b8 arguments[{nbytes}])
.maxntid 256, 1, 1
{{
.reg .pred %p;
.reg .b32 %r<8>;
.reg .b64 %rd<16>;
"""

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


@cache
def copy_kernel(rows: int) -> Kernel:
    """(target, source) for each row, then the bytes of each."""
    name = f"copy_{rows}"
    text = (HEAD + COPY).format(name=name, nbytes=24 * rows, first=0, sizes=16 * rows, check="")
    return Kernel(name, "cuda", text, ("ptr",) * 2 * rows + ("i64",) * rows, (("ptx", "copy"),))


@cache
def table_kernel(words: int) -> Kernel:
    """The table, then its words."""
    name = f"table_{words}"
    text = (HEAD + _TABLE).format(name=name, nbytes=8 * (words + 1), words=words)
    return Kernel(name, "cuda", text, ("ptr",) * (words + 1), (("ptx", "table"),))


def copy_task(rows: Sequence[tuple[Pointer, Pointer, int]]) -> Task:
    """Copies of (target, source, bytes), at most COPIES, none of which overlaps another."""
    pointers = tuple(p for target, source, _ in rows for p in (target, source))
    sizes = tuple(Int(n) for _, _, n in rows)
    blocks = min(MOST_BLOCKS, max(1, -(-max(n for _, _, n in rows) // (16 * THREADS))))
    return Task("copies", copy_kernel(len(rows)), (*pointers, *sizes), (), (), grid=(blocks, len(rows), 1),
                block=(THREADS, 1, 1))  # fmt: skip


def table_task(table: Pointer, words: Sequence[Pointer]) -> Task:
    """The addresses, at most WORDS, one after another into the table."""
    kernel = table_kernel(len(words))
    return Task("pointers", kernel, (table, *words), (), (), block=(THREADS, 1, 1))
