"""CuPy's own tests of `cupy.fuse`, run with `kernel_graph` in its place: what is fused must be what NumPy gives.

python -m tests.cupy_fuse CHECKOUT [pytest's options]    (or: make cupy-fuse CUPY=CHECKOUT)

CHECKOUT is CuPy's repository (the folder tests/cupy_tests/core_tests/fusion_tests is enough). CuPy is not needed: the
tests import stand-ins made here, a `cupy` that is NumPy's namespace with a `fuse` of ours, and the part of
`cupy.testing` that they use. Tests of what only CuPy has are skipped, each for a reason in NOT_APPLICABLE; those in
DIFFERENT fail for one. It takes some minutes.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

Test = Callable[..., Any]

# Part of a test's id: why it says nothing about us.
NOT_APPLICABLE = {
    "TestFusionGetArrayModule": "asks which of two array modules an array is of; here both are NumPy",
    "TestFusionMultiDevice": "needs two GPUs",
    "TestFusionCompile": "clear_cache() is a method of CuPy's",
    "TestOldFusionExplicit": "tests a class inside CuPy",
}
# Part of a test's id: in what we differ from CuPy, as documented.
DIFFERENT = {
    "test_shape_combinations": "asks for CuPy's text of an error",
    "TestFusionInvalid::test_branch": "asks for CuPy's text of an error",
    "test_inplace_same_variable": "an assigned argument that shares memory with another raises ArgumentsError",
    "test_inplace_same_memory_space": "an assigned argument that shares memory with another raises ArgumentsError",
}
FOLDER = "tests/cupy_tests/core_tests/fusion_tests"
INTEGERS = "bhilqBHILQ"
FLOATS = "efd"


# cupy


class _Reference:
    """Whether `fuse` leaves the function as it is: that half of a test is the expected result."""

    on = False


def fuse(function: Any = None, kernel_name: str | None = None) -> Any:
    if function is None:
        return fuse
    if _Reference.on:
        return function
    graph = kg.kernel_graph(function, device="cpu")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _as_numpy(graph(*args, **kwargs))

    return call


def _as_numpy(value: Any) -> Any:
    """The tests ask for arrays of the class numpy.ndarray."""
    if isinstance(value, (tuple, list)):
        return type(value)([_as_numpy(v) for v in value])
    return np.asarray(value) if isinstance(value, kg.Array) else value


class Device:
    """There is one."""

    def __init__(self, number: int = 0) -> None:
        assert number == 0

    def use(self) -> None:
        pass


def _module(name: str, **members: Any) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []  # a package, as far as imports go
    module.__dict__.update(members)
    return module


def install(checkout: Path) -> None:
    """Put the stand-ins where `import cupy` finds them."""
    runtime = _module(
        "cupy.cuda.runtime", is_hip=False, cudaDevAttrCooperativeLaunch=0, deviceGetAttribute=lambda *args: 1
    )
    device = _module("cupy.cuda.device", get_compute_capability=lambda: "90")
    cuda = _module("cupy.cuda", runtime=runtime, device=device, Device=Device)
    inner = {
        "fusion": _module("cupy._core.fusion", Fusion=None),
        "_fusion_trace": _module("cupy._core._fusion_trace", TraceImpl=object),
        "_fusion_kernel": _module("cupy._core._fusion_kernel", FusedKernel=type("FusedKernel", (), {})),
    }
    inner["_fusion_kernel"].FusedKernel.__module__ = "cupy._core._fusion_kernel"
    loops = _module("cupy.testing._loops", _wraps_partial_xp=without)
    testing = _module("cupy.testing", _loops=loops, **TESTING)
    numpys = {name: getattr(np, name) for name in np.__all__}
    mine = {"fuse": fuse, "cuda": cuda, "testing": testing, "exceptions": np.exceptions}
    _module("cupy", **{**numpys, **mine, "_core": _module("cupy._core", **inner)})
    sys.modules["cupy.exceptions"] = np.exceptions
    sys.path.insert(0, str(checkout / "tests"))


# cupy.testing


def without(test: Test, *names: str) -> Callable[[Test], Test]:
    """Wrap the test in a function that lacks the parameters `names`, as pytest sees it."""

    def wrap(wrapper: Test) -> Test:
        wrapped = functools.wraps(test)(wrapper)
        del wrapped.__wrapped__  # type: ignore[attr-defined]
        signature = inspect.signature(test)
        kept = [p for p in signature.parameters.values() if p.name not in names]
        wrapped.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return wrapped

    return wrap


def for_each(choices: Sequence[dict[str, Any]]) -> Callable[[Test], Test]:
    """Run the test for each choice of the arguments."""

    def decorate(test: Test) -> Test:
        @without(test, *choices[0])
        def run_all(*args: Any, **kwargs: Any) -> None:
            for choice in choices:
                try:
                    test(*args, **kwargs, **choice)
                except BaseException as error:
                    error.add_note(f"with {choice}")
                    raise

        return run_all

    return decorate


def for_dtypes(dtypes: Sequence[Any], name: str = "dtype") -> Callable[[Test], Test]:
    return for_each([{name: np.dtype(d).type} for d in dtypes])


def _dtypes(no_float16: bool = False, no_bool: bool = False, no_complex: bool = False) -> str:
    return INTEGERS + FLOATS[no_float16:] + "?" * (not no_bool) + "FD" * (not no_complex)


def for_all_dtypes(name: str = "dtype", **without: bool) -> Callable[[Test], Test]:
    return for_dtypes(_dtypes(**without), name)


def for_int_dtypes(name: str = "dtype", no_bool: bool = False) -> Callable[[Test], Test]:
    return for_dtypes(INTEGERS + "?" * (not no_bool), name)


def for_float_dtypes(name: str = "dtype", no_float16: bool = False) -> Callable[[Test], Test]:
    return for_dtypes(FLOATS[no_float16:], name)


def _combinations(dtypes: str, names: Sequence[str], full: bool | None = None) -> Callable[[Test], Test]:
    """As CuPy does it: each dtype once in each place, in an order by chance (here always the same), or all of them."""
    draw = random.Random(len(dtypes))
    columns = [draw.sample(dtypes, len(dtypes)) for _ in names]
    chosen = itertools.product(dtypes, repeat=len(names)) if full else zip(*columns, strict=True)
    return for_each([dict(zip(names, (np.dtype(d).type for d in row), strict=True)) for row in chosen])


def for_all_dtypes_combination(
    names: Sequence[str] = ("dtype",), full: bool | None = None, **without: bool
) -> Callable[[Test], Test]:
    return _combinations(_dtypes(**without), names, full)


def for_int_dtypes_combination(
    names: Sequence[str] = ("dtype",), no_bool: bool = False, full: bool | None = None
) -> Callable[[Test], Test]:
    return _combinations(INTEGERS + "?" * (not no_bool), names, full)


def _compared(check: Callable[[Any, Any], None]) -> Callable[[Test], Test]:
    """Run the test as it is and fused, and compare the results."""

    def decorate(test: Test) -> Test:
        @without(test, "xp")
        def run_both(*args: Any, **kwargs: Any) -> None:
            _Reference.on = True
            try:
                expected = test(*args, **kwargs, xp=np)
            finally:
                _Reference.on = False
            result = test(*args, **kwargs, xp=sys.modules["cupy"])
            for a, b in itertools.zip_longest(_results(result), _results(expected)):
                assert np.asarray(a).dtype == np.asarray(b).dtype
                check(a, b)

        return run_both

    return decorate


def _results(value: Any) -> Iterator[Any]:
    return iter(value if isinstance(value, (list, tuple)) else [value])


def numpy_cupy_allclose(rtol: float = 1e-7, atol: float = 0.0) -> Callable[[Test], Test]:
    return _compared(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol))


def numpy_cupy_array_equal() -> Callable[[Test], Test]:
    return _compared(np.testing.assert_array_equal)


def assert_array_list_equal(results: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(results) == len(expected)
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def shaped_arange(shape: tuple[int, ...], xp: Any = np, dtype: Any = np.float32) -> Any:
    values = np.arange(1, np.prod(shape, dtype=int) + 1)
    if np.dtype(dtype).kind == "b":
        values = values % 2 == 0
    if np.dtype(dtype).kind == "c":
        values = values * (1 + 1j)
    return values.astype(dtype).reshape(shape)


def shaped_random(
    shape: tuple[int, ...], xp: Any = np, dtype: Any = np.float32, scale: float = 10, seed: int = 0
) -> Any:
    draw = np.random.RandomState(seed)
    if np.dtype(dtype).kind == "b":
        return draw.randint(2, size=shape).astype(dtype)
    values: Any = draw.rand(*shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * draw.rand(*shape)
    return (values * scale).astype(dtype)


def with_requires(*requirements: str) -> Callable[[Test], Test]:
    """All that the tests require is an older NumPy than ours."""
    return lambda test: test


TESTING: dict[str, Any] = {
    "slow": lambda test: test,
    "multi_gpu": lambda count: pytest.mark.skip(reason="not applicable: needs several GPUs"),
    "assert_allclose": np.testing.assert_allclose,
    "for_dtypes": for_dtypes,
    "for_all_dtypes": for_all_dtypes,
    "for_int_dtypes": for_int_dtypes,
    "for_float_dtypes": for_float_dtypes,
    "for_all_dtypes_combination": for_all_dtypes_combination,
    "for_int_dtypes_combination": for_int_dtypes_combination,
    "numpy_cupy_allclose": numpy_cupy_allclose,
    "numpy_cupy_array_equal": numpy_cupy_array_equal,
    "assert_array_list_equal": assert_array_list_equal,
    "shaped_arange": shaped_arange,
    "shaped_random": shaped_random,
    "with_requires": with_requires,
}


# pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cupy", help="a checkout of CuPy's repository")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thread_unsafe: of a plugin that CuPy uses")
    install(Path(config.getoption("--cupy")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for part, reason in NOT_APPLICABLE.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))
        for part, reason in DIFFERENT.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def main() -> int:
    checkout, *options = sys.argv[1:] or ["--help"]
    root = Path(checkout).resolve()
    if not (root / FOLDER).is_dir():
        print(__doc__ if checkout == "--help" else f"{root} has no folder {FOLDER}")
        return 2
    fixed = ["--noconftest", "-c", "/dev/null", f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "tests.cupy_fuse"]
    return pytest.main([*fixed, f"--cupy={root}", "-q", "-rfExs", "--tb=short", *options, str(root / FOLDER)])


if __name__ == "__main__":
    sys.exit(main())
