"""Arrays in the other byte order: whatever a function asks of them, the answer is NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

ASKED: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "a sum": lambda x: (x + 1, x.sum(), np.sort(x)),
    "dtype": lambda x: x.dtype,
    "dtype.str": lambda x: f"{x.dtype} {x.dtype.str} {x.dtype.byteorder}",
    "isnative": lambda x: x + 1 if x.dtype.isnative else x + 2,
    "dtype compared": lambda x: x + 1 if x.dtype == x.dtype.newbyteorder("=") else x + 2,
    "dtype as a key": lambda x: {np.dtype(o + c): o for c in ("f8", "i4", "c16", "f2") for o in "<>"}[x.dtype],
    "dtype of a copy": lambda x: x.copy().dtype.str,
    "an error": lambda x: x + 1 if x.dtype.isnative else 1 // 0,
    "getattr": lambda x: getattr(x, "dtype").str,  # noqa: B009
    "can_cast": lambda x: (np.can_cast(x, ">f8", "no"), np.can_cast(x, "<f8", "no"), np.can_cast(x, "f8")),
    "result_type": lambda x: np.result_type(x, x),
    "view": lambda x: x.view(np.uint8),
    "view of as many": lambda x: x.view(x.dtype.newbyteorder("=")),
    "view of a slice": lambda x: x[1:].view(np.int16),
    "view of a copy": lambda x: x.copy().view(np.int16),
    "view of sorted": lambda x: np.sort(x).view(np.int16),
    "view of a result": lambda x: (x * 2).view(np.int16),
    "view without": lambda x: x.view() * 2,
    "frombuffer": lambda x: np.frombuffer(x, np.int16),
    "tobytes": lambda x: x.tobytes(),
    "repr": lambda x: (repr(x), str(x), f"{x!r}"),
    "byteswap": lambda x: x.byteswap(),
    "tolist": lambda x: x.tolist(),
    "a helper": lambda x: kg.kernel_graph(lambda y: y.view(np.uint8), untraceable="numpy")(x),
    "a branch": lambda x: x.view(np.uint8) if x[0] > 0 else x.view(np.int8),
    "a loop": lambda x: [x[i : i + 1].view(np.uint8) for i in range(len(x))],
}  # fmt: skip
WAYS: dict[str, Callable[[Callable[[Any], Any], Any, Any], Any]] = {
    "argument": lambda f, of, x: of(f)(x),
    "in a list": lambda f, of, x: of(lambda a: f(a[0]))([x]),
    "attribute": lambda f, of, x: of(lambda a: f(a.x))(SimpleNamespace(x=x)),
    "attribute and a write": lambda f, of, x: of(lambda a: (setattr(a, "n", 2), f(a.x)))(SimpleNamespace(x=x, n=1)),
    "from outside": lambda f, of, x: of(lambda y: (y + 1, f(x)))(np.ones(2)),
}  # fmt: skip


def plain(x: Any) -> Any:
    """Results, or the error, in NumPy; arrays in native byte order, as results are."""
    if isinstance(x, (tuple, list)):
        return [plain(part) for part in x]
    if isinstance(x, (np.ndarray, np.generic, kg.Array)):
        x = np.asarray(x)
        return x.dtype.newbyteorder("=").str, x.shape, x.tolist()
    return x


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return plain(call())
    except kg.UnsupportedError:
        raise
    except Exception as error:
        return type(error).__mro__[:-3], str(error).splitlines()[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_of_the_other_byte_order(asked: str, way: str) -> None:
    def numpy(f: Any) -> Any:
        return f

    for dtype, shape in (("f8", (5,)), ("i4", (4, 2)), ("c16", (2, 3)), ("f2", (2, 2, 2))):
        decorated: dict[Any, Any] = {}

        def ours(f: Any, decorated: dict[Any, Any] = decorated) -> Any:
            return decorated.setdefault("f", kg.kernel_graph(f, device="cpu", untraceable="numpy"))

        native = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
        for x in (native, native.astype(">" + dtype), native, native.astype(">" + dtype)[::-1]):
            if way == "from outside":
                decorated.clear()
            want = outcome(lambda x=x: WAYS[way](ASKED[asked], numpy, x))  # type: ignore[misc]
            assert outcome(lambda x=x: WAYS[way](ASKED[asked], ours, x)) == want  # type: ignore[misc]


def test_the_line_is_named_and_what_does_not_ask_is_compiled() -> None:
    x = np.arange(5.0).astype(">f8")
    with pytest.warns(UserWarning, match=r"runs in NumPy.* since at test_byte_order\.py:\d+: .*byte order"):
        kg.kernel_graph(lambda x: x.view(np.int8), device="cpu")(x)
    with pytest.raises(kg.UnsupportedError, match=r"test_byte_order\.py:\d+: this depends on byte order.*newbyteorder"):
        kg.kernel_graph(lambda x: x.dtype.str, device="cpu", untraceable="refuse")(x)
    compiled = kg.kernel_graph(lambda x: x * 2 + np.sort(x), device="cpu", untraceable="refuse")
    np.testing.assert_array_equal(compiled(x), x * 3)
    np.testing.assert_array_equal(kg.grad(lambda x: (x * x).sum())(x), 2 * x)


def test_a_mesh_refuses_what_asks_for_byte_order_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kg.settings, "cpu_devices", 2)
    mesh, native = kg.Mesh(("cpu:0", "cpu:1")), np.arange(8.0)
    views = kg.kernel_graph(lambda x: x.view(np.int64) + 0, mesh=mesh)
    sums = kg.kernel_graph(lambda x: kg.all_reduce(x.sum()), mesh=mesh, out_axes=None)
    for x in (native, native.astype(">f8"), native):
        assert float(sums(x)) == x.sum()
        if x.dtype.isnative:
            np.testing.assert_array_equal(np.asarray(views(x)), x.view(np.int64))
        else:
            with pytest.raises(kg.UnsupportedError, match=r"test_byte_order\.py:\d+: this depends on byte order"):
                views(x)
