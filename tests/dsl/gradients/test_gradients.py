"""`kg.grad` and its like on functions as users write them, beside formulas and differences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

rng = np.random.default_rng(0)
X, Y, W = rng.normal(size=(6, 4)), rng.normal(size=(6, 3)), rng.normal(size=(4, 3))


def loss(w: Any, x: Any, y: Any) -> Any:
    return ((np.tanh(x @ w) - y) ** 2).mean()


def quotient(function: Any, x: Any, *rest: Any, step: float = 1e-6) -> Any:
    """The gradient in the first argument, by central differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        near = [x.copy(), x.copy()]
        near[0][place] += step
        near[1][place] -= step
        found[place] = (function(near[0], *rest) - function(near[1], *rest)) / (2 * step)
    return found


def close(found: Any, expected: Any, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=rtol)


def heat(u: Any) -> Any:
    u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    u[0] = u[-1]
    return (u * u).sum()


def masked(x: Any) -> Any:
    r = np.zeros_like(x)
    r[x > 0] = np.sqrt(x[x > 0])
    x[x < -1] = 3.0
    return (r * x).sum()


def views(x: Any) -> Any:
    y = x.T
    y[1] = np.sin(x[:, 0])
    z = x.reshape(-1)
    z[::2] *= 2
    return (x**3).sum()


def places(x: Any) -> Any:
    i = np.array([0, 2, 2, -1])
    x[i] += 1.5
    x[:, np.array([1, 0])] = x[:, :2] * x[i[:1]][0, :2]
    return (x[i] ** 2).sum() + x.max() + np.prod(x[0])


def swapped(x: Any) -> Any:
    """Blocks assigned and swapped back (HIPS/autograd issue 58)."""
    a = x[:2].copy()
    x[:2] = x[2:4]
    x[2:4] = a * x[:2]
    return (x * np.arange(24.0).reshape(6, 4)).sum()


@pytest.mark.parametrize("function", [masked, views, places, swapped], ids=lambda f: f.__name__)
def test_through_assignment(function: Any) -> None:
    x = X.copy()
    close(kg.grad(function)(x), quotient(lambda a: function(a.copy()), X), 1e-5)
    np.testing.assert_array_equal(x, X)


def test_a_stencil_in_place() -> None:
    u = rng.normal(size=12)
    close(kg.grad(heat)(u), quotient(lambda a: heat(a.copy()), u), 1e-5)


def test_several_arguments_and_their_values() -> None:
    value, (dw, dy) = kg.value_and_grad(loss, argnums=(0, 2))(W, X, Y)
    close(value, loss(W, X, Y))
    close(dw, quotient(loss, W, X, Y))
    close(dy, quotient(lambda y: loss(W, X, y), Y))
    close(kg.grad(loss, argnums=-1)(W, X, Y), dy)


def test_arguments_by_name() -> None:
    def f(x: Any, *, scale: Any, shift: Any = 1.0) -> Any:
        return (x * scale + shift).sum()

    close(kg.grad(f, argnums=(), argnames="scale")(X, scale=2.0)["scale"], X.sum())
    found = kg.grad(f, argnums=(0,), argnames=("scale", "shift"))(X, scale=2.0, shift=3.0)
    assert sorted(map(str, found)) == ["0", "scale", "shift"]
    close(found["shift"], 24)
    close(kg.grad(loss, argnums=(), argnames="x")(W, X, y=Y)["x"], quotient(lambda x: loss(W, x, Y), X))


@dataclass
class Layer:
    w: Any
    b: Any


def test_structures_come_back() -> None:
    def f(p: Any, x: Any) -> Any:
        for layer in p["layers"]:
            x = np.tanh(x @ layer.w + layer.b)
        return x.sum() * p["scale"][0]

    p = {"layers": [Layer(W, Y[0]), Layer(rng.normal(size=(3, 2)), np.zeros(2))], "scale": (2.0,), "name": None}
    found = kg.grad(f)(p, X)
    assert type(found["layers"][1]) is Layer and found["name"] is None
    close(found["layers"][0].w, quotient(lambda w: f({**p, "layers": [Layer(w, Y[0]), p["layers"][1]]}, X), W))
    close(found["scale"][0], f({**p, "scale": (1.0,)}, X))


def test_in_a_trace_and_on_decorated_functions() -> None:
    @kg.kernel_graph
    def decorated(w: Any, x: Any, y: Any) -> Any:
        return loss(w, x, y)

    @kg.kernel_graph
    def train(w: Any, x: Any, y: Any, n: int) -> Any:
        for _ in range(n):
            value, step = kg.value_and_grad(decorated)(w, x, y)
            w = w - 0.1 * step
        return w, value

    w, value = train(W, X, Y, 3)
    expected = W
    for _ in range(3):
        last, expected = loss(expected, X, Y), expected - 0.1 * quotient(loss, expected, X, Y)
    close(w, expected)
    close(value, last)
    close(kg.grad(decorated)(W, X, Y), quotient(loss, W, X, Y))


def test_nested() -> None:
    close(kg.grad(kg.grad(kg.grad(np.sin)))(0.3), -np.cos(0.3))

    def penalty(w: Any) -> Any:
        return (kg.grad(loss)(w, X, Y) ** 2).sum()

    close(kg.grad(penalty)(W), quotient(lambda w: float((np.asarray(kg.grad(loss)(w, X, Y)) ** 2).sum()), W), 1e-5)


def test_what_comes_from_outside_is_a_constant() -> None:
    @kg.kernel_graph
    def f(x: Any) -> Any:
        y = x * 2
        return kg.grad(lambda x: (x * y).sum())(x)

    close(f(X), 2 * X)


def test_aux() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        return y.sum(), {"y": y, "n": 3}

    gradient, aux = kg.grad(f, has_aux=True)(X)
    close(gradient, np.exp(X))
    close(aux["y"], np.exp(X))
    assert aux["n"] == 3
    (value, aux), gradient = kg.value_and_grad(f, has_aux=True)(X)
    close(value, np.exp(X).sum())


def test_products_with_the_jacobian() -> None:
    def f(x: Any, n: Any, y: Any) -> Any:
        return {"a": np.sin(x) * y[:, :1], "b": x.sum(), "n": n + 1}

    v, n = rng.normal(size=X.shape), np.arange(3)
    value, pull = kg.vjp(f, X, n, Y)
    close(value["a"], np.sin(X) * Y[:, :1])
    dx, dn, dy = pull({"a": v, "b": 2.0, "n": None})
    close(dx, v * np.cos(X) * Y[:, :1] + 2)
    assert dn is None
    close(dy[:, 0], (v * np.sin(X)).sum(1))
    _, tangent = kg.jvp(f, (X, n, Y), (v, None, None))
    close(tangent["a"], v * np.cos(X) * Y[:, :1])
    close(tangent["b"], v.sum())
    assert tangent["n"] is None

    @kg.kernel_graph
    def inside(x: Any) -> Any:
        value, pull = kg.vjp(np.sin, x)
        return pull(value)[0], kg.jvp(np.sin, (x,), (value,))[1]

    close(inside(X)[0], np.sin(X) * np.cos(X))
    close(inside(X)[1], np.sin(X) * np.cos(X))


@pytest.mark.parametrize("make", [np.array, kg.asarray])
def test_products_are_of_arguments_as_they_were(make: Any) -> None:
    x = make(X[0])
    pull, push = kg.vjp(lambda p: p["x"] ** 3, {"x": x})[1], kg.linearize(lambda x: x**3, x)[1]
    x[1:] *= 2
    close(pull(np.ones(X[0].shape))[0]["x"], 3 * X[0] ** 2)
    close(push(np.ones(X[0].shape)), 3 * X[0] ** 2)

    @kg.kernel_graph
    def inside(x: Any) -> Any:
        pull, push = kg.vjp(lambda x: x**3, x)[1], kg.linearize(lambda x: x**3, x)[1]
        x *= 2
        return pull(x)[0], push(x)

    for found in inside(make(X[0])):
        close(found, 6 * X[0] ** 3)


def test_complex_numbers() -> None:
    z = X + 1j * rng.normal(size=X.shape)
    close(kg.grad(lambda z: (abs(z) ** 2).sum())(z), 2 * z)
    close(kg.grad(lambda z: np.exp(z * z), holomorphic=True)(0.3 + 0.2j), (0.6 + 0.4j) * np.exp((0.3 + 0.2j) ** 2))
    close(kg.grad(lambda z: (z.real * z.imag).sum())(z), z.imag + 1j * z.real)


def _with_rule(function: Any, backward: Any) -> Any:
    custom = kg.custom_vjp(function)
    custom.defvjp(lambda z: (function(z), z), lambda z, ct: (backward(z, ct),))
    return custom


@pytest.mark.parametrize(
    ("function", "backward", "real"),
    [
        (lambda z: z * z, lambda z, ct: ct * np.conj(2 * z), False),
        (lambda z: z.real * z.imag, lambda z, ct: ct * (z.imag + 1j * z.real), False),
        (lambda z: z.real, lambda z, ct: ct, False),
        (lambda t: np.exp(1j * t), lambda t, ct: (ct * np.conj(1j * np.exp(1j * t))).real, True),
        (lambda t: np.exp(1j * t), lambda t, ct: ct * np.conj(1j * np.exp(1j * t)), True),
    ],
)
def test_complex_cotangents_of_a_rule_of_one_s_own(function: Any, backward: Any, real: bool) -> None:
    """A rule gets and gives cotangents by the convention of all others; of a real argument it may give complex ones."""
    custom = _with_rule(function, backward)
    z = X if real else X + 1j * rng.normal(size=X.shape)
    for loss in (lambda f, z: (abs(f(z * 1.5)) ** 2).sum(), lambda f, z: (f(z) * (1 + 2j)).real.sum() ** 2):
        found, expected = (kg.grad(lambda z, f=f, loss=loss: loss(f, z))(z) for f in (custom, function))
        assert np.asarray(found).dtype == z.dtype
        close(found, np.asarray(expected))


def test_dtypes_stay() -> None:
    for dtype in (np.float32, np.float16, kg.bfloat16, np.float64):
        assert np.asarray(kg.grad(lambda x: (np.sin(x) * 2.0).sum())(X.astype(dtype))).dtype == dtype
    assert np.asarray(kg.grad(lambda x: (X * x).sum())(2.0)).dtype == np.float64
    both = kg.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(X.astype(np.float32), X)
    assert [np.asarray(g).dtype for g in both] == [np.float32, np.float64]


def test_a_gradient_is_kept_with_its_plans() -> None:
    assert kg.grad(loss) is kg.grad(loss)
    assert kg.grad(loss) is not kg.grad(loss, argnums=1)
    assert "tanh" in str(kg.grad(loss).graph(W, X, Y))


def test_constants_on_the_way() -> None:
    close(kg.grad(lambda x: (kg.stop_gradient(x) * x).sum())(X), X)
    close(kg.grad(lambda x: (x * 0 + 1).sum())(X), 0 * X)
    close(kg.grad(lambda x: np.asarray(2.0).sum() + 0 * x[0, 0])(X), 0 * X)
    assert kg.stop_gradient((1.0, X))[1] is X


def test_rules_of_the_user_s() -> None:
    @kg.custom_vjp
    def clipped(x: Any, y: Any) -> Any:
        return x * y

    clipped.defvjp(lambda x, y: (clipped(x, y), (x, y)), lambda kept, ct: (np.clip(ct, -1, 1) * kept[1], None))
    dx, dy = kg.grad(lambda x, y: (3 * clipped(x, y)).sum(), argnums=(0, 1))(X, X + 1)
    close(dx, X + 1)
    close(dy, 0 * X)
    close(clipped(X, X), X * X)

    @kg.custom_jvp
    def softplus(x: Any) -> Any:
        return np.log1p(np.exp(x))

    softplus.defjvp(lambda args, ts: (softplus(*args), ts[0] * (1 - 1 / (1 + np.exp(args[0])))))
    s = 1 / (1 + np.exp(-X))
    close(kg.grad(lambda x: softplus(x).sum())(X), s)
    close(kg.jvp(softplus, (X,), (np.ones_like(X),))[1], s)
    close(kg.grad(lambda x: kg.grad(lambda x: softplus(x).sum())(x).sum())(X), s * (1 - s))


def test_what_is_between_is_computed_again() -> None:
    def layer(p: Any, x: Any, n: Any) -> Any:
        return np.tanh(np.exp(x * p["a"]) + p["b"]) * n, x.sum()

    def model(p: Any, x: Any, f: Any) -> Any:
        y, z = f(p, x, 2)
        return (f(p, y, 1)[0] ** 2).sum() * z

    p = {"a": 0.3, "b": X[0]}
    expected = kg.grad(lambda p, x: model(p, x, layer), argnums=(0, 1))(p, X)
    kept = kg.grad(lambda p, x: model(p, x, kg.checkpoint(layer)), argnums=(0, 1))
    found = kept(p, X)
    close(found[0]["a"], expected[0]["a"], 1e-12)
    close(found[0]["b"], expected[0]["b"], 1e-12)
    close(found[1], expected[1], 1e-12)
    assert sum(node.op == "exp" for node in kept.graph(p, X).nodes) == 4
    close(kg.checkpoint(np.sin)(X), np.sin(X))
    u = rng.normal(size=X.shape)
    twice = kg.grad(lambda x: (kg.grad(lambda x: kg.checkpoint(np.sin)(x).sum())(x) * u).sum())
    close(twice(X), -np.sin(X) * u)


class Model:
    def __init__(self) -> None:
        self.scale = 3.0

    def loss(self, x: Any) -> Any:
        return (self.scale * x * x).sum()


def test_what_assigns_to_its_argument_is_computed_again_of_what_it_came_with() -> None:
    def positive(x: Any, i: Any) -> Any:
        i += 1
        m = x > 0
        x[m] += x.sum()
        x[i] *= 2
        return (x**2).sum()

    def through(inner: Any) -> Any:
        def loss(x: Any) -> Any:
            first = x * 1.0
            return inner(first, np.arange(2)) * x[0] + (first**3).sum()

        return loss

    close(kg.grad(through(kg.checkpoint(positive)))(X[0]), kg.grad(through(positive))(X[0]))

    def swapped(a: Any, b: Any) -> Any:
        a[0] = b[1]
        return (a * b).sum()

    with pytest.raises(kg.UnsupportedError, match=r"test_gradients.py:\d+: swapped assigns to an argument that shares"):
        kg.grad(lambda x: kg.checkpoint(swapped)(x, x))(X[0])
    close(kg.grad(lambda x: kg.checkpoint(swapped)(x, x.copy()))(X[0]), kg.grad(lambda x: swapped(x, x.copy()))(X[0]))


def test_what_a_where_does_not_take() -> None:
    """Nothing comes back from there; with ieee=True 0 times what is infinite there, as with JAX and PyTorch."""

    def f(x: Any) -> Any:
        return np.where(x > 0, np.sqrt(x) + np.log(x), 0.0)

    def total(x: Any) -> Any:
        return f(x).sum()

    x = np.array([-1.0, 0.0, 4.0])
    finite, ieee = np.array([0, 0, 0.5]), np.array([np.nan, np.nan, 0.5])
    ones = np.ones(3)
    for options, expected in (({}, finite), ({"ieee": True}, ieee)):
        close(kg.grad(total, **options)(x), expected)
        close(kg.value_and_grad(total, **options)(x)[1], expected)
        close(kg.vjp(f, x, **options)[1](ones)[0], expected)
        close(kg.kernel_graph(lambda x, o=options: kg.vjp(f, x, **o)[1](ones)[0])(x), expected)
        close(np.diag(kg.jacobian(f, mode="reverse", **options)(x)), expected)
        close(kg.grad(kg.checkpoint(total), **options)(x), expected)
        second = np.asarray(kg.hessian(total, **options)(x))
        close(np.isnan(second).any(1), np.isnan(expected))
        close(np.isnan(kg.hvp(total, (x,), (x,), **options)[0]), np.isnan(expected))


def test_products_of_a_function_that_assigns_to_its_argument() -> None:
    """The caller's array stays as it is, and is what is differentiated."""

    def f(x: Any) -> Any:
        y = x**2
        x[0] = y[1] * y[2]
        return (x * y).sum()

    x = np.array([1.5, -2.0, 3.0])
    before, expected = x.copy(), quotient(lambda a: f(a.copy()), x)
    value, pull = kg.vjp(f, x)
    close(value, f(x.copy()))
    close(pull(1.0)[0], expected)
    value, push = kg.linearize(f, x)
    close(value, f(x.copy()))
    close(push(np.ones(3)), expected.sum())
    close(kg.jvp(f, (x,), (np.ones(3),))[1], expected.sum())
    close(kg.kernel_graph(lambda x: kg.linearize(f, x)[1](x) + x[0])(x), expected @ x + x[0])
    np.testing.assert_array_equal(x, before)


def test_others_beside_products() -> None:
    def f(x: Any) -> Any:
        return x * x, {"n": 3, "x": x}

    value, push, others = kg.linearize(f, X, has_aux=True)
    close(value, X * X)
    close(push(X), 2 * X * X)
    assert others["n"] == 3


def test_methods_and_callables() -> None:
    close(kg.grad(Model().loss)(X), 6 * X)
    close(kg.grad(lambda x, n: (x**n).sum())(X, 3), 3 * X**2)


def raising(x: Any) -> Any:
    if x.sum() < 1e9:
        raise ValueError("too small")
    return x.sum()


BAD: dict[str, tuple[Any, str]] = {
    "no number": (lambda: kg.grad(lambda x: x)(X), "needs one number, got float64[6,4]; write .sum()"),
    "two results": (lambda: kg.grad(lambda x: (x.sum(), 1))(X), "return one, with has_aux=True"),
    "no aux": (lambda: kg.grad(lambda x: x.sum(), has_aux=True)(X), "returns (number, others)"),
    "integers": (lambda: kg.grad(lambda x: x.sum())(np.arange(3)), "int64, which has no gradient"),
    "an integer": (lambda: kg.grad(lambda x: x * 2.0)(3), "int, which has no gradient"),
    "an integer number": (lambda: kg.grad(lambda x: x.sum().astype(np.int64))(X), "can change a little"),
    "complex": (lambda: kg.grad(lambda x: x.sum())(X * 1j), "write .real, or pass holomorphic=True"),
    "holomorphic": (lambda: kg.grad(lambda x: x.sum(), holomorphic=True)(X), "is of complex numbers"),
    "no function": (lambda: kg.grad(X), "takes a function"),
    "argnums": (lambda: kg.grad(loss, argnums=5)(W, X, Y), "argument 5, and the call passes 3"),
    "argnums from behind": (lambda: kg.grad(loss, argnums=-4)(W, X, Y), "argument -4, and the call passes 3"),
    "twice, one from behind": (lambda: kg.grad(loss, argnums=(2, -1))(W, X, Y), "asked for twice"),
    "twice, one by name": (lambda: kg.grad(loss, argnums=1, argnames="x")(W, X, Y), "asked for twice"),
    "a rule that is not linear": (
        lambda: kg.grad(lambda x: kg.custom_jvp(np.sin).defjvp(lambda a, t: (a[0], t[0] ** 2))(x).sum())(X),
        "not linear in the tangents",
    ),
    "a backward rule's shape": (
        lambda: kg.grad(kg.custom_vjp(lambda x: x.sum()).defvjp(lambda x: (x.sum(), None), lambda _, ct: (ct,)))(X),
        "where float64[6,4] is wanted",
    ),
    "a backward rule's structure": (
        lambda: kg.grad(kg.custom_vjp(lambda x: x.sum()).defvjp(lambda x: (x.sum(), None), lambda _, ct: ((ct, ct),)))(
            X
        ),
        "another structure",
    ),
    "tangents of checkpoint": (lambda: kg.jvp(kg.checkpoint(np.sin), (X,), (X,)), "leave kg.checkpoint out"),
    "twice": (lambda: kg.grad(loss, argnums=(0, 0)), "twice"),
    "none": (lambda: kg.grad(loss, argnums=()), "no argument"),
    "argnames": (lambda: kg.grad(loss, argnums=(), argnames="z")(W, X, Y), "'z', which the call does not pass"),
    "text": (lambda: kg.grad(loss, argnums="w"), "write a number"),  # type: ignore[arg-type]
    "no rule": (lambda: kg.grad(lambda x: x.view(np.float32).sum())(X), "kg.custom_vjp"),
    "structure": (lambda: kg.vjp(np.sin, X)[1]((X, X)), "another structure"),
    "shape": (lambda: kg.vjp(np.sin, X)[1](X[:1]), "shape (1, 4)"),
    "dtype": (lambda: kg.vjp(np.sin, X)[1](X * 1j), "write .real"),
    "tangents": (lambda: kg.jvp(np.sin, (X,), (X[0],)), "shape (4,)"),
    "count": (lambda: kg.jvp(np.sin, (X,), ()), "pass one for each"),
    "aux of vjp": (lambda: kg.vjp(np.sin, X, has_aux=True), "returns (result, others)"),
    "aux of linearize": (lambda: kg.linearize(np.sin, X, has_aux=True), "returns (result, others)"),
    "ieee": (lambda: kg.grad(loss, ieee="yes"), "write True or False"),  # type: ignore[arg-type]
    "no bytes": (lambda: kg.vjp(np.sin, X, save=0), "save=0 of vjp: write bytes"),
    "raised by a value": (
        lambda: kg.grad(lambda x: kg.fori_loop(0, 3, lambda i, s: s + raising(x), 0.0))(X),
        "that ValueError depends on a traced value",
    ),
    "no defvjp": (lambda: kg.grad(lambda x: kg.custom_vjp(np.sin)(x).sum())(X), "write sin.defvjp"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_the_line(name: str) -> None:
    bad, text = BAD[name]
    with pytest.raises(kg.UserError) as caught:
        bad()
    assert text in str(caught.value) and "test_gradients.py:" in str(caught.value)


@pytest.mark.usefixtures("refusing")
def test_an_array_from_outside_cannot_be_assigned_to() -> None:
    @kg.kernel_graph
    def f(x: Any) -> Any:
        y = np.zeros_like(x)

        def g(x: Any) -> Any:
            y[...] = x
            return x.sum()

        return kg.grad(g)(x), y

    with pytest.raises(kg.TraceError, match="cannot assign"):
        f(X)


def test_what_splits_is_traced_whole_where_it_is_differentiated() -> None:
    @kg.kernel_graph(untraceable="split")
    def f(x: Any) -> Any:
        return (np.sin(x) * float(np.sin(x).sum())).sum()

    @kg.kernel_graph(untraceable="split")
    def g(x: Any) -> Any:
        return np.array(sorted(x)).sum()

    x = np.arange(3.0)
    np.testing.assert_allclose(kg.grad(f)(x), 2 * np.sin(x).sum() * np.cos(x))
    np.testing.assert_allclose(kg.jvp(f, (x,), (np.ones(3),))[1], 2 * np.sin(x).sum() * np.cos(x).sum())
    with pytest.raises(kg.TraceError, match=r"test_gradients\.py:\d+"):
        kg.grad(g)(x)


def test_a_function_without_loops_is_traced_once() -> None:
    """A gradient is long, of many shapes and few lines, as turns of a loop may be."""

    def mixture(p: Any, x: Any) -> Any:
        alphas, means, q, lower = p
        centred = x[:, None, :] - means
        scaled = np.exp(q) * centred + np.einsum("kij,nkj->nki", lower, centred)
        inner = alphas + q.sum(1) - 0.5 * (scaled**2).sum(2)
        m = inner.max(1)
        each = m + np.log(np.exp(inner - m[:, None]).sum(1))
        a = alphas.max()
        return each.sum() - len(x) * (a + np.log(np.exp(alphas - a).sum())) - 0.5 * (np.exp(q) ** 2).sum()

    calls: list[str] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "mixture":
            calls.append(event)

    rng = np.random.default_rng(0)
    given = tuple(rng.normal(size=s) for s in ((5,), (5, 3), (5, 3), (5, 3, 3)))
    gradient = kg.value_and_grad(mixture)
    sys.setprofile(count)
    try:
        gradient.plan(given, rng.normal(size=(20, 3)))
    finally:
        sys.setprofile(None)
    assert len(calls) == 1


def test_derived_operations_are_no_turns_that_were_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a gradient adds to a trace is not searched for loops, which takes as long as deriving it."""
    from kernelgraph.dsl.recorded_loops.capture import LoopCapture

    looked: list[int] = []
    note_length = LoopCapture.note_length
    monkeypatch.setattr(
        LoopCapture, "note_length", lambda c: (looked.append(len(c.trace.builder.nodes)), note_length(c))
    )

    def f(x: Any) -> Any:
        for i in range(12):
            x = np.sin(x * (i + 1.5)) / np.sqrt(np.exp(x) + i * i)
        return x.sum()

    x = np.linspace(0, 1, 7)
    kg.value_and_grad(f)(x)
    assert not looked
    found = kg.value_and_grad(f)(x)
    eps = 1e-6
    numeric = [(f(x + eps * e) - f(x - eps * e)) / (2 * eps) for e in np.eye(7)]
    np.testing.assert_allclose(found[1], numeric, rtol=1e-5, atol=1e-7)


OF_16 = np.random.default_rng(0).normal(size=(4, 4)) + 4 * np.eye(4)
RESHAPED: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {  # functions, of 16 numbers in which shape
    "prod": (np.prod, (4, 4)),
    "prod of rows": (lambda x: np.prod(x, 1), (4, 4)),
    "cumprod": (np.cumprod, (4, 4)),
    "median": (np.median, (4, 4)),
    "nanmedian": (np.nanmedian, (4, 4)),
    "quantile": (lambda x: np.quantile(x, 0.3), (2, 8)),
    "partition": (lambda x: np.partition(x, 2)[..., :2], (2, 8)),
    "sort": (np.sort, (2, 8)),
    "interp": (lambda x: np.interp(x, [-2.0, 1, 6], [1, 3, 2.0]), (4, 4)),
    "values of interp": (lambda x: np.interp([0.3, 2.5], np.arange(16.0), x.reshape(16)), (4, 4)),
    "correlate": (lambda x: np.correlate(x, x[:3]), (16,)),
    "polyfit": (lambda x: np.polyfit(np.arange(4.0), x, 2), (4, 4)),
    "cond": (np.linalg.cond, (4, 4)),
    "cond by 1": (lambda x: np.linalg.cond(x, 1), (4, 4)),
    "det": (np.linalg.det, (4, 2, 2)),
    "tensorsolve": (lambda x: np.linalg.tensorsolve(x, x[..., 0, 1] ** 2), (2, 2, 2, 2)),
    "tensorinv": (np.linalg.tensorinv, (2, 2, 2, 2)),
    "tensorinv of one axis": (lambda x: np.linalg.tensorinv(x, 1), (4, 2, 2)),
    "divide.accumulate": (np.divide.accumulate, (4, 4)),
    "logaddexp.reduce": (np.logaddexp.reduce, (4, 4)),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_what_is_reshaped_before_has_the_same_derivatives(name: str) -> None:
    function, shape = RESHAPED[name]
    x = OF_16.reshape(shape)

    def loss(x: Any) -> Any:
        return np.sin(function(x)).sum()

    def of_reshaped(x: Any) -> Any:
        return loss(x.reshape(shape))

    expected = np.asarray(kg.grad(loss)(x)).ravel()
    assert np.abs(expected).max() > 1e-3
    close(kg.grad(of_reshaped)(x.ravel()), expected)
    close(kg.jvp(of_reshaped, (x.ravel(),), (expected,))[1], expected @ expected)
