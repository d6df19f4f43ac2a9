"""Operations on `kg.Array` outside of a trace: a compiled function each; on the CPU, NumPy where that is sooner."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...compiler.ops.table import OPS, UFUNC_PARTS
from ...runtime.program.device import Device, Event
from ..array.array import Array, asarray, own_numpy_array
from ..array.conversion import arrays_among_arguments, device_of_arguments, to_kg_arrays, to_numpy_arrays
from ..array.devices import DeviceUnavailableError, device_named, name_of, open_device
from ..array.memory import owners_in_words
from ..core.context import context
from ..core.errors import MissingAttributeError, TraceError, UnsupportedError, UserError
from ..core.foreign_names import FOREIGN_ATTRIBUTES, instead_of
from ..core.spec import spec_of
from ..trace.aliasing import settled_root_of_view
from ..trace.dispatch import METHODS, REFUSED, UFUNCS, call_function
from ..trace.operands import is_traced, leaves_operator_to, to_traced_array
from ..trace.tracer import Tracer
from ..trace.view_rules import VIEWS

SMALL_PART = 4096  # bytes of a part that is copied to memory of NumPy's

# functions that change their first argument, and methods that change their array
CHANGING: set[Any] = {np.put, np.copyto, np.fill_diagonal, np.putmask, np.place, np.put_along_axis}
CHANGING |= {ufunc.at for ufunc in UFUNC_PARTS}


def run_eagerly(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`function` of NumPy at once; the result on the arguments' device."""
    if function in CHANGING and args and isinstance(args[0], Array):
        from ..array.mutation import call_in_place_on_array

        return call_in_place_on_array(function, args, options)
    name = options.pop("device", None)
    found = (
        None
        if name is not None
        else device_of_arguments(*args, *options.values()) or open_device(context.device or ("cpu", 0))
    )
    device = found or device_named(name)
    if (
        device.computes
        and not device.host_memory
        and function not in REFUSED
        and device_of_arguments(*args) is not None
    ):
        try:
            result = _compile_for_eager_call(function, device, tuple(options))(*args, *options.values())
            return _eager_view_marked_as_part(*result) if _may_eager_function_return_view(function) else result
        except (UnsupportedError, TraceError):  # shapes that depend on data, functions without a kernel
            pass
    place = eager_place_of_out(function)
    if options.get("out") is not None or (place is not None and len(args) > place):
        from ..array.mutation import call_numpy_with_out_array

        return call_numpy_with_out_array(function, args, options, place, device)
    values, named = to_numpy_arrays(args), {k: to_numpy_arrays(v) for k, v in options.items()}
    given = arrays_among_arguments((values, *named.values()))
    return to_kg_arrays(function(*values, **named), device, given, (args, *options.values()))


@cache
def eager_place_of_out(function: Callable[..., Any]) -> int | None:
    """The number of the argument `out` of a function of NumPy's (a ufunc's first); None where it has to be named."""
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return None
    named = "out" in parameters and parameters["out"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    return list(parameters).index("out") if named else None


# by function and device, of ufuncs also by what the operands are; None: there is no kernel for those
_COMPILED: dict[Any, Any] = {}
_KNOWN_KINDS = 4096


def _compile_for_eager_call(function: Callable[..., Any], device: Device, names: tuple[str, ...]) -> Callable[..., Any]:
    """The function decorated for a device that NumPy cannot compute on; the last arguments are those with names."""
    key = (function, device.kind, device.index, names)
    found = _COMPILED.get(key)
    if found is None:
        found = _COMPILED[key] = _new_function_for_eager_calls(function, device, names)
    return found


def _new_function_for_eager_calls(
    function: Callable[..., Any], device: Device, names: tuple[str, ...]
) -> Callable[..., Any]:
    from .kernel_graph import KernelGraph

    def call_with_named_arguments(*args: Any) -> Any:
        first = len(args) - len(names)
        result = function(*args[:first], **dict(zip(names, args[first:], strict=True)))
        return (result, _mark_view_results(result, args)) if _may_eager_function_return_view(function) else result

    call_with_named_arguments.__name__ = getattr(function, "__name__", "operation")
    return KernelGraph(call_with_named_arguments, device=name_of(device), untraceable="refuse")


_VIEWING = frozenset(name.rpartition(".")[2] for name in VIEWS.split())


def _may_eager_function_return_view(function: Callable[..., Any]) -> bool:
    return getattr(function, "__name__", "") in _VIEWING


def _mark_view_results(result: Any, args: tuple[Any, ...]) -> tuple[bool, ...]:
    """While it is traced: which of the results NumPy would make views of the arguments."""
    given = arrays_among_arguments(args, Tracer)
    return tuple(any(settled_root_of_view(x) is a for a in given) for x in arrays_among_arguments(result, Tracer))


def _eager_view_marked_as_part(result: Any, views: tuple[bool, ...]) -> Any:
    """The result. What would be a view is marked as another array's part, which is not written to."""
    for x, is_view in zip(arrays_among_arguments(result, Array), views, strict=False):
        if is_view:
            x._part = True
    return result


QUEUED_BYTES = 4 << 20  # of an array on the CPU: NumPy takes longer than it costs to queue a call
COMPILED_BYTES = 16 << 20  # NumPy takes longer than it costs to compile one
_RAISES_NOTHING = {"ignore", "warn"}.issuperset
_NUMBERS = frozenset({int, float, complex, bool, *(t for t in np.sctypeDict.values() if issubclass(t, np.number))})


def _run_ufunc_of_arrays(ufunc: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """A ufunc of arrays on one device and numbers: queued, or, where that takes longer on a CPU, by NumPy at once. For
    other inputs None, and nothing is done."""
    device, nbytes = None, 0
    kind: list[Any] = [ufunc]
    for x in inputs:
        if type(x) is Array:
            if x._device is not device is not None:
                return None
            device, spec = x._device, x._spec
            nbytes = spec.nbytes if spec.nbytes > nbytes else nbytes
            kind.append(spec)
        elif type(x) in _NUMBERS:
            kind.append(type(x))
        else:
            return None
    if device is None:
        return None
    if not device.host_memory:
        return _queue_ufunc(kind, inputs, device, True) if device.computes else None
    return _run_ufunc_on_cpu(kind, inputs, device, nbytes)


def _run_ufunc_on_cpu(kind: list[Any], inputs: tuple[Any, ...], device: Device, nbytes: int) -> Any:
    """nbytes: of the largest input. kind: see `_queue_ufunc`."""
    waits = any([type(x) is Array and x._event is not None and not _has_values(x._event) for x in inputs])
    if (waits or nbytes >= QUEUED_BYTES) and _RAISES_NOTHING(np.geterr().values()):
        result = _queue_ufunc(kind, inputs, device, waits or nbytes >= COMPILED_BYTES)
        if result is not None:
            return result
    result = kind[0](*[x.numpy() if type(x) is Array else x for x in inputs])
    made = own_numpy_array(result, device) if type(result) is np.ndarray else None
    return to_kg_arrays(result, device) if made is None else made


def _has_values(event: Event) -> bool:
    """Whether it has happened, and well: an error is told where something is read."""
    return event.query() and getattr(event, "failure", None) is None


def _queue_ufunc(kind: list[Any], inputs: tuple[Any, ...], device: Device, pays_at_once: bool) -> Any:
    """The result, to come. None where NumPy is to compute it: what has no kernel, and what is met for the first time,
    if it does not pay to compile at once. kind: the ufunc, and what the inputs are."""
    key = (device, *kind)
    try:
        call = _COMPILED[key]
    except KeyError:
        if len(_COMPILED) >= _KNOWN_KINDS:
            _COMPILED.clear()
        call = _COMPILED[key] = _new_function_for_eager_calls(kind[0], device, ())
        if not pays_at_once:
            return None
    if call is None:
        return None
    try:
        return call(*inputs)
    except UserError:  # NumPy computes it, or says what is wrong
        _COMPILED[key] = None
        return None


def run_ufunc(ufunc: Callable[..., Any], method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `kg.Array.__array_ufunc__` answers; outside of a trace also of Python's operators."""
    if context.trace is not None:
        return UFUNCS[method](ufunc, *inputs, **options)
    found = _run_ufunc_of_arrays(ufunc, inputs) if method == "__call__" and not options else None
    if found is None:
        found = run_eagerly(getattr(ufunc, method), inputs, options)
    if type(found) is Array and not found._spec.shape and all(x._spec.scalar for x in inputs if type(x) is Array):
        found._spec = spec_of(found._spec.type, True)  # what is made of numbers alone
    return found


def run_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `kg.Array.__array_function__` answers."""
    if context.trace is not None:
        return call_function(function, args, options)
    return run_eagerly(function, args, options)


def bound_method(array: Array, name: str) -> Callable[..., Any]:
    """`array.name`, a method of NumPy arrays. Raises AttributeError."""
    if name not in METHODS:
        from ..functions import tables  # noqa: F401  # fills METHODS
    if hasattr(Array, name):  # of its own, which raised this
        return object.__getattribute__(array, name)  # type: ignore[no-any-return]
    if name.startswith("_") or name not in METHODS:
        if hasattr(np.ndarray, name):
            instead = f"; write np.asarray(x).{name}"
        elif hasattr(array.dtype.type, name):  # what NumPy's numbers alone have
            instead = f"; write x.item().{name}"
        else:
            instead = instead_of(name, FOREIGN_ATTRIBUTES, {*dir(Array), *METHODS})
        kind = AttributeError if name.startswith("_") else MissingAttributeError  # whose line is looked for
        raise kind(f"'Array' object has no attribute {name!r}{instead}")

    def call_eager_array_method(*args: Any, **options: Any) -> Any:
        if context.trace is not None:
            return METHODS[name](to_traced_array(array), *args, **options)
        return run_eagerly(_eager_method_caller(name), (array, *args), options)

    call_eager_array_method.__name__ = name
    return call_eager_array_method


@cache
def _eager_method_caller(name: str) -> Callable[..., Any]:
    def call_eager_method_by_name(x: Any, *args: Any, **options: Any) -> Any:
        return getattr(x, name)(*args, **options)

    call_eager_method_by_name.__name__ = name
    if name in ("fill", "partition", "put", "sort"):
        CHANGING.add(call_eager_method_by_name)
    elif hasattr(np, name):  # which has the same arguments after the array
        call_eager_method_by_name.__wrapped__ = getattr(np, name)  # type: ignore[attr-defined]
    return call_eager_method_by_name


def _install_eager_array_operators() -> None:
    """Gives `kg.Array` the Python operators that the rows of the table answer."""
    for python in (*(row.operator for row in OPS.values() if row.operator), "__divmod__"):
        stem = python.strip("_")
        function = getattr(
            operator, python, divmod
        )  # of NumPy's arrays it is not always the ufunc: x ** 2, x == "text"
        setattr(Array, python, _eager_array_operator(python, function, False))
        if stem == "matmul" or hasattr(int, f"__r{stem}__"):
            setattr(Array, f"__r{stem}__", _eager_array_operator(f"__r{stem}__", function, True))


def _eager_array_operator(name: str, function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def run_operator_eagerly(self: Array, *others: Any) -> Any:
        for other in others:
            if type(other) is not Array and leaves_operator_to(other):
                return NotImplemented
        if context.trace is not None:
            traced = to_traced_array(self)
            return function(*others, traced) if reflected else function(traced, *others)
        return run_ufunc(function, "__call__", (*others, self) if reflected else (self, *others), {})

    run_operator_eagerly.__name__ = name
    return run_operator_eagerly


def restore(values: np.ndarray[Any, Any], device: str) -> Array:
    """A pickled array on the device where it was. Where there is no such device it is on the default one."""
    try:
        return asarray(values, device=device)
    except DeviceUnavailableError:
        return asarray(values)


class _EagerArrayOperations:
    """The `Operations` of `kg.Array`."""

    restore = staticmethod(restore)
    owners_in_words = staticmethod(owners_in_words)
    run_ufunc = staticmethod(run_ufunc)
    run_function = staticmethod(run_function)

    def get_item(self, array: Array, key: Any) -> Array:
        if context.trace is not None:  # an array that the traced function brought along
            return to_traced_array(array)[key]  # type: ignore[no-any-return]
        host = array.numpy()
        if type(key) is slice or type(key) is int:
            part = host[key]
            if type(part) is not np.ndarray or not 0 < part.nbytes <= SMALL_PART:
                return to_kg_arrays(part, array._device, (host,), (array,))  # type: ignore[no-any-return]
            if (made := own_numpy_array(part.copy(), array._device)) is not None:
                made._part = True
                return made
        return to_kg_arrays(host[to_numpy_arrays(key)], array._device, (host,), (array,))  # type: ignore[no-any-return]

    def set_item(self, array: Array, key: Any, value: Any) -> None:
        from ..array.mutation import set_item

        set_item(array, key, value)

    def bound_method(self, array: Array, name: str) -> Any:
        return bound_method(array, name)

    def method_names(self) -> list[str]:
        from ..functions import tables  # noqa: F401  # fills METHODS

        return [name for name in METHODS if not name.startswith("_")]

    def traced(self, x: Any, dtype: Any, copy: bool | None) -> Array | None:
        from ..functions.numpy_creation import traced_asarray

        return traced_asarray(x, dtype, copy=copy) if is_traced(x) else None  # type: ignore[return-value]

    def imported(self, x: Any) -> Any:
        from ..interop.device_sharing import gpu_of_foreign_array, import_array
        from ..interop.host_import import foreign_array_as_numpy

        gpu = gpu_of_foreign_array(x)
        return foreign_array_as_numpy(x) if gpu is None else import_array(x, gpu, lasts=True)

    def capsule(self, array: Array, stream: Any, versioned: bool) -> Any:
        from ..interop.device_sharing import dlpack_capsule

        return dlpack_capsule(array, stream, versioned)

    def interface(self, array: Array) -> dict[str, Any]:
        from ..interop.device_sharing import cuda_array_interface

        return cuda_array_interface(array)


_install_eager_array_operators()
Array.operations = _EagerArrayOperations()
