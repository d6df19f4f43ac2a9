"""What Python calls without a Python function between, as functions on words: a decorated function, a function of
numbers alone, and what makes an object of slots.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import (
    BYTES_AT,
    HEAD,
    LENGTH_AT,
    TUPLE_AT,
    TYPE_AT,
    add_floats,
    bind_method,
    call_object,
    call_python_function,
    call_settings,
    clear_error,
    copy,
    dict_item,
    dict_size,
    divide_floats,
    error_occurred,
    hold,
    is_error_of_kind,
    let_go,
    load,
    make_float,
    multiply_floats,
    stack,
    store,
    subtract_floats,
    vectorcall,
)
from .records import (
    ADD,
    CALL_IN_PYTHON,
    CALL_UNTAKEN,
    CONSTANT_COUNT,
    DECLINED,
    DIVIDE,
    ERROR_TYPE,
    FAST_AT,
    FRAME_BYTES,
    ITEM_BYTES,
    ITEM_COUNT,
    LEAF_BYTES,
    LEAF_COUNT,
    LEAF_FLOAT,
    LEAF_ITSELF,
    MAKE_FLOAT,
    MULTIPLY,
    NOT_TAKEN,
    NUMBERS_BYTES,
    OBJECT_ALLOCATOR,
    OBJECT_BYTES,
    OBJECT_OTHERS,
    OBJECT_TYPE,
    OBJECT_VALUES,
    OTHER_BYTES,
    REFERENCES,
    RESULT_BEHIND,
    RESULT_BYTES,
    RESULT_COUNT,
    RESULT_ITEMS,
    RESULT_MAKER,
    S_EXTRA,
    S_FUNCTION,
    S_LEFT,
    S_OPERATION,
    S_OUT,
    S_RIGHT,
    STATEMENT_BYTES,
    STATEMENT_COUNT,
    SUBTRACT,
    TAKE_FLOAT,
    TEST_BYTES,
    TEST_COUNT,
    TEST_LIST,
    TEST_NO,
    TEST_YES,
    TUPLE_TYPE,
    UNUSUAL,
    WATCHED_BYTES,
    WORD_COUNT,
)


def set_native_call_settings(words: int) -> None:
    """The words of `records.FAST_AT` and what follows it."""
    copy(call_settings(), words, 40)


def call_decorated_function_from_python(this: int, given: int, options: int) -> int:
    """A type's `tp_call`: the latest call's own function, if nothing is unusual and it takes the arguments; else
    Python's way."""
    settings = call_settings()
    fast = load(this + load(settings + FAST_AT))
    if fast == 0 or load(load(settings + UNUSUAL)) or (options and dict_size(options)):
        return call_decorated_function_in_python(this, given, options, load(settings + CALL_IN_PYTHON))
    arguments = stack(24)
    store(arguments, given)
    hold(fast)
    result = vectorcall(fast, arguments, 1, 0)
    if result == load(settings + NOT_TAKEN):
        let_go(result)
        store(arguments, this)
        store(arguments + 8, given)
        store(arguments + 16, fast)
        result = vectorcall(load(settings + CALL_UNTAKEN), arguments, 3, 0)
    let_go(fast)
    return result


def call_decorated_function_in_python(this: int, given: int, options: int, function: int) -> int:
    """function(this, *given, **options)"""
    method = bind_method(function, this)
    if method == 0:
        return 0
    result = call_object(method, given, options)
    let_go(method)
    return result


def compute_native_numbers(this: int, given: int, count: int) -> int:
    """A function for Python (METH_FASTCALL, `this` is bytes) of a tuple of leaves: if every watched word and item is as
    it was and every leaf of its type, what the statements give. Else, and where an Exception is raised: nothing is
    done, and the answer says so."""
    head = this + BYTES_AT
    leaves = load(given)
    fits = load(leaves + TYPE_AT) == load(head + TUPLE_TYPE) and load(leaves + LENGTH_AT) == load(head + LEAF_COUNT)
    at = head + NUMBERS_BYTES
    last = at + load(head + WORD_COUNT) * WATCHED_BYTES
    while fits and at != last:
        fits = load(load(at)) == load(at + 8)
        at += WATCHED_BYTES
    last = at + load(head + ITEM_COUNT) * ITEM_BYTES
    while fits and at != last:
        item = dict_item(load(at), load(at + 8))
        fits = item == load(at + 16)
        if item == 0:  # also where a key cannot be compared
            fits = fits and error_occurred() == 0
        at += ITEM_BYTES
    frame = stack(load(head + FRAME_BYTES))
    bits = 8 * load(head + LEAF_COUNT)
    place = frame
    leaf = leaves + TUPLE_AT
    last = at + load(head + LEAF_COUNT) * LEAF_BYTES
    while fits and at != last:
        value = load(leaf)
        store(place, value)
        if load(at) == LEAF_ITSELF:
            fits = value == load(at + 8)
        else:
            fits = load(value + TYPE_AT) == load(at + 8)
            if load(at) == LEAF_FLOAT:
                store(place + bits, load(value + HEAD))
        place += 8
        leaf += 8
        at += LEAF_BYTES
    if fits:
        copy(place + bits, at, 8 * load(head + CONSTANT_COUNT))
        at += 8 * load(head + CONSTANT_COUNT)
        last = at + load(head + STATEMENT_COUNT) * STATEMENT_BYTES
        done = compute_native_number_statements(at, last, frame)
        result = 0
        if done == last:
            result = make_native_number_result(head, last, frame)
        if load(head + REFERENCES):
            let_go_of_native_numbers(at, done, frame)
        if result:
            return result
    if error_occurred():
        if is_error_of_kind(load(head + ERROR_TYPE)) == 0:
            return 0
        clear_error()
    hold(load(head + DECLINED))
    return load(head + DECLINED)


def compute_native_number_statements(at: int, last: int, frame: int) -> int:
    """The first statement that cannot be done, or `last`."""
    while at != last:
        operation = load(at + S_OPERATION)
        left = load(frame + load(at + S_LEFT))
        right = load(frame + load(at + S_RIGHT))
        made = 0
        if operation == ADD:
            made = add_floats(left, right)
        elif operation == SUBTRACT:
            made = subtract_floats(left, right)
        elif operation == MULTIPLY:
            made = multiply_floats(left, right)
        elif operation == DIVIDE:
            if right << 1 == 0:  # Python raises for 0.0 and -0.0
                return at
            made = divide_floats(left, right)
        elif operation == TAKE_FLOAT:
            made = load(left + HEAD)
        else:
            if operation == MAKE_FLOAT:
                made = make_float(left)
            else:
                made = call_python_function(load(at + S_FUNCTION), left, right, load(at + S_EXTRA))
            if made == 0:
                return at
        store(frame + load(at + S_OUT), made)
        at += STATEMENT_BYTES
    return at


def let_go_of_native_numbers(at: int, last: int, frame: int) -> None:
    """Give back the references that statements have given."""
    while at != last:
        if load(at + S_OPERATION) >= MAKE_FLOAT:
            let_go(load(frame + load(at + S_OUT)))
        at += STATEMENT_BYTES


def make_native_number_result(head: int, at: int, frame: int) -> int:
    """A new reference to what is returned, or 0."""
    if load(head + RESULT_MAKER) == 0:
        return number_as_python_object(at, frame)
    made = call_python_function(load(head + RESULT_MAKER), load(head + RESULT_COUNT), 0, 0)
    if made == 0:
        return 0
    place = made
    if load(head + RESULT_BEHIND):
        place = load(made + load(head + RESULT_BEHIND))
    place += load(head + RESULT_ITEMS)
    last = at + load(head + RESULT_COUNT) * RESULT_BYTES
    while at != last:
        item = number_as_python_object(at, frame)
        if item == 0:
            let_go(made)
            return 0
        store(place, item)
        place += 8
        at += RESULT_BYTES
    return made


def number_as_python_object(at: int, frame: int) -> int:
    """A new reference to an item of a result."""
    value = load(frame + load(at + 8))
    if load(at):
        return make_float(value)
    hold(value)
    return value


def make_native_object(this: int, given: int, count: int) -> int:
    """A function for Python (METH_FASTCALL, `this` is bytes) of values: a new object of a class of slots, which has
    them and what the record says."""
    head = this + BYTES_AT
    if count != load(head + OBJECT_VALUES):
        return 0
    made = call_python_function(load(head + OBJECT_ALLOCATOR), load(head + OBJECT_TYPE), 0, 0)
    if made == 0:
        return 0
    at = head + OBJECT_BYTES
    last = at + 8 * count
    while at != last:
        value = load(given)
        hold(value)
        store(made + load(at), value)
        given += 8
        at += 8
    last = at + load(head + OBJECT_OTHERS) * OTHER_BYTES
    while at != last:
        value = load(at + 8)
        hold(value)
        store(made + load(at), value)
        at += OTHER_BYTES
    return made


def test_native_item_types(this: int, given: int, count: int) -> int:
    """A function for Python (METH_FASTCALL, `this` is bytes) of a value: whether it is a list whose items are all of
    the types that the record says."""
    head = this + BYTES_AT
    if count != 1:
        return 0
    items = load(given)
    fits = load(items + TYPE_AT) == load(head + TEST_LIST)
    if fits:
        at = load(items + HEAD + 8)
        last = at + 8 * load(items + LENGTH_AT)
        end = head + TEST_BYTES + 8 * load(head + TEST_COUNT)
        usual = 0
        while fits and at != last:
            kind = load(load(at) + TYPE_AT)
            if kind != usual:
                usual = head + TEST_BYTES
                while usual != end and load(usual) != kind:
                    usual += 8
                fits = usual != end
                usual = kind
            at += 8
    answer = load(head + TEST_NO)
    if fits:
        answer = load(head + TEST_YES)
    hold(answer)
    return answer
