"""What NumPy's indexing gives, writes and raises in a recorded loop: a table of keys of each kind, alone and mixed."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.trace.trace import KnownLoops
from tests.turn_programs import recorded

N = 11
NAMES = """
    c, v, m, b = x[i], x[i, :i + 2], x[:3, :i + 2], x[i, :i + 2] > 0
    p, q, k, h, mm = ints, ints[:i % 3 + 1], ints[i % 4], halves[i], x[:3, :4] > 0
"""
# an entry of a key, by what it is; the lengths of axes are 4 and more
ENTRIES = {
    "int": "0 -1 i%4 -1-i%4 k i-i h",
    "slice": ":: 1: :-1 i%3: :i%3+1 -3: :-1-i%2 9: :-9 k: :k -i: i%2:k:2 ::2 1::3 ::np.int64(2)",
    "back": "::-1 2::-1 :0:-1 ::-2 i%3::-1 :i%2:-1 k::-1 :k:-1 -1:-3:-1 9::-1 :-9:-1 3:i%2:-2",
    "step": "::h+1 ::i+1 i%2::i%3+2 :3:i%3+1 ::-i-1 i::-i%2-1",
    "array": "p q [0,-1] [k,i%3] p[::-1] np.array([1,0,1]) [-2] p[:,None] [True,False,True,False]",
    "new": "None ... np.newaxis",
}
KINDS = {kind: texts.split() for kind, texts in ENTRIES.items()}


def _keys() -> list[tuple[str, str]]:
    """Arrays and keys: each entry alone, and each kind beside each."""
    found = [("y", e) for texts in KINDS.values() for e in texts]
    pairs = itertools.product(KINDS, repeat=2)
    for n, (one, two) in enumerate(pairs):
        for turn in range(2):
            a, b = KINDS[one][(n + turn) % len(KINDS[one])], KINDS[two][(3 * n + turn + 1) % len(KINDS[two])]
            if "..." in (a, b) or a != "..." or b != "...":
                found.append(("z", f"{a},{b}"))
    threes = [*itertools.product(("int", "slice", "array", "new"), repeat=3)][::3]
    for n, kinds in enumerate(threes):
        found.append(("t", ",".join(KINDS[kind][(n + at) % len(KINDS[kind])] for at, kind in enumerate(kinds))))
    return [*dict.fromkeys(key for key in found if key[1].count("...") < 2)]


READS = """
    v[b] v[v>k] v[~b] x[i][b0[i]] x[b0[i]] x[mm0] z[mm0] x[:,b0[i,:N]] z[b0[i,:4],1] z[1,...,b0[i,:5]]
    z[b0[i,:4]][:,0] m[:,b] m[b[:3],0] m[m>0] m[v[:3]>0,1:] x[b0[i],i] x[...,b0[i]] x[b0[i],...] x[np.nonzero(mm)]
    v[np.flatnonzero(b)] v[np.nonzero(b)] np.take(v,[0,-1]) np.take(z,p,axis=1) v.take(q%2) np.take(z,k)
    np.take(z,q,axis=0) np.take(y,p,mode='wrap') np.take(y,p+9,mode='clip') z[i%4][1:][::-1] z[i%4,:][::-1]
    z[i%4][k] z[k][p] z[p][:,q] z[::-1][1:][0] z[1:3][:,::2][:,1] x[i,::-1][:3] x[i,:][::-1][i:] x[i][i:][::-1][:2]
    z[...,0][1:] z[:,None][0] z[1:3,...,::-1] z.T[0] z.T[::-1][k] z.T[p] x.T[i][i:] x[i:][:,i:][::-1,::-1] x[i:,i]
    x[i:,i][::2] x[:i+1,i][::-1] x[i,i:][p[:1]] x[(i,)] x[(i,0)] x[()][i] x[i][()] z[(slice(1),2)] z[np.s_[1:,0]]
    y[p][q] y[y[p]>0] y[[k]][0] y[p[q%4]] y[p][p] y[np.abs(p)] z[p,p[:4]] z[p[:,None],p] z[p,:,p] z[:,p,p] z[p,0,p]
    z[0,p,None,p] z[None,p,1:,0] x[i:i+1] x[i:i+1,0] x[i:i+1,::-1] x[i-i:1][0] x[i:i] x[:,i:i].sum() y[i%4:][None]
    y[:,None][::2] np.flip(v)[1:] np.flip(z,1)[k] z.swapaxes(0,1)[k] np.squeeze(z[:1])[k] z[:1].reshape(4,5)[k]
"""
WRITES = """
    v[b]=0 v[b]+=1 v[v>k]=i x[x>i]=0 x[i,b0[i]]=k z[mm0]=2 x[:,b0[i,:N]]=1 x[b0[i]]*=2 x[i][b0[i]]-=1 v[~b]=v[~b]*2
    v[b]=-v[b] x[i,:3][mm[0,:3]]=5 m[m>0]=0 m[:,b]=1 m[b[:3],0]=2 z[b0[i,:4],1]=1 z[1,...,b0[i,:5]]=2
    v[b]=v[::-1][b] y[p]=p y[p]+=1 y[q]=y[q]+i y[[0,-1]]=[1,2] y[p]=y[p[::-1]] z[p,1]=y[:4] z[p,:,0]=9 z[p]=z[q[:1]]
    z[p][0]=3 y[p%4]-=p y[::-1]=y y[1:]=y[:-1] y[:-1]=y[1:] y[::2]=0 y[::h+1]=i y[::h+1]+=1 y[i%3::-1]=2
    y[:i%2:-1]=-1 y[k::-2]=4 z[i%4][1:][::-1][0]=3 z[i%4,:][::-1]=y[:5] z[::-1][k]=1 z.T[0]=2 z.T[::-1][k,1]=4
    z[:,None][0]=1 z[...,0]=k z[...]=i z[i%4,...]=3 z[k][p]=1 z[k][p]+=1 x[i:][:,i:][::-1,::-1]=1 x[i:,i]=x[i,i:N]
    x[i]=x[i,::-1] x[:,i]=x[i,:N] x[i:i+1]=2 x[i:i+1,::-1]=x[i] np.flip(v)[1:]=0 np.flip(z,1)[k]=2
    z[:1].reshape(4,5)[k]=1 y[...]=y[::-1] y[()]=3 y[i,...]=1 y[:]=i y[i:i]=1 y[p[:1]]=[k] y[b0[i]]=i y[i]=y[k]
    y[k]+=y[i] y[-1-i]=i y[p]=y[0] z[p]=y[:5] z[:,p]=y[:4] z[p,p]=1 z[p[:,None],p]=p z[0,p,None]=k z[k]=z[0,::-1]
    z[k,::-1]=z[0]
"""
# views and copies: what is written through one name, and read through another
ALIASES = """
    w=y[1:4];w+=1;r=y
    w=y[p];w+=1;r=y
    w=y[::-1][1:];w[0]=9;r=y
    w=y[i,...];w[...]=9;r=y
    w=y[i,...];w+=1;r=y
    w=y[i,...];y[i]=9;r=w
    w=y[i];y[i]=9;r=w
    w=y[i:i+1];y[i]=9;r=w
    w=y[p];y[p]=9;r=w
    w=y[b0[i,:N]];y[:]=0;r=w
    (w,)=np.nonzero(y>0);w+=1;(g,)=np.nonzero(y>0);r=g
    w=np.flatnonzero(y>0);w+=1;r=np.flatnonzero(y>0)
    g=y>0;w=np.flatnonzero(g);w+=1;r=np.flatnonzero(g)
    g=y>0;(w,)=np.nonzero(g);w+=1;(d,)=np.nonzero(g);r=d
    g=y>0;w=y[g];y[:]=1;r=w
    g=y>0;y[g]=0;r=y[g]
    g=y>0;y[g]=0;y[~g]=1;r=y
    g=y>0;(w,)=np.nonzero(g);y[w]=-1;r=y[w]
    w=z[i%4];u=w[::-1];u[0]=7;r=z
    w=z[i%4];u=w[None];u[0,0]=7;r=z
    w=z[i%4];u=w[...];u[0]=7;r=z
    w=z[i%4];w=w+1;w[0]=7;r=z
    w=z.T[0];w[i%4]=7;r=z
    w=z[:,None,0];w[i%4,0]=7;r=z
    w=np.take(y,[0,1]);w[0]=7;r=y
    w=np.take(y,0);y[0]=9;r=w
    w=y[[0]];y[0]=9;r=w
    w=y[k];y[k]=9;r=w
    w=y[()];w[0]=9;r=y
    w=y[...];w[0]=9;r=y
    w=y[::i+1];w[0]=9;r=y
    w=y[::i+1];y[0]=9;r=w
    w=y[::i%3+1];w[1:]=9;r=y
    w=y[::i%3+1][::2];w[1:]=9;r=y
    w=z[p,0];z[p,0]=0;r=w
    w=p[q%4];y[w]=1;r=y
"""
# what is out of bounds at some turn, or does not fit
BAD_READS = """
    y[i+3] y[-i-3] y[k+i] y[p+i] y[p-i] y[q*i] z[i] z[0,i] z[p,i] z[i%4,p+i] y[[0,i+2]] x[i,i+5] z[-i] v[i+2]
    v[-i-3] v[p*0+i+2] y[b] z[b0[i,:3]] y[i:][i] y[:i][i] y[::-1][i+2] np.take(y,i+3) np.take(y,p+i) z[0,0,0]
    z[p,p,p] y[0.5] y[h*1.0] y[p*1.0] y[i,0] y[None,i+3] z[...,i] z[i,...] y[::h-h] y['a'] y[...,...] z[p,q]
    z[b0[i,:4],q]
"""
BAD_WRITES = """
    y[i+3]=1 y[-i-3]=2 y[p+i]=3 z[i,0]=4 z[p,i]=5 v[i+2]=6 y[b]=7 y[:3]=p y[p]=p[:3] z[0]=p y[i:i+2]=y[:i] z[p]=p
    y[k+i]=1 x[b0[i]]=y
"""
# what is traced turn by turn: steps of no known sign, views of one element, masks of what has changed
REFUSED = """
    y[::h+1] z[::h+1,h] z[::h+1,np.newaxis] y[::h+1]=-y[::h+1] z[::h+1,h]=i z[::h+1,np.newaxis]=9
    np.take(y,p,mode='wrap') np.take(y,p+9,mode='clip') y[::h+1]=i y[::h+1]+=1 w=y[i,...];w[...]=9;r=y
    w=y[i,...];w+=1;r=y w=y[i,...];y[i]=9;r=w w=y[::i%3+1];w[1:]=9;r=y
    w=y[::i%3+1][::2];w[1:]=9;r=y
"""
VALUES = ("9", "i", "k*2", "-ARRAY[KEY]")
KEYS = _keys()
ARGUMENTS = ("x", "y", "z", "t", "ints", "halves", "b0", "mm0", "y0")
TEXT = """
def function(ARGUMENTS, out):
    for i in range(N):
        NAMES
        BODY
        DIGEST
    return out
"""


def statements(kind: str, expression: str) -> list[str]:
    return ["r = " + expression] if kind == "read" else expression.split(";")


def digest(kind: str, axes: tuple[int, ...]) -> str:
    """Statements that put into `out` what `r` holds, in which order, how long it is."""
    if kind == "write":
        return "out[i, 0] = i"
    lines = ["out[i, 0] = r * 1" if not axes[0] else "out[i, 0] = np.sum(r)", "out[i, 1] = np.ndim(r)"]
    if axes[0]:
        lines += [f"out[i, {2 + a}] = r.shape[{a}]" for a in range(axes[0])]
        for a in range(axes[0]):
            first = ", ".join(":" if other == a else "0" for other in range(axes[0]))
            if min(axes[1:]):
                lines += [f"line = r[{first}]", f"out[i, {7 + a}] = np.sum(line * y0[:len(line)])"]
    return "\n        ".join(lines)


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (N, N + 2)).astype("f8")
    y = np.array([3.0, -1, 4, 2, -5, 9, 2, 0, -3, 1, 2])
    z = rng.integers(-4, 5, (4, 5)).astype("f8")
    ints, halves = np.array([2, -1, 0, 3]), rng.integers(0, 3, N).astype("i4")
    b0 = rng.integers(0, 2, (N, N)).astype("?")
    mm0 = rng.integers(0, 2, (4, 5)).astype("?")
    b0[:, 0] = True
    t = rng.integers(-4, 5, (4, 5, 4)).astype("f8")
    return x, y, z, t, ints, halves, b0, mm0, 1.0 + np.arange(N + 2), np.zeros((N, 13))


def program(folder: Path, kind: str, expression: str, axes: tuple[int, ...]) -> Any:
    body = "\n        ".join(statements(kind, expression))
    text = TEXT.replace("ARGUMENTS", ", ".join(ARGUMENTS)).replace(
        "NAMES", NAMES.strip().replace("\n    ", "\n        ")
    )
    text = text.replace("BODY", body).replace("DIGEST", digest(kind, axes))
    file = folder / "loop.py"
    file.write_text(f"import numpy as np\nN = {N}\n" + textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location("loop", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.function


def axes_of(kind: str, expression: str) -> tuple[int, ...]:
    """The number of axes of what is read, and the least of each of its lengths."""
    if kind == "write":
        return (0,)
    given = arguments()
    shapes: list[tuple[int, ...]] = []
    for i in range(N):
        names = {"np": np, "N": N, "i": i, **dict(zip(ARGUMENTS, given, strict=False))}
        exec(textwrap.dedent(NAMES), names)
        body = "\n".join(statements(kind, expression))
        try:
            exec(body, names)
        except (IndexError, ValueError, TypeError):
            continue
        shapes.append(np.shape(names["r"]))
    if not shapes:
        return (0,)
    return (len(shapes[0]), *(min(lengths) for lengths in zip(*shapes, strict=True)))


def result(function: Any) -> Any:
    """What it writes and gives, or its error."""
    given = arguments()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return [*given, np.array(function(*given))]
        except (TypeError, ValueError, IndexError) as error:
            return type(error)


def written(n: int, array: str, key: str) -> str:
    """An assignment to what a key chooses."""
    return f"{array}[{key}]=" + VALUES[n % len(VALUES)].replace("ARRAY", array).replace("KEY", key)


CASES = [
    *(("read", f"{array}[{key}]") for array, key in KEYS),
    *(("write", written(n, *key)) for n, key in enumerate(KEYS)),
    *(("read", e) for e in (READS + BAD_READS).split()),
    *(("write", e) for e in (WRITES + BAD_WRITES).split()),
    *(("alias", e) for e in ALIASES.split()),
]


@pytest.fixture
def notes() -> Iterator[list[KnownLoops]]:
    with recorded() as found:
        yield found


def outcome(folder: Path, kind: str, expression: str) -> tuple[Any, Any]:
    function = program(folder, kind, expression, axes_of(kind, expression))
    return result(kg.kernel_graph(function, device="cpu")), result(function)


@pytest.mark.parametrize(("kind", "expression"), CASES)
def test_indexing_in_a_loop_is_numpys(notes: list[KnownLoops], tmp_path: Path, kind: str, expression: str) -> None:
    found, expected = outcome(tmp_path, kind, expression)
    if isinstance(expected, type) or isinstance(found, type):
        assert isinstance(found, type) and isinstance(expected, type) and issubclass(found, expected)
        return
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(n.reasons for n in notes) == (expression in REFUSED.split()), [n.reasons for n in notes]
