"""Every keyword of every NumPy function, with each value that NumPy takes for it: what no kernel does runs in NumPy.

python -m tests.keyword_calls [NAME ...]    # prints what is an error, and what differs from NumPy

Functions, their arguments and keywords are read from NumPy's signatures. A call is left out where NumPy refuses it.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import kernelgraph as kg
from tests.dsl.tracing import interpreted

V, W = np.array([3.0, 1.0, 2.0, 5.0]), np.array([0.5, 1.5, 2.5, 3.5])
A, S, T = np.arange(12.0).reshape(3, 4) - 4, np.eye(4) * 4 + 0.5, np.array([[0.0, 2], [3, 0], [0, 1]])
K, B = np.array([0, 1, 1, 3]), np.array([True, False, True, True])
FIRST = (A, V, S, K, B, T, [V, W], [S, S], 3, (2, 2), "f8")
REST = (W, V, S, K, A, B, 2, 1, 0, (2, 0), (4, 3), (0,), [0.5], 0.5, "f8", ([0, 1],), [V, W], [B], "i,j->ij")
MODULES = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft}
# what reads files, prints, or is about NumPy itself; and what gives other numbers each time
LEFT_OUT = set(
    [
        "save",
        "savez",
        "savez_compressed",
        "savetxt",
        "load",
        "loadtxt",
        "genfromtxt",
        "fromfile",
        "fromregex",
        "memmap",
        "info",
        "show_config",
        "show_runtime",
        "test",
        "getbufsize",
        "setbufsize",
        "geterr",
        "seterr",
        "geterrcall",
        "seterrcall",
        "get_include",
        "get_printoptions",
        "set_printoptions",
        "printoptions",
        "errstate",
        "busday_count",
        "busday_offset",
        "is_busday",
        "datetime_as_string",
        "datetime_data",
        "nested_iters",
        "from_dlpack",
        "empty",
        "empty_like",
        "require",
        "bmat",
        "asmatrix",
        "may_share_memory",
        "shares_memory",
    ]
)
# values of keywords by their names; any keyword is also tried with those under `any`
VALUES: dict[str, tuple[Any, ...]] = {
    "any": (None, True, False, 0, 1),
    "axis": (-1, (0,), (0, 1), np.int64(0)),
    "axes": ((1, 0), (0, 1), [(0,), (0,), (0,)], [(-2, -1)] * 3, [-1, -1, ()]),
    "dtype": ("f4", np.float64, "i8", complex, bool),
    "casting": ("unsafe", "same_kind", "safe", "equiv", "no"),
    "order": ("C", "F", "A", "K", "fro", "nuc", np.inf, -2),
    "ord": ("fro", "nuc", np.inf, -np.inf, -2, 2),
    "where": (B, B[None]),
    "weights": (W, W[:3]),
    "initial": (7.0,),
    "kind": ("stable", "mergesort", "heapsort", "quicksort"),
    "method": ("lower", "higher", "nearest", "midpoint", "weibull", "inverted_cdf", "median_unbiased"),
    "mode": ("wrap", "clip", "raise", "full", "same", "valid", "edge", "reflect", "constant", "reduced", "complete"),
    "side": ("left", "right"),
    "indexing": ("ij", "xy"),
    "UPLO": ("L", "U"),
    "norm": ("ortho", "forward", "backward"),
    "optimize": ("greedy", "optimal"),
    "sorter": (np.array([0, 1, 2, 3]),),
    "range": ((0.0, 4.0),),
    "bins": (3, [0.0, 1.0, 5.0], "auto", "fd"),
    "to_begin": (9.0, [8.0, 9.0]),
    "to_end": (9.0, [8.0, 9.0]),
    "prepend": (W[0], W),
    "append": (W[0], W),
    "mean": (np.float64(2.0), W[:1]),
    "left": (9.0,),
    "right": (9.0,),
    "period": (4.0,),
    "x": (W,),
    "w": (W,),
    "rcond": (1e-8,),
    "rtol": (1e-8,),
    "device": ("cpu",),
    "requirements": ("C", ["F"]),
    "shape": ((2, 2), 3),
    "return_counts": (True,),
    "fweights": (K + 1,),
    "aweights": (W,),
    "fill_value": (9.0,),
    "decimals": (1, -1),
    "nan": (1.0,),
    "edge_order": (2,),
}
DTYPES = ("f4", "?", "i1")  # of the first arguments, beside those that they have
UFUNC_KEYWORDS = ("out", "where", "casting", "order", "dtype", "subok", "axis", "axes", "keepdims")


class Call(NamedTuple):
    """A NumPy function or ufunc's method by name, its arguments, and one keyword with a value."""

    name: str
    args: tuple[Any, ...]
    keyword: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_text, self.args))}, {self.keyword}={_text(self.value)})"


def _text(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else repr(x)


def _copied(x: Any) -> Any:
    return [_copied(y) for y in x] if type(x) is list else x.copy() if isinstance(x, np.ndarray) else x


def functions() -> dict[str, Any]:
    """NumPy's functions and ufuncs by their names, and the methods of some ufuncs."""
    found: dict[str, Any] = {}
    for module, space in MODULES.items():
        for name in sorted(space.__all__):
            value = getattr(space, name)
            if callable(value) and not isinstance(value, type) and name not in LEFT_OUT:
                found[f"{module}.{name}"] = value
    for ufunc in (np.add, np.multiply, np.maximum, np.logical_or):
        for method in ("reduce", "accumulate", "outer", "reduceat"):
            found[f"np.{ufunc.__name__}.{method}"] = getattr(ufunc, method)
    return found


def _cast(x: Any, dtype: str) -> Any:
    """The arguments with what is of floats cast."""
    if isinstance(x, (list, tuple)):
        return type(x)(_cast(y, dtype) for y in x)
    return x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def result(function: Any, args: Any, options: Any) -> Any:
    """What NumPy gives for copies of the arguments, in a tuple, or None where it refuses them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return (function(*_copied([*args]), **{k: _copied(x) for k, x in options.items()}),)
        except Exception:
            return None


def keywords(function: Any) -> tuple[int, list[str]]:
    """How many arguments a function needs, and the names of those that may be left out."""
    if isinstance(function, np.ufunc):
        return function.nin, [*UFUNC_KEYWORDS]
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1, []
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named = [p.name for p in parameters if p.default is not p.empty and p.kind is not p.POSITIONAL_ONLY]
    return max(len(needed), int(several)), named


def arguments(function: Any, count: int) -> Iterator[tuple[Any, ...]]:
    """The first arguments that NumPy takes, one of which at least is an array."""
    for first in FIRST:
        tails: list[tuple[Any, ...]] = [()]
        for _ in range(count - 1):
            tails = [(*tail, x) for tail in tails[:40] for x in REST]
        for tail in tails:
            arrays = type(first) is list or any(isinstance(x, np.ndarray) for x in (first, *tail))
            if arrays and result(function, (first, *tail), {}) is not None:
                yield first, *tail
                break


def calls(only: list[str]) -> Iterator[Call]:
    for name, function in functions().items():
        if only and name not in only:
            continue
        count, names = keywords(function)
        found = [*arguments(function, count)][:2] if count else []
        for args in [*found, *(_cast(args, dtype) for args in found[:1] for dtype in DTYPES)]:
            for keyword in names:
                for value in (*VALUES.get(keyword, ()), *VALUES["any"], *_outputs(function, args, keyword)):
                    unwritten = keyword == "where" and isinstance(function, np.ufunc) and value is not True
                    if not unwritten and result(function, args, {keyword: value}) is not None:
                        yield Call(name, args, keyword, value)


def _outputs(function: Any, args: Any, keyword: str) -> tuple[Any, ...]:
    if keyword != "out" or function in (np.fft.hfft, np.fft.irfft2, np.fft.ifft2):  # which do not write to it
        return ()
    made = result(function, args, {})
    if made is None or not isinstance(made[0], np.ndarray) or not made[0].ndim:
        return ()
    return (np.zeros_like(made[0]), np.zeros(made[0].shape, "f8"), np.zeros(made[0].shape, "c16"))


def judge(call: Call) -> str:
    """Nothing where a call gives what NumPy gives, or would run in NumPy; else what is wrong."""
    function = functions()[call.name]
    arrays = [x for x in call.args if isinstance(x, np.ndarray)]
    lists = [x for x in call.args if type(x) is list]

    def written(arrays: Any, lists: Any) -> Any:
        given, parts = iter(arrays), iter(lists)
        args = [next(given) if isinstance(x, np.ndarray) else next(parts) if type(x) is list else x for x in call.args]
        return function(*args, **{call.keyword: _copied(call.value)})

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decorated = kg.kernel_graph(written, device="cpu")
            found = _found(decorated, _copied(arrays), _copied(lists))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    want = result(function, call.args, {call.keyword: call.value})
    return differences(want[0], found)


def _found(decorated: Any, *args: Any) -> Any:
    """What the trace gives, interpreted; or a call, where that fails or what is written in place is the result."""
    try:
        return interpreted(decorated, *_copied([*args]))
    except Exception:
        return decorated(*args)


def differences(want: Any, found: Any) -> str:
    if isinstance(want, (tuple, list)):
        if type(found) is not type(want) or len(found) != len(want):
            return f"differs: {found!r}, not {want!r}"
        return next((text for w, f in zip(want, found, strict=True) if (text := differences(w, f))), "")
    try:
        w, f = np.asarray(want), np.asarray(found)
        places = 1e-3 if w.dtype == np.float16 else 1e-5
        same = w.dtype == f.dtype and w.shape == f.shape and np.allclose(f, w, places, equal_nan=True)
    except (TypeError, ValueError):
        return ""  # no numbers
    return "" if same else f"differs: {f.dtype}{f.shape} {f.ravel()[:3]}, not {w.dtype}{w.shape} {w.ravel()[:3]}"


def main(only: list[str]) -> int:
    tried = wrong = 0
    for call in calls(only):
        tried += 1
        if text := judge(call):
            wrong += 1
            print(f"{call}: {text}")
    print(f"{tried} calls, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
