"""Tangent's own tests of gradients of NumPy functions, with `kg.vjp`, `kg.jvp` and `kg.grad` in its place.

python -m tests.tangent_suite CHECKOUT [pytest's options]    (or: make tangent-suite TANGENT=CHECKOUT)

CHECKOUT is Tangent's repository (google/tangent); its references need autograd, which must be importable. Its files
test_reverse_mode, test_forward_mode and test_reverse_over_reverse are run as they are, on the 100 functions of its
functions.py: loops, conditionals, subscripts, structures, calls. Of its ways to generate code one is run, since we have
none of them; tests of TensorFlow, and of how Tangent writes code, are not applicable.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

FILES = ["reverse_mode", "forward_mode", "reverse_over_reverse"]
# Part of a test's id: why it says nothing about us.
NOT_APPLICABLE: dict[str, str] = {
    "tensor": "of TensorFlow",
    "reduction": "of TensorFlow",
    "matmul": "of TensorFlow",
    "image": "of TensorFlow",
    "test_parses": "asks for Tangent's syntax trees",
    "test_attributes": "asserts that Tangent has no attributes",
    "stack_pushing": "Tangent's own stack",
    "useless_stack_ops": "Tangent's own stack",
    "redefining_var_as_list": "Tangent's own stack",
    "inlining_contextmanager": "Tangent's own way to change a gradient on its way",
}


def _as_numpy(value: Any) -> Any:
    """Results as NumPy's, in tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_as_numpy, value))
    if isinstance(value, dict):
        return {k: _as_numpy(v) for k, v in value.items()}
    return value if value is None else np.asarray(value)[()]


def autodiff(
    function: Callable[..., Any],
    wrt: Sequence[int] = (0,),
    mode: str = "reverse",
    preserve_result: bool = False,
    **others: Any,
) -> Callable[..., Any]:
    """In the place of Tangent's: the gradient, or the tangent, in some arguments, and the result where it is kept."""
    count = function.__code__.co_argcount

    def reverse(*args: Any, init_grad: Any = None) -> Any:
        value, pull = kg.vjp(function, *args[:count])
        given = args[count] if len(args) > count else init_grad
        shape = np.shape(_as_numpy(value))
        found = pull(np.ones(shape) if given is None else np.broadcast_to(np.asarray(given, float), shape))
        gradient = tuple(found[i] for i in wrt) if len(wrt) > 1 else found[wrt[0]]
        return _as_numpy((gradient, value) if preserve_result else gradient)

    def forward(*args: Any) -> Any:
        *primals, seed = args
        like = np.shape(primals[wrt[0]])
        tangents = [np.broadcast_to(np.float64(seed), like) if i in wrt else None for i in range(count)]
        value, tangent = kg.jvp(function, primals, tangents)
        return _as_numpy((tangent, value) if preserve_result else tangent)

    return reverse if mode == "reverse" else forward


def install() -> None:
    """Modules in the places of those that the tests import."""

    def module(name: str, **names: Any) -> types.ModuleType:
        made = sys.modules[name] = types.ModuleType(name)
        vars(made).update(names)
        return made

    def same(function: Any) -> Any:
        return function

    module("six", get_function_code=lambda f: f.__code__)
    tools = module("tangent.grad_util", INPUT_DERIVATIVE=types.SimpleNamespace(DefaultOne=1), autodiff=autodiff)
    module("tfe_utils", register_parametrizations=lambda metafunc, short: None)
    module(
        "tangent",
        autodiff=autodiff,
        grad=lambda function, **others: kg.grad(function),
        tangent=same,
        trace=same,
        insert_grad_of=same,
        quoting=types.SimpleNamespace(),
        grad_util=tools,
        Stack=list,
        init_grad=_zeros_like,
    )


def _zeros_like(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _zeros_like(v) for k, v in x.items()}
    return tuple(map(_zeros_like, x)) if isinstance(x, tuple) else np.zeros(np.shape(x))[()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    once = [i for i in items if "split" not in i.nodeid and "unoptimized" not in i.nodeid]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(once)])
    items[:] = once
    for item in items:
        for part, reason in NOT_APPLICABLE.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))


def main() -> int:
    checkout, *options = sys.argv[1:] or ["--help"]
    root = Path(checkout).resolve()
    files = [root / "tests" / f"test_{name}.py" for name in FILES]
    if not files[0].is_file():
        print(__doc__ if checkout == "--help" else f"{root} is no checkout of Tangent")
        return 2
    install()
    sys.modules["tests.tangent_suite"] = sys.modules[__name__]
    fixed = ["-c", "/dev/null", f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "tests.tangent_suite"]
    return pytest.main([*fixed, "-q", "-rfE", "--tb=short", *options, *map(str, files)])


if __name__ == "__main__":
    sys.exit(main())
