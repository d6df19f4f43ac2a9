"""Calls of the driver from Python, as functions on words. A call of any function, and the launch of a graph.

`word_language` makes machine code of this text; Python never runs it. What a function's `this` holds, and a graph's
record, is said at the offsets below, in bytes.
"""

from __future__ import annotations

from ....codegen.word_language import (
    BYTES_AT,
    WordInstruction,
    clear_error,
    hold,
    let_go,
    load,
    mutex_init,
    mutex_lock,
    mutex_unlock,
    stack,
    store,
    vectorcall,
)

# C functions of Python: an int to a word (all ones and an exception if it is none), a word to an int, the interpreter
# lock given back and taken again.
as_word = WordInstruction("{r} = call i64 {p0}(i64 {1})")
as_int = WordInstruction("{r} = call i64 {p0}(i64 {1})")
unlock_python = WordInstruction("{r} = call i64 {p0}()")
lock_python = WordInstruction("call void {p0}(i64 {1})")
# A function of the driver: parameters that it has not are ignored in their registers.
driver = WordInstruction("{r}w = call i32 {p0}(i64 {1}, i64 {2}, i64 {3}, i64 {4})\n{r} = zext i32 {r}w to i64")

# What `this` holds first: those four, then the function and whether it may take long, or the records of graphs, or one
# and Python's functions that take a free handle of an event, make the event, and note it; and None.
AS_WORD, AS_INT, UNLOCK, RELOCK, FUNCTION, LONG = 0, 8, 16, 24, 32, 40
GRAPHS, FIRST_GRAPH = 32, 40
GRAPH, TAKE, MAKE, NOTE, NOTHING = 32, 40, 48, 56, 64

# A graph for one stream: the context to make current, if there are several; how many addresses have to be what they
# were, and how many nodes change. Then, for each of those addresses, which of a call's it is, which of its bits have to
# be what they were, and what they were; and each node: its handle, its parameters, how many of its kernel's addresses a
# call brings, and for each of those where it lies, which of a call's it is and what to add to it.
LOCK, EXECUTABLE, STREAM, UPDATE, LAUNCH, RECORD, BOUND, COUNT, ENTER, CONTEXT = 0, *range(128, 200, 8)
ROWS = 200
MOVED = 2**32 - 1  # in place of a result code: an address is not what it was


def take_arguments_of_driver_call(head: int, words: int, given: int, count: int) -> int:
    """Python's ints as words. 0: one is none, and Python has been told."""
    last = given + 8 * count
    while given != last:
        word = as_word(load(head + AS_WORD), load(given))
        if word == ~0:
            return 0
        store(words, word)
        words += 8
        given += 8
    return 1


def call_driver_function(this: int, given: int, count: int) -> int:
    """A function for Python (METH_FASTCALL): up to four ints to the driver's function, its result code."""
    head = this + BYTES_AT
    words = stack(32)
    if count > 4:
        count = 4
    if not take_arguments_of_driver_call(head, words, given, count):
        return 0
    if load(head + LONG):
        state = unlock_python(load(head + UNLOCK))
        code = driver(load(head + FUNCTION), load(words), load(words + 8), load(words + 16), load(words + 24))
        lock_python(load(head + RELOCK), state)
    else:
        code = driver(load(head + FUNCTION), load(words), load(words + 8), load(words + 16), load(words + 24))
    return as_int(load(head + AS_INT), code)


def call_driver_status_function(this: int, given: int, count: int) -> int:
    """A function for Python: an int to the driver's function, which answers with a 32-bit number; its result code or,
    where that is 0, the answer."""
    head = this + BYTES_AT
    words = stack(32)
    if count > 1:
        count = 1
    if not take_arguments_of_driver_call(head, words, given, count):
        return 0
    store(words + 8, 0)
    code = driver(load(head + FUNCTION), load(words), words + 8, 0, 0)
    if code == 0:
        code = load(words + 8)
    return as_int(load(head + AS_INT), code)


def launch_driver_graph_from_python(this: int, given: int, count: int) -> int:
    """A function for Python: an event for each graph, then the addresses of a call's buffers, to the driver's result
    code. Where it is not 0, graphs before may have been launched."""
    head = this + BYTES_AT
    words = stack(8 * count)
    if not take_arguments_of_driver_call(head, words, given, count):
        return 0
    place = head + FIRST_GRAPH
    last = place + 8 * load(head + GRAPHS)
    lock = load(place) + LOCK
    event = words
    words += 8 * load(head + GRAPHS)
    code = 0
    state = unlock_python(load(head + UNLOCK))
    mutex_lock(lock)
    while place != last:
        code = issue_driver_graph_launch(load(place), load(event), words)
        event += 8
        place += 8
        if code:
            place = last
    mutex_unlock(lock)
    lock_python(load(head + RELOCK), state)
    return as_int(load(head + AS_INT), code)


def start_driver_graph_from_python(this: int, given: int, count: int) -> int:
    """A function for Python: the addresses of a call's buffers, to the event after a launch of the graph. None where no
    handle is free, and where the driver refuses."""
    head = this + BYTES_AT
    words = stack(8 * count)
    if not take_arguments_of_driver_call(head, words, given, count):
        return 0
    arguments = stack(8)
    handle = vectorcall(load(head + TAKE), arguments, 0, 0)
    if handle == 0:
        clear_error()
        hold(load(head + NOTHING))
        return load(head + NOTHING)
    store(arguments, handle)
    event = vectorcall(load(head + MAKE), arguments, 1, 0)
    number = as_word(load(head + AS_WORD), handle)
    let_go(handle)
    if event == 0:
        return 0
    graph = load(head + GRAPH)
    state = unlock_python(load(head + UNLOCK))
    mutex_lock(graph + LOCK)
    code = issue_driver_graph_launch(graph, number, words)
    mutex_unlock(graph + LOCK)
    lock_python(load(head + RELOCK), state)
    if code:
        let_go(event)
        hold(load(head + NOTHING))
        return load(head + NOTHING)
    store(arguments, event)
    noted = vectorcall(load(head + NOTE), arguments, 1, 0)
    if noted == 0:
        let_go(event)
        return 0
    let_go(noted)
    return event


def issue_driver_graph_launch(graph: int, event: int, words: int) -> int:
    """New addresses into the nodes where there are any, a launch, and the event after it."""
    row = graph + ROWS
    last = row + 24 * load(graph + BOUND)
    while row != last:
        if load(words + 8 * load(row)) & load(row + 8) != load(row + 16):
            return MOVED
        row += 24
    code = 0
    if load(graph + CONTEXT):
        code = driver(load(graph + ENTER), load(graph + CONTEXT), 0, 0, 0)
        if code:
            return code
    left = load(graph + COUNT)
    while left:
        node = row
        row += 24
        last = row + 24 * load(node + 16)
        changed = 0
        while row != last:
            address = load(words + 8 * load(row + 8)) + load(row + 16)
            if load(load(row)) != address:
                store(load(row), address)
                changed = 1
            row += 24
        if changed:
            code = driver(load(graph + UPDATE), load(graph + EXECUTABLE), load(node), load(node + 8), 0)
            if code:
                store(load(node + 24), 0)  # the node has not got what lies there
                return code
        left -= 1
    code = driver(load(graph + LAUNCH), load(graph + EXECUTABLE), load(graph + STREAM), 0, 0)
    if code == 0:
        code = driver(load(graph + RECORD), event, load(graph + STREAM), 0, 0)
    return code


def prepare_driver_graph_record(graph: int) -> int:
    """Make the lock of a record."""
    return mutex_init(graph + LOCK, 0)
