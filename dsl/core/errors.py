"""What the user gets for a request that makes no sense: `file.py:LINE: what is wrong; what to write instead`.

And which of the user's lines runs: at each node of a trace, with the calls that led there and their columns.
"""

from __future__ import annotations

import dis
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np

from ...compiler import __path__ as _compiler
from ...compiler.graph.graph import GraphError, Line
from ...runtime import __path__ as _runtime
from ...runtime.core.errors import KernelGraphError
from ...runtime.core.frozen import frozen
from .. import __path__ as _dsl
from .context import context

_TOP = str(sys.modules[__package__.partition(".")[0]].__file__)
_PACKAGE = (*(os.path.abspath(folder) + os.sep for folder in (*_dsl, *_compiler, *_runtime)), os.path.abspath(_TOP))
_OURS = (*_PACKAGE, *(os.path.abspath(folder) + os.sep for folder in np.__path__))


ARRAY_LIBRARIES = frozenset({"cupy", "jax", "jaxlib", "mxnet", "tensorflow", "torch"})
KNOWS_NO_TRACED_VALUES = (
    "{} knows no traced values; write the NumPy function that does it, or call it outside of the traced function"
)


class UserError(KernelGraphError):
    """A mistake in the user's program. The text starts with the user's line.

    >>> try:
    ...     x = kg.kernel_graph(lambda x: x @ np.ones((3, 3)))(np.ones(4))
    ... except kg.UserError as error:
    ...     print(type(error) is kg.ShapeError and isinstance(error, ValueError))
    True
    """

    def __init__(self, message: str, line: str | None = None) -> None:
        super().__init__(f"{line or user_line()}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_user_error, (type(self), str(self)), self.__dict__


def _unpickle_user_error(kind: type[UserError], text: str) -> UserError:
    """An error that was pickled or copied, whose text has the line already."""
    error = kind.__new__(kind, text)
    super(UserError, error).__init__(text)
    return error


class Refusal(UserError):
    """An error that NumPy does not raise there: the program asks for what cannot be done while tracing.

    The function may not go on from it as if it were NumPy's, so the trace remembers it. numpys: NumPy raises there.
    needs_values: NumPy does it, since it has the values that decide it; so a call may run there. And where the code of
    an installed package asks for it, which the user cannot write otherwise."""

    needs_values = False
    guards: Any = None  # of the trace that ended so, and the leaves whose values decided that
    known: frozenset[int] = frozenset()

    def __init__(
        self, message: str, line: str | None = None, *, numpys: bool = False, needs_values: bool | None = None
    ) -> None:
        package = _installed_package_that_runs()
        super().__init__(KNOWS_NO_TRACED_VALUES.format(package) if package in ARRAY_LIBRARIES else message, line)
        if needs_values is None:
            needs_values = type(self).needs_values and not numpys
        self.needs_values = needs_values or bool(package)
        if context.trace is not None and not numpys:
            context.trace.refusals.append(self)


class TraceError(Refusal, TypeError):
    """The program does what only Python can do, such as `if` on a traced value."""

    needs_values = True


class EscapedValueError(TraceError):
    """A traced value is used outside of the trace that made it."""

    needs_values = False


class UnsupportedError(Refusal, NotImplementedError, TypeError):
    """A NumPy function, or an argument of one, that cannot be traced."""

    needs_values = True


class DTypeError(UserError, TypeError):
    """A dtype that is not supported, or that does not fit the operation."""


class ShapeError(UserError, ValueError):
    """Shapes that do not fit the operation."""


class MissingAttributeError(UserError, AttributeError):
    """An attribute that NumPy's arrays, `kg` or one of its modules do not have."""


class MatrixError(ShapeError, np.linalg.LinAlgError):
    """A ShapeError of `np.linalg`, where NumPy raises LinAlgError."""


class AxisError(UserError, np.exceptions.AxisError):
    """An axis that the array does not have."""


class IndexingError(UserError, IndexError):
    """An index out of range, or of a kind that is not supported."""


class ReadOnlyError(UserError, ValueError):
    """Assignment to an array that must not be written."""


class NumberError(UserError, OverflowError):
    """A Python integer that does not fit the dtype of the array that it meets."""


class ConversionError(UserError, ValueError):
    """A value that no integer stands for, such as NaN, where an integer is wanted."""


class ArgumentsError(UserError, TypeError):
    """Arguments that do not fit the decorated function, or a static argument without a hash."""


class ArgumentKindError(TraceError, ArgumentsError, DTypeError):
    """An argument that no trace stands for, such as a set or a long chain of objects: the call runs in NumPy."""


class DTypeRefusal(TraceError, DTypeError):
    """A dtype that no trace stands for, such as that of dates, where NumPy may: the call runs there."""


class NotFiniteError(UserError, FloatingPointError):
    """NaN or an infinity where `kg.debug.check_finite` stands."""


class OptionError(UserError, ValueError):
    """An option of `kernel_graph` that makes no sense."""


_KINDS: dict[type[Exception], type[UserError]] = {
    TypeError: DTypeError,
    ValueError: ShapeError,
    IndexError: IndexingError,
    OverflowError: NumberError,
    NotImplementedError: UnsupportedError,
}


# what NumPy raises -> ours, which is a subclass; the first that fits
_NUMPYS: dict[type[Exception], type[UserError]] = {
    np.linalg.LinAlgError: MatrixError,
    np.exceptions.AxisError: AxisError,
    **_KINDS,
}


def is_raised_by_user(error: Exception) -> bool:
    """Whether a line of the user's itself raises an error, not what that calls."""
    file, _ = _innermost_entry(error.__traceback__)
    return bool(file) and is_user_file(file)


def may_be_of_stand_ins(error: Exception) -> bool:
    """Whether code that is not the user's raises a TypeError that may be about what stands for a value.

    Python's own say which type or function they are about."""
    if type(error) is not TypeError:
        return False
    file, done = _innermost_entry(error.__traceback__)
    text = str(error)
    if not is_user_file(file):
        return bool(file)
    return done != "RAISE_VARARGS" and ("Trace" in text or not any(mark in text for mark in ("'", "()")))


def is_raised_by_compiled_code(error: Exception) -> bool:
    """Whether a line that Cython has compiled raises an error."""
    return is_compiled_code(_innermost_entry(error.__traceback__)[0])


def is_user_file(filename: str) -> bool:
    """Whether a code object's file is the user's: not this package's, NumPy's, Python's own or of an installed package
    (but for packages that decorate functions themselves)."""
    known = USER_FILES.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        others = filename.startswith(("<__array_function__", "<kernelgraph", "<frozen")) or path.startswith(_OURS)
        others = others or is_compiled_code(filename)
        if not others and (path.startswith(_PYTHON) or _package_of_path(path)):
            others = _package_of_path(path) not in _USER_PACKAGES
        known = USER_FILES[filename] = not others
    return known


def is_compiled_code(filename: str) -> bool:
    """Whether Cython has compiled a code object, whose file need not be there."""
    return filename.endswith((".pyx", ".pxd", ".pxi")) or filename == "<stringsource>"


def is_own_file(filename: str) -> bool:
    """Whether a file is this package's."""
    return filename.startswith(_PACKAGE)


def is_installed_file(filename: str) -> bool:
    """Whether a file is one of an installed package's, but for this package and NumPy."""
    return bool(_package_of_path(filename)) and not filename.startswith(_OURS)


def treat_package_as_user_code(filename: str) -> None:
    """From now on this file's installed package is the user's, with all files."""
    package = _package_of_path(os.path.abspath(filename))
    if package and package not in _USER_PACKAGES:
        _USER_PACKAGES.add(package)
        USER_FILES.clear()


def _package_of_path(path: str) -> str:
    """The folder or file below site-packages that a path lies in, or nothing."""
    head, found, tail = path.partition(f"{os.sep}site-packages{os.sep}")
    if not found:
        head, found, tail = path.partition(f"{os.sep}dist-packages{os.sep}")
    return head + found + tail.split(os.sep)[0] if found else ""


_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
USER_FILES: dict[str, bool] = {}
_USER_PACKAGES: set[str] = set()


def _innermost_user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    known = USER_FILES.get  # without a call for each frame: this runs for each node of a trace
    while frame is not None:
        name = frame.f_code.co_filename
        users = known(name)
        if (users or (users is None and is_user_file(name))) and not _is_written_by_dataclasses(frame.f_code):
            return frame
        frame = frame.f_back
    return None


def _installed_package_that_runs() -> str:
    """The package of the innermost code that runs, but for this package's, NumPy's and Python's own; else nothing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "trace_function":
        name = frame.f_code.co_filename
        if is_installed_file(name):
            return os.path.basename(_package_of_path(name)).removesuffix(".py")
        if is_user_file(name):
            return ""
        frame = frame.f_back
    return ""


def code_of_user() -> CodeType | None:
    """The code that the innermost frame of the user's runs."""
    frame = _innermost_user_frame()
    return None if frame is None else frame.f_code


def user_line() -> str:
    """`file.py:LINE` of the innermost frame that is the user's."""
    frame = _innermost_user_frame()
    return "<unknown>" if frame is None else _source_line_for_error(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(4096)
def _source_line_for_error(filename: str, line: int) -> str:
    return show_user_line(filename, line)


class FallbackWarning(UserWarning):
    """A function runs in NumPy instead of being compiled.

    It is given once for each line of a function that is the reason. Raised as an error where a filter of `warnings`
    says so; `KERNELGRAPH_UNTRACEABLE=refuse` makes what it warns of an error at that line.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as given:
    ...     warnings.simplefilter("always")
    ...     x = kg.kernel_graph(lambda x: np.unique(x))(np.ones(3))
    >>> given[0].category is kg.FallbackWarning
    True
    """


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the user's line."""
    frame = _innermost_user_frame()
    place = ("<unknown>", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, category, *place)


def line_of_traceback(traceback: TracebackType | None) -> str:
    """`file.py:LINE` of the traceback's innermost entry that is the user's, else of the caller."""
    for entry in reversed(entries_of_traceback(traceback)):
        code = entry.tb_frame.f_code
        if is_user_file(code.co_filename) and not _is_written_by_dataclasses(code):
            return show_user_line(code.co_filename, entry.tb_lineno)
    return user_line()


def _is_written_by_dataclasses(code: CodeType) -> bool:
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__")


def user_line_of_name(codes: Iterable[CodeType], operations: Sequence[str], name: str, owner: str = "") -> str:
    """`file.py:LINE` of the first instruction of these kinds on `name` in the codes. Code within them counts too.

    owner: where it is an attribute, the global that has it; else any."""
    for code in codes:
        before = None
        for instruction in dis.get_instructions(code):
            if instruction.opname in operations and instruction.argval == name and (not owner or before == owner):
                line = instruction.positions.lineno if instruction.positions else None
                return show_user_line(code.co_filename, line or code.co_firstlineno)
            before = instruction.argval
        found = user_line_of_name([c for c in code.co_consts if isinstance(c, CodeType)], operations, name, owner)
        if found:
            return found
    return ""


@lru_cache(None)
def code_names_compared_by_identity(code: CodeType) -> frozenset[str]:
    """The globals that stand on the right of an `is`, in code within it too, with a dot where that is an attribute of
    one; "" for all names of functions, "True" for numbers, texts and truths on either side."""
    found = {x for c in code.co_consts if isinstance(c, CodeType) for x in code_names_compared_by_identity(c)}
    if _IS_OP in code.co_code[::2]:
        steps = [*dis.get_instructions(code)]
        for at in (i - 1 for i, test in enumerate(steps) if test.opname == "IS_OP"):
            if any(map(_is_of_known_identity, steps[max(at - 1, 0) : at + 1])):
                found.add("True")
            attribute = "." if steps[at].opname == "LOAD_ATTR" else ""
            while steps[at].opname == "LOAD_ATTR":
                at -= 1
            if steps[at].opname.startswith(("LOAD_FAST", "LOAD_DEREF")):
                found.add("")
            elif steps[at].opname == "LOAD_GLOBAL":
                found.add(steps[at].argval + attribute)
    return frozenset(found)


def _is_of_known_identity(step: dis.Instruction) -> bool:
    """Whether an instruction gives a number or a text that is one object, or a truth of NumPy's."""
    if step.opname == "LOAD_CONST":
        return type(step.argval) in (bool, int, float, complex, str)
    return step.opname == "LOAD_ATTR" and step.argval in ("True_", "False_")


@lru_cache(None)
def names_of_class_bodies(code: CodeType) -> frozenset[str]:
    """The names that bodies of classes within a function's code look up."""
    found: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= names_of_class_bodies(constant)
            if not constant.co_flags & _OPTIMIZED:
                found |= {i.argval for i in dis.get_instructions(constant) if i.opname in _OF_CLASS_BODIES}
    return frozenset(found)


@lru_cache(None)
def globals_assigned_in_code(code: CodeType) -> frozenset[str]:
    """The global names that a code assigns to or deletes, code within it too."""
    found = {x for c in code.co_consts if isinstance(c, CodeType) for x in globals_assigned_in_code(c)}
    if not _CHANGE_GLOBAL.isdisjoint(code.co_code[::2]):
        found |= {i.argval for i in dis.get_instructions(code) if i.opcode in _CHANGE_GLOBAL}
    return frozenset(found)


_CHANGE_GLOBAL = frozenset({dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]})
_OPTIMIZED = 1  # a flag that codes of functions have (inspect.CO_OPTIMIZED)
_OF_CLASS_BODIES = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_IS_OP = dis.opmap["IS_OP"]


def show_user_line(filename: str, line: int) -> str:
    """`file.py:LINE`; of a notebook's third cell `In[3]:LINE`."""
    return f"{show_file(filename)}:{line}"


def show_file(filename: str) -> str:
    """A file's name without its folders; of code in a notebook, the cell as the notebook numbers it."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    cells = getattr(getattr(running, "compile", None), "_filename_map", {})
    return f"In[{cells[filename]}]" if filename in cells else os.path.basename(filename)


def refusal_at_user_line(message: str, kind: type[Exception] = ValueError) -> UserError:
    """An error of the documented type, at the user's line, that `except kind` catches."""
    return _KINDS.get(kind, ShapeError)(message)


def numpy_error_as_ours(error: Exception, where: str = "") -> UserError:
    """What NumPy raised for the user's arguments, as ours. The same `except` catches it."""
    kind = next((k for k in _NUMPYS if isinstance(error, k)), ValueError)
    return _NUMPYS.get(kind, ShapeError)(f"{where}{error}")


def locate_graph_error(error: GraphError) -> UserError:
    """The builder's refusal as an error of the documented type at the user's line."""
    line = error.line if error.line != "<unknown>" else user_line()  # the user's function has no line of its own there
    kind = _KINDS.get(error.kind, ShapeError)
    named = {"needs_values": False} if kind is UnsupportedError else {}  # derivatives, which NumPy has not
    return kind(str(error), line or line_of_traceback(error.__traceback__), **named)


def package_that_raised_error(traceback: TracebackType | None) -> str | None:
    """The installed package whose code raised; None where that is the user's, this package's, NumPy's or Python's."""
    name, _ = _innermost_entry(traceback)
    if not name or is_user_file(name) or name.startswith(_OURS):
        return None
    return os.path.basename(_package_of_path(name)).removesuffix(".py") or None


def _innermost_entry(traceback: TracebackType | None) -> tuple[str, str]:
    """The file and the instruction that raise an error; nothing, where none has raised it."""
    for entry in entries_of_traceback(traceback)[-1:]:
        code = entry.tb_frame.f_code
        return code.co_filename, dis.opname[code.co_code[entry.tb_lasti]]
    return "", ""


def is_own_mistake(error: BaseException) -> bool:
    """Whether an error says that code of this package names what is not there, or asserts what does not hold."""
    file, done = _innermost_entry(error.__traceback__)
    if not is_own_file(file):
        return False
    named = done.startswith(("LOAD_", "STORE_", "DELETE_", "IMPORT_"))  # neither raised on purpose nor by `getattr`
    return isinstance(error, AssertionError) or (named and isinstance(error, (AttributeError, NameError, ImportError)))


def is_refusal(error: BaseException) -> bool:
    """Whether the trace ends here, but not by an error of the function's own."""
    own = isinstance(error, Exception) and not isinstance(error, (KernelGraphError, GraphError))
    return not own or "read-only" in str(error)


def undecided_identity_error(what: str) -> TraceError:
    """What to raise where values that a function is given may be one, or not."""
    return TraceError(
        f"whether two {what} that the function is given are one (`is`) is not known while it is traced; compare them "
        "outside, and pass what comes of it"
    )


def is_numpy_error(error: BaseException) -> bool:
    """Whether NumPy raises there too: the function is wrong for these arguments, not for being traced."""
    return isinstance(error, GraphError) or (isinstance(error, UserError) and not isinstance(error, Refusal))


def raised_outside_package(traceback: TracebackType | None) -> bool:
    """Whether an error has come to the user's or a library's code. That may have caught it.

    What Python's own C code swallows, such as `tuple` that asks for a length, has no traceback before Python 3.12."""
    files = _files_of_traceback(traceback)
    return not files or not all(file.startswith((*_OURS, "<kernelgraph", "<__array_function__")) for file in files)


def is_error_awaited() -> bool:
    """Whether the user's traced line, or one that called it, is in a `try` or a `with`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "trace_function":
        code = frame.f_code
        at = frame.f_lasti
        users = code.co_exceptiontable and is_user_file(code.co_filename)
        if users and any(start <= at < end for start, end in _ranges_with_handler(code)):
            return True
        frame = frame.f_back
    return False


@lru_cache(1024)
def _ranges_with_handler(code: CodeType) -> tuple[tuple[int, int], ...]:
    return tuple((e.start, e.end) for e in dis.Bytecode(code).exception_entries)  # type: ignore[attr-defined]


def entries_of_traceback(traceback: TracebackType | None) -> list[TracebackType]:
    """All entries, the outermost first."""
    found = []
    while traceback is not None:
        found.append(traceback)
        traceback = traceback.tb_next
    return found


def _files_of_traceback(traceback: TracebackType | None) -> list[str]:
    return [entry.tb_frame.f_code.co_filename for entry in entries_of_traceback(traceback)]


def user_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without this package's and NumPy's entries."""
    return _entries_of_files(traceback, is_user_file)


def _entries_of_files(traceback: TracebackType | None, keep: Callable[[str], bool]) -> TracebackType | None:
    result = None
    for entry in reversed(entries_of_traceback(traceback)):
        if keep(entry.tb_frame.f_code.co_filename):
            result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def error_at_user_line(error: Exception) -> Exception:
    """The error, to be raised where the user has called this package: its traceback goes on at the user's lines.

    What code of this package raises without meaning to keeps all entries."""
    if isinstance(error, UserError):
        error.__cause__ = None  # and no context is shown
        return error.with_traceback(user_frames(error.__traceback__))
    if any(map(is_user_file, _files_of_traceback(error.__traceback__))):
        if is_own_mistake(error):
            return error
        line = line_of_traceback(error.__traceback__)
        if not is_raised_by_user(error) and line not in "".join(getattr(error, "__notes__", ())):
            error.add_note(f"at {line}")
        return error.with_traceback(_entries_of_files(error.__traceback__, lambda file: not _is_of_package(file)))
    file, done = _innermost_entry(error.__traceback__)
    return error if _is_of_package(file) and done != "RAISE_VARARGS" else error.with_traceback(None)


def _is_of_package(filename: str) -> bool:
    return filename.startswith((*_PACKAGE, "<kernelgraph"))


def nearest_name_hint(name: str, known: Iterable[str]) -> str:
    """`; the nearest supported one is ...`, or nothing where no known name is like `name`: the same name in another
    module, else one of the same module that is its first word, else one that looks like it."""
    names = [other for other in known if other != name]
    module, _, last = name.rpartition(".")
    same = [n for n in names if n.rpartition(".")[2] == last]
    around = [n for n in names if n.rpartition(".")[0] == module]
    words = [n for n in around if name.startswith(f"{n}_")]
    found = min(same, key=len) if same else max(words, key=len, default="")
    if not found:
        import difflib

        found = next(iter(difflib.get_close_matches(name, around, 1, 0.5)), "")
    return f"; the nearest supported function is {found}" if found else ""


@frozen
class SourceLocation:
    """A stretch of the user's text. column, end_column: in bytes of that line, -1 where Python does not say."""

    file: str
    line: int
    column: int
    end_column: int
    function: str


def user_line_reader() -> Callable[[], Line]:
    """A function that tells which of the user's lines runs, and what called it."""
    known: dict[tuple[int, ...], Line] = {}
    known_files = USER_FILES.get

    def line_that_runs() -> Line:
        codes: list[CodeType] = []
        key: list[int] = []  # the codes by identity, which takes no time: the lines keep them
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:  # this runs for each node of a trace
            code = frame.f_code
            users = known_files(code.co_filename)
            if users or (users is None and is_user_file(code.co_filename)):
                codes.append(code)
                key += (id(code), frame.f_lasti)
            elif code.co_name == "trace_function":
                break
            frame = frame.f_back
        found = known.get(tuple(key))
        if found is None:
            instructions = tuple(zip(codes, key[1::2], strict=True))
            place = _location_of_instruction(*instructions[0]) if instructions else None
            text = "<unknown>" if place is None else show_user_line(place.file, place.line)
            found = known[tuple(key)] = Line(text, (instructions,))
        return found

    return line_that_runs


def call_paths_of_user_line(line: str) -> list[tuple[SourceLocation, ...]]:
    """The calls that led to each of a node's lines, the outermost first; of text that knows none, the line alone."""
    if isinstance(line, Line):  # whose places are codes and bytes in them, the innermost first
        return [
            tuple(_location_of_instruction(code, at) for code, at in reversed(instructions))
            for instructions in line.places
        ]
    parts = (part.rpartition(":") for part in line.split(", "))
    return [(SourceLocation(file, int(number), -1, -1, ""),) for file, _, number in parts if number.isdigit()]


def _location_of_instruction(code: CodeType, at: int) -> SourceLocation:
    return _location_in_file(code, at, code.co_filename)


@lru_cache(4096)
def _location_in_file(code: CodeType, at: int, file: str) -> SourceLocation:  # codes of two files may be equal
    line, end_line, column, end_column = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    one = line is not None and line == end_line
    columns = (-1 if column is None else column, end_column if one and end_column is not None else -1)
    return SourceLocation(file, line or code.co_firstlineno, *columns, code.co_name)


@lru_cache(maxsize=4096)
def has_loop_or_handler(code: CodeType) -> bool:
    """Whether a function's code, or that of functions within, jumps backward or catches errors."""
    if any(
        "JUMP_BACKWARD" in instruction.opname or instruction.opname == "CHECK_EXC_MATCH"
        for instruction in dis.get_instructions(code)
    ):
        return True
    return any(has_loop_or_handler(constant) for constant in code.co_consts if isinstance(constant, CodeType))


def codes_of_traceback(trace: TracebackType | None) -> Iterator[CodeType]:
    """The codes of the traced functions that an error went through."""
    while trace is not None:
        if type(trace.tb_frame.f_globals) is not dict:
            yield trace.tb_frame.f_code
        trace = trace.tb_next
