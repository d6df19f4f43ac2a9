"""Operations on `kg.Array` outside of a trace: NumPy itself on the CPU, a compiled function each elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...compiler.ops.table import OPS, UFUNC_PARTS
from ...runtime.program.device import Device
from ..array.array import Array, from_numpy
from ..array.devices import default, open_device
from ..core.checks import is_plain_array
from ..core.errors import TraceError, UnsupportedError
from ..trace.dispatch import METHODS, REFUSED, UFUNCS, call_function
from ..trace.operands import array_of
from ..trace.trace import current


def plain(x: Any) -> Any:
    """x with NumPy arrays in place of `kg.Array`s."""
    if isinstance(x, Array):
        return x.numpy()
    if isinstance(x, list):
        return [plain(i) for i in x]
    if type(x) is tuple:
        return tuple(plain(i) for i in x)
    if type(x) is slice:
        return slice(*(plain(i) for i in (x.start, x.stop, x.step)))
    return x


def wrapped(x: Any, device: Device, given: Sequence[Any] = (), args: tuple[Any, ...] = ()) -> Any:
    """x with `kg.Array`s in place of NumPy arrays and scalars. given: NumPy arrays that are not new. args: what x was
    made of. What no `kg.Array` can be stays NumPy's: text, dates, subclasses with a meaning of their own."""
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.type in _NUMPYS:
        return x
    if isinstance(x, np.generic):
        return from_numpy(x, device, own=True)
    if isinstance(x, np.ndarray):
        if not is_plain_array(type(x)):
            return x
        new = x.base is None and not any(x is g for g in given)
        result = from_numpy(x, device, own=new)
        if not new and any(np.may_share_memory(x, a.numpy()) for a in arrays_in(args, Array)):
            result._part = True
        return result
    if isinstance(x, tuple):
        parts = [wrapped(i, device, given, args) for i in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, list):
        return [wrapped(i, device, given, args) for i in x]
    return x


# the types of elements that no `kg.Array` has
_NUMPYS = frozenset({np.object_, np.bytes_, np.str_, str, np.void, np.record, np.datetime64, np.timedelta64})


def arrays_in(x: Any, kind: type = np.ndarray) -> list[Any]:
    """The NumPy arrays, or `kg.Array`s, among arguments."""
    if isinstance(x, kind):
        return [x]
    return [a for i in x for a in arrays_in(i, kind)] if isinstance(x, (tuple, list)) else []


def device_of(*args: Any) -> Device | None:
    """The device of the first `kg.Array` among the arguments."""
    for arg in args:
        if isinstance(arg, Array):
            return arg._device
        if isinstance(arg, (tuple, list)):
            found = device_of(*arg)
            if found is not None:
                return found
    return None


# functions that change their first argument, and methods that change their array
CHANGING: set[Any] = {np.put, np.copyto, np.fill_diagonal, np.putmask, np.place, np.put_along_axis}
CHANGING |= {ufunc.at for ufunc in UFUNC_PARTS}


def run(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`function` of NumPy at once; the result on the arguments' device."""
    if function in CHANGING and args and isinstance(args[0], Array):
        from ..array.mutation import call

        return call(function, args, options)
    name = options.pop("device", None)
    if name is not None:
        from ..array.devices import parse

        device = open_device(parse(name) or default())
    else:
        device = device_of(*args, *options.values()) or open_device(("cpu", 0))
    if device.computes and not device.host_memory and function not in REFUSED and device_of(*args) is not None:
        try:
            return _compiled(function, device, tuple(options))(*args, *options.values())
        except (UnsupportedError, TraceError):  # shapes that depend on data, functions without a kernel
            pass
    place = place_of_out(function)
    if options.get("out") is not None or (place is not None and len(args) > place):
        from ..array.mutation import fill

        return fill(function, args, options, place, device)
    values, named = plain(args), {k: plain(v) for k, v in options.items()}
    given = arrays_in((values, *named.values()))
    return wrapped(function(*values, **named), device, given, (args, *options.values()))


@cache
def place_of_out(function: Callable[..., Any]) -> int | None:
    """The number of the argument `out` of a function of NumPy's (of a ufunc, of the first); None where it has to be
    named."""
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return None
    named = "out" in parameters and parameters["out"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    return list(parameters).index("out") if named else None


_COMPILED: dict[Any, Any] = {}


def _compiled(function: Callable[..., Any], device: Device, names: tuple[str, ...]) -> Callable[..., Any]:
    """The function decorated for a device that NumPy cannot compute on; the last arguments are those with names."""
    key = (function, device.kind, device.index, names)
    found = _COMPILED.get(key)
    if found is None:
        from ..array.devices import name_of
        from ..jit.kernel_graph import KernelGraph

        def one(*args: Any) -> Any:
            first = len(args) - len(names)
            return function(*args[:first], **dict(zip(names, args[first:], strict=True)))

        one.__name__ = getattr(function, "__name__", "operation")
        found = _COMPILED[key] = KernelGraph(one, device=name_of(device))
    return found


def run_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `kg.Array.__array_ufunc__` answers."""
    if current() is not None:
        return UFUNCS[method](ufunc, *inputs, **options)
    return run(getattr(ufunc, method), inputs, options)


def run_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `kg.Array.__array_function__` answers."""
    if current() is not None:
        return call_function(function, args, options)
    return run(function, args, options)


def bound_method(array: Array, name: str) -> Callable[..., Any]:
    """`array.name`, a method of NumPy arrays. Raises AttributeError."""
    from ..functions import tables  # noqa: F401  # fills METHODS

    if name.startswith("_") or name not in METHODS:
        has = hasattr(array.dtype.type, name) and not hasattr(np.ndarray, name)  # what NumPy's numbers alone have
        raise AttributeError(
            f"'Array' object has no attribute {name!r}; write {'x.item()' if has else 'np.asarray(x)'}.{name}"
        )

    def method(*args: Any, **options: Any) -> Any:
        if current() is not None:
            return METHODS[name](array_of(array), *args, **options)
        return run(_METHOD_CALLS.setdefault(name, _call_method(name)), (array, *args), options)

    method.__name__ = name
    return method


_METHOD_CALLS: dict[str, Callable[..., Any]] = {}


def _call_method(name: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **options: Any) -> Any:
        return getattr(x, name)(*args, **options)

    call.__name__ = name
    if name in ("fill", "partition", "put", "sort"):
        CHANGING.add(call)
    elif hasattr(np, name):  # which has the same arguments after the array
        call.__wrapped__ = getattr(np, name)  # type: ignore[attr-defined]
    return call


def _install_operators() -> None:
    """Gives `kg.Array` the Python operators that the rows of the table answer."""
    named = {row.operator: row.numpy for row in OPS.values() if row.operator} | {"__divmod__": np.divmod}
    for python, ufunc in named.items():
        stem = python.strip("_")
        setattr(Array, python, _operator(python, ufunc, False))
        if getattr(ufunc, "nin", 1) == 2 and (stem == "matmul" or hasattr(int, f"__r{stem}__")):
            setattr(Array, f"__r{stem}__", _operator(f"__r{stem}__", ufunc, True))


def _operator(name: str, ufunc: Any, reflected: bool) -> Callable[..., Any]:
    def function(self: Array, *others: Any) -> Any:
        if any(getattr(other, "__array_ufunc__", 0) is None for other in others):
            return NotImplemented
        return run_ufunc(ufunc, "__call__", (*others, self) if reflected else (self, *others), {})

    function.__name__ = name
    return function


_install_operators()
