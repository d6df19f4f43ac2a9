"""A NumPy program in, the same program in another library out, with what had to be changed; or why there is none."""

from __future__ import annotations

import functools
import inspect
import re
import signal
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from functional import functional

from kernelgraph.dsl.core.pytree import flatten, unflatten
from tests.end_to_end.numpy_kernels import Case

Call = Callable[..., Any]
SECONDS = 60  # for compiling and one call


@dataclass(frozen=True)
class Peer:
    """call: the program, or None. changed: whether more than decorator and import was. reason: why there is none."""

    call: Call | None
    changed: bool = False
    reason: str = ""


def leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    flatten({k: value[k] for k in sorted(value)} if isinstance(value, Mapping) else value, found)
    return [x for x in found if x is not None]


def copied(arguments: Any) -> Any:
    """The arguments with arrays of their own."""
    found: list[Any] = []
    tree = flatten(arguments, found)
    return unflatten(tree, [x.copy() if isinstance(x, np.ndarray) else x for x in found])


def waited(result: Any) -> Any:
    for leaf in leaves(result):
        wait = getattr(leaf, "wait", None) or getattr(leaf, "block_until_ready", None)
        if wait is not None:
            wait()
    return result


def peer(name: str, module: Any, case: Case, arguments: Any) -> Peer:
    """The program in numba or jax, if it gives NumPy's results."""
    reason = ""
    for changed, make in enumerate(PEERS[name]):
        try:
            with at_most(SECONDS):
                call = make(case, module, arguments)
                _check(case, call, arguments, bool(changed))
        except TimeoutError:
            return Peer(None, bool(changed), f"compiles for more than {SECONDS} s")
        except Exception as error:
            reason = short(error)
        else:
            return Peer(call, bool(changed))
    return Peer(None, False, reason)


def _check(case: Case, call: Call, arguments: Any, changed: bool) -> None:
    """Raises AssertionError for other results than NumPy's. changed: assigned arguments are returned."""
    theirs, mine = copied(arguments), copied(arguments)
    expected = leaves(case.function(*theirs))
    found = leaves(waited(call(*mine)))
    if not changed:
        expected, found = [*expected, *leaves(theirs)], [*found, *leaves(mine)]
    elif not expected:  # the assigned parameters come back, in their order
        before = leaves(arguments)
        expected = [b for a, b in zip(before, leaves(theirs), strict=True) if _differs(a, b)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-6, err_msg="other results")


def _differs(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) and not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def short(error: Exception) -> str:
    text = " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split()).replace("|", "/")
    for start in ("Failed in nopython mode pipeline (step: nopython frontend) ", "other results"):
        text = text.replace(start, "" if start != "other results" else "other results ")
    text = text.replace("No implementation of function", "no").replace("found for signature", "for")
    text = re.sub(r"<(?:[a-z-]+ )?(\S+) at 0x[0-9a-f]+>", r"\1", text)  # no addresses, no folders of this machine
    text = re.sub(r"(?<![:/\w])(?:/[^/\s\"']+)+/(?=[^/\s\"']+)", "", text)
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text[:90]}"


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """TimeoutError after so many seconds, where the system has alarms."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _made(case: Case, change: Callable[[str], str]) -> dict[str, Any]:
    """The names of the program's module, made from its changed source."""
    module = inspect.getmodule(case.function)
    assert module is not None
    names: dict[str, Any] = {"__name__": module.__name__, "__package__": module.__package__}
    exec(compile(change(inspect.getsource(module)), str(module.__file__), "exec"), names)
    return names


def _in_numba(case: Case, numba: Any, arguments: Any) -> Call:
    names = _made(case, lambda source: source)
    for name, value in list(names.items()):
        if isinstance(value, types.FunctionType) and value.__module__ == names["__name__"]:
            names[name] = numba.njit(value)
    call: Call = names[case.name]
    return call


def _in_jax(change: Callable[[str], str], case: Case, jax: Any, arguments: Any) -> Call:
    jax.config.update("jax_enable_x64", True)
    function = _made(case, change)[case.name]
    fixed = [i for i, a in enumerate(arguments) if not any(isinstance(x, np.ndarray) for x in leaves(a))]
    call: Call = jax.jit(function, static_argnums=tuple(fixed))
    return call


PEERS: dict[str, tuple[Callable[[Case, Any, Any], Call], ...]] = {
    "numba": (_in_numba,),
    "jax": (
        functools.partial(_in_jax, lambda source: source.replace("import numpy as np", "import jax.numpy as np")),
        functools.partial(_in_jax, functional),
        functools.partial(_in_jax, functools.partial(functional, masks=True)),
    ),
}
