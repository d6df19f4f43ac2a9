"""NumPy's own tests as a source of calls: each call of NumPy in them is made in a kernel_graph too, and compared.

python -m tests.numpy_suite [FILE ...] [pytest's options]    (or: make numpy-suite)

FILE is a file of tests in the installed NumPy, as `lib/tests/test_function_base.py`; without one, those of FILES. A
copy of each is rewritten so that calls of NumPy's functions and of methods of arrays, operators, and items that are
read and written go through `call`, which makes them with NumPy, gives the test NumPy's result, and makes them again on
a copy of the arguments within a graph on the CPU. A line is printed for each kind of difference: a result or an
argument that differs, an error that NumPy does not raise or that is missing, and an error that is not one of ours.
What is refused is counted by its text.
"""

from __future__ import annotations

import ast
import collections
import ctypes
import json
import operator
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

FILES = (
    *(f"_core/tests/test_{n}.py" for n in ("einsum", "function_base", "half", "indexerrors", "indexing")),
    *(f"_core/tests/test_{n}.py" for n in ("item_selection", "mem_overlap", "nep50_promotions", "numeric")),
    *(f"_core/tests/test_{n}.py" for n in ("scalarmath", "scalar_methods", "shape_base", "ufunc", "umath")),
    *(f"_core/tests/test_{n}.py" for n in ("umath_complex", "multiarray", "regression")),
    *(f"lib/tests/test_{n}.py" for n in ("arraypad", "arraysetops", "function_base", "histograms", "index_tricks")),
    *(f"lib/tests/test_{n}.py" for n in ("nanfunctions", "shape_base", "stride_tricks", "twodim_base", "type_check")),
    *(f"lib/tests/test_{n}.py" for n in ("ufunclike", "regression", "packbits", "polynomial")),
    *(f"linalg/tests/test_{n}.py" for n in ("linalg", "regression")),
    *(f"fft/tests/test_{n}.py" for n in ("pocketfft", "helper")),
)
LARGEST = 200_000  # elements of an argument
MOST_CALLS = 20  # of a function in one test
DIFFERENT = ("wrong", "wrong argument", "no error", "not ours")
# Part of a difference: why it is none.
DOCUMENTED = {
    "no error: FloatingPointError": "np.errstate changes nothing",
    "overwrite_input": "what it leaves in the argument is undefined",
    "wrong: where without out": "what a mask leaves out is undefined",
    "index arrays cannot be above 63": "more than 63 indices work",
    "specified kind='table'": "kind= of isin changes nothing",
}
LOG = "KERNELGRAPH_NUMPY_SUITE_LOG"
# Functions whose result says nothing about values: how arrays are printed, kept in memory, or written to files.
_LEFT_OUT = """
shares_memory may_share_memory array_repr array_str array2string save savez savetxt info who asarray_chkfinite
frompyfunc vectorize nditer nested_iters set_printoptions memmap require byte_bounds tobytes tofile tostring dump
dumps setflags __reduce__ __reduce_ex__ __setstate__ __deepcopy__ __copy__ __array__ __array_wrap__ newbyteorder
byteswap getfield setfield resize empty empty_like item tolist __dlpack__ __array_function__ __array_ufunc__
fromiter frombuffer __format__ __repr__ __str__ __sizeof__ __class_getitem__ result_type can_cast
get_array_wrap source broadcast view
"""
LEFT_OUT = frozenset(_LEFT_OUT.split())


def _functions() -> Iterator[Any]:
    for module in (np, np.linalg, np.fft):
        for name in module.__all__:
            function = getattr(module, name, None)
            if callable(function) and not isinstance(function, type) and name not in LEFT_OUT:
                yield function


NUMPYS = {id(f): f for f in _functions()}


# The rewritten tests


class _Rewriter(ast.NodeTransformer):
    """Calls, operators and items become calls of what is imported from here."""

    def _call(self, name: str, *parts: ast.expr) -> ast.expr:
        return ast.Call(ast.Name(name, ast.Load()), list(parts), [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(part) for part in node.body]  # decorators and defaults stay
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals", "vars", "eval", "exec"):
            return node
        return ast.Call(ast.Name("_kg_call", ast.Load()), [node.func, *node.args], node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("_kg_operator", ast.Constant(type(node.op).__name__), node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) or isinstance(node.operand, ast.Constant):
            return node
        return self._call("_kg_operator", ast.Constant(type(node.op).__name__), node.operand)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        name = type(node.ops[0]).__name__
        if len(node.ops) > 1 or name not in OPERATORS:
            return node
        return self._call("_kg_operator", ast.Constant(name), node.left, node.comparators[0])

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return self._call("_kg_operator", ast.Constant("Item"), node.value, _index(node.slice))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return node
        parts = (target.value, _index(target.slice), node.value)
        return ast.Expr(self._call("_kg_operator", ast.Constant("SetItem"), *parts))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        name = node.target.id
        done = self._call(
            "_kg_operator", ast.Constant("I" + type(node.op).__name__), ast.Name(name, ast.Load()), node.value
        )
        return ast.Assign([ast.Name(name, ast.Store())], done)


def _index(index: ast.expr) -> ast.expr:
    """What is between brackets, as an expression."""
    if isinstance(index, ast.Slice):
        bounds = [bound or ast.Constant(None) for bound in (index.lower, index.upper, index.step)]
        return ast.Call(ast.Name("slice", ast.Load()), bounds, [])
    if isinstance(index, ast.Tuple):
        return ast.Tuple([_index(part) for part in index.elts], ast.Load())
    return index


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow, "MatMult": operator.matmul,
    "LShift": operator.lshift, "RShift": operator.rshift, "BitAnd": operator.and_, "BitOr": operator.or_,
    "BitXor": operator.xor, "UAdd": operator.pos, "USub": operator.neg, "Invert": operator.invert,
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt,
    "GtE": operator.ge, "Item": operator.getitem, "SetItem": operator.setitem,
    "IAdd": operator.iadd, "ISub": operator.isub, "IMult": operator.imul, "IDiv": operator.itruediv,
    "IFloorDiv": operator.ifloordiv, "IMod": operator.imod, "IPow": operator.ipow, "IMatMult": operator.imatmul,
    "ILShift": operator.ilshift, "IRShift": operator.irshift, "IBitAnd": operator.iand, "IBitOr": operator.ior,
    "IBitXor": operator.ixor,
}  # fmt: skip


def rewritten(source: str) -> str:
    """The source of a file of tests, with its calls of NumPy made twice."""
    tree = ast.fix_missing_locations(_Rewriter().visit(ast.parse(source)))
    at = next((i for i, s in enumerate(tree.body) if not _is_preamble(s)), 0)
    tree.body[at:at] = ast.parse("from tests.numpy_suite import call as _kg_call, call_operator as _kg_operator").body
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_preamble(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) or (
        isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    )


# A call, made twice


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What the function gives; where it is NumPy's, a difference to what a graph gives is written down."""
    owner = getattr(function, "__self__", None)
    if id(function) in NUMPYS or (isinstance(owner, np.ufunc) and not isinstance(function, type)):
        name = getattr(function, "__name__", str(function))
        return _call_twice(name if owner is None else f"{owner.__name__}.{name}", function, args, kwargs)
    if type(owner) is np.ndarray and function.__name__ not in LEFT_OUT:
        method = operator.methodcaller
        name = function.__name__
        return _call_twice(f"ndarray.{name}", lambda x, *a, **k: method(name, *a, **k)(x), (owner, *args), kwargs)
    return function(*args, **kwargs)


def call_operator(name: str, *args: Any) -> Any:
    """What the operator gives."""
    if any(type(arg) is np.ndarray for arg in args):
        return _call_twice(f"operator {name}", OPERATORS[name], args, {})
    return OPERATORS[name](*args)


class _Arguments:
    """The arguments of a call with the arrays among them taken out: given copies, they can be put together again."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.leaves: list[Any] = []
        self.tree = self._cut((args, kwargs))
        self.simple = True

    def _cut(self, value: Any) -> Any:
        if type(value) is np.ndarray or isinstance(value, np.generic):
            for place, leaf in enumerate(self.leaves):
                if leaf is value:
                    return _Leaf(place)
            self.leaves.append(value)
            return _Leaf(len(self.leaves) - 1)
        if type(value) in (tuple, list):
            return type(value)(self._cut(v) for v in value)
        if type(value) is dict:
            return {k: self._cut(v) for k, v in value.items()}
        if type(value) is slice:
            return _Slice(self._cut([value.start, value.stop, value.step]))
        return value

    def rebuild(self, leaves: Any) -> Any:
        return _rebuild(self.tree, leaves)


class _Leaf(int):
    pass


class _Slice:
    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts


def _rebuild(tree: Any, leaves: Any) -> Any:
    if type(tree) is _Leaf:
        return leaves[tree]
    if type(tree) in (tuple, list):
        return type(tree)(_rebuild(v, leaves) for v in tree)
    if type(tree) is dict:
        return {k: _rebuild(v, leaves) for k, v in tree.items()}
    return slice(*_rebuild(tree.parts, leaves)) if type(tree) is _Slice else tree


def _is_ours(leaf: Any) -> bool:
    return (
        leaf.dtype.kind in "biufc" and leaf.dtype.itemsize <= 16 and leaf.dtype.isnative and leaf.dtype.char not in "gG"
    )


def _copies(leaves: list[Any]) -> list[Any]:
    """Copies of arrays with their strides, which share memory where those do."""
    roots: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    made = []
    for leaf in leaves:
        if isinstance(leaf, np.generic):
            made.append(leaf)
            continue
        low, high = np.lib.array_utils.byte_bounds(leaf)
        root = leaf
        while isinstance(root.base, np.ndarray):
            root = root.base
        first, last = np.lib.array_utils.byte_bounds(root)
        if not (first <= low and high <= last and last - first < 16 * LARGEST):
            raise _NoCopy
        key = first
        if key not in roots:
            memory = np.empty(last - first + 64, np.uint8)
            shift = (first - memory.ctypes.data) % 64
            window = memory[shift : shift + last - first]
            ctypes.memmove(window.ctypes.data, first, last - first)
            roots[key] = (window, memory)
        window = roots[key][0]
        start = leaf.ctypes.data - first
        copy = np.ndarray(leaf.shape, leaf.dtype, window, start, leaf.strides) if leaf.size else np.empty_like(leaf)
        copy.flags.writeable = leaf.flags.writeable
        made.append(copy)
    return made


class _NoCopy(Exception):
    pass


_busy = False
_calls: collections.Counter[tuple[str, str]] = collections.Counter()


def _call_twice(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    global _busy
    given = _Arguments(args, kwargs)
    _calls[at := (os.environ.get("PYTEST_CURRENT_TEST", ""), name)] += 1
    if (
        _busy
        or not given.leaves
        or _calls[at] > MOST_CALLS
        or not all(_is_ours(x) and x.size <= LARGEST for x in given.leaves)
    ):
        return function(*args, **kwargs)
    try:
        copies = _copies(given.leaves)
        before = _copies(given.leaves)
    except (_NoCopy, ValueError):
        return function(*args, **kwargs)
    _busy = True
    try:
        problem: BaseException | None = None
        result = None
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            problem = error
        _compare(name, function, given, copies, before, result, problem)
    finally:
        _busy = False
    if problem is not None:
        raise problem
    return result


def _compare(
    name: str,
    function: Any,
    given: _Arguments,
    copies: list[Any],
    before: list[Any],
    result: Any,
    problem: BaseException | None,
) -> None:
    def traced(leaves: Any) -> Any:
        args, kwargs = given.rebuild(leaves)
        return function(*args, **kwargs)

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            ours = kg.kernel_graph(traced, device="cpu", untraceable="refuse")(copies)
            ours = _as_numpy(ours)
    except Exception as error:
        if problem is not None:
            kind = "same error" if isinstance(error, type(problem)) else "other error"
            detail = f"{type(problem).__name__}: {problem} | {type(error).__name__}: {error}"
        elif isinstance(error, kg.KernelGraphError):
            kind, detail = "refused", f"{type(error).__name__}: {error}"
        else:
            kind, detail = "not ours", f"{type(error).__name__}: {error}"
    else:
        if problem is not None:
            kind, detail = "no error", f"{type(problem).__name__}: {problem}"
        else:
            detail = _difference(result, ours) or ""
            kind = "wrong" if detail else "right"
        if not detail:
            for place, (mine, theirs) in enumerate(zip(copies, given.leaves, strict=True)):
                if isinstance(mine, np.ndarray) and (found := _difference(theirs, mine)):
                    kind, detail = "wrong argument", f"argument {place}: {found}"
    _write(name, kind, detail, given, before)


def _as_numpy(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_as_numpy(v) for v in value]
    return np.asarray(value) if isinstance(value, kg.Array) else value


def _difference(wanted: Any, found: Any) -> str | None:
    if isinstance(wanted, (tuple, list)):
        if not isinstance(found, (tuple, list)) or len(wanted) != len(found):
            return f"structure: {wanted!r:.80} {found!r:.80}"
        return next((d for w, f in zip(wanted, found, strict=True) if (d := _difference(w, f))), None)
    if wanted is None or isinstance(wanted, (str, np.dtype, type)):
        return None if wanted is found or wanted == found else f"{wanted!r} is {found!r}"
    try:
        a, b = np.asarray(wanted), np.asarray(found)
    except Exception:
        return None
    if a.dtype.kind not in "biufc":
        return None
    if a.dtype != b.dtype:
        return f"dtype {a.dtype} is {b.dtype}"
    if a.shape != b.shape:
        return f"shape {a.shape} is {b.shape}"
    if a.dtype.kind in "biu":
        same = np.array_equal(a, b)
    else:
        with np.errstate(all="ignore"):
            eps = float(np.finfo(a.dtype).eps)
            finite = np.abs(a[np.isfinite(a)])
            scale = float(finite.max()) if finite.size else 0.0
            same = bool(np.allclose(a, b, rtol=64 * eps, atol=64 * eps * min(scale, 1e300), equal_nan=True))
    return None if same else f"values {a!r:.150} are {b!r:.150}".replace("\n", "")


def _write(name: str, kind: str, detail: str, given: _Arguments, before: list[Any]) -> None:
    row = {"name": name, "kind": kind, "test": os.environ.get("PYTEST_CURRENT_TEST", "")}
    if kind not in ("right", "same error"):
        with np.printoptions(threshold=20):
            args, kwargs = given.rebuild(before)
            row |= {"detail": detail[:600], "args": f"{args!r:.600} {kwargs!r:.600}"}
            unset = "where without out" if "where" in kwargs and "out" not in kwargs else ""
            row["text"] = f"{unset} {detail:.600} {' '.join(kwargs)}".strip()
    with open(f"{os.environ[LOG]}.{os.getpid()}", "a") as log:
        log.write(json.dumps(row) + "\n")


# The run


def main(arguments: list[str]) -> int:
    root = Path(np.__file__).parent
    files = [a for a in arguments if a.endswith(".py")] or FILES
    options = [a for a in arguments if not a.endswith(".py")]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(LOG, str(Path(folder, "log")))
        paths = []
        for file in files:
            path = Path(folder, file.replace("/", "_").replace("_tests_test_", "_test_").lstrip("_"))
            path = path.with_name("test_" + path.name)
            path.write_text(rewritten((root / file).read_text()))
            paths.append(str(path))
        quiet = ["-q", "--no-header", "-rN", "--tb=no", "-p", "no:cacheprovider", "--import-mode=importlib"]
        # Some fail: what they ask is called through a function of ours.
        pytest.main([*quiet, "--rootdir", folder, "-c", os.devnull, *options, *paths])
        log = Path(os.environ[LOG])
        rows: list[dict[str, str]] = [
            json.loads(r) for part in log.parent.glob(log.name + ".*") for r in part.read_text().splitlines()
        ]
    return 1 if summarize(rows) or not rows else 0


def summarize(rows: list[dict[str, str]]) -> int:
    """Prints the calls that differ and the counts; how many differ without a reason."""
    kinds: collections.Counter[str] = collections.Counter()
    for row in rows:
        reason = next(
            (why for told, why in DOCUMENTED.items() if told in f"{row['kind']}: {row.get('text', '')}"), None
        )
        kinds[row["kind"] if reason is None else f"as documented ({reason})"] += 1
        if row["kind"] in DIFFERENT and reason is None:
            print(f"{row['kind']}: {row['name']}: {row['detail']}\n    {row['args']}\n    {row['test']}")
    print("; ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    return sum(kinds[kind] for kind in DIFFERENT)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
