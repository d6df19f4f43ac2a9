"""Functions over 64-bit words in, LLVM IR text out. They are written in a small part of Python's grammar.

Every value is an i64, an address too. There are names, integers, `+ - * // % << >> & | ^ ~`, comparisons, `and or not`,
assignment, `if`, `while`, `break`, `continue`, `return`, calls of such functions, and calls of a `WordInstruction`: one
row below for each instruction, or C function, that Python's grammar has no sign for. `//`, `%` and comparisons are
unsigned; a function without `return` gives 0. A name in capitals is a number of the module. Python calls such machine
code as it calls its own built-in functions; byte offsets say where CPython and NumPy keep what that reads.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from ..core.frozen import frozen


@frozen
class WordInstruction:
    """An instruction: `ir` with {r} the result, {0} {1} the arguments, {p0} {p1} the same as pointers.

    declare: the C function that it calls. Outside native code it can only be named, not called.
    """

    ir: str
    declare: str = ""

    def __call__(self, *arguments: int) -> int:
        raise TypeError(f"{self.ir!r} exists in native code alone")


def _c_function_word_instruction(name: str, parameters: str, result: str = "i") -> WordInstruction:
    """A C function that returns int; parameters: p for a pointer, l for a 64-bit and i for a 32-bit integer. result: l
    where it returns a word, v where nothing."""
    kinds = {"p": "ptr", "l": "i64", "i": "i32", "v": "void"}
    types = [kinds[p] for p in parameters]
    narrow = "".join(f"{{r}}n{i} = trunc i64 {{{i}}} to i32\n" for i, p in enumerate(parameters) if p == "i")
    names = {"p": "{{p{}}}", "l": "{{{}}}", "i": "{{r}}n{}"}
    arguments = ", ".join(f"{t} {names[p].format(i)}" for i, (p, t) in enumerate(zip(parameters, types, strict=True)))
    given = {"i": "{{r}}w = ", "l": "{{r}} = ", "v": ""}[result].format()
    wide = "\n{r} = sext i32 {r}w to i64" if result == "i" else ""
    call = f"{given}call {kinds[result]} @{name}({arguments}){wide}"
    return WordInstruction(narrow + call, f"declare {kinds[result]} @{name}({', '.join(types)})")


def _float_word_instruction(sign: str) -> WordInstruction:
    """Arithmetic on words that are the bits of float64 numbers."""
    operands = "".join(f"{{r}}{i} = bitcast i64 {{{i}}} to double\n" for i in range(2))
    return WordInstruction(f"{operands}{{r}}f = {sign} double {{r}}0, {{r}}1\n{{r}} = bitcast double {{r}}f to i64")


load = WordInstruction("{r} = load i64, ptr {p0}")
store = WordInstruction("store i64 {1}, ptr {p0}")
load_shared = WordInstruction("{r} = load atomic i64, ptr {p0} seq_cst, align 8")
store_shared = WordInstruction("store atomic i64 {1}, ptr {p0} seq_cst, align 8")
fetch_add = WordInstruction("{r} = atomicrmw add ptr {p0}, i64 {1} seq_cst")
fetch_and = WordInstruction("{r} = atomicrmw and ptr {p0}, i64 {1} seq_cst")
fetch_or = WordInstruction("{r} = atomicrmw or ptr {p0}, i64 {1} seq_cst")
swapped = WordInstruction(  # whether the word at 0 was 1, and so has become 2
    "{r}c = cmpxchg ptr {p0}, i64 {1}, i64 {2} seq_cst seq_cst\n"
    "{r}b = extractvalue {{i64, i1}} {r}c, 1\n{r} = zext i1 {r}b to i64"
)
lowest_bit = WordInstruction("{r} = call i64 @llvm.cttz.i64(i64 {0}, i1 false)", "declare i64 @llvm.cttz.i64(i64, i1)")
stack = WordInstruction("{r}p = alloca i8, i64 {0}, align 64\n{r} = ptrtoint ptr {r}p to i64")
copy = WordInstruction(
    "call void @llvm.memcpy.p0.p0.i64(ptr {p0}, ptr {p1}, i64 {2}, i1 false)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
)
launch = WordInstruction("call void {p0}(ptr {p1}, i64 {2}, i64 {3})")  # a kernel: its slots, begin, end
call_python_function = WordInstruction("{r} = call i64 {p0}(i64 {1}, i64 {2}, i64 {3})")  # of at most three words
call_settings = WordInstruction(  # words that all calls of decorated functions share
    "{r} = ptrtoint ptr @call_settings to i64", "@call_settings = internal global [5 x i64] zeroinitializer, align 8"
)
relax = WordInstruction('call void asm sideeffect "{relax}", "~{{memory}}"()')  # tells the core that this is a spin

mutex_init = _c_function_word_instruction("pthread_mutex_init", "pp")
mutex_lock = _c_function_word_instruction("pthread_mutex_lock", "p")
mutex_unlock = _c_function_word_instruction("pthread_mutex_unlock", "p")
cond_init = _c_function_word_instruction("pthread_cond_init", "pp")
cond_wait = _c_function_word_instruction("pthread_cond_wait", "pp")
cond_timedwait = _c_function_word_instruction("pthread_cond_timedwait", "ppp")
cond_signal = _c_function_word_instruction("pthread_cond_signal", "p")
cond_broadcast = _c_function_word_instruction("pthread_cond_broadcast", "p")
clock_gettime = _c_function_word_instruction("clock_gettime", "ip")
sched_yield = _c_function_word_instruction("sched_yield", "")
pthread_self = WordInstruction("{r} = call i64 @pthread_self()", "declare i64 @pthread_self()")
has_gil = _c_function_word_instruction("PyGILState_Check", "")
take_gil = _c_function_word_instruction("PyGILState_Ensure", "")
give_gil = _c_function_word_instruction("PyGILState_Release", "i")
leave_gil = WordInstruction("{r} = call i64 @PyEval_SaveThread()", "declare i64 @PyEval_SaveThread()")
enter_gil = _c_function_word_instruction("PyEval_RestoreThread", "p")
handle_signals = _c_function_word_instruction("PyErr_CheckSignals", "")
set_error = _c_function_word_instruction("PyErr_SetNone", "p")
fetch_error = _c_function_word_instruction("PyErr_Fetch", "ppp")
restore_error = _c_function_word_instruction("PyErr_Restore", "ppp")
error_occurred = _c_function_word_instruction("PyErr_Occurred", "", "l")
clear_error = _c_function_word_instruction("PyErr_Clear", "", "v")
is_error_of_kind = _c_function_word_instruction("PyErr_ExceptionMatches", "p")
hold = _c_function_word_instruction("Py_IncRef", "p", "v")
let_go = _c_function_word_instruction("Py_DecRef", "p", "v")
vectorcall = _c_function_word_instruction("PyObject_Vectorcall", "pplp", "l")
call_object = _c_function_word_instruction("PyObject_Call", "ppp", "l")
bind_method = _c_function_word_instruction("PyMethod_New", "pp", "l")
dict_size = _c_function_word_instruction("PyDict_Size", "p", "l")
dict_item = _c_function_word_instruction("PyDict_GetItemWithError", "pp", "l")
make_float = WordInstruction(
    "{r}f = bitcast i64 {0} to double\n{r} = call i64 @PyFloat_FromDouble(double {r}f)",
    "declare i64 @PyFloat_FromDouble(double)",
)
add_floats, subtract_floats, multiply_floats, divide_floats = map(
    _float_word_instruction, ("fadd", "fsub", "fmul", "fdiv")
)

RELAX = {"x86_64": "pause", "AMD64": "pause", "aarch64": "isb", "arm64": "isb"}

_BINARY: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem", ast.LShift: "shl",
    ast.RShift: "lshr", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
_COMPARE: dict[type, str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "ult", ast.LtE: "ule", ast.Gt: "ugt", ast.GtE: "uge",
}  # fmt: skip


def word_module_source_text(module: ModuleType) -> str:
    """The text that `translate_word_language_to_llvm` reads, to key a cache with.

    Raises OSError where the source is not at hand.
    """
    return inspect.getsource(module)


def translate_word_language_to_llvm(modules: Sequence[ModuleType], entries: Collection[str], machine: str) -> str:
    """The IR text of the functions of the modules, which may call each other. Only `entries` are seen from outside.

    machine: `platform.machine()`. Raises SyntaxError for what is outside the grammar above.
    """
    parsed = [(module, node) for module in modules for node in ast.parse(word_module_source_text(module)).body]
    functions = [(module, node) for module, node in parsed if isinstance(node, ast.FunctionDef)]
    names = {node.name for _, node in functions}
    texts, declared = [], set()
    for module, node in functions:
        writer = _WordLanguageWriter(vars(module), names, RELAX.get(machine, ""))
        texts.append(writer.llvm_of_function(node, "" if node.name in entries else "internal "))
        declared |= writer.declared
    return "\n\n".join(["\n".join(sorted(declared)), *texts]) + "\n"


class _WordLanguageWriter:
    """Writes one function: variables are stack slots (LLVM makes registers of them), every block ends in a jump."""

    def __init__(self, scope: dict[str, Any], functions: set[str], relax: str) -> None:
        self.scope, self.functions, self.relax_text = scope, functions, relax
        self.lines: list[str] = []
        self.places: list[str] = []
        self.declared: set[str] = set()
        self.variables: list[str] = []
        self.loops: list[tuple[str, str]] = []
        self.count = 0

    def llvm_of_function(self, node: ast.FunctionDef, linkage: str) -> str:
        parameters = [a.arg for a in node.args.args]
        self.variables = sorted(self.scope[node.name].__code__.co_varnames)
        self.write_statements(node.body)
        self.emit_llvm_line("ret i64 0")
        head = self.places + [f"  %{v}.at = alloca i64" for v in self.variables]
        head += [f"  store i64 %{p}, ptr %{p}.at" for p in parameters]
        opening = f"define {linkage}i64 @{node.name}({', '.join(f'i64 %{p}' for p in parameters)}) nounwind {{"
        return "\n".join([opening, "entry:", *head, *self.lines, "}"])

    def emit_llvm_line(self, text: str) -> None:
        self.lines += ["  " + line for line in text.splitlines()]

    def new_register_name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def begin_block(self, name: str) -> None:
        self.emit_llvm_line(f"br label %{name}")
        self.lines.append(f"{name}:")

    def write_statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.write_statement(statement)

    def write_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.emit_llvm_line(f"store i64 {self.write_expression(value)}, ptr %{name}.at")
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                result = self.write_binary_operation(op, self.read_variable(name), self.write_expression(value))
                self.emit_llvm_line(f"store i64 {result}, ptr %{name}.at")
            case ast.Expr(value=ast.Constant(value=str())):
                pass  # a docstring
            case ast.Expr(value=ast.Call() as call):
                self.write_call(call)
            case ast.If(test=test, body=body, orelse=orelse):
                yes, no, end = self.new_block_labels("yes", "no", "end")
                self.emit_llvm_line(f"br i1 {self.write_condition(test)}, label %{yes}, label %{no}")
                self.lines.append(f"{yes}:")
                self.write_statements(body)
                self.emit_llvm_line(f"br label %{end}")
                self.lines.append(f"{no}:")
                self.write_statements(orelse)
                self.begin_block(end)
            case ast.While(test=test, body=body, orelse=[]):
                top, inside, end = self.new_block_labels("top", "inside", "end")
                self.begin_block(top)
                self.emit_llvm_line(f"br i1 {self.write_condition(test)}, label %{inside}, label %{end}")
                self.lines.append(f"{inside}:")
                self.loops.append((top, end))
                self.write_statements(body)
                self.loops.pop()
                self.emit_llvm_line(f"br label %{top}")
                self.lines.append(f"{end}:")
            case ast.Return(value=value):
                self.emit_llvm_line(f"ret i64 {'0' if value is None else self.write_expression(value)}")
                self.lines.append(f"{self.new_block_labels('dead')[0]}:")
            case ast.Break() | ast.Continue():
                self.emit_llvm_line(f"br label %{self.loops[-1][isinstance(node, ast.Break)]}")
                self.lines.append(f"{self.new_block_labels('dead')[0]}:")
            case _:
                raise _unsupported_word_syntax_error(node)

    def new_block_labels(self, *names: str) -> list[str]:
        self.count += 1
        return [f"{name}{self.count}" for name in names]

    def write_expression(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int(number)):
                return str(int(number))
            case ast.Name(id=name):
                return self.read_variable(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self.write_binary_operation(op, self.write_expression(left), self.write_expression(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.assign_new_register(f"sub i64 0, {self.write_expression(operand)}")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.assign_new_register(f"xor i64 -1, {self.write_expression(operand)}")
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.assign_new_register(f"zext i1 {self.write_condition(node)} to i64")
            case ast.Call():
                return self.write_call(node)
        raise _unsupported_word_syntax_error(node)

    def write_condition(self, node: ast.expr) -> str:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return self.assign_new_register(
                    f"icmp {_COMPARE[type(op)]} i64 {self.write_expression(left)}, {self.write_expression(right)}"
                )
            case ast.Compare():
                raise _unsupported_word_syntax_error(node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.assign_new_register(f"xor i1 true, {self.write_condition(operand)}")
            case ast.BoolOp(op=op, values=values):
                place, end = self.new_register_name(), self.new_block_labels("end")[0]
                self.places.append(f"  {place} = alloca i1")
                for position, part in enumerate(values):
                    truth = self.write_condition(part)
                    self.emit_llvm_line(f"store i1 {truth}, ptr {place}")
                    if position + 1 < len(values):
                        more = self.new_block_labels("more")[0]
                        first, second = (more, end) if isinstance(op, ast.And) else (end, more)
                        self.emit_llvm_line(f"br i1 {truth}, label %{first}, label %{second}")
                        self.lines.append(f"{more}:")
                self.begin_block(end)
                return self.assign_new_register(f"load i1, ptr {place}")
        return self.assign_new_register(f"icmp ne i64 {self.write_expression(node)}, 0")

    def read_variable(self, name: str) -> str:
        if name in self.variables:
            return self.assign_new_register(f"load i64, ptr %{name}.at")
        number = self.scope.get(name)
        if not isinstance(number, int):
            raise SyntaxError(f"{name} is neither a variable nor a number of the module")
        return str(number)

    def write_binary_operation(self, op: ast.operator, left: str, right: str) -> str:
        if type(op) not in _BINARY:
            raise SyntaxError(f"outside the language of words: {type(op).__name__}")
        return self.assign_new_register(f"{_BINARY[type(op)]} i64 {left}, {right}")

    def assign_new_register(self, text: str) -> str:
        name = self.new_register_name()
        self.emit_llvm_line(f"{name} = {text}")
        return name

    def write_call(self, node: ast.Call) -> str:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise _unsupported_word_syntax_error(node)
        arguments = [self.write_expression(a) for a in node.args]
        name = node.func.id
        if name in self.functions:
            return self.assign_new_register(f"call i64 @{name}({', '.join(f'i64 {a}' for a in arguments)})")
        word = self.scope.get(name)
        if not isinstance(word, WordInstruction):
            raise _unsupported_word_syntax_error(node)
        pointers = {}
        for i, argument in enumerate(arguments):
            if f"{{p{i}}}" in word.ir:
                pointers[f"p{i}"] = self.assign_new_register(f"inttoptr i64 {argument} to ptr")
        result = self.new_register_name()
        self.emit_llvm_line(word.ir.format(*arguments, **pointers, r=result, relax=self.relax_text))
        if word.declare:
            self.declared.add(word.declare)
        return result if f"{result} =" in self.lines[-1] else "0"


def _unsupported_word_syntax_error(node: ast.AST) -> SyntaxError:
    return SyntaxError(f"outside the language of words: {ast.unparse(node)}")


_FASTCALL = 0x80  # METH_FASTCALL of methodobject.h
_NEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
_WORD = (1 << 64) - 1


class _MethodDefinition(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)
    )  # fmt: skip


@cache
def _c_method_definition(address: int) -> _MethodDefinition:
    """What all functions of an address share; it lives forever."""
    return _MethodDefinition(b"native", address, _FASTCALL, None)


def make_builtin_from_machine_code(address: int, words: Sequence[int], held: Any) -> Callable[..., Any]:
    """The machine code at `address` as a function. Its first argument is a `bytes` object of the words, its second the
    address of the references to the arguments, its third how many there are; it gives a new reference. held: what lives
    as long as the function."""
    given = (ctypes.c_uint64 * len(words))(*(w & _WORD for w in words))
    # The function's `__module__` is a place to hold on to things.
    made: Callable[..., Any] = _NEW(("PyCFunction_NewEx", ctypes.pythonapi))(
        ctypes.addressof(_c_method_definition(address)), bytes(given), held
    )
    return made


@cache
def machine_code_can_read_bytes_objects() -> bool:
    """Whether the words of a `bytes` object lie where machine code looks for them."""
    usual = sys.implementation.name == "cpython" and sys.byteorder == "little"
    text = b"12345678"
    at = id(text)
    return (
        usual
        and ctypes.string_at(at + BYTES_AT, 8) == text
        and (read_memory_word(at + TYPE_AT), read_memory_word(at + LENGTH_AT)) == (id(bytes), 8)
    )


def read_memory_word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


# CPython 3.11 and later, where the self-tests here and of `direct_call` have seen that it is so: any
# object (the head of each ends in its type, and is larger without the interpreter lock), bytes, NumPy's arrays. A
# ctypes object has its address where an array has it.
HEAD = object.__basicsize__
TUPLE_AT = tuple.__basicsize__
TYPE_AT, LENGTH_AT, BYTES_AT = HEAD - 8, HEAD, HEAD + 16
DATA_AT, NDIM_AT, SHAPE_AT, STRIDES_AT, DTYPE_AT, FLAGS_AT = (HEAD + i for i in (0, 8, 16, 24, 40, 48))
WRITEABLE = 0x400  # among an array's flags
