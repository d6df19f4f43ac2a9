"""A decorated ufunc of NumPy's is called as any function is: the short way, and with all of NumPy's keywords."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit.launcher import NOT_TAKEN

X = np.linspace(0.5, 2.0, 6)
CALLS: dict[str, Any] = {
    "inputs": lambda f: f(*[X] * f.nin),
    "numbers": lambda f: f(*[1.5] * f.nin),
    "dtype": lambda f: f(*[X] * f.nin, dtype=np.float32),
    "where and out": lambda f: f(*[X] * f.nin, where=X > 1, out=np.zeros(6)),
    "out by place": lambda f: f(*[X] * f.nin, np.zeros(6)),
    "lists": lambda f: f(*[[1.0, 2.0]] * f.nin),
}


@pytest.mark.parametrize("ufunc", [np.exp, np.add, np.hypot, np.negative, np.arctan2, np.square])
def test_each_way_of_calling(ufunc: np.ufunc) -> None:
    f = kg.kernel_graph(ufunc, device="cpu")
    for _ in range(3):
        for name, call in CALLS.items():
            np.testing.assert_allclose(call(with_nin(f, ufunc)), call(ufunc), rtol=1e-6, err_msg=name)


CALLS_OF_TWO: dict[str, Any] = {
    "outs": lambda f, x, a, b: f(*x, out=(a, b)),
    "outs and where": lambda f, x, a, b: f(*x, out=(a, b), where=X > 1),
    "one out": lambda f, x, a, b: f(*x, out=(None, b)),
    "no outs": lambda f, x, a, b: f(*x, out=(None, None)),
    "outs by place": lambda f, x, a, b: f(*x, a, b),
    "one out by place": lambda f, x, a, b: f(*x, a),
}


@pytest.mark.parametrize("name", CALLS_OF_TWO)
@pytest.mark.parametrize("ufunc", [np.divmod, np.modf])
def test_each_way_of_calling_one_of_two_results(ufunc: np.ufunc, name: str) -> None:
    f = kg.kernel_graph(ufunc, device="cpu")
    for _ in range(3):
        found = []
        for each in (f, ufunc):
            outs = [np.zeros(6), np.zeros(6)]
            results = CALLS_OF_TWO[name](each, [X, X + 0.3][: ufunc.nin], *outs)
            found.append(([np.array(x) for x in (*results, *outs)], [r is o for r in results for o in outs]))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]


def with_nin(f: Any, ufunc: np.ufunc) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        return f(*args, **options)

    call.nin = ufunc.nin  # type: ignore[attr-defined]
    return call


W = np.arange(1.0, 17.0).reshape(4, 4)
# each kind of callable of NumPy's that may be decorated, and arguments without keywords
OF_NUMPYS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ufunc of one": (np.exp, (X,)),
    "ufunc of two": (np.add, (X, X)),
    "ufunc of an array and a number": (np.multiply, (X, 2.5)),
    "ufunc of two results": (np.divmod, (X, X)),
    "reduce": (np.add.reduce, (W,)),
    "another reduce": (np.maximum.reduce, (W,)),
    "outer": (np.multiply.outer, (X, X)),
    "function": (np.sum, (W,)),
    "function with options": (np.clip, (X, 0.6, 1.5)),
    "ufunc with an argument": (partial(np.add, 1.0), (X,)),
    "function with an option": (partial(np.sum, axis=0), (W,)),
    "twice so": (partial(partial(np.clip, min=0.6), max=1.5), (X,)),
}


@pytest.mark.parametrize("kind", OF_NUMPYS)
def test_calls_with_inputs_alone_go_the_short_way(kind: str) -> None:
    function, args = OF_NUMPYS[kind]
    f = kg.kernel_graph(function, device="cpu")
    taken: Any = NOT_TAKEN
    for _ in range(60):  # NumPy may first be tried against it
        np.testing.assert_allclose(f(*args), function(*args))
        if (taken := f._fast(args)) is not NOT_TAKEN:
            break
    assert taken is not NOT_TAKEN
    np.testing.assert_allclose(taken, function(*args))


@pytest.mark.parametrize("wrong", [(), (X, X, X, X)])
def test_wrong_numbers_of_arguments_are_told(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(kg.ArgumentsError, match="exp"):
        kg.kernel_graph(np.exp, device="cpu")(*wrong)
