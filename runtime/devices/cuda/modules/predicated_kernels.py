"""Kernels that run only if something is true, and small kernels that say what is. A kernel in, its guarded form out.

A guard is a word in device memory, of which some bits (`mask`) have to be as wanted. The first thing that a guarded
kernel does is to look; where they differ it does nothing. A block of flags is such a word, a byte for each of eight
things one after another; after it come the number of iterations that are over and, of a loop that counts, of those
left. A turned kernel adds the first of these, times what they change by at an iteration, to some of its parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ....core.frozen import frozen, replace
from ....program.device import GpuProperties
from ....program.program import Int, Kernel, Scalar, Task
from .launch import pack_member_kernel_arguments
from .ptx_kernels import COPY, THREADS, thread_blocks_of_copy_kernel

FLAGS, FLAGS_BYTES = 8, 24  # of a block
LEAVES = 100  # rows of `make_selected_copies_kernel_task`: 4 KiB of parameters are the least that every GPU takes
_ONES = 0x0101010101010101
_WORD = (1 << 64) - 1


@frozen
class LaunchPredicate:
    """Something runs if (word at `address` & mask) == want."""

    address: int
    mask: int
    want: int

    @property
    def words(self) -> tuple[int, int, int]:
        return self.address, self.mask, self.want


def launch_predicate_on_flags_up_to(flags: int, number: int) -> LaunchPredicate:
    """The flags 0 to `number` of a block are all true."""
    mask = _WORD >> 8 * (FLAGS - 1 - number)
    return LaunchPredicate(flags, mask, _ONES & mask)


def launch_predicate_always_true(flags: int) -> LaunchPredicate:
    return LaunchPredicate(flags, 0, 0)


def launch_predicate_on_first_flag(flags: int, value: bool) -> LaunchPredicate:
    return LaunchPredicate(flags, 0xFF, int(value))


# Forms of kernels


def kernel_has_advancing_form(kernel: Kernel) -> bool:
    """Whether there is a turned form: of one member alone."""
    options = dict(kernel.options)
    return gpu_kernel_has_predicated_form(kernel) and "packed" not in options and "ptx" not in options


def gpu_kernel_has_predicated_form(kernel: Kernel) -> bool:
    """Whether there is a guarded form: not of C++."""
    return dict(kernel.options).get("own") != "c++"


def make_predicated_kernel_task(task: Task, numbers: int, moves: tuple[int, ...] = ()) -> Task:
    """A kernel's task that does nothing where a guard fails. Its words come with each call, after `numbers` others.

    moves: what each argument changes by at an iteration, where the guard's word is of a block of flags."""
    assert isinstance(task.kernel, Kernel)
    words = (Scalar(numbers + i, "uint64") for i in range(3))
    whole = pack_member_kernel_arguments(task)
    more = (("guarded", True), *((("advancing", moves),) if any(moves) else ()))
    kernel = replace(task.kernel, options=(*task.kernel.options, *more))
    return replace(whole, kernel=kernel, arguments=(*whole.arguments, *words))


# What says what is true

# The flags; a byte; a guard. The first flag becomes whether the byte is not 0, or 2 where the guard fails.
_BEGIN = """ld.param.u64 %rd0, [arguments];
ld.param.u64 %rd1, [arguments+8];
ld.param.u64 %rd2, [arguments+16];
ld.param.u64 %rd3, [arguments+24];
ld.param.u64 %rd4, [arguments+32];
ld.global.u64 %rd5, [%rd2];
and.b64 %rd5, %rd5, %rd3;
ld.global.u8 %r0, [%rd1];
setp.ne.u32 %p, %r0, 0;
selp.b64 %rd6, 1, 0, %p;
setp.ne.u64 %p, %rd5, %rd4;
selp.b64 %rd6, 2, %rd6, %p;
or.b64 %rd6, %rd6, 0x0101010101010100;
st.global.u64 [%rd0], %rd6;
mov.u64 %rd7, 0;
st.global.u64 [%rd0+8], %rd7;
ret;
}
"""

# The flags; where the number of iterations is, or 0; that number; a guard. The flag of iteration i becomes whether i is
# below it.
_COUNT = """ld.param.u64 %rd0, [arguments];
ld.param.u64 %rd1, [arguments+8];
ld.param.u64 %rd2, [arguments+16];
ld.param.u64 %rd3, [arguments+24];
ld.param.u64 %rd4, [arguments+32];
ld.param.u64 %rd5, [arguments+40];
ld.global.u64 %rd6, [%rd3];
and.b64 %rd6, %rd6, %rd4;
setp.eq.u64 %p, %rd1, 0;
@%p bra KNOWN;
ld.global.u64 %rd2, [%rd1];
KNOWN:
max.s64 %rd2, %rd2, 0;
mov.u64 %rd7, 0;
st.global.u64 [%rd0+8], %rd7;
"""
# The flags; a number of iterations that are over now.
_ADVANCE = """ld.param.u64 %rd0, [arguments];
ld.param.u64 %rd3, [arguments+8];
ld.global.u64 %rd1, [%rd0+8];
add.s64 %rd1, %rd1, %rd3;
st.global.u64 [%rd0+8], %rd1;
ld.global.u64 %rd2, [%rd0+16];
sub.s64 %rd2, %rd2, %rd3;
mov.u64 %rd5, 0;
mov.u64 %rd6, 0;
"""
_LEFT = """st.global.u64 [%rd0+16], %rd2;
min.u64 %rd8, %rd2, 8;
cvt.u32.u64 %r0, %rd8;
shl.b32 %r0, %r0, 3;
mov.u64 %rd9, 0xffffffffffffffff;
shl.b64 %rd9, %rd9, %r0;
not.b64 %rd9, %rd9;
and.b64 %rd9, %rd9, 0x0101010101010101;
setp.ne.u64 %p, %rd6, %rd5;
selp.b64 %rd9, 2, %rd9, %p;
st.global.u64 [%rd0], %rd9;
ret;
}
"""

# A guard; the handle of a condition, which becomes whether it holds.
_DECIDE = """ld.param.u64 %rd0, [arguments];
ld.param.u64 %rd1, [arguments+8];
ld.param.u64 %rd2, [arguments+16];
ld.param.u64 %rd3, [arguments+24];
ld.global.u64 %rd4, [%rd0];
and.b64 %rd4, %rd4, %rd1;
setp.eq.u64 %p, %rd4, %rd2;
selp.u32 %r0, 1, 0, %p;
{
.param .b64 handle;
.param .b32 value;
st.param.b64 [handle], %rd3;
st.param.b32 [value], %r0;
call.uni cudaGraphSetConditional, (handle, value);
}
ret;
}
"""
_DECLARED = ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"

# Of a copy that depends on which flag is the first that is not true: the number of that is a bit of the row's mask.
_EXIT = """ld.param.u64 %rd10, [arguments];
ld.global.u64 %rd10, [%rd10];
xor.b64 %rd10, %rd10, 0x0101010101010101;
cvt.u32.u64 %r5, %rd10;
and.b32 %r5, %r5, 255;
setp.eq.u32 %p, %r5, 3;
@%p bra DONE;
brev.b64 %rd10, %rd10;
clz.b64 %r5, %rd10;
shr.u32 %r5, %r5, 3;
ld.param.u64 %rd10, [%rd2+{masks}];
shr.u64 %rd10, %rd10, %r5;
and.b64 %rd10, %rd10, 1;
setp.eq.u64 %p, %rd10, 0;
@%p bra DONE;
"""


@cache
def _make_ptx_kernel(name: str, text: str, words: int) -> Kernel:
    declared = (("declared", _DECLARED),) if name == "decide" else ()
    return Kernel(name, "cuda", text, ("i64",) * words, (("ptx", name), *declared))


def make_flag_initialization_kernel_task(flags: int, byte: int, guard: LaunchPredicate | None) -> Task:
    """The first flag becomes whether the byte is not 0, or neither if the guard fails; all others become true."""
    words = (flags, byte, *(guard or launch_predicate_always_true(flags)).words)
    return Task("begin", _make_ptx_kernel("begin", _BEGIN, 5), tuple(map(Int, words)), (), ())


def make_loop_count_kernel_task(flags: int, source: int, number: int, guard: LaunchPredicate | None) -> Task:
    """A loop of the number of iterations that is at `source`, or without one of `number`; none if the guard fails."""
    words = (flags, source, number, *(guard or launch_predicate_always_true(flags)).words)
    return Task("count", _make_ptx_kernel("count", _COUNT + _LEFT, 6), tuple(map(Int, words)), (), ())


def make_iteration_advance_kernel_task(flags: int, iterations: int) -> Task:
    return Task("advance", _make_ptx_kernel("advance", _ADVANCE + _LEFT, 2), (Int(flags), Int(iterations)), (), ())


def make_graph_condition_kernel_task(guard: LaunchPredicate, handle: int) -> Task:
    return Task("decide", _make_ptx_kernel("decide", _DECIDE, 4), tuple(map(Int, (*guard.words, handle))), (), ())


@cache
def _selected_copies_ptx_kernel(rows: int) -> Kernel:
    name, sizes = f"leave_{rows}", 8 + 16 * rows
    text = COPY.format(first=8, sizes=sizes, check=_EXIT.format(masks=sizes + 8 * rows))
    return Kernel(name, "cuda", text, ("i64",) * (1 + 4 * rows), (("ptx", "leave"),))


def make_selected_copies_kernel_task(flags: int, rows: Sequence[tuple[int, int, int, int]], gpu: GpuProperties) -> Task:
    """Copies of (target, source, bytes, mask), where bit i of the mask says whether to copy if flag i is the first that
    is not true."""
    places = (Int(address) for target, source, _, _ in rows for address in (target, source))
    numbers = (*(Int(n) for _, _, n, _ in rows), *(Int(mask) for *_, mask in rows))
    blocks = thread_blocks_of_copy_kernel(max(n for _, _, n, _ in rows), gpu)
    arguments = (Int(flags), *places, *numbers)
    kernel, grid = _selected_copies_ptx_kernel(len(rows)), (blocks, len(rows), 1)
    return Task("leave", kernel, arguments, (), (), grid=grid, block=(THREADS, 1, 1))
