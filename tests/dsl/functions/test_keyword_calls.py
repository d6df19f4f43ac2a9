"""Keywords of NumPy's functions that no kernel does: the function runs in NumPy, and nothing is refused."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgraph as kg
from tests.counts import examples
from tests.keyword_calls import A, B, Call, K, S, T, V, calls, differences, functions, judge, keywords

FOUND = [
    Call("np.concatenate", ([V, V],), "out", np.zeros(8)),
    Call("np.stack", ([V, V],), "out", np.zeros((2, 4))),
    Call("np.delete", (A, K), "axis", 1),
    Call("np.polyfit", (V, V, 2), "cov", True),
    Call("np.convolve", (V, V), "mode", 0),
    Call("np.gradient", (A,), "edge_order", 0),
    Call("np.take", (V, K), "mode", 1),
    Call("np.choose", (K, V), "mode", None),
    Call("np.cov", (A,), "bias", None),
    Call("np.linalg.qr", (S,), "mode", "full"),
    Call("np.add.accumulate", (V,), "axis", None),
    Call("np.maximum.reduceat", (V, K), "axis", (0,)),
    Call("np.bincount", (K,), "minlength", 2),
    Call("np.einsum", ("ij,ij->i", A > 0, A > 0), "out", np.zeros(3)),
    Call("np.einsum", ("ij->i", np.full((3, 4), 100, "i1")), "out", np.zeros(3)),
    Call("np.gradient", (B, [0.0, 1.0, 3.0, 4.0]), "edge_order", 2),
    Call("np.std", (A.astype("i1"),), "mean", 1),
    Call("np.var", (A.astype("i1") * 16,), "mean", 7),
    Call("np.vecdot", (A > 0, B), "dtype", "f4"),
    Call("np.vecdot", (A.astype("i1") * 16, K.astype("i1") * 20), "dtype", "i8"),
    Call("np.histogramdd", (T,), "bins", 2),
    Call("np.arange", ("2020-01", "2020-02"), "dtype", "M8[D]"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", FOUND, ids=str)
def test_what_was_refused(call: Call) -> None:
    assert judge(call) == ""


@pytest.mark.filterwarnings("ignore")
def test_some_of_the_table() -> None:
    """All of it is `python -m tests.keyword_calls`."""
    some = [*calls([])][:: max(1, 12 // examples(1))]
    assert len(some) > 500
    assert [f"{call}: {wrong}" for call in some if (wrong := judge(call))] == []


def test_the_table_is_numpys() -> None:
    assert len(functions()) > 300 and "edge_order" in keywords(np.gradient)[1]
    assert differences(np.ones(2), np.ones(3)) and differences(np.ones(2), np.ones(2, "f4"))


def test_strict_refuses_at_the_line() -> None:
    with pytest.raises(kg.UnsupportedError, match=r"test_keyword_calls.py:\d+: np.polyfit with full= or cov="):
        kg.kernel_graph(lambda x: np.polyfit(x, x, 1, cov=True), device="cpu", untraceable="refuse")(V)
