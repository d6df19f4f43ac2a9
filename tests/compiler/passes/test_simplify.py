"""Every rewrite rule is exact: bit for bit, on every float16 there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.control_flow import CustomDerivativeNode
from kernelgraph.compiler.graph.graph import Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.simplify import ANYWHERE, RULES, simplify_graph
from tests.compiler.programs import graphs
from tests.counts import examples

EVERY_HALF = np.arange(65536, dtype=np.uint16).view(np.float16)
Make = Callable[[GraphBuilder, Value], Value]


def shuffled(b: GraphBuilder, x: Value) -> Value:
    """Each value beside another one: every kind of special value meets every other."""
    return b.reshape(b.permute(b.reshape(b.slice(x, (65535,), (-1,), x.shape), (256, 256)), (1, 0)), x.shape)


RULE = CustomDerivativeNode(1, 1, None, None)
# rule -> programs that it must change, on a float16 vector x
CASES: dict[str, list[Make]] = {
    "simplify_constants": [lambda b, x: b.map("add", x, b.map("exp", b.const(1.0, x.dtype)))],
    "simplify_multiply_by_one": [
        lambda b, x: b.map("multiply", x, 1),
        lambda b, x: b.map("multiply", b.const(1, x.dtype), x),
    ],
    "simplify_divide_by_one": [lambda b, x: b.map("divide", x, 1)],
    "simplify_divide_by_power_of_two": [
        lambda b, x: b.map("divide", x, 4.0),
        lambda b, x: b.map("divide", x, -(2.0**-10)),
        lambda b, x: b.map("divide", x, 2.0**15),
    ],
    "simplify_subtract_zero": [lambda b, x: b.map("subtract", x, 0.0)],
    "simplify_double_negative": [lambda b, x: b.map("negative", b.map("negative", x))],
    "simplify_double_invert": [lambda b, x: b.map("invert", b.map("invert", b.map("greater", x, 0)))],
    "simplify_odd_or_even_of_negative": [
        lambda b, x: b.map("sin", b.map("negative", x)),
        lambda b, x: b.map("cos", b.map("negative", x)),
        lambda b, x: b.map("erf", b.map("negative", x)),
        lambda b, x: b.map("tanh", b.map("negative", x)),
    ],
    "simplify_negative_factor": [
        lambda b, x: b.map("multiply", b.map("negative", x), shuffled(b, x)),
        lambda b, x: b.map("divide", shuffled(b, x), b.map("negative", x)),
        lambda b, x: b.map("multiply", b.map("negative", x), b.map("negative", shuffled(b, x))),
    ],
    "simplify_add_of_negative": [
        lambda b, x: b.map("add", shuffled(b, x), b.map("negative", x)),
        lambda b, x: b.map("add", b.map("negative", x), shuffled(b, x)),
        lambda b, x: b.map("add", b.map("negative", x), x),
    ],
    "simplify_subtract_of_negative": [lambda b, x: b.map("subtract", shuffled(b, x), b.map("negative", x))],
    "simplify_absolute_of_negative": [lambda b, x: b.map("absolute", b.map("negative", x))],
    "simplify_where_of_same": [lambda b, x: b.map("where", b.map("greater", x, 0), x, x)],
    "push_reshape_below_elementwise": [lambda b, x: b.reshape(b.map("exp", b.map("add", x, 2)), (256, 256))],
    "simplify_slice_of_slice": [lambda b, x: b.slice(b.slice(x, (5,), (3,), (900,)), (800,), (-2,), (300,))],
    "simplify_permute_of_permute": [
        lambda b, x: b.permute(b.permute(b.reshape(x, (2, 32, 1024)), (2, 0, 1)), (1, 0, 2)),
    ],
    "simplify_cast_of_cast": [
        lambda b, x: b.cast(b.cast(x, np.float32), np.float16),
        lambda b, x: b.cast(b.cast(x, np.float64), np.float16),
    ],
    "simplify_broadcast_of_broadcast": [
        lambda b, x: b.broadcast(b.broadcast(b.slice(x, (7,), (1,), (1,)), (3, 1)), (2, 3, 4))
    ],
    "simplify_update_of_whole": [lambda b, x: b.update(x, b.map("negative", x), (0,), (1,))],
    "simplify_updates_side_by_side": [
        lambda b, x: b.update(b.update(b.concat([x, x], 0), b.map("negative", x), (65536,), (1,)), x, (0,), (1,)),
        lambda b, x: b.update(b.update(b.concat([x, x], 0), b.map("negative", x), (1,), (2,)), x, (0,), (2,)),
    ],
    "drop_stop_gradient": [lambda b, x: b.map("stop_gradient", x)],
    "simplify_device_place": [lambda b, x: b.placed(x, ("cpu", 1))],
    "drop_custom_derivative": [
        lambda b, x: b.add("custom", (x.number, x.number), x.type, (("control", RULE), ("part", 0)))
    ],
    "simplify_small_power": [],  # rounds elsewhere than pow: tested below
}


def test_every_rule_has_a_case():
    rules = {rule.__name__ for group in (*RULES.values(), ANYWHERE) for rule in group}
    assert rules == set(CASES)


@pytest.mark.parametrize(("rule", "make"), [(r, m) for r, ms in CASES.items() for m in ms])
def test_rule_is_exact(rule, make):
    builder = GraphBuilder()
    x = builder.input(ArrayType(EVERY_HALF.shape, np.float16))
    graph = builder.finish([make(builder, x)])
    simple = simplify_graph(graph)
    assert simple != graph, f"{rule} did not fire"
    (before,), (after,) = interpret_graph(graph, [EVERY_HALF]), interpret_graph(simple, [EVERY_HALF])
    assert before.dtype == after.dtype
    nan = before != before
    np.testing.assert_array_equal(nan, after != after)
    np.testing.assert_array_equal(before[~nan].view(f"u{before.itemsize}"), after[~nan].view(f"u{after.itemsize}"))


@pytest.mark.parametrize("kept", [("add", 0.0), ("multiply", 0.0), ("subtract", -0.0), ("power", 0.5), ("power", -1)])
def test_tempting_rules_that_are_wrong_do_not_exist(kept):
    op, number = kept
    builder = GraphBuilder()
    x = builder.input(ArrayType((4,), np.float16))
    graph = builder.finish([builder.map(op, x, number)])
    assert [n.op for n in simplify_graph(graph).nodes] == [n.op for n in graph.nodes]


@pytest.mark.parametrize("exponent", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint32"])
def test_small_powers(exponent, dtype):
    x = (
        EVERY_HALF[np.isfinite(EVERY_HALF)].astype(dtype)
        if np.dtype(dtype).kind == "f"
        else np.arange(-99, 99).astype(dtype)
    )
    x = np.concatenate([x, x[:3] * 0]) if np.dtype(dtype).kind != "f" else np.concatenate([x, EVERY_HALF.astype(dtype)])
    builder = GraphBuilder()
    graph = builder.finish([builder.map("power", builder.input(ArrayType(x.shape, x.dtype)), exponent)])
    simple = simplify_graph(graph)
    assert "power" not in [n.op for n in simple.nodes]
    (before,), (after,) = interpret_graph(graph, [x]), interpret_graph(simple, [x])
    if np.dtype(dtype).kind != "f":
        np.testing.assert_array_equal(before, after)
        return
    np.testing.assert_array_equal(np.isfinite(before), np.isfinite(after))
    np.testing.assert_array_equal(np.signbit(before[before == before]), np.signbit(after[after == after]))
    fine = np.isfinite(before)
    tiny = 4 * np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(
        after[fine].astype("f8"), before[fine].astype("f8"), rtol=4 * np.finfo(dtype).eps, atol=tiny
    )


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=graphs())
def test_random_graphs_keep_their_meaning(case):
    graph, arrays = case
    simple = simplify_graph(graph)
    assert simplify_graph(simple) == simple
    for before, after in zip(interpret_graph(graph, arrays), interpret_graph(simple, arrays), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("shape", [(1,), (4,)], ids=str)
def test_reshapes_go_through_what_is_used_twice_once(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not twice at each level: 2^14 times here, and forever in a scalar recurrence of forty turns."""
    b = GraphBuilder("levels")
    x = b.input(ArrayType(shape, np.dtype("f4")))
    for level in range(14):
        x = b.map("add", x, b.map("multiply", x, level + 2.0))
    graph = b.finish([b.reshape(x, (1, *shape))])
    calls = 0
    add = GraphBuilder.add

    def counted(*args: Any) -> Value:
        nonlocal calls
        calls += 1
        return add(*args)

    monkeypatch.setattr(GraphBuilder, "add", counted)
    simple = simplify_graph(graph)
    assert calls < 20 * len(graph.nodes)
    value = np.ones(shape, np.float32)
    np.testing.assert_array_equal(interpret_graph(simple, [value])[0], interpret_graph(graph, [value])[0])
