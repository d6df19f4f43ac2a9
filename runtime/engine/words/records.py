"""The native engine's records, all made of 64-bit words: the byte offset of each word.

- the engine: `LIVE`, a bit for each slot with unclaimed chunks; a queue of streams that are ready to go on, and one of
  streams whose next step is Python's; how many threads are parked; one lock with four conditions.
- a slot: a launch that several threads work on. `TICKET` holds a generation (high half) and the number of unclaimed
  chunks (low half); who lowers it by compare-and-swap owns a chunk, and until that chunk is done the slot's other words
  stand still. `PENDING` counts unfinished chunks; who brings it to 0 goes on with the stream.
- a run: one call of a plan: its streams, events, gates and argument slots. A stream is a queue of steps, not a thread:
  whoever holds it runs `advance`, and a stream that has to wait is left on its event's list.
- needs: for a thread that helps only until some event has happened: for each stream of the event's run the last step
  that the event needs, or 0; in the place of the whole list 0, if all of the run is needed.
- an event: `HAPPENED`, the number of the last run in which it happened (numbers grow, so nothing is ever reset), the
  streams that wait for it, and the poison: the number of the error that it brings along, or 0.

A run's last touch is `RELEASED`: after that its memory may be used again.
The lock guards both queues, the lists of waiting streams, and parking. The words that are read without it are written
first and the other side's word read second, on both sides (Dekker): a publisher sets `LIVE` then reads `PARKED`, a
worker raises `PARKED` then reads `LIVE`; so does an event with its list.
"""

from __future__ import annotations

import time

# The engine.
LIVE = 0
READY = 8  # a queue
FREE = 64
PARKED, WAITING, AWAKE, STOP, CHAOS, DICE, SIGNALS = 128, 136, 144, 152, 160, 168, 176
HOST = 192  # a queue
ACTIVE, BEGUN = 216, 224  # runs that have begun and not ended; runs that have ever begun
LOCK, WORK, DONE, HOST_WORK, RESERVE = 256, 384, 512, 640, 768
SLOTS, SLOT_BYTES, SLOT_COUNT = 1024, 128, 64
ENGINE_BYTES = 1024 + 64 * 128

# Signals, one record for the process (`interrupts`). MAIN: Python's main thread, which alone writes the rest. ASKED:
# Ctrl-C has come and is put off. BROKEN: what it runs natively ends, and it then raises an exception: KIND, VALUE,
# TRACE. CTRL_C: the exception for Ctrl-C.
MAIN, ASKED, BROKEN, KIND, VALUE, TRACE, CTRL_C = 0, 8, 16, 24, 32, 40, 48
SIGNALS_WORDS = 7
ENDED_EARLY = 1 << 62  # the number of the error of a loop that was ended so

# A queue of streams: its first, and at LAST its last.
LAST = 8

# A slot.
TICKET, PENDING, FUNCTION, ARGUMENTS, UNITS, CHUNK, CHUNKS, SLOT_STREAM, SLOT_STEP = 0, 64, 8, 16, 24, 32, 40, 48, 56

# A run. Its own event says that all of it is done; RELEASED comes after the last touch. BEGAN and ENDED: when its first
# launch began and its last ended; ORDINAL: its place among all that have begun; OTHERS: whether others ran in between.
# LAUNCHING: streams that launch anything; CEASE comes after the last launch of each, before the events after that.
NUMBER, STREAMS_LEFT, RUN_EVENT, RELEASED, RUN_FAILED, STREAM_COUNT = 0, 8, 16, 40, 48, 56
BEGAN, ENDED, ORDINAL, OTHERS, LAUNCHING, LAUNCHING_LEFT = 64, 72, 80, 88, 96, 104
RUN_BYTES = 128

# A stream. NEXT is its link in whatever list it is on.
NEXT, STEP, RUN, FIRST_STEP, URGENT = 0, 8, 16, 24, 32
STREAM_BYTES = 64

# An event. A gate is a list that ends in 0: an event's address, its run's number, the place of the buffer's poison.
HAPPENED, WAITERS, POISON = 0, 8, 16
EVENT_BYTES = 24
GATED_BYTES = 24

# A step: its operation and operands; what lies inside the run is given by offsets. A run has words of poison, see
# `runtime/interpret/serial.py`: the number of the error that a buffer or task has, or 0. ERROR_SOURCES: the address of
# the offset of a step's own word, and then of a list, ending in 0, of those that poison it. LONG: whether the step may
# take so long that a signal of Python's comes meanwhile.
OPERATION, A, B, C, D, E, ERROR_SOURCES, LONG = 0, 8, 16, 24, 32, 40, 48, 56
STEP_BYTES = 64
LAUNCH, RECORD, WAIT, GATE, PYTHON, CEASE, END, STAMP = 0, 1, 2, 3, 4, 5, 6, 7  # STAMP writes the time to a place

# A call's arguments: a template of all slots, and for each word that differs from call to call (its place in the slots,
# its place in the call's table, what to add).
TEMPLATE, TEMPLATE_BYTES, PATCHES, PATCH_COUNT, LAUNCHES, LAUNCH_COUNT, PLAN_ENGINE = 0, 8, 16, 24, 32, 40, 48
PATCH_BYTES = 24

# A direct call: its plan, the bytes of a call's table, how many arguments it takes, the type of NumPy's arrays, its two
# answers, what a reference to an answer adds to its count, how many words it watches, the bytes of an arena on the
# caller's stack (0: none) and its place in the table, and whether any array is assigned to. Then the words: the address
# of each, and what must be there. Then a row for each argument: the dtype (0: any memory), the address modulo 16, what
# to add to the address, the place in the call's table, the bytes from the lowest to the last, whether it is assigned
# to, the dimensions, and for each of those its size and stride. The row of scalars: PACKED, the type of `bytes`, how
# many of them there are, the place in the table of the first, and three times 0. The row of an object that holds its
# value: BOXED, its type, what to add to its address, the place in the table, and three times 0.
DIRECT_PLAN, TABLE_BYTES, TAKES, ARRAY_TYPE, YES, NO, REFERENCE, WATCHED = 0, 8, 16, 24, 32, 40, 48, 56
STACK_BYTES, STACK_PLACE, ASSIGNS = 64, 72, 80
DIRECT_BYTES = 88
WATCHED_BYTES = 16
ROW_DTYPE, ROW_MODULO, ROW_ADD, ROW_PLACE, ROW_EXTENT, ROW_ASSIGNED, ROW_NDIM = 0, 8, 16, 24, 32, 40, 48
ROW_TYPE, ROW_LENGTH, PACKED, BOXED = 8, 16, 1, 2
ROW_BYTES = 56

# What all calls of decorated functions share: where an object has its fast function, the address of a word that is 0
# while nothing is unusual, the answer of a fast function that has done nothing, what then calls, and what calls
# altogether.
FAST_AT, UNUSUAL, NOT_TAKEN, CALL_UNTAKEN, CALL_IN_PYTHON = 0, 8, 16, 24, 32

# A function of numbers: the answer that says that it has done nothing, the types of tuples and of errors that it
# answers so, how many leaves there are, the words that it watches, the items that it looks up, constants, statements,
# the bytes of a frame, whether a statement gives references, what makes the container that is returned (0: one number
# is), where the address of its items is (0: it has them itself), where they are, and how many. Then the watched words;
# the items: a dict, a key, and the item (0: there is none); for each leaf whether itself is looked at (0), its type (1)
# or its type and the bits of a float64, and what has to be there; the constants; the statements; for each item of the
# result whether it is the bits of a float64, and its place. A frame has the leaves, their bits, the constants, and what
# the statements give.
DECLINED, TUPLE_TYPE, ERROR_TYPE, LEAF_COUNT, WORD_COUNT, ITEM_COUNT, CONSTANT_COUNT, STATEMENT_COUNT = range(0, 64, 8)
FRAME_BYTES, REFERENCES, RESULT_MAKER, RESULT_BEHIND, RESULT_ITEMS, RESULT_COUNT = range(64, 112, 8)
NUMBERS_BYTES = 112
ITEM_BYTES, LEAF_BYTES, RESULT_BYTES = 24, 16, 16
LEAF_ITSELF, LEAF_OF_TYPE, LEAF_FLOAT = 0, 1, 2

# A statement: its operation; the places in the frame of what it gives and of two operands; a C function of Python's
# and its third argument. MAKE_FLOAT and CALL give a new reference.
S_OPERATION, S_OUT, S_LEFT, S_RIGHT, S_FUNCTION, S_EXTRA = range(0, 48, 8)
STATEMENT_BYTES = 48
ADD, SUBTRACT, MULTIPLY, DIVIDE, TAKE_FLOAT, MAKE_FLOAT, CALL = range(7)

# A maker of objects: what allocates one, its class, how many values it is made with, and how many others it has; then
# where it has the values; then the others: where, and what.
OBJECT_ALLOCATOR, OBJECT_TYPE, OBJECT_VALUES, OBJECT_OTHERS = range(0, 32, 8)
OBJECT_BYTES, OTHER_BYTES = 32, 16

# A test of the types of a list's items: the type of lists, the answers yes and no, how many types will do; then those.
TEST_LIST, TEST_YES, TEST_NO, TEST_COUNT = range(0, 32, 8)
TEST_BYTES = 32

# A body of a loop or branch: its plan; its table's addresses, each by the offset of a place, a row of them for each
# state of the carried values, and the bytes that each moves on by a turn; its numbers; how many threads may help.
BODY, BODY_COLUMNS, BODY_NUMBERS, BODY_ROWS, BODY_MOVES, BODY_ENGINE, BODY_HELPERS = 0, 8, 16, 24, 32, 40, 48
BODY_BYTES = 56

# A loop: then comes its body. Places are the addresses of the initial values, of the pool, and of the `OTHERS`
# arguments after that. NAMES: for each state the loop may end in, which argument of the pool each of its places is;
# FINAL: where the carried values are in each state; SIZES: their bytes. COUNT_AT, NUMBERS_AT: offsets in the arguments.
# STRIDE: the turns between two looks at the clock, to see to Python's signals in time; LOOKED: when the last one was.
LOOP_CARRIED, LOOP_POOL, LOOP_OTHERS, LOOP_LEAD, LOOP_ROW_COUNT, LOOP_NAMES, LOOP_FINAL = 0, 8, 16, 24, 32, 40, 48
LOOP_SIZES, LOOP_COUNT_KIND, LOOP_COUNT_AT, LOOP_NUMBERS_AT = 56, 64, 72, 80
LOOP_STRIDE, LOOP_LOOKED = 88, 96
LOOP_BYTES = 104

MONOTONIC, REALTIME = getattr(time, "CLOCK_MONOTONIC", 1), getattr(time, "CLOCK_REALTIME", 0)
LOW_HALF = 0xFFFFFFFF
GENERATION = 1 << 32
SPIN_NS = 50_000
SPINS_PER_CHECK = 32  # spins between two looks at the clock
SLICE_NS = 50_000_000  # threads of Python's see to its signals this often
