"""Functions of SciPy in decorated functions: each gives what SciPy gives, compiled or in NumPy with a warning."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.interop import library
from tests.keyword_calls import A, S, V, W, _copied, differences, result

MODULES = ("linalg", "signal", "ndimage", "fft", "interpolate", "stats", "integrate", "spatial.distance", "special")
TRIED: tuple[tuple[Any, ...], ...] = ((S,), (V,), (A,), (V, W), (S, V), (A, 2), (S, S), (V, V, 1.5), (V, W, V), (4,))
LEFT_OUT = {"test", "show_config", "matmul_toeplitz", "qmc_quad", "set_workers", "get_workers", "errstate"}


def functions() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Those that SciPy's own pages list, with the first arguments that they take and twice give the same for."""
    for name in MODULES:
        module = importlib.import_module(f"scipy.{name}")
        for public in sorted(module.__all__):
            value = getattr(module, public)
            if public in LEFT_OUT or not callable(value) or inspect.isclass(value) or isinstance(value, np.ufunc):
                continue
            for args in TRIED:
                once = result(value, args, {})
                if once is not None and any(isinstance(x, np.ndarray) for x in args):
                    if not differences(once[0], (result(value, args, {}) or (None,))[0]):
                        yield f"{name}.{public}", value, args
                    break


@pytest.mark.filterwarnings("ignore")
def test_each_function_gives_what_scipy_gives() -> None:
    library("scipy")
    table, wrong = [*functions()], []
    assert len(table) >= 200
    for name, function, args in table:
        arrays = [x for x in args if isinstance(x, np.ndarray)]

        def called(*given: Any, function: Any = function, args: Any = args) -> Any:
            rest = iter(given)
            return function(*[next(rest) if isinstance(x, np.ndarray) else x for x in args])

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = kg.kernel_graph(called, device="cpu")(*_copied(arrays))
                text = differences((result(function, args, {}) or (None,))[0], found)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
        if text:
            wrong.append(f"{name}: {text}")
    assert wrong == []
