"""HIPS/autograd's own tests, run with `kg.vjp` and `kg.jvp` in its place, on NumPy itself.

python -m tests.autograd_suite CHECKOUT [pytest's options]    (or: make autograd-suite AUTOGRAD=CHECKOUT)

CHECKOUT is autograd's repository. Its vector spaces and its `check_grads` are run as they are: both modes, to the
second order, against differences. In the place of `autograd.numpy` stands NumPy, and in that of `make_vjp` and
`make_jvp` ours. autograd's cotangent of a complex number is the conjugate of ours. Tests of what we do not have are
skipped, each for a reason in NOT_APPLICABLE; those in DIFFERENT fail for one. It takes some minutes.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.trace.tracer import TracedNumber, Tracer

FILES = ["numpy", "systematic", "linalg", "fft", "scalar_ops", "binary_ops", "complex", "jacobian"]

# Part of a test's id: why it says nothing about us.
NOT_APPLICABLE: dict[str, str] = {
    "test_rfftn_odd_not_implemented": "asserts that autograd has no derivative there",
    "test_cholesky_reparameterization_trick": "draws numbers by np.random while traced, which is refused",
    "test_r_basic": "draws numbers by np.random while traced, which is refused",
    "test_r_double": "draws numbers by np.random while traced, which is refused",
    "test_cast_to_int": "np.int64(x) of a traced array is refused; x.astype(np.int64) is meant",
    "test_real_ic": "np.real_if_close is refused: its dtype depends on the values",
    "test_eig_real": "of a real matrix eig is refused: its dtype depends on the values",
}
# Part of a test's id: in what we differ from autograd, as documented.
DIFFERENT: dict[str, str] = {
    "test_scalar_array_box_attributes": "a Python number stays one while a function is traced: it has no shape",
}


def _tree(function: Callable[[Any], Any], x: Any) -> Any:
    """What a function makes of each leaf."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_tree(function, v) for v in x))
    if isinstance(x, (tuple, list)):
        return type(x)(_tree(function, v) for v in x)
    if isinstance(x, dict):
        return {k: _tree(function, v) for k, v in x.items()}
    return function(x)


def _value(x: Any) -> Any:
    """A result of ours as autograd knows arrays."""
    return np.asarray(x)[()] if isinstance(x, kg.Array) else x


def _conjugate(x: Any) -> Any:
    return np.conj(x) if np.iscomplexobj(x) else x


def make_vjp(function: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    value, pull = kg.vjp(function, x)

    def vjp(cotangent: Any) -> Any:
        (found,) = pull(_tree(_conjugate, cotangent))
        return _tree(lambda v: _conjugate(_value(v)), found)

    return vjp, _tree(_value, value)


def make_jvp(function: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    def jvp(tangent: Any) -> Any:
        return _tree(_value, kg.jvp(function, (x,), (tangent,)))

    return jvp


def _stack(arrays: Any, axis: int = 0) -> Any:
    """autograd's takes an iterator too."""
    return np.stack(list(arrays), axis)


def _make_diagonal(x: Any, axis1: int, axis2: int) -> Any:
    """autograd's own function."""
    return x[..., None] * np.eye(x.shape[-1])


def _module(name: str, path: list[str], **members: Any) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = path
    module.__dict__.update(members)
    return module


def _load(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install(checkout: Path) -> None:
    """Put the stand-ins where `import autograd` finds them; the rest of autograd stays its own."""
    package = _module("autograd", [str(checkout / "autograd")], tuple=tuple, list=list, dict=dict)
    names = {name: getattr(np, name) for name in np.__all__} | {"stack": _stack, "make_diagonal": _make_diagonal}
    numpy = _module("autograd.numpy", [], **names)
    vars(np.linalg).update(_dot=np.matmul, T=np.matrix_transpose)  # autograd's own functions
    for part in ("random", "linalg", "fft"):
        sys.modules[f"autograd.numpy.{part}"] = getattr(np, part)
    package.numpy = numpy
    import autograd.core as core

    core.make_vjp, core.make_jvp = make_vjp, make_jvp
    _load("autograd.numpy.numpy_vspaces", checkout / "autograd" / "numpy" / "numpy_vspaces.py")
    core.VSpace.register(Tracer, lambda x: core.vspace(np.zeros(x.shape, x.dtype)))
    core.VSpace.register(TracedNumber, lambda x: core.vspace(0.0))
    import autograd.differential_operators as operators

    for name in ("grad", "value_and_grad", "jacobian", "hessian", "elementwise_grad", "make_vjp", "make_jvp"):
        setattr(package, name, getattr(operators, name))
    sys.path.insert(0, str(checkout / "tests"))


# pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--autograd", help="a checkout of autograd's repository")


def pytest_configure(config: pytest.Config) -> None:
    install(Path(config.getoption("--autograd")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for part, reason in NOT_APPLICABLE.items():
            if item.nodeid.endswith(part):
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))
        for part, reason in DIFFERENT.items():
            if item.nodeid.endswith(part):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def main() -> int:
    checkout, *options = sys.argv[1:] or ["--help"]
    root = Path(checkout).resolve()
    files = [root / "tests" / f"test_{name}.py" for name in FILES]
    if not files[0].is_file():
        print(__doc__ if checkout == "--help" else f"{root} is no checkout of autograd")
        return 2
    fixed = ["-c", "/dev/null", f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "tests.autograd_suite"]
    named = [o for o in options if "test_" in o and not o.startswith("-")]
    given = [o for o in options if o not in named]
    wanted = [str(root / "tests" / n) for n in named] or list(map(str, files))
    return pytest.main([*fixed, f"--autograd={root}", "-q", "-rfExs", "--tb=short", *given, *wanted])


if __name__ == "__main__":
    sys.exit(main())
