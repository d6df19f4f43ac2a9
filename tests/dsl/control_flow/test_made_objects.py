"""What a decision, a loop or an error that values decide does to objects which the function has made: as Python does.

Each function makes an object of one kind, changes it where values decide so, in one of five ways, and reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.random_cases import names_in_file

PRELUDE = """
import array, collections, contextvars, decimal, enum, functools, io, itertools, random, types, weakref
import numpy as np


class A:
    k = 1.0


class B(A):
    k = 2.0


class Slots:
    __slots__ = ("v",)

    def __init__(self):
        self.v = 1.0


class Failure(Exception):
    pass
"""
# what makes an object, what changes it, what reads it
ROWS = (
    ("e = ValueError(1.0)", "e.args = (2.0,)", "e.args[0]"),
    ("e = ValueError(1.0)", "e.note = 2.0", "getattr(e,'note',1.0)"),
    ("e = Failure(1.0)", "e.args = (2.0,)", "e.args[0]"),
    ("e = Failure(1.0)", "e.__cause__ = ValueError(1)", "(1.0 if e.__cause__ is None else 2.0)"),
    ("def e(v=1.0):\n        return v", "e.__defaults__ = (2.0,)", "e()"),
    ("def e(v=1.0):\n        return v", "e.note = 2.0", "getattr(e,'note',1.0)"),
    ("e = lambda: 1.0", "e.__code__ = (lambda: 2.0).__code__", "e()"),
    ("e = lambda *, v=1.0: v", "e.__kwdefaults__ = {'v': 2.0}", "e()"),
    ("e = lambda *, v=1.0: v", "e.__kwdefaults__['v'] = 2.0", "e()"),
    ("e = functools.partial(float, 1.0)", "e.__setstate__((float,(2.0,),{},{}))", "e()"),
    ("e = functools.partial(float, 1.0)", "e.note=2.0", "getattr(e,'note',1.0)"),
    ("e = functools.partial(dict, a=1.0)", "e.keywords['a']=2.0", "e()['a']"),
    ("class e:\n        k = 1.0", "e.k = 2.0", "e.k"),
    ("class e:\n        k = 1.0", "e.j = 2.0", "getattr(e,'j',1.0)"),
    ("class e:\n        k = 1.0", "del e.k", "getattr(e,'k',5.0)"),
    ("e = {1.0}", "e.add(2.0)", "float(len(e))"),
    ("e = collections.deque([1.0])", "e.append(2.0)", "e[-1]"),
    ("e = collections.deque([1.0])", "e[0]=2.0", "e[-1]"),
    ("e = bytearray(b'a')", "e[0]=5", "float(e[0])"),
    ("e = array.array('d',[1.0])", "e[0]=5", "float(e[0])"),
    ("e = memoryview(bytearray(b'a'))", "e[0]=5", "float(e[0])"),
    ("e = collections.defaultdict(float)", "e.default_factory=lambda: 3.0", "e['q']"),
    ("e = collections.Counter(a=1)", "e['a']+=1", "float(e['a'])"),
    ("e = io.StringIO()", "e.write('a')", "float(len(e.getvalue()))"),
    ("e = random.Random(3)", "e.seed(4)", "e.random()"),
    ("e = np.random.default_rng(3)", "e.random()", "e.random()"),
    ("e = contextvars.ContextVar('e', default=1.0)", "e.set(2.0)", "e.get()"),
    ("e = types.CellType(1.0)", "e.cell_contents=2.0", "e.cell_contents"),
    ("e = types.SimpleNamespace(a=1.0)", "e.a=2.0", "e.a"),
    ("e = A()", "e.__class__=B", "e.k"),
    ("e = Slots()", "e.v=2.0", "e.v"),
    ("e = np.array([1.0])", "e[0]=2.0", "e[0]"),
    ("e = np.ma.array([1.0,2.0])", "e[0]=2.0", "e.sum()"),
    ("e = np.array([1.0],object)", "e[0]=2.0", "e[0]"),
    ("e = types.ModuleType('m')", "e.a=2.0", "getattr(e,'a',1.0)"),
    ("e = itertools.count(1.0)", "next(e)", "next(e)"),
    ("e = [types.MappingProxyType({})]; d={'a':1.0}; e=[types.MappingProxyType(d)]", "d['a']=2.0", "e[0]['a']"),
    ("e = collections.ChainMap({'a':1.0})", "e['a']=2.0", "e['a']"),
    ("e = collections.UserDict(a=1.0)", "e['a']=2.0", "e['a']"),
    ("e = collections.UserList([1.0])", "e.append(2.0)", "e[-1]"),
    ("e = property(lambda s: 1.0)\n    class Q:\n        p = e", "Q.p = 2.0", "Q().p"),
    ("e = staticmethod(lambda: 1.0)", "e.note = 2.0", "getattr(e,'note',1.0)"),
    ("e = decimal.Context(prec=3)", "e.prec = 5", "float(e.divide(decimal.Decimal(1),decimal.Decimal(3)))"),
    ("e = enum.Enum('E','A')", "e.note = 2.0", "getattr(e,'note',1.0)"),
    ("e = weakref.WeakValueDictionary(); a=A()", "e['a']=a", "float(len(e))"),
    ("e = functools.lru_cache(lambda a: a)", "e(1)", "float(e.cache_info().currsize)"),
)
FORMS = {
    "a branch": "if x.sum() > 0:\n    $change",
    "a loop": "while x.sum() > 0:\n    $change\n    x = x - 9",
    "before an error": "if x.sum() > 0:\n    $change\n    if x[0] > 7:\n        raise ValueError('a')",
    "branches of a loop": "for i in range(3):\n    if x[0] > i:\n        $change",
    "a try": "try:\n    if x.sum() > 0:\n        $change\n        raise ValueError('a')\nexcept ValueError:\n    pass",
}


def outcome(function: Any, x: float) -> str:
    try:
        return repr(np.asarray(function(np.full(2, x))))
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_an_object_that_the_function_has_made_is_as_in_python(form: str, tmp_path: Path) -> None:
    wrong = []
    for number, (make, change, read) in enumerate(ROWS):
        body = FORMS[form].replace("$change", change).replace("\n", "\n    ")
        text = f"{PRELUDE}\n\ndef f(x):\n    y = x\n    {make}\n    {body}\n    return y * {read}\n"
        f = names_in_file([text], tmp_path, f"row{number}")["f"]
        traced = kg.kernel_graph(f, device="cpu")
        for x in (1.5, -1.0, 8.0):
            got, wanted = outcome(traced, x), outcome(f, x)
            if got != wanted:
                wrong.append(f"{make}; {change}: {read} at {x} is {got}, not {wanted}")
    assert not wrong, "\n".join(wrong)
