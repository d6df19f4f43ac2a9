"""What random worlds are made of: values, layers that hold a value, and roots that a traced function starts from.

In the texts `$o` is the holder, `$v` the value that it holds or is given, `$C` a name of the layer's own.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = """\
import abc, argparse, array, collections, collections.abc, contextvars, copy, dataclasses, datetime, decimal, enum
import fractions, functools, io, logging, pathlib, random, re, uuid
import itertools, operator, sys, threading, types, typing, weakref
import kernelgraph as kg
import numpy as np


def attribute_or(o):
    try:
        return o.a
    except AttributeError:
        return 7.0


def item_or(o, k):
    try:
        return o[k]
    except (KeyError, IndexError):
        return 7.0


def first(o):
    for v in o:
        return v
    return 7.0


def by_match(o):
    match o:
        case {"k": v}:
            return v
        case [v, *_]:
            return v
    return 7.0


def identity(v):
    return v


def scaled(k):
    def times(q):
        return q * k

    return times


def classed(k):
    return type("K", (), {"gain": k, "__init__": lambda self, n: setattr(self, "n", n * k)})


def boxed(v):
    out = np.empty(1, object)
    out[0] = v
    return out


class Colour(enum.IntEnum):
    RED = 2
    BLUE = 3
"""


@dataclass(frozen=True)
class Kind:
    """Values of one kind, what a function may do with one, and how one is changed in place."""

    values: tuple[str, ...]
    uses: tuple[str, ...]
    inside: tuple[str, ...] = ()
    hashable: bool = False


_SEQUENCE = (
    *("x * sum(v)", "x * len(v)", "x * v[0]", "(x, v)", "x * v[-1]", "x * max(v)", "x * (2 if v else 3)"),
    *("x * sum(a for a in v)", "x * first(v)", "x * (2 if 2 in v else 3)", "x * sum(a * b for a, b in enumerate(v))"),
    *("x * v.index(2)", "x * v.count(1)", "x * sorted(v)[0]", "x * sum(reversed(v))", "x * sum(map(float, v))"),
)
KINDS = {  # one nan for both modules: the place of a nan in a set is that of its address
    "number": Kind(
        (
            *("2", "2.0", "True", "3", "0", "0.0", "-0.0", "1", "1.0", "False", "np.float64(2.0)", "np.float32(2.0)"),
            *("np.int8(2)", "(2 + 0j)", "np.nan", "np.bool_(True)", "np.array(2.0)", "Colour.RED", "Colour.BLUE"),
        ),
        (
            *("x * v", "x + v", "(x * v if v else x)", "x * (2 if v > 1 else 3)", "(x, v)", "x * (v == 2)", "v * x"),
            *("x * (2 if type(v) is int else 3 if type(v) is float else 4)", "x * (2 if isinstance(v, float) else 3)"),
            *(
                "np.full(2, v)",
                "x * len(str(v))",
                "x * len(f'{v}')",
                "x * {1: 2.0, 2: 3.0}.get(v, 5.0)",
                "(x * 1, [v])",
            ),
            *(
                "x * float(v)",
                "x * int(v)",
                "x * bool(v)",
                "x * (2 if v is True else 3)",
                "np.arange(int(v) + 1) + x[0]",
            ),
            *(
                "x * np.asarray(v)",
                "np.array([v, 1]) * x",
                "x * max(v, 1)",
                "(x * v, -v)",
                "x * (v, 9)[0]",
                "x * abs(v)",
            ),
            *("x * np.float32(v)", "x * v ** 2", "np.where(x > 1, v, x)", "x.astype('f4') * v", "x.astype('i4') + v"),
        ),
        hashable=True,
    ),
    "text": Kind(
        ("'ab'", "'cd'", "''", "np.str_('ab')", "'abc'"),
        (
            *("x * len(v)", "x * (2 if v == 'ab' else 3)", "x * {'ab': 2.0, 'cd': 3.0}.get(v, 4.0)", "(x, v)"),
            *("x * (2 if 'a' in v else 3)", "x * ord((v + 'z')[0])", "x * (2 if v.startswith('a') else 3)"),
            *("x * (2 if v else 3)", "x * (2 if type(v) is str else 3)", "x * len(v.upper() + 'x')"),
        ),
        hashable=True,
    ),
    "none": Kind(
        ("None", "2.0", "0", "None"),
        ("(x if v is None else x * v)", "x * (v or 3.0)", "(x, v)", "x * (2 if v == None else 3)", "x[v]"),
        hashable=True,
    ),
    "tuple": Kind(
        ("(1.0, 2.0)", "(1.0, 2.0, 3.0)", "(2, 1)", "()", "(1, 2.0)", "(True, 2)", "(1, 2)", "(-0.0, 2)"),
        (*_SEQUENCE, "x * (2 if v == (1, 2) else 3)", "x + np.zeros(v).size"),
        hashable=True,
    ),
    "list": Kind(
        ("[1.0, 2.0]", "[1.0, 2.0, 3.0]", "[2, 1]", "[1, 2.0]", "[True, 2]", "[1, 2]", "[]"),
        (*_SEQUENCE, "x * (2 if v == [1, 2] else 3)", "x * np.array(v)[0]", "(x, v[:1])", "(x, [*v])"),
        ("$v.append(4.0)", "$v.pop()", "$v[0] = 9.0", "$v.reverse()", "$v[:] = [5.0]", "$v.clear()", "$v[0] = True"),
    ),
    "dict": Kind(
        ("{'p': 1.0}", "{'p': 2.0, 'q': 3.0}", "{'q': 3.0, 'p': 2.0}", "{}", "{'p': 1}", "{1: 2.0}"),
        (
            *("x * sum(v.values())", "x * len(v)", "x * v['p']", "x * v.get('p', 4.0)", "x * (2 if 'q' in v else 3)"),
            *("(x, v)", "x * [*v.values()][0]", "x * ([*v].index('p') + 2)", "x * dict(v, p=5.0)['p']", "(x, {**v})"),
            *(
                "x * (2 if v else 3)",
                "x * sum(b for a, b in v.items())",
                "x * next(iter(v.values()))",
                "x * by_match(v)",
            ),
            *("x * (2 if v == {'p': 1} else 3)", "x * (v | {'z': 5.0})['z']", "x * len([k for k in v if k == 'p'])"),
        ),
        (
            "$v.update(p=4.0)",
            "$v['r'] = 5.0",
            "$v.pop('p')",
            "$v['p'] = $v.pop('p')",
            "$v.clear()",
            "$v.update(p=True)",
        ),
    ),
    "set": Kind(
        ("{1, 2}", "{1}", "frozenset((1, 2))", "{2.0}", "{True}"),
        (
            "x * len(v)",
            "x * sum(v)",
            "x * (2 if 2 in v else 3)",
            "x * max(v)",
            "x * sorted(v)[0]",
            "(x, v)",
            "x * len(v | {7})",
        ),
        ("$v.add(5)", "$v.discard(1)", "$v.clear()"),
    ),
    "array": Kind(
        (
            *("np.array([1.0, 2.0])", "np.array([1, 2])", "np.array([1.0, 2.0], 'f4')", "np.array([True, False])"),
            *("np.array([3.0])", "np.array([[1.0], [2.0]])", "np.array([2.0, 1.0])[::-1]", "np.ones((2, 2)).T"),
        ),
        (
            *(
                "x * v",
                "x * v.sum()",
                "x * len(v)",
                "(x, v)",
                "x * v[0]",
                "x * float(v.ravel()[0])",
                "x * (2 if v.any() else 3)",
            ),
            *("x * (2 if v.dtype == 'f8' else 3)", "x * v.ndim", "x * v.tolist()[0]", "x * v.flat[0]", "np.dot(x, v)"),
            *(
                "x * np.asarray(v)",
                "x * v.shape[0]",
                "x * max(v.ravel())",
                "x * v.astype('f4')",
                "x * v.copy()",
                "x * (v > 1)",
            ),
            *(
                "x * int(v.ravel()[0])",
                "x * v.mean()",
                "x * (2 if v is None else 3)",
                "x * v.T",
                "np.stack([x, v])",
                "x @ v",
            ),
        ),
        (
            "$v[0] = 9",
            "$v *= 2",
            "$v.shape = (1, -1)",
            "$v.fill(4)",
            "$v.sort()",
            "np.copyto($v, 3)",
            "$v.dtype = 'i4'",
        ),
    ),
    "words": Kind(
        (
            "np.array(['ab', 'cd'])",
            "np.array(['cd', 'ab'])",
            "np.array([b'ab', b'cd'])",
            "np.array(['ab', 'cd'], object)",
        ),
        (
            "x * (2 if v[0] == 'ab' else 3)",
            "x * (v == 'ab')",
            "x * len(v)",
            "x * {'ab': 2.0}.get(v[0], 3.0)",
            "x * len(v[0])",
        ),
        ("$v[0] = 'zz'", "$v[:] = $v[::-1].copy()", "$v.sort()"),
    ),
    "dates": Kind(
        ("np.array(['2020-01-01', '2021-01-01'], 'M8[D]')", "np.array(['2021-01-01', '2023-01-01'], 'M8[D]')"),
        ("x * (v > np.datetime64('2020-06-01'))", "x * (v[1] - v[0]).astype('f8')", "x * (v.astype('i8') % 5)"),
        ("$v[0] = np.datetime64('2022-01-01')",),
    ),
    "records": Kind(
        (
            "np.array([(1.0, 2), (3.0, 4)], [('p', 'f8'), ('q', 'i4')])",
            "np.array([(5.0, 2), (3.0, 4)], [('p', 'f8'), ('q', 'i4')])",
        ),
        ("x * v['p']", "x * v['q'].sum()", "x * v[0]['p']", "x * len(v.dtype.names)"),
        ("$v['p'] = 9.0", "$v[0] = (7.0, 7)"),
    ),
    "stdlib": Kind(
        (
            *(
                "datetime.date(2020, 1, 1)",
                "datetime.date(2021, 1, 2)",
                "fractions.Fraction(1, 2)",
                "fractions.Fraction(2)",
            ),
            *(
                "decimal.Decimal('2.5')",
                "range(3)",
                "range(4)",
                "slice(0, 1)",
                "slice(None)",
                "b'ab'",
                "b'c'",
                "np.dtype('f4')",
            ),
            *(
                "np.float32",
                "int",
                "Ellipsis",
                "bytearray(b'ab')",
                "array.array('d', [2.0])",
                "array.array('i', [2, 3])",
            ),
        ),
        (
            *(
                "x * v.year",
                "x * float(v)",
                "x * len(v)",
                "x[v]",
                "x.astype(v)",
                "x * v[0]",
                "x * v.day",
                "(x, v)",
                "x * sum(v)",
            ),
            *(
                "x * (2 if v == slice(None) else 3)",
                "x * len(str(v))",
                "np.zeros(2, v) + x",
                "x * v.numerator",
                "x * list(v)[0]",
            ),
        ),
        ("$v[0] = 9", "$v.append(5)"),
    ),
    "function": Kind(
        (
            "scaled(2.0)",
            "scaled(3)",
            "lambda q: q * 4.0",
            "np.negative",
            "abs",
            "functools.partial(np.multiply, 2.0)",
            "scaled(True)",
        ),
        (
            "v(x)",
            "[v(x), v(x * 2)]",
            "x * v(2.0)",
            "x * (2 if v is abs else 3)",
            "x * len(v.__name__)",
            "list(map(v, [x]))",
        ),
        ("$v.__closure__[0].cell_contents = 5.0", "$v.__code__ = (lambda q: q * 6.0).__code__", "$v.k = 3"),
    ),
    "class": Kind(
        ("classed(2.0)", "classed(3)", "classed(True)"),
        (
            *("x * v.gain", "x * v(2.0).n", "x * (2 if hasattr(v, 'gain') else 3)", "x * getattr(v, 'gain', 4.0)"),
            *("x * (2 if issubclass(v, int) else 3)", "x * getattr(v(1), 'extra', 4.0)", "v(x).n", "x * v(1).gain"),
        ),
        ("$v.gain = 9.0", "del $v.gain", "$v.extra = 8.0", "$v.__init__ = lambda self, n: setattr(self, 'n', n * 6.0)"),
    ),
}


@dataclass(frozen=True)
class Layer:
    """How a value is held: definitions, the holder's expression, ways to read it, to replace it, to do other things."""

    make: str
    reads: tuple[str, ...]
    changes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    defs: str = ""
    only: tuple[str, ...] = ()  # the kinds of values that it can hold, next to the value alone


_ATTRIBUTE = (
    *("$o.a", "$o.a", "getattr($o, 'a')", "getattr($o, 'a', 7.0)", "($o.a if hasattr($o, 'a') else 7.0)"),
    *("attribute_or($o)", "operator.attrgetter('a')($o)"),
)
_HELD = ("vars($o)['a']", "$o.__dict__['a']", "$o.__dict__.get('a', 7.0)", "copy.copy($o).a", "[*vars($o).values()][0]")
_OF_CLASS = tuple(
    f"($o.a if {condition} else 7.0)"
    for condition in ("type($o) is $C", "type($o) is type($C(1.0))", "$o.__class__ is $C", "{$C: True}.get(type($o))")
)
_SET = ("$o.a = $v", "$o.a = $v", "setattr($o, 'a', $v)")
_SETS = (*_SET, "$o.__dict__['a'] = $v", "vars($o).update(a=$v)", "$o.__dict__ = {'a': $v}")
_CLASS = (
    *("$C.a = 7.5", "$C.a = property(lambda self: 8.5)", "$C.__getattr__ = lambda self, n: 9.5"),
    "$C.__getattribute__ = lambda self, n: 9.5 if n == 'a' else object.__getattribute__(self, n)",
    "$o.__class__ = type('Other', ($C,), {'a': 6.5})",
    "$o.__class__ = type('Other', ($C,), {'a': property(lambda self: 6.5)})",
)
_KEY = (
    *("$o['k']", "$o['k']", "$o.get('k', 7.0)", "($o['k'] if 'k' in $o else 7.0)", "item_or($o, 'k')"),
    *("[*$o.values()][0]", "next(iter($o.values()))", "list($o.items())[0][1]", "{**$o}['k']", "dict($o)['k']"),
    *("by_match($o)", "operator.itemgetter('k')($o)", "[$o[k] for k in $o][-1]", "sorted($o.items())[0][1]"),
    *("copy.copy($o)['k']", "$o.__getitem__('k')", "{k: v for k, v in $o.items()}['k']"),
)
_KEYED = ("$o['k'] = $v", "$o['k'] = $v", "$o.update(k=$v)", "$o.update({'k': $v})")
_KEYS = ("del $o['k']", "$o['j'] = 1", "$o.pop('k')", "$o.clear()", "$o.update(z=2)", "$o.setdefault('j', 3)")
_PLACE = (
    *("$o[0]", "$o[0]", "$o[-1]", "first($o)", "[v for v in $o][0]", "next(iter($o))", "list($o)[0]", "item_or($o, 0)"),
    *(
        "(lambda v, *_: v)(*$o)",
        "[v for _, v in enumerate($o)][0]",
        "by_match($o)",
        "copy.copy($o)[0]",
        "tuple($o)[-1]",
    ),
    *("[b for a, b in zip('a', $o)][0]", "($o[0] if len($o) == 1 else 7.0)", "$o.__getitem__(0)"),
)
_PLACED = ("$o[0] = $v", "$o[0] = $v", "$o[-1] = $v", "($o.clear(), $o.append($v))", "($o.append($v), $o.reverse())")
_PLACES = ("del $o[0]", "$o.append(1)", "$o.insert(0, 1)", "$o.clear()", "$o.extend([1, 2])", "$o.pop()")
_CALL = ("$o()", "$o()", "[$o() for _ in range(2)][1]", "(lambda g: g())($o)")
_INIT = "    def __init__(self, a):\n        self.a = a\n"

LAYERS = {
    "object": Layer(
        "$C($v)", _ATTRIBUTE + _HELD + _OF_CLASS, _SETS, ("del $o.a", "$o.b = 1", *_CLASS), "class $C:\n" + _INIT
    ),
    "class attribute": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "type($o).a", "$o.__class__.a", "$C.a"),
        ("$C.a = $v", "$C.a = $v", "$o.a = $v", "type($o).a = $v", "vars($o).update(a=$v)"),
        ("del $C.a", "$o.a = 7.5", "$C.b = 1", *_CLASS),
        "class $C:\n    pass\n\n\ndef $C_made(v):\n    $C.a = v\n    return $C()\n",
    ),
    "class": Layer(
        "type('K', ($CBase,), {'a': $v})",
        (*_ATTRIBUTE, "$o().a", "vars($o)['a']", "$o.__mro__[0].a", "$o.__dict__.get('a', 7.0)"),
        (*_SET, "type.__setattr__($o, 'a', $v)"),
        ("del $o.a", "$CBase.a = 6.5", "$CBase.__init__ = lambda self: setattr(self, 'a', 4.0)"),
        "class $CBase:\n    pass\n",
    ),
    "inherited": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "super($C, $o).a", "$CB.a", "$o.get()"),
        ("$CB.a = $v", "$CB.a = $v", "$C.a = $v", "$o.a = $v"),
        ("del $CB.a", "$C.__bases__ = ($CO,)", "$CB.get = lambda self: 8.5", "$C.get = lambda self: 5.5"),
        "class $CB:\n    def get(self):\n        return self.a\n\n\nclass $CO:\n    a = 4.5\n\n"
        "    def get(self):\n        return 3.5\n\n\nclass $C($CB):\n    pass\n\n\n"
        "def $C_made(v):\n    $CB.a = v\n    return $C()\n",
    ),
    "slots": Layer(
        "$C($v)",
        _ATTRIBUTE,
        (*_SET, "$C.a.__set__($o, $v)"),
        ("del $o.a", "$o.b = 1", "$C.c = 1"),
        "class $C:\n    __slots__ = ('a', 'b')\n\n" + _INIT,
    ),
    "dataclass": Layer(
        "$C($v)",
        (*_ATTRIBUTE, *_HELD, "dataclasses.astuple($o)[0]", "dataclasses.replace($o, b=2).a"),
        _SETS,
        ("del $o.a", "$o.b = 2", *_CLASS),
        "@dataclasses.dataclass\nclass $C:\n    a: typing.Any\n    b: int = 1\n",
    ),
    "frozen dataclass": Layer(
        "$C($v)",
        _ATTRIBUTE,
        ("object.__setattr__($o, 'a', $v)",),
        ("$C.b = 1", *_CLASS[:3]),
        "@dataclasses.dataclass(frozen=True)\nclass $C:\n    a: typing.Any\n",
    ),
    "slots dataclass": Layer(
        "$C($v)", _ATTRIBUTE, _SET, ("del $o.a",), "@dataclasses.dataclass(slots=True)\nclass $C:\n    a: typing.Any\n"
    ),
    "property": Layer(
        "$C($v)",
        _ATTRIBUTE,
        ("$o.held = $v", "$o.held = $v", "$o.a = $v"),
        ("$C.a = property(lambda self: 8.5)", "del $o.held", "del $C.a", "$o.__dict__['a'] = 5.5"),
        "class $C:\n    def __init__(self, a):\n        self.held = a\n\n    @property\n    def a(self):\n"
        "        return self.held\n\n    @a.setter\n    def a(self, v):\n        self.held = v\n",
    ),
    "descriptor": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "$C.a"),
        ("vars($C)['a'].held = $v", "$CD.held = $v"),
        (
            "$CD.__get__ = lambda self, o, kind: 8.5",
            "$o.__dict__['a'] = 5.5",
            "$CD.__set__ = lambda self, o, v: None",
            "$C.a = 4.5",
        ),
        "class $CD:\n    held = 1.0\n\n    def __get__(self, o, kind):\n        return self.held\n\n\n"
        "class $C:\n    a = $CD()\n\n\n"
        "def $C_made(v):\n    vars($C)['a'].held = v\n    return $C()\n",
    ),
    "data descriptor": Layer(
        "$C($v)",
        _ATTRIBUTE,
        ("$o.a = $v", "$o._a = $v", "setattr($o, 'a', $v)"),
        ("$o.__dict__['a'] = 5.5", "$CD.__get__ = lambda self, o, kind=None: 8.5", "del $o._a"),
        "class $CD:\n    def __set_name__(self, owner, name):\n        self.name = '_' + name\n\n"
        "    def __get__(self, o, kind=None):\n        return getattr(o, self.name)\n\n"
        "    def __set__(self, o, v):\n        setattr(o, self.name, v)\n\n\nclass $C:\n    a = $CD()\n\n" + _INIT,
    ),
    "__getattr__": Layer(
        "$C($v)",
        _ATTRIBUTE,
        ("$o.store['a'] = $v", "$o.a = $v", "$C.a = $v"),
        ("$o.store.clear()", "$C.__getattr__ = lambda self, n: 8.5", "$o.store = {'a': 4.5}", "del $C.__getattr__"),
        "class $C:\n    def __init__(self, a):\n        self.store = {'a': a}\n\n    def __getattr__(self, n):\n"
        "        if n not in self.store:\n            raise AttributeError(n)\n        return self.store[n]\n",
    ),
    "__getattribute__": Layer(
        "$C($v)",
        _ATTRIBUTE,
        ("object.__getattribute__($o, 'store')['a'] = $v", "$o.store['a'] = $v"),
        ("$o.store.clear()", "$C.__getattribute__ = lambda self, n: 8.5", "del $C.__getattribute__"),
        "class $C:\n    def __init__(self, a):\n        self.store = {'a': a}\n\n    def __getattribute__(self, n):\n"
        "        if n == 'a':\n            return self.store[n]\n        return object.__getattribute__(self, n)\n",
    ),
    "metaclass": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "type($o).a"),
        ("$CM.a = $v", "$o.a = $v"),
        ("del $CM.a", "$CM.__getattr__ = lambda cls, n: 8.5", "$CM.a = property(lambda cls: 5.5)"),
        "class $CM(type):\n    pass\n\n\nclass $C(metaclass=$CM):\n    pass\n\n\n"
        "def $C_made(v):\n    $CM.a = v\n    return $C\n",
    ),
    "metaclass property": Layer(
        "$C_made($v)",
        _ATTRIBUTE,
        ("$o.held = $v",),
        ("$CM.a = property(lambda cls: 8.5)", "del $CM.a"),
        "class $CM(type):\n    @property\n    def a(cls):\n        return cls.held\n\n\n"
        "def $C_made(v):\n    return $CM('K', (), {'held': v})\n",
    ),
    "cached_property": Layer(
        "$C($v)",
        _ATTRIBUTE,
        ("$o.held = $v", "$o.__dict__['a'] = $v", "($o.__dict__.pop('a', None), setattr($o, 'held', $v))", "$o.a = $v"),
        ("$o.__dict__.pop('a', None)", "$C.a = 4.5"),
        "class $C:\n    def __init__(self, a):\n        self.held = a\n\n    @functools.cached_property\n"
        "    def a(self):\n        return self.held\n",
    ),
    "NamedTuple": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "$o[0]", "$o._asdict()['a']", "$o._replace(b=1).a", "first($o)", "(lambda a, b: a)(*$o)"),
        (),
        (
            "$C.a = property(lambda self: 8.5)",
            "$C.__getitem__ = lambda self, i: 6.5",
            "$C.__iter__ = lambda self: iter([5.5, 1])",
        ),
        "class $C(typing.NamedTuple):\n    a: typing.Any\n    b: int = 2\n",
    ),
    "SimpleNamespace": Layer(
        "types.SimpleNamespace(a=$v)", _ATTRIBUTE + _HELD, _SETS[:-1], ("del $o.a", "$o.b = 1", "$o.__dict__.clear()")
    ),
    "argparse.Namespace": Layer("argparse.Namespace(a=$v)", (*_ATTRIBUTE, *_HELD), _SETS, ("del $o.a", "$o.b = 1")),
    "threading.local": Layer(
        "$C_made($v)",
        _ATTRIBUTE,
        _SET,
        ("del $o.a",),
        "def $C_made(v):\n    o = threading.local()\n    o.a = v\n    return o\n",
    ),
    "module": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "vars($o)['a']", "$o.get()", "$o.get()", "$o.either()"),
        (*_SET, "$o.__dict__['a'] = $v"),
        ("del $o.a", "$o.get = lambda: 8.5", "$o.__getattr__ = lambda n: 6.5", "$o.b = 1", "$o.either = $o.get"),
        "def $C_made(v):\n    o = types.ModuleType('$C')\n"
        "    text = 'def get():\\n    return a\\n\\n\\ndef either():\\n"
        "    try:\\n        return a\\n    except NameError:\\n        return 7.0\\n'\n"
        "    exec(compile(text, __file__, 'exec'), o.__dict__)\n    o.a = v\n    return o\n",
    ),
    "list": Layer("[$v]", _PLACE, _PLACED, _PLACES),
    "tuple": Layer("($v,)", _PLACE),
    "list subclass": Layer(
        "$C([$v])",
        (*_PLACE, "$o.a"),
        (*_PLACED, "$o.a = $v"),
        (*_PLACES, "$C.__getitem__ = lambda self, i: 8.5", "$C.__iter__ = lambda self: iter([6.5])", "$C.a = 5.5"),
        "class $C(list):\n    @property\n    def head(self):\n        return self[0]\n",
    ),
    "tuple subclass": Layer(
        "$C(($v,))",
        (*_PLACE, "$o.head"),
        (),
        ("$o.b = 1", "$C.__getitem__ = lambda self, i: 8.5", "$C.head = 4.5", "$C.__len__ = lambda self: 3"),
        "class $C(tuple):\n    @property\n    def head(self):\n        return self[0]\n",
    ),
    "deque": Layer(
        "collections.deque([$v])",
        _PLACE,
        ("$o[0] = $v", "($o.clear(), $o.append($v))"),
        (*_PLACES, "$o.appendleft(1)", "$o.rotate(1)"),
    ),
    "UserList": Layer("collections.UserList([$v])", (*_PLACE, "$o.data[0]"), (*_PLACED, "$o.data[0] = $v"), _PLACES),
    "dict": Layer("{'k': $v}", _KEY, (*_KEYED, "$o.__setitem__('k', $v)", "$o.__ior__({'k': $v})"), _KEYS),
    "OrderedDict": Layer(
        "collections.OrderedDict(k=$v)",
        _KEY,
        (*_KEYED, "dict.__setitem__($o, 'k', $v)"),
        (*_KEYS, "dict.pop($o, 'k')", "dict.__setitem__($o, 'j', 3)", "($o.update(j=1), $o.move_to_end('k'))"),
    ),
    "defaultdict": Layer(
        "collections.defaultdict(float, k=$v)",
        (*_KEY, "$o['k']"),
        _KEYED,
        (*_KEYS, "setattr($o, 'default_factory', int)"),
    ),
    "Counter": Layer("collections.Counter({'k': $v})", _KEY, _KEYED[:1], ("del $o['k']", "$o['j'] = 1", "$o.clear()")),
    "ChainMap": Layer(
        "collections.ChainMap({}, {'k': $v})",
        (*_KEY, "$o.maps[-1]['k']"),
        ("$o['k'] = $v", "$o.maps[1]['k'] = $v", "$o.maps.insert(0, {'k': $v})"),
        ("$o.maps[1].clear()", "$o['j'] = 1", "$o.maps[0]['k'] = 6.5"),
    ),
    "UserDict": Layer(
        "collections.UserDict(k=$v)",
        (*_KEY, "$o.data['k']"),
        (*_KEYED, "$o.data['k'] = $v", "$o.data = {'k': $v}"),
        _KEYS,
    ),
    "dict subclass": Layer(
        "$C(k=$v)",
        (*_KEY, "$o.a"),
        (*_KEYED, "dict.__setitem__($o, 'k', $v)", "dict.update($o, k=$v)"),
        (
            *_KEYS,
            "$C.__getitem__ = lambda self, k: 8.5",
            "$C.__missing__ = lambda self, k: 6.5",
            "$C.get = lambda *a: 5.5",
            "$o.a = 5.0",
        ),
        "class $C(dict):\n    def __missing__(self, k):\n        return 4.5\n\n    @property\n    def a(self):\n"
        "        return self['k']\n",
    ),
    "mappingproxy": Layer(
        "$C_made($v)",
        (*_KEY[:12],),
        ("$C_d['k'] = $v",),
        ("$C_d.clear()", "$C_d['j'] = 1"),
        "$C_d = {}\n\n\ndef $C_made(v):\n    $C_d['k'] = v\n    return types.MappingProxyType($C_d)\n",
    ),
    "values": Layer(
        "$C_made($v)",
        ("list($o)[0]", "first($o)", "next(iter($o))", "[v for v in $o][0]", "(list($o)[0] if len($o) == 1 else 7.0)"),
        ("$C_d['k'] = $v",),
        ("$C_d.clear()", "$C_d['j'] = 1"),
        "$C_d = {}\n\n\ndef $C_made(v):\n    $C_d['k'] = v\n    return $C_d.values()\n",
    ),
    "object array": Layer(
        "boxed($v)", ("$o[0]", "$o.item()", "$o.tolist()[0]", "first($o)"), ("$o[0] = $v",), ("$o.fill(3.5)",)
    ),
    "set": Layer(
        "{$v}",
        ("first($o)", "next(iter($o))", "max($o)", "list($o)[0]", "[v for v in $o][0]"),
        ("($o.clear(), $o.add($v))",),
        ("$o.add(9)", "$o.clear()"),
        only=("number", "text", "none", "tuple"),
    ),
    "frozenset": Layer(
        "frozenset([$v])", ("first($o)", "max($o)", "[v for v in $o][0]"), only=("number", "text", "none", "tuple")
    ),
    "array.array": Layer(
        "array.array('d', [$v])",
        (*_PLACE[:8], "$o.tolist()[0]", "np.asarray($o)[0]"),
        ("$o[0] = $v",),
        ("$o.append(1)", "$o.pop()"),
        only=("number",),
    ),
    "partial": Layer(
        "functools.partial(identity, $v)",
        (*_CALL, "$o.args[0]", "$o.func($o.args[0])"),
        ("$o.__setstate__((identity, ($v,), {}, {}))",),
        ("$o.__setstate__((lambda v: 8.5, $o.args, {}, {}))", "$o.b = 1"),
    ),
    "keyword partial": Layer(
        "functools.partial(identity, v=$v)",
        (*_CALL, "$o.keywords['v']"),
        ("$o.keywords['v'] = $v",),
        ("$o.keywords.clear()",),
    ),
    "bound method": Layer(
        "$C($v).get",
        (*_CALL, "$o.__self__.a", "$o.__self__.get()"),
        ("$o.__self__.a = $v",),
        (
            "$C.get = lambda self: 8.5",
            "del $o.__self__.a",
            "$o.__self__.get = lambda: 5.5",
            "$C.get.__defaults__ = None",
        ),
        "class $C:\n" + _INIT + "\n    def get(self):\n        return self.a\n",
    ),
    "method": Layer(
        "$C($v)",
        ("$o.get()", "$o.get()", "$C.get($o)", "(lambda o: o.get())($o)", "getattr($o, 'get', lambda: 7.0)()"),
        ("$o.a = $v",),
        (
            "$C.get = lambda self: 8.5",
            "$o.get = lambda: 5.5",
            "$C.get.__code__ = (lambda self: 6.5).__code__",
            "del $C.get",
        ),
        "class $C:\n" + _INIT + "\n    def get(self):\n        return self.a\n",
    ),
    "super": Layer(
        "$C($v)",
        ("$o.get()", "$o.get()", "$C.get($o)"),
        ("$o.a = $v",),
        ("$CB.get = lambda self: 8.5", "$C.get = lambda self: 5.5", "del $C.get", "$C.__bases__ = ($CO,)"),
        "class $CB:\n    def get(self):\n        return self.a\n\n\n"
        "class $CO:\n    def get(self):\n        return 3.5\n\n\n"
        "class $C($CB):\n" + _INIT + "\n    def get(self):\n        return super().get()\n",
    ),
    "classmethod": Layer(
        "$C_made($v)",
        ("$o.get()", "$o.get()", "$o().get()", "$o.other()"),
        ("$C.a = $v",),
        ("$C.get = lambda *_: 8.5", "$C.other = staticmethod(lambda: 6.5)"),
        "class $C:\n    @classmethod\n    def get(cls):\n        return cls.a\n\n    @staticmethod\n    def other():\n"
        "        return $C.a\n\n\ndef $C_made(v):\n    $C.a = v\n    return $C\n",
    ),
    "callable": Layer(
        "$C($v)",
        _CALL,
        ("$o.a = $v",),
        ("$C.__call__ = lambda self: 8.5", "del $o.a"),
        "class $C:\n" + _INIT + "\n    def __call__(self):\n        return self.a\n",
    ),
    "indexable": Layer(
        "$C($v)",
        (
            "$o[0]",
            "first($o)",
            "list($o)[0]",
            "[v for v in $o][0]",
            "($o[0] if len($o) == 1 else 7.0)",
            "($o[0] if $o else 6.0)",
        ),
        ("$o.a = $v",),
        (
            "$C.__getitem__ = lambda self, i: [8.5][i]",  # without an end, `list($o)` has none either
            "$C.__len__ = lambda self: 3",
            "$C.__iter__ = lambda self: iter([5.5])",
        ),
        "class $C:\n"
        + _INIT
        + "\n    def __getitem__(self, i):\n        return [self.a][i]\n\n    def __len__(self):\n        return 1\n",
    ),
    "container": Layer(
        "$C($v)",
        (
            "($o.a if 1 in $o else 7.0)",
            "($o.a if $o == 2 else 7.0)",
            "($o.a if $o else 6.0)",
            "($o + 1)",
            "(-$o)",
            "{$o: $o.a}[$o]",
        ),
        ("$o.a = $v",),
        (
            *(
                "$C.__contains__ = lambda self, i: False",
                "$C.__eq__ = lambda self, o: False",
                "$C.__bool__ = lambda self: False",
            ),
            *("$C.__add__ = lambda self, o: 8.5", "$C.__neg__ = lambda self: 5.5"),
        ),
        "class $C:\n" + _INIT + "\n    def __contains__(self, i):\n        return True\n\n    def __eq__(self, o):\n"
        "        return True\n\n    def __hash__(self):\n        return 1\n\n"
        "    def __add__(self, o):\n        return self.a\n\n"
        "    def __neg__(self):\n        return self.a\n",
    ),
    "iterable": Layer(
        "$C($v)",
        ("first($o)", "list($o)[0]", "[v for v in $o][0]", "(lambda v, *_: v)(*$o)", "next(iter($o))"),
        ("$o.a = $v",),
        ("$C.__iter__ = lambda self: iter([8.5])",),
        "class $C:\n" + _INIT + "\n    def __iter__(self):\n        yield self.a\n",
    ),
    "context": Layer(
        "$C($v)",
        ("$C_in($o)",),
        ("$o.a = $v",),
        ("$C.__enter__ = lambda self: 8.5",),
        "class $C:\n" + _INIT + "\n    def __enter__(self):\n        return self.a\n\n    def __exit__(self, *_):\n"
        "        return None\n\n\ndef $C_in(o):\n    with o as v:\n        return v\n",
    ),
    "function attribute": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "$o()", "vars($o)['a']"),
        (*_SET, "$o.__dict__['a'] = $v"),
        ("del $o.a", "$o.b = 1", "$o.__code__ = (lambda: 8.5).__code__"),
        "def $C_made(v):\n    def get():\n        return identity(get).a\n\n    get.a = v\n    return get\n",
    ),
    "closure": Layer(
        "$C($v)",
        (*_CALL, "$o.__closure__[0].cell_contents"),
        ("$o.__closure__[0].cell_contents = $v",),
        ("$o.b = 1",),
        "def $C(v):\n    def get():\n        return v\n\n    return get\n",
    ),
    "default": Layer(
        "$C($v)",
        (*_CALL, "$o.__defaults__[0]"),
        ("$o.__defaults__ = ($v,)",),
        ("$o.__code__ = (lambda v=1: 8.5).__code__", "$o.__defaults__ = None"),
        "def $C(a):\n    def get(v=a):\n        return v\n\n    return get\n",
    ),
    "keyword default": Layer(
        "$C($v)",
        (*_CALL, "$o.__kwdefaults__['v']"),
        ("$o.__kwdefaults__['v'] = $v", "$o.__kwdefaults__ = {'v': $v}"),
        ("$o.__kwdefaults__ = None",),
        "def $C(a):\n    def get(*, v=a):\n        return v\n\n    return get\n",
    ),
    "lru_cache": Layer(
        "functools.lru_cache($C($v))",
        _CALL,
        (
            "$o.__wrapped__.__closure__[0].cell_contents = $v",
            "($o.cache_clear(), setattr($o.__wrapped__.__closure__[0], 'cell_contents', $v))",
        ),
        ("$o.cache_clear()",),
        "def $C(v):\n    def get():\n        return v\n\n    return get\n",
    ),
    "enumeration": Layer(
        "enum.Enum('K', {'A': ($v, 0)})",
        ("$o.A.value[0]", "$o['A'].value[0]", "list($o)[0].value[0]"),
        ("$o.A._value_ = ($v, 0)",),
    ),
    "enumeration of numbers": Layer(
        "$C_made($v)",
        ("$o.A.held", "$o(1.5).held", "[m for m in $o][0].held", "($o.A.held if $o.A == 1.5 else 7.0)"),
        ("$o.A.held = $v",),
        ("$o.A.gain = 3.0",),
        "def $C_made(v):\n    class K(float, enum.Enum):\n        A = 1.5\n\n    K.A.held = v\n    return K\n",
    ),
    "number of a class": Layer(
        "$C(2.0, $v)",
        ("$o.held", "getattr($o, 'held')", "($o.held if $o.__class__ is $C else 7.0)", "($o.held if $o > 1 else 7.0)"),
        ("$o.held = $v",),
        ("$o.other = 1", "$C.__gt__ = lambda self, other: False"),
        "class $C(float):\n    def __new__(cls, number, held):\n        found = float.__new__(cls, number)\n"
        "        found.held = held\n        return found\n",
    ),
    "property object": Layer(
        "$C($v)",
        ("$o.fget(None)", "$o.__get__(0)"),
        ("$o.fget.__closure__[0].cell_contents = $v",),
        (),
        "def $C(v):\n    return property(lambda self: v)\n",
    ),
    "singledispatch": Layer(
        "$C($v)",
        ("$o(1)", "$o.dispatch(int)(1)", "$o.registry[int](1)", "$o(True)"),
        ("$o.register(int, $C_other($v))",),
        ("$o.register(bool, lambda i: 8.5)", "$o.register(float, lambda i: 8.5)"),
        "def $C_other(v):\n    return lambda i: v\n\n\n"
        "def $C(v):\n    found = functools.singledispatch(lambda i: 7.0)\n"
        "    found.register(int, lambda i: v)\n    return found\n",
    ),
    "super object": Layer(
        "$C_made($v)",
        ("$o.a", "$o.get()"),
        ("$C.a = $v",),
        ("$C.get = lambda self: 8.5", "$C.b = 1"),
        "class $C:\n    def get(self):\n        return self.a\n\n\ndef $C_made(v):\n    $C.a = v\n"
        "    kind = type('D', ($C,), {'__module__': __name__})\n    return super(kind, kind())\n",
    ),
    "method of a list": Layer(
        "[$v].__getitem__",
        ("$o(0)", "$o(-1)", "$o.__self__[0]"),
        ("$o.__self__[0] = $v",),
        ("$o.__self__.insert(0, 1)", "$o.__self__.append(1)"),
    ),
    "frozen dataclass with slots": Layer(
        "$C($v, 1.0)",
        (*_ATTRIBUTE, "dataclasses.astuple($o)[0]", "dataclasses.replace($o, b=2.0).a", "$C_match($o)", "$o.first()"),
        ("object.__setattr__($o, 'a', $v)",),
        (
            "$o.a = 1",
            "$C.first = lambda self: 8.5",
            "object.__setattr__($o, 'b', 5.0)",
            "$C.__match_args__ = ('b', 'a')",
        ),
        "@dataclasses.dataclass(frozen=True, slots=True)\nclass $C:\n    a: object\n    b: object\n\n"
        "    def first(self):\n        return self.a\n\n\n"
        "def $C_match(o):\n    match o:\n        case $C(v, _):\n            return v\n    return 7.0\n",
    ),
    "dataclass with defaults": Layer(
        "$C_made($v)",
        (*_ATTRIBUTE, "$C().a", "dataclasses.asdict($o)['a']", "dataclasses.fields($o)[0].default", "$o.made[0]"),
        ("$o.a = $v", "$C.a = $v", "$o.made[0] = $v", "$C.__init__.__defaults__ = ($v, None)"),
        ("$o.made.insert(0, 1)", "del $o.a"),
        "def $C_made(v):\n    global $C\n\n    @dataclasses.dataclass(unsafe_hash=True)\n    class $C:\n"
        "        a: object = v if type(v).__hash__ and not hasattr(v, '__set__') else None\n"
        "        made: list = dataclasses.field(default_factory=lambda: [v], hash=False)\n\n    return $C()\n",
    ),
    "NamedTuple with defaults": Layer(
        "$C($v, 1.0)",
        (
            *_PLACE[:8],
            "$o.a",
            "$o._replace(b=2.0).a",
            "$o._asdict()['a']",
            "$C_match($o)",
            "$o.first()",
            "$C._make($o).a",
        ),
        (),
        ("$C.first = lambda self: 8.5", "$C.a = property(lambda self: 6.5)", "$C.__getitem__ = lambda self, i: 5.5"),
        "class $C(typing.NamedTuple):\n    a: object\n    b: float = 3.0\n\n    def first(self):\n"
        "        return self.a\n\n\n"
        "def $C_match(o):\n    match o:\n        case $C(a=v):\n            return v\n    return 7.0\n",
    ),
    "TypedDict": Layer(
        "$C(k=$v)", _KEY, _KEYED, _KEYS, "class $C(typing.TypedDict, total=False):\n    k: object\n    j: object\n"
    ),
    "slots beside a dict": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "vars($o).get('b', 7.0)", "($o.b if hasattr($o, 'b') else $o.a)", "copy.copy($o).a"),
        ("$o.a = $v", "object.__setattr__($o, 'a', $v)", "$o.b = $v", "$C.a.__set__($o, $v)"),
        ("del $o.a", "object.__delattr__($o, 'a')", "$o.__dict__.clear()", "$C.b = 3.0"),
        "class $C:\n    __slots__ = ('a', '__dict__')\n\n" + _INIT,
    ),
    "getter": Layer(
        "(operator.itemgetter('k'), {'k': $v})",
        (
            "$o[0]($o[1])",
            "operator.methodcaller('get', 'k')($o[1])",
            "[*map($o[0], [$o[1]])][0]",
            "$o[1].get('k', 7.0)",
        ),
        ("$o[1]['k'] = $v",),
        ("$o[1].clear()", "$o[1].update(j=1)"),
    ),
    "folded": Layer(
        "[$v]",
        (
            *("functools.reduce(lambda a, b: b, $o, 7.0)", "next(itertools.chain($o, [7.0]))"),
            *(
                "next(itertools.islice($o, 1))",
                "[*itertools.repeat($o[0], 2)][1]",
                "[*itertools.zip_longest($o, [1, 2])][0][0]",
            ),
            *("[b for _, g in itertools.groupby($o, id) for b in g][0]", "[*itertools.product($o, [1])][0][0]"),
            *(
                "[*itertools.starmap(identity, [$o])][0]",
                "[*filter(lambda v: True, $o)][0]",
                "max($o, key=lambda v: 1)",
            ),
            *("sorted($o, key=lambda v: 1)[0]", "[*itertools.accumulate($o)][0]", "(lambda *v, **_: v)(*$o)[0]"),
        ),
        _PLACED,
        _PLACES,
    ),
    "generator function": Layer(
        "$C($v)",
        (
            "next($o())",
            "[*$o()][-1]",
            "[v for v in $o()][0]",
            "(lambda v, *_: v)(*$o())",
            "next(iter($o()))",
            "$C_sent($o())",
        ),
        ("$o.__closure__[0].cell_contents = $v", "$o.__closure__[0].cell_contents[0] = $v"),
        ("$o.__defaults__ = (2,)", "$o.__code__ = (lambda n=1: iter([8.5])).__code__"),
        "def $C(v):\n    held = v\n\n    def get(n=1):\n        for _ in range(n):\n            yield held\n\n"
        "    return get\n\n\ndef $C_sent(o):\n    try:\n        return o.send(None)\n    finally:\n        o.close()\n",
    ),
    "closures of a loop": Layer(
        "$C($v)",
        ("$o[0]()", "[f() for f in $o][-1]", "$o[1](2)", "(lambda f: f())($o[0])"),
        ("$o[0].__closure__[0].cell_contents = $v", "$o[1].__defaults__ = ($v,)", "$o[0] = lambda: identity($o[1]())"),
        ("$o.reverse()", "$o[1].__defaults__ = None"),
        "def $C(v):\n    found = []\n    for late in (1.0, v):\n        found.append(lambda early=late: early)\n"
        "    return [lambda: late, found[1]]\n",
    ),
    "cache with arguments": Layer(
        "$C($v)",
        ("$o(1)", "$o(n=1)", "$o('a')", "[$o(i) for i in range(2)][1]", "($o(1), $o(1))[1]"),
        ("$o.__wrapped__.__closure__[0].cell_contents = $v", "$o.__wrapped__.__defaults__ = ($v,)"),
        ("$o.cache_clear()", "$o(2)", "$o.a = 3"),
        "def $C(v):\n    @functools.cache\n    def get(n=0):\n        return v\n\n    return get\n",
    ),
    "member of an enumeration": Layer(
        "$C_made($v)",
        ("$o.gain()", "$o.held", "$o.value * 0 + 2.0", "type($o).A.gain()", "($o.held if $o is type($o).A else 7.0)"),
        ("$o.held = $v", "type($o).A.held = $v"),
        ("type($o).gain = lambda self: 8.5", "$o._value_ = 5.0", "$o.more = 1"),
        "def $C_made(v):\n    class K(enum.Enum):\n        A = 1.5\n        B = 2.5\n\n        def gain(self):\n"
        "            return self.held\n\n    K.A.held = v\n    return K.A\n",
    ),
    "descriptor with a method": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "type($o).a.own", "vars(type($o))['a'].read($o)"),
        ("$o.a = $v", "vars($o)['_a'] = $v", "$C.a.own = $v"),
        (
            "del $C.a",
            "$CD.read = lambda self, o: 8.5",
            "$CD.__get__ = lambda self, o, k=None: 5.5",
            "$o.__dict__['a'] = 6.5",
        ),
        "class $CD:\n    own = 3.0\n\n    def __get__(self, o, k=None):\n        return self if o is None "
        "else self.read(o)\n\n"
        "    def __set__(self, o, v):\n        o._a = v\n\n    def read(self, o):\n        return o._a\n\n\n"
        "class $C:\n    a = $CD()\n\n" + _INIT,
    ),
    "weak reference": Layer(
        "$C_made($v)",
        ("$o().a", "($o().a if $o() is not None else 7.0)"),
        ("$o().a = $v",),
        ("$C_kept.clear()",),
        "class $C:\n" + _INIT + "\n\n$C_kept = []\n\n\ndef $C_made(v):\n    $C_kept[:] = [$C(v)]\n"
        "    return weakref.ref($C_kept[0])\n",
    ),
    "exception": Layer("ValueError($v)", ("$o.args[0]", "first($o.args)"), ("$o.args = ($v,)",), ("$o.held = 1",)),
    "ContextVar": Layer(
        "$C_made($v)",
        ("$o.get()", "$o.get(7.0)"),
        ("$o.set($v)",),
        (),
        "def $C_made(v):\n    o = contextvars.ContextVar('$C')\n    o.set(v)\n    return o\n",
    ),
}


@dataclass(frozen=True)
class Root:
    """Where the function `$F` finds the outermost holder: $body is its body; rebind: how to replace it."""

    text: str
    read: str
    rebind: tuple[str, ...]
    call: str = "$F(x)"
    setup: str = ""


_F = "@deco\ndef $F(x):\n$body"
ROOTS = {
    "global": Root(_F, "$R", ("$R = $v", "globals()['$R'] = $v", "sys.modules[__name__].$R = $v")),
    "globals()": Root(_F, "globals()['$R']", ("$R = $v",)),
    "this module": Root(_F, "sys.modules[__name__].$R", ("$R = $v",)),
    "closure": Root(
        "def $F_made(r):\n    def set_(v):\n        nonlocal r\n        r = v\n\n"
        "    @deco\n    def f(x):\n$deeper\n    return f, set_\n\n\n"
        "$F, $F_set = $F_made($R)",
        "r",
        ("$F_set($v)",),
    ),
    "default": Root("def $F_plain(x, r=$R):\n$body\n\n$F = deco($F_plain)", "r", ("$F_plain.__defaults__ = ($v,)",)),
    "keyword default": Root(
        "def $F_plain(x, *, r=$R):\n$body\n\n$F = deco($F_plain)", "r", ("$F_plain.__kwdefaults__['r'] = $v",)
    ),
    "self": Root(
        "class $FK:\n    def __init__(self, r):\n        self.r = r\n\n"
        "    @deco\n    def f(self, x):\n$deeper\n\n$FO = $FK($R)",
        "self.r",
        ("$FO.r = $v", "$FK.r = property(lambda self: $v)"),
        "$FO.f(x)",
    ),
    "slots self": Root(
        "class $FK:\n    __slots__ = ('r',)\n\n    def __init__(self, r):\n        self.r = r\n\n"
        "    @deco\n    def f(self, x):\n$deeper\n\n"
        "$FO = $FK($R)",
        "self.r",
        ("$FO.r = $v",),
        "$FO.f(x)",
    ),
    "class of self": Root(
        "class $FK:\n    @deco\n    def f(self, x):\n$deeper\n\n$FK.r = $R\n$FO = $FK()",
        "self.r",
        ("$FK.r = $v", "$FO.r = $v"),
        "$FO.f(x)",
    ),
    "bound": Root(
        "class $FK:\n    def f(self, x):\n$deeper\n\n$FO = $FK()\n$FO.r = $R\n$F = deco($FO.f)",
        "self.r",
        ("$FO.r = $v",),
    ),
    "argument": Root("@deco\ndef $F(x, r):\n$body", "r", ("$R = $v",), "$F(x, $R)"),
    "helper": Root("def $F_read():\n    return $R\n\n\n" + _F, "$F_read()", ("$R = $v", "$F_read = lambda: $v")),
    "partial": Root(
        "def $F_plain(r, x):\n$body\n\n$F_box = $R\n$F = deco(functools.partial($F_plain, $F_box))", "r", ()
    ),
}
