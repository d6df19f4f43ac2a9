"""Writes what editors and type checkers know of `kg.*` and of an array's methods, from the tables that make them.

`python -m tests.types.stubs` writes the two files; a test says that they are current. Signatures are those that `help`
shows; the tables below say the types of parameters by name, and which functions give something other than one array.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.ops.table import OPS
from kernelgraph.dsl.api import array_api_info, control_flow
from kernelgraph.dsl.api.namespace import NAMESPACE, NumpyNamespace
from kernelgraph.dsl.trace.dispatch import METHODS

ROOT = Path(__file__).parent.parent.parent
NAMESPACE_STUB = ROOT / "src" / "kernelgraph" / "__init__.pyi"
METHODS_STUB = ROOT / "dsl" / "array" / "methods.pyi"
NUMPY = np.__version__.rpartition(".")[0]
HEADER = f"# Written by `python -m tests.types.stubs` with NumPy {NUMPY}; not by hand.\n# fmt: off\n# ruff: noqa\n\n"
DTYPES = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"

ARRAYS = "a a1 a2 ar1 ar2 arr array ary b condition element labels logits m test_elements v values weight where"
ARRAYS += " x x1 x2 y"
AXIS = "int | Sequence[int] | None"
TYPES = {
    **dict.fromkeys(ARRAYS.split(), "ArrayLike"),
    **dict.fromkeys(("axis", "axes"), AXIS),
    **dict.fromkeys(("axis1", "axis2", "num"), "int"),
    **dict.fromkeys(("assume_unique", "endpoint", "equal_nan", "keepdims", "retstep", "subok"), "builtins.bool"),
    "casting": "str",
    "device": "str | None",
    "dtype": "DTypeLike | None",
    "order": "str | None",
    "shape": "int | Sequence[int]",
}
TOLD = "type[S] | np.dtype[S]"  # a dtype that the result has
# annotations that are kept
OURS = {TOLD, "int", "float", "str", "bool", "int | None", "str | None", "bool | None", "Key"}

RESULTS = {
    "bool": "allclose array_equal array_equiv can_cast iscomplexobj isrealobj",
    "int": "ndim size",
    "tuple[int, ...]": "shape",
    "None": "copyto fill_diagonal put put_along_axis putmask debug.print",
    "list[Array]": "array_split dsplit hsplit split vsplit",
    "tuple[Array, Array]": "divmod frexp histogram modf polydiv topk",
    "tuple[Array, Array, Array]": "histogram2d",
    "tuple[Array, ...]": "broadcast_arrays ix_ meshgrid nonzero tril_indices_from triu_indices_from unravel_index"
    " unstack",
    "tuple[Array, Array, Any, Array]": "linalg.lstsq",
    "np.dtype[Any]": "result_type",
    "Any": "debug.check_finite einsum_path gradient histogramdd",
    "_Key": "random.key",
    "tuple[_Key, ...]": "random.split",
}
RESULT = {name: result.replace("bool", "builtins.bool") for result, names in RESULTS.items() for name in names.split()}
NAMED_TUPLES = {
    name: getattr(np.linalg._linalg, result, None) or getattr(np.lib._arraysetops_impl, result)  # type: ignore[attr-defined]
    for name, result in {
        "linalg.eig": "EigResult",
        "linalg.eigh": "EighResult",
        "linalg.qr": "QRResult",
        "linalg.slogdet": "SlogdetResult",
        "linalg.svd": "SVDResult",
        "unique_all": "UniqueAllResult",
        "unique_counts": "UniqueCountsResult",
        "unique_inverse": "UniqueInverseResult",
    }.items()
}
# methods that keep the dtype, and functions and methods that give the one that they are told
SAME_DTYPE = "__neg__ __pos__ compress conj conjugate copy diagonal flatten max min ravel repeat reshape squeeze"
SAME_DTYPE += " swapaxes take transpose"
TOLD_DTYPE = "arange astype empty empty_like eye full full_like identity linspace ones ones_like tri zeros zeros_like"
METHOD_RESULT = {
    **dict.fromkeys(("all", "any", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), "Array[np.bool_]"),
    **dict.fromkeys(("argmax", "argmin", "argsort"), "Array[np.intp]"),
}
CHANGING = frozenset({"fill", "partition", "put", "sort"})  # methods that give nothing
# the arguments with which a function gives something else
OTHERWISE = {
    "average": "returned",
    "intersect1d": "return_indices",
    "linalg.qr": "mode",
    "linalg.svd": "compute_uv",
    "polyfit": "full cov",
    "unique": "return_index return_inverse return_counts",
}


def parameter(p: inspect.Parameter, arrays: str = "ArrayLike") -> str:
    """One parameter, with its type and its default. arrays: the type of what stands for an array."""
    variadic = p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    given = "Any" if variadic else p.annotation if p.annotation in OURS else TYPES.get(p.name, "Any")
    kind = str(given).replace("bool", "builtins.bool").replace("builtins.builtins", "builtins").replace("Key", "_Key")
    kind = kind if p.name == "where" else kind.replace("ArrayLike", arrays)
    if p.default is None and "None" not in kind and kind != "Any":
        kind += " | None"
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    name = f"{p.name}_" if keyword.iskeyword(p.name) else p.name
    if p.default is p.empty:
        return f"{stars}{name}: {kind}"
    shown = repr(p.default) if isinstance(p.default, (bool, int, float, str, type(None))) else "..."
    return f"{stars}{name}: {kind} = {shown}"


def parameters(given: Iterable[inspect.Parameter], arrays: str = "ArrayLike") -> str:
    """The parameters with the `/` and `*` between them."""
    parts: list[str] = []
    before = None
    for p in given:
        if before is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        if p.kind is p.KEYWORD_ONLY and before not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            parts.append("*")
        parts.append(parameter(p, arrays))
        before = p.kind
    return ", ".join([*parts, "/"] if before is inspect.Parameter.POSITIONAL_ONLY else parts)


def without(signature: inspect.Signature, names: list[str]) -> Iterator[inspect.Parameter]:
    """The parameters but these; what stands after the first of them has to be named."""
    behind = False
    for p in signature.parameters.values():
        if p.name in names:
            behind = True
        elif behind and p.kind is p.POSITIONAL_OR_KEYWORD:
            yield p.replace(kind=p.KEYWORD_ONLY)
        else:
            yield p


def with_dtype(given: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """The parameters of a call that says the dtype, by name where others can be left out before it."""
    optional = behind = False
    for p in given:
        behind |= optional and p.name == "dtype"
        named = behind and p.kind is p.POSITIONAL_OR_KEYWORD
        told = {"default": p.empty, "annotation": TOLD} if p.name == "dtype" else {}
        yield p.replace(kind=p.KEYWORD_ONLY if named else p.kind, **told)
        optional |= p.default is not p.empty


def function(path: str, value: Any, decorator: str = "", indent: str = "", doc: bool = False) -> Iterator[str]:
    """The lines of a function's stub."""
    name = path.rpartition(".")[2]
    result = NAMED_TUPLES[path].__name__ if path in NAMED_TUPLES else RESULT.get(path, "Array")
    signature = inspect.signature(value)
    forms: list[tuple[Iterable[inspect.Parameter], str]] = [(signature.parameters.values(), result)]
    if path in TOLD_DTYPE.split():
        forms = [(list(with_dtype(signature.parameters.values())), "Array[S]"), *forms]
    if path in OTHERWISE:
        forms = [(list(without(signature, OTHERWISE[path].split())), result), (forms[0][0], "Any")]
    for given, kind in forms:
        if len(forms) > 1:
            yield f"{indent}@overload"
        if decorator:
            yield f"{indent}{decorator}"
        shown = parameters(given, "_Arrays" if path.startswith("nn.") else "ArrayLike")  # nn takes no lists
        line = f"{indent}def {name}({shown}) -> {kind}:"
        if doc and (text := sentence(value)):
            yield from (line, f'{indent}    """{text}"""')
        else:
            yield f"{line} ..."


def sentence(value: Any) -> str:
    """The first of a docstring; a ufunc's begins with its signature."""
    paragraphs = [" ".join(part.split()) for part in (value.__doc__ or "").split("\n\n")]
    text = next((part for part in paragraphs if part and not re.match(r"\w+\(x.*\)$|>>>", part)), "")
    first = re.split(r"(?<=[^.][.])\s", text.replace("\\", "").replace('"', "'"))[0]
    return first.rstrip(".") + "." if first else ""


def namespace(name: str, space: NumpyNamespace) -> Iterator[str]:
    """`kg.linalg` and the like, as a class of functions."""
    yield from ("", f"class {name}:")
    path = space.__name__.removeprefix("kernelgraph.")
    for inner, value in sorted(vars(space).items()):
        if isinstance(value, NumpyNamespace):
            yield from (f"    {line}".rstrip() for line in namespace(inner, value))
        elif isinstance(value, type):
            yield f"    {inner}: TypeAlias = _{inner}"
        elif inner != "__name__":
            yield from function(f"{path}.{inner}", value, "@staticmethod", "    ", doc=True)


def namespace_stub() -> str:
    lines = [
        "import builtins",
        "from collections.abc import Sequence",
        "from typing import Any, NamedTuple, TypeAlias, TypeVar, overload",
        "import numpy as np",
        "from numpy.typing import ArrayLike, DTypeLike",
        f"from numpy import {', '.join(f'{d} as {d}' for d in DTYPES.split())}",
        "from .dsl.api.random import Key as _Key",
    ]
    imported = {f".{home}" if home != "ml_dtypes" else home: names for home, names in kg._HOMES.items()}
    imported[".dsl.api.control_flow"] = tuple(control_flow.FUNCTIONS)
    limits = [n for n, v in array_api_info.NAMES.items() if inspect.isfunction(v) and not n.startswith("__")]
    imported[".dsl.api.array_api_info"] = tuple(limits)
    lines += [f"from {home} import {', '.join(f'{n} as {n}' for n in names)}" for home, names in imported.items()]
    lines += ["from .dsl.api.array_api_info import info as __array_namespace_info__", ""]
    lines += [f"__all__ = {sorted(kg.__all__)!r}", "__version__: str", "__array_api_version__: str"]
    lines += ["e: float", "pi: float", "inf: float", "nan: float", "newaxis: None", "bool = np.bool_", ""]
    lines += ["_Arrays: TypeAlias = Array | np.ndarray", 'S = TypeVar("S", bound=np.generic)', ""]
    for made in sorted(set(NAMED_TUPLES.values()), key=lambda made: str(made.__name__)):
        lines += [f"class {made.__name__}(NamedTuple):", *(f"    {field}: Array" for field in made._fields), ""]
    known = {*array_api_info.NAMES, *control_flow.FUNCTIONS, *kg.__all__}
    for name, value in sorted(NAMESPACE.items()):
        if isinstance(value, NumpyNamespace):
            lines += namespace(name, value)
        elif name not in known:
            lines += function(name, value, doc=True)
    return HEADER + "\n".join(lines) + "\n"


RESULT_CLASS = '''
class ArrayResult(np.ndarray[Shape, np.dtype[Scalar]], Array[Scalar]):  # type: ignore  # pyright: ignore
    """To type checkers what a function that says `-> np.ndarray` gives once decorated: a `kg.Array` where NumPy's is
    asked for too, with the type that the function says and the methods that only a `kg.Array` has."""
    @property
    def device(self) -> DeviceName: ...  # type: ignore  # pyright: ignore
    def to_device(self, device: str, /, *, stream: None = None) -> Self: ...  # type: ignore  # pyright: ignore
'''


def methods_stub() -> str:
    import kernelgraph.dsl.functions.tables  # noqa: F401  # fills METHODS

    lines = [
        "import builtins",
        "from collections.abc import Sequence",
        "from typing import Any, Generic, Self, overload",
        "import numpy as np",
        "from numpy.typing import ArrayLike, DTypeLike",
        "from typing_extensions import TypeVar",
        "from .array import Array",
        "from .devices import DeviceName",
        "",
        'S = TypeVar("S", bound=np.generic)',
        'Shape = TypeVar("Shape", bound=tuple[Any, ...])',
        'Scalar = TypeVar("Scalar", bound=np.generic, default=Any, covariant=True)',
        "",
        "class ArrayMethods(Generic[Scalar]):",
        '    """The operators and methods that a `kg.Array` shares with NumPy\'s arrays."""',
    ]
    for row in OPS.values():
        if row.operator:
            lines += operators(row.operator, row.numpy)
    lines += operators("__divmod__", np.divmod)
    for name, method in sorted(METHODS.items()):
        if name.startswith("_"):
            continue
        _, *rest = inspect.signature(method).parameters.values()
        given = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *rest]
        shown = parameters(given).replace("self: Any", "self")
        if name in TOLD_DTYPE.split():
            told = parameters(with_dtype(given)).replace("self: Any", "self")
            lines += ["    @overload", f"    def {name}({told}) -> Array[S]: ...", "    @overload"]
        same = "Array[Scalar]" if name in SAME_DTYPE.split() else METHOD_RESULT.get(name, "Array")
        result = "None" if name in CHANGING else RESULT.get(name, same)
        lines.append(f"    def {name}({shown}) -> {result}: ...")
    lines += RESULT_CLASS.splitlines()
    return HEADER + "\n".join(lines) + "\n"


def operators(name: str, ufunc: Any) -> Iterator[str]:
    same = "Array[Scalar]" if name in SAME_DTYPE.split() else METHOD_RESULT.get(name, "Array")
    result = "tuple[Array, Array]" if name == "__divmod__" else same
    if getattr(ufunc, "nin", 1) == 1:
        yield f"    def {name}(self) -> {result}: ..."
        return
    same = name in ("__eq__", "__ne__")
    ignored = "  # type: ignore[override]  # pyright: ignore" if same else ""
    yield f"    def {name}(self, other: {'object' if same else 'ArrayLike'}, /) -> {result}: ...{ignored}"
    stem = name.strip("_")
    if stem == "matmul" or hasattr(int, f"__r{stem}__"):
        yield f"    def __r{stem}__(self, other: ArrayLike, /) -> {result}: ..."


def stubs() -> dict[Path, str]:
    """The text of both files."""
    return {NAMESPACE_STUB: namespace_stub(), METHODS_STUB: methods_stub()}


if __name__ == "__main__":
    for file, content in stubs().items():
        file.write_text(content, encoding="utf-8")
        print(file.relative_to(ROOT), len(content.splitlines()), "lines")
