"""JAX's own table of derivatives and the tests around it, with `kg.jvp` and `kg.vjp` in its place, on NumPy.

python -m tests.jax_derivatives CHECKOUT [pytest's options]    (or: make jax-derivatives JAX=CHECKOUT)

CHECKOUT is JAX's repository, of about the version that is installed (which needs absl-py to run tests). Its file
tests/lax_autodiff_test.py is run as it is, with JAX's own `check_grads`: both modes, to the second order or the third,
against differences. In the place of `jax.lax` stand functions of NumPy's. JAX's cotangent of a complex number is the
conjugate of ours. Tests of what NumPy or we do not have are skipped, each for a reason in NOT_APPLICABLE.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.trace.tracer import TracedNumber, Tracer

# The beginning of a test's name: why it says nothing about us.
_INDICES = "XLA's own numbers of dimensions; NumPy's indices are what the other tests have"
NOT_APPLICABLE: dict[str, str] = {
    "testGather": _INDICES,
    "testScatter": _INDICES,
    "testGradOfVmapOfDynamicSlice": _INDICES,
    "testOpGradOutDtype": "NumPy's dtype= of a product is a cast of its arguments",
    "testIntegerPowLinearize": "reads JAX's program",
    "testReducePair": "a reduction of pairs by a function of the user's",
    "testDotPreferred": "float16 with sums in float32: NumPy has none",
    "testConvPreferred": "bfloat16: NumPy has none",
    "test_linear_transpose": "a function of JAX's alone",
    "test_scatter_apply": "asserts that JAX has no derivative there",
    "testPowIntPowerAtZero": "JAX's promotion of numbers",
    "testPowShapeMismatch": "JAX's promotion of numbers",
    "testPowSecondDerivative": "differentiates by two arguments at once, which kg.jacobian does by one",
    "testDynamicSliceValueAndGrad": "indices out of bounds are moved into them; NumPy refuses them",
    "testDynamicUpdateSliceValueAndGrad": "indices out of bounds are moved into them; NumPy refuses them",
}
# In what we differ, as documented.
DIFFERENT: dict[str, str] = {"testStopGradient": "kg.stop_gradient gives back what is no array, and JAX refuses it"}

# What stands in the place of jax.lax


def _padded(x: Any, pads: Any, fill: Any) -> Any:
    """pads: below, above (both may be negative), and how much lies between two elements, of each axis."""
    spread = [max(0, n + (n - 1) * gap) for n, (_, _, gap) in zip(x.shape, pads, strict=True)]
    found = np.full(spread, fill, x.dtype) if spread else x * 1
    if spread:
        found[tuple(slice(None, None, 1 + gap) for *_, gap in pads)] = x
    sides = [(max(low, 0), max(high, 0)) for low, high, _ in pads]
    whole = np.full([n + a + b for n, (a, b) in zip(spread, sides, strict=True)], fill, x.dtype) if spread else found
    if spread:
        whole[tuple(slice(a, a + n) for n, (a, _) in zip(spread, sides, strict=True))] = found
    return whole[
        tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(whole.shape, pads, strict=True))
    ]


def _pads(padding: Any, shape: Any, sizes: Any, strides: Any) -> Any:
    if padding == "VALID":
        return [(0, 0)] * len(shape)
    if padding == "SAME":
        lengths = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(shape, sizes, strides, strict=True)]
        return [(n // 2, n - n // 2) for n in lengths]
    return list(padding)


def _windows(x: Any, sizes: Any, strides: Any, padding: Any, gaps: Any, dilation: Any, fill: Any) -> Any:
    """Windows of the last axes, as axes behind the others."""
    first, rank = x.ndim - len(sizes), len(sizes)
    spread = [max(0, n + (n - 1) * (gap - 1)) for n, gap in zip(x.shape[first:], gaps, strict=True)]
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    sides = _pads(padding, spread, reach, strides)
    pads = [(0, 0, 0)] * first + [(low, high, gap - 1) for (low, high), gap in zip(sides, gaps, strict=True)]
    x = _padded(x, pads, fill)
    if 0 in x.shape[first:]:
        pytest.skip("not applicable: NumPy has no windows of an axis of length 0")
    found = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(first, x.ndim)))
    steps = [slice(None)] * first + [slice(None, None, s) for s in (*strides, *dilation)]
    assert found.ndim == first + 2 * rank
    return found[tuple(steps)]


def _no_bfloat16(x: Any) -> None:
    """NumPy's einsum refuses it, and its product of such matrices is float32."""
    if x.dtype.name == "bfloat16":
        pytest.skip("not applicable: NumPy has no products of bfloat16 arrays")


def dot(lhs: Any, rhs: Any, precision: Any) -> Any:
    _no_bfloat16(lhs)
    return lhs @ rhs


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
) -> Any:
    _no_bfloat16(lhs)
    rank = lhs.ndim - 2
    if dimension_numbers is not None:
        ours = ("NC" + "HW"[:rank], "OI" + "HW"[:rank], "NC" + "HW"[:rank])
        orders = [[given.index(c) for c in wanted] for given, wanted in zip(dimension_numbers, ours, strict=True)]
        lhs, rhs = lhs.transpose(orders[0]), rhs.transpose(orders[1])
    groups = max(feature_group_count, batch_group_count)
    parts = np.split(lhs, groups, 1 if feature_group_count > 1 else 0)
    found = []
    for part, kernel in zip(parts, np.split(rhs, groups, 0), strict=True):
        windows = _windows(
            part,
            kernel.shape[2:],
            window_strides,
            padding,
            lhs_dilation or (1,) * rank,
            rhs_dilation or (1,) * rank,
            0,
        )
        found.append(np.einsum("nc...kl,ockl->no..." if rank == 2 else "nc...k,ock->no...", windows, kernel))
    whole = np.concatenate(found, 1)
    return whole if dimension_numbers is None else whole.transpose([orders[2].index(i) for i in range(rank + 2)])


def conv(lhs: Any, rhs: Any, window_strides: Any, padding: Any, precision: Any = None) -> Any:
    return conv_general_dilated(lhs, rhs, window_strides, padding)


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    precision: Any = None,
) -> Any:
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None) -> Any:
    _no_bfloat16(lhs)
    (a, b), (c, d) = dimension_numbers
    left, right = list("abcdefgh"[: lhs.ndim]), list("ijklmnop"[: rhs.ndim])
    for i, j in zip((*a, *c), (*b, *d), strict=True):
        right[j] = left[i]
    shared = [left[i] for i in c]
    rest = [s for k, s in enumerate(left) if k not in (*a, *c)] + [s for k, s in enumerate(right) if k not in (*b, *d)]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(shared + rest)}", lhs, rhs)


def broadcast_in_dim(x: Any, shape: Any, dimensions: Any) -> Any:
    places = [1] * len(shape)
    for axis, n in zip(dimensions, np.shape(x), strict=True):
        places[axis] = n
    return np.broadcast_to(np.reshape(x, places), shape)


def dynamic_slice(x: Any, starts: Any, sizes: Any) -> Any:
    first = [min(max(s, 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return x[tuple(slice(s, s + k) for s, k in zip(first, sizes, strict=True))]


def dynamic_update_slice(x: Any, y: Any, starts: Any) -> Any:
    first = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, y.shape, strict=True)]
    x = x.copy()
    x[tuple(slice(s, s + k) for s, k in zip(first, y.shape, strict=True))] = y
    return x


_REDUCTIONS = {"add": np.sum, "max": np.max, "min": np.min, "mul": np.prod}


def reduce(x: Any, init: Any, op: Any, dims: Any) -> Any:
    """op: a function of this namespace, whose neutral value `init` is."""
    return _REDUCTIONS[op.__name__ if 0 not in x.shape else "add"](x, axis=tuple(dims))


def reduce_window(x: Any, init: Any, op: Any, sizes: Any, strides: Any, padding: Any, gaps: Any, dilation: Any) -> Any:
    windows = _windows(x, sizes, strides, padding, gaps, dilation, init)
    return _REDUCTIONS[op.__name__](windows, axis=tuple(range(x.ndim, 2 * x.ndim)))


def cumulative(function: Any) -> Any:
    def scan(x: Any, axis: int, reverse: bool) -> Any:
        return np.flip(function(np.flip(x, axis), axis), axis) if reverse else function(x, axis)

    return scan


def sort_key_val(keys: Any, values: Any, axis: int, is_stable: bool) -> Any:
    order = np.argsort(keys, axis, stable=True)
    return np.take_along_axis(keys, order, axis), np.take_along_axis(values, order, axis)


def index_take(x: Any, indices: Any, axes: Any) -> Any:
    rest = [i for i in range(x.ndim) if i not in axes]
    return x.transpose([*axes, *rest])[tuple(indices)]


def named(name: str, function: Any) -> Any:
    """The table's tests have the names of its functions."""

    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    call.__name__ = name
    return call


def _absent(*args: Any, **options: Any) -> Any:
    pytest.skip("not applicable: NumPy and kg have no such function")


def _reshape(x: Any, shape: Any, permutation: Any = None) -> Any:
    return (x if permutation is None else x.transpose(permutation)).reshape(shape)


def _convert(x: Any, dtype: Any) -> Any:
    real = np.issubdtype(x.dtype, np.complexfloating) and not np.issubdtype(dtype, np.complexfloating)
    return (x.real if real else x).astype(dtype)


def lax() -> SimpleNamespace:
    plain = {
        "neg": np.negative, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "exp": np.exp, "exp2": np.exp2,
        "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
        "atan2": np.arctan2, "erf": kg.erf, "erfc": kg.erfc, "real": np.real, "imag": np.imag, "conj": np.conj,
        "abs": np.abs, "pow": np.power, "sqrt": np.sqrt, "cbrt": np.cbrt, "add": np.add, "sub": np.subtract,
        "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum, "rem": np.fmod,
        "complex": lambda a, b: a + b * a.dtype.type(1) * 1j, "rsqrt": lambda x: 1 / np.sqrt(x),
        "logistic": lambda x: 1 / (1 + np.exp(-x)), "clamp": lambda low, x, high: np.clip(x, low, high),
        "convert_element_type": _convert, "concatenate": np.concatenate,
        "split": lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis), "reshape": _reshape,
        "broadcast": lambda x, sizes: np.broadcast_to(x, (*sizes, *x.shape)), "transpose": np.transpose,
        "pad": lambda x, fill, pads: _padded(x, pads, fill), "rev": np.flip, "select": np.where,
        "slice": lambda x, a, b, s: x[tuple(map(slice, a, b, s or [1] * len(a)))], "tile": np.tile,
        "cumsum": cumulative(np.cumsum), "cumprod": cumulative(np.cumprod), "stop_gradient": kg.stop_gradient,
        "sort": lambda x, dimension, is_stable: np.sort(x, dimension),
        "top_k": lambda x, k, axis: (np.flip(np.sort(x, axis), axis).take(np.arange(k), axis),),
        "erf_inv": _absent, "bessel_i0e": _absent, "bessel_i1e": _absent,
    }  # fmt: skip
    own = [dot, conv, conv_general_dilated, conv_with_general_padding, dot_general, broadcast_in_dim, dynamic_slice]
    own += [dynamic_update_slice, reduce, reduce_window, sort_key_val, index_take]
    found = {k: named(k, v) for k, v in plain.items()} | {f.__name__: f for f in own}
    return SimpleNamespace(**found, Precision=SimpleNamespace(HIGHEST=None), **_of_jax())


def _of_jax() -> dict[str, Any]:
    """What the file needs to be read, of tests that do not apply."""
    real = importlib.import_module("jax.lax")
    return {n: getattr(real, n) for n in ("GatherDimensionNumbers", "ScatterDimensionNumbers", "integer_pow_p")}


# What stands in the place of jax.jvp and jax.vjp


def _tree(function: Any, x: Any) -> Any:
    return type(x)(_tree(function, v) for v in x) if isinstance(x, (tuple, list)) else function(x)


def _value(x: Any) -> Any:
    return x if isinstance(x, (Tracer, TracedNumber)) else np.asarray(x)[()]


def _conjugate(x: Any) -> Any:
    return _value(np.conj(x) if np.iscomplexobj(x) else x)


def jvp(function: Any, primals: Any, tangents: Any) -> Any:
    return _tree(_value, kg.jvp(function, primals, tangents))


def vjp(function: Any, *primals: Any) -> Any:
    value, pull = kg.vjp(function, *primals)
    return _tree(_value, value), lambda cotangent: _tree(_conjugate, pull(_tree(_conjugate, cotangent)))


def install(checkout: Path) -> None:
    """Load JAX's file of tests with these stand-ins, under the name that pytest looks for."""
    os.environ.setdefault("JAX_NUM_GENERATED_CASES", "10")
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    importlib.import_module("jax._src.public_test_util").api = SimpleNamespace(jvp=jvp, vjp=vjp)
    importlib.import_module("jax.test_util")
    jax.lax = lax()
    sys.path.insert(0, str(checkout / "tests"))
    module = importlib.import_module("lax_autodiff_test")
    module.jax = SimpleNamespace(grad=kg.grad, vjp=kg.vjp, jit=lambda f: f, numpy=np, make_jaxpr=_precision)
    module.jax.enable_checks = nullcontext


def _precision(function: Any) -> Any:
    """What two tests look for in JAX's program."""
    return lambda *args: "Precision.HIGHEST"


# pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jax", help="a checkout of JAX's repository")


def pytest_configure(config: pytest.Config) -> None:
    install(Path(config.getoption("--jax")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for start, reason in NOT_APPLICABLE.items():
            if item.name.startswith(start):
                item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))
        for start, reason in DIFFERENT.items():
            if item.name.startswith(start):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def main() -> int:
    checkout, *options = sys.argv[1:] or ["--help"]
    root = Path(checkout).resolve()
    file = root / "tests" / "lax_autodiff_test.py"
    if not file.is_file():
        print(__doc__ if checkout == "--help" else f"{root} is no checkout of JAX")
        return 2
    fixed = ["-c", "/dev/null", f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "tests.jax_derivatives"]
    return pytest.main([*fixed, f"--jax={root}", "-q", "-rfExs", "--tb=short", *options, str(file)])


if __name__ == "__main__":
    sys.exit(main())
