"""NumPy's functions on rows of changing length in a recorded loop: values, dtypes, and that they are followed."""

from __future__ import annotations

import importlib.util
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.ops.table import UFUNC_PARTS
from kernelgraph.dsl.trace.trace import KnownLoops
from tests.turn_programs import recorded

ROWS = 13
SAMPLES: dict[str, Callable[[Any], Any]] = {
    "f8": lambda rng: rng.normal(size=(ROWS, ROWS + 2)),
    "f4": lambda rng: rng.normal(size=(ROWS, ROWS + 2)).astype("f4"),
    "i4": lambda rng: (rng.integers(1, 9, (ROWS, ROWS + 2)) * rng.choice([-1, 1], (ROWS, ROWS + 2))).astype("i4"),
    "b": lambda rng: rng.integers(0, 2, (ROWS, ROWS + 2)).astype("?"),
    "c16": lambda rng: rng.normal(size=(ROWS, ROWS + 2)) + 1j * rng.normal(size=(ROWS, ROWS + 2)),
}
# of two rows u and v, a matrix m whose columns they have, and the number k of an element
NUMBERS = """
    np.sum(u) np.prod(u) np.min(u) np.max(u) np.any(u) np.all(u) u.sum() u.max() u.any() np.mean(u) u.mean()
    np.var(u) u.std(ddof=1) np.ptp(u) np.argmin(u) u.argmax() np.count_nonzero(u) np.add.reduce(u)
    np.maximum.reduce(u) np.dot(u,v) u.dot(v) np.vdot(u,v) np.inner(u,v) u@v np.linalg.norm(u) np.linalg.norm(u,1)
    np.sum(u,dtype=np.float64) np.sum(u,keepdims=True)[0] np.mean(u,dtype=np.float64) np.sum(u*v) np.abs(k)
    np.maximum(k,2) np.square(k) np.where(k,k,2) np.clip(k,0,1) np.real(k) np.imag(k) k.conj() np.isfinite(k)
    np.round(k) np.angle(k) np.sum(m) np.compress(u!=0,u).sum() u.compress(u==u)[0] np.extract(u==u,v).size
    u[np.flatnonzero(u)].sum() u.nonzero()[0].size np.where(u)[0].sum() np.max(m,axis=0)[0] np.mean(m,axis=(0,1))
    np.linalg.norm(m) m.T[0,1] np.sum(m.transpose(1,0)@m) np.nanmax(u) np.nansum(u) np.nanmean(u) np.average(u)
    np.array_equal(u,v) (u**2)[0] np.allclose(u,u) np.trace(m@m.T) np.size(k) np.linalg.vector_norm(u)
    (m[None]@m.T)[0,0,1] ((m!=0)@(m.T!=0))[0,1]
    np.vecdot(u,v) np.float_power(k,2) np.sum(i*[1,2]) (k+[1,2])[1] np.sum(k*[1,2]) np.sum([1,2]*k) np.sum(i+[1,2])
    np.sum([1,2]*i) (k*u)[0] divmod(i,3)[0] divmod(7,i+2)[1] (2-u)[0] (i-u)[1] -k np.logaddexp.reduce(u)
"""
ROW_RESULTS = """
    np.where(u>v,u,v) np.where(u==u,u,1) np.where(u,u,v) np.where(k>0,u,2) np.where(u>v,k,i) np.where(True,u,v)
    np.clip(u,-1,1) np.clip(u,v,None) u.clip(0,2) np.round(u) np.round(u,1) np.isclose(u,v) np.nan_to_num(u)
    np.real(u) np.conj(u) u.conj() u.astype(np.float32) u.astype(np.int64) u.copy() np.copy(u) np.array(u)
    np.flip(u) u[::-1] np.dot(u,2) np.dot(2.5,v) np.dot(u/0,0*k) np.outer(u,v)[0] np.add.outer(u,v)[0]
    np.zeros_like(u)+u np.ones_like(u)*u np.full_like(u,1)+u np.full(len(u),k) np.zeros(i+2)+u
    np.zeros(i+2,dtype=np.int32) np.expand_dims(u,0)[0] u.reshape(-1,1)[:,0] u.reshape(1,-1)[0] np.ravel(u)
    u.ravel() np.squeeze(u[None]) u[:,None][:,0] np.add(u,v,dtype=np.float64) np.matmul(m,m.T)[0,:1]+u m.sum(axis=0)
    np.mean(m,axis=0) m.max(axis=0) np.std(m,axis=0) np.sum(m,axis=0,keepdims=True)[0] np.linalg.norm(m,axis=0)
    np.swapaxes(m,0,1)[:,0] np.moveaxis(m,0,1)[:,1] np.angle(u) np.take(u,np.full_like(u,-1,dtype=np.int64))
    np.sinc(u) np.fix(u) np.take(m,[1,0],axis=0)[1] np.take(u,1)+u m.take(np.ones_like(u,dtype=np.int64),axis=0)[0]
    np.gradient(u) np.cumsum(u) np.sort(u) np.diff(m,axis=0)[0] np.select([u>v,u<v],[u,v],0) np.heaviside(u,0.5)
    np.deg2rad(u) np.convolve(u,u,mode='same') np.roll(u,1) np.tile(u,1)
"""
STORES = """
    np.add(u,v,out=w) np.multiply(u,v,out=w[:]) np.negative(u,out=w) np.clip(u,0,1,out=w) np.sum(m,axis=0,out=w)
    np.where(u>v,u,v).copy(order='C') w.fill(3) np.add(u,v,out=w,where=u>v) np.maximum(u,v,w) np.copyto(w,u) w+=u
    w*=u[0] w-=u[::-1] w[:]@=m.T@m[:,:i+2] w=u@(m.T@m)
"""
# of which some are views of u, and others copies
VIEWS = """
    u.ravel() z[i,::2].ravel() z[i,:i+2:2].ravel() np.expand_dims(u,0) u.reshape(-1,1) u.reshape(1,-1) np.flip(u)
    u[::-1] u.T np.real(u) np.clip(u,None,9) np.copy(u) np.array(u) u.astype(u.dtype,copy=False) u.astype(u.dtype)
    np.take(u,[0,1]) u[u==u] np.round(u) np.squeeze(u[None]) np.transpose(z[:2,:i+2]) np.atleast_2d(u) np.conj(u)
    u.conj() np.nan_to_num(u) np.nan_to_num(u,copy=False) np.where(u==u,u,0) np.swapaxes(z[:2,:i+2],0,1)
    np.positive(u) +u np.abs(u) np.compress(u==u,u) u[:] u[...] u[:,None] np.moveaxis(u[None],0,1)
    np.reshape(u,(1,i+2)) np.squeeze(u) u.clip(None,9)
"""
# what is traced turn by turn: sums of all elements before, results of changing length, calls of libraries
REFUSED = {
    "np.nanmax(u)", "np.nanmean(u)", "np.trace(m@m.T)", "np.sum(i*[1,2])", "np.sum([1,2]*i)", "np.logaddexp.reduce(u)",
    "np.copyto(w,u)", "np.cumsum(u)", "np.gradient(u)", "np.convolve(u,u,mode='same')", "np.roll(u,1)",
    "np.tile(u,1)", "z[i,:i+2:2].ravel()",
}  # fmt: skip


def _unary_ufuncs() -> list[str]:
    return sorted(
        {f"np.{u.__name__}(u)" for u in UFUNC_PARTS if u.nin == 1 and u.nout == 1 and hasattr(np, u.__name__)}
    )


def _binary_ufuncs() -> list[str]:
    names = {u.__name__ for u in UFUNC_PARTS if u.nin == 2 and u.nout == 1 and hasattr(np, u.__name__)}
    return [f"np.{name}({operands})" for name in sorted(names) for operands in ("u,v", "u,2", "k,v")]


TEXTS = {
    "number": """
        def number(x, y, out, kinds):
            for i in range(x.shape[0]):
                u, v, m, k = x[i, : i + 2], y[i, : i + 2], x[:2, : i + 2], x[i, i]
                r = EXPRESSION
                out[i, 0] = r
                kinds[i] = np.result_type(r).num
    """,
    "row": """
        def row(x, y, out, kinds):
            for i in range(x.shape[0]):
                u, v, m, k = x[i, : i + 2], y[i, : i + 2], x[:2, : i + 2], x[i, i]
                r = EXPRESSION
                out[i, : i + 2] = r
                kinds[i] = r.dtype.num
    """,
    "store": """
        def store(x, y, out, kinds):
            w0 = np.zeros(x.shape[1], x.dtype)
            for i in range(x.shape[0]):
                u, v, m, k = x[i, : i + 2], y[i, : i + 2], x[:2, : i + 2], x[i, i]
                w = w0[: i + 2]
                EXPRESSION
                out[i, : i + 2] = w
    """,
    "view": """
        def view(x, y, out, kinds):
            z = x.copy()
            for i in range(x.shape[0]):
                u = z[i, : i + 2]
                r = EXPRESSION
                r += 1
                u *= 2
                out[i, : i + 2], out[i, -1], kinds[i] = u, r.sum(), r.dtype.num
    """,
}


def program(folder: Path, expression: str, kind: str) -> Any:
    file = folder / "loop.py"
    file.write_text("import numpy as np\n" + textwrap.dedent(TEXTS[kind]).replace("EXPRESSION", expression))
    spec = importlib.util.spec_from_file_location("loop", file)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kind)


def result(function: Any, dtype: str) -> Any:
    """What it writes, or the class of its error."""
    rng = np.random.default_rng(5)
    x, y = SAMPLES[dtype](rng), SAMPLES[dtype](rng)
    y[0, :1] = x[0, :1]
    out, kinds = np.zeros(x.shape, "c16" if dtype == "c16" else "f8"), np.zeros(len(x), np.int64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            function(x, y, out, kinds)
        except (TypeError, ValueError) as error:
            return TypeError if isinstance(error, TypeError) else ValueError
    return out, kinds


@pytest.fixture
def notes() -> Iterator[list[KnownLoops]]:
    with recorded() as found:
        yield found


EXPRESSIONS = [
    *((e, "number") for e in NUMBERS.split()),
    *((e, "row") for e in (*_unary_ufuncs(), *_binary_ufuncs(), *ROW_RESULTS.split())),
    *((e, "store") for e in STORES.split()),
    *((e, "view") for e in VIEWS.split()),
]
NUMPYS = {("np.power(u,v)", "i4"), ("np.power(k,v)", "i4")}  # of negative integers, which raise an error there alone
OTHERS = [dtype for dtype in SAMPLES if dtype != "f8"]
CASES = [(e, kind, d) for n, (e, kind) in enumerate(EXPRESSIONS) for d in ("f8", OTHERS[n % len(OTHERS)])]
CASES = [case for case in CASES if (case[0], case[2]) not in NUMPYS]
CASES += [(e, "number", "c16") for e in ("np.vdot(u,v)", "np.linalg.norm(u)", "np.dot(u,v)", "np.var(u)", "np.prod(u)")]
CASES += [("(u**2)[0]", "number", "b"), ("np.power(u,2)", "row", "b")]


@pytest.mark.parametrize(("expression", "kind", "dtype"), CASES)
def test_a_function_gives_in_a_loop_what_it_gives_in_numpy(
    notes: list[KnownLoops], tmp_path: Path, expression: str, kind: str, dtype: str
) -> None:
    function = program(tmp_path, expression, kind)
    expected, found = result(function, dtype), result(kg.kernel_graph(function), dtype)
    if isinstance(expected, type) or isinstance(found, type):
        assert found is expected
        return
    room = 1e-5 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(found[0], expected[0], rtol=room, atol=room)
    np.testing.assert_array_equal(found[1], expected[1])
    if dtype == "f8":
        assert any(n.reasons for n in notes) == (expression in REFUSED), [n.reasons for n in notes]
