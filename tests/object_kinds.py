"""More kinds of Python objects as layers of worlds: numbers, buffers, iterators, other containers and classes."""

# ruff: noqa: E501  (rows of program text)
from __future__ import annotations

from tests.world_parts import LAYERS, Layer

_NUMBER = ("number",)
_TO_NUMBER = ("float($o)", "x.dtype.type($o)", "($o + 1)", "(1.0 if $o > 1 else 3.0)", "({$o: 4.0}[$o])")
_INIT = "    def __init__(self, a):\n        self.a = a\n"
_ATTRIBUTE = ("$o.a", "getattr($o, 'a', 7.0)", "($o.a if hasattr($o, 'a') else 7.0)")
_SET = ("$o.a = $v", "setattr($o, 'a', $v)")
_STEPS = ("next($o, 7.0)", "[*$o][0]", "[v for v in $o][-1]", "first($o)")


def _iterator(make: str, read: str = "$h", defs: str = "", **more: tuple[str, ...]) -> Layer:
    """An iterator, kept beside its list. It is used up by those who read it."""
    reads = (f"next($o[0], {read.replace('$h', '7.0')})", *(t.replace("$o", "$o[0]") for t in _STEPS[1:]))
    return Layer(make, reads, more.get("changes", ("$o[1][-1] = $v", "$o[1].append($v)")), ("$o[1].clear()",), defs)


KINDS: dict[str, Layer] = {
    # containers
    "deque with maxlen": Layer(
        "collections.deque([1.0, $v], maxlen=2)",
        (
            "$o[1]",
            "$o[-1]",
            "[*$o][1]",
            "($o[1] if $o.maxlen == 2 else 7.0)",
            "copy.copy($o)[1]",
            "copy.deepcopy($o)[1]",
        ),
        ("$o[1] = $v", "$o.append($v)", "$o.appendleft($v)", "$o.extend([1.0, $v])"),
        ("$o.rotate(1)", "$o.popleft()", "$o.reverse()", "$o.clear()"),
    ),
    "defaultdict of lists": Layer(
        "collections.defaultdict(list, k=[$v])",
        ("$o['k'][0]", "[*$o.values()][0][0]", "($o['j'], $o['k'][0])[1]", "copy.copy($o)['k'][-1]"),
        ("$o['k'].append($v)", "$o['j'].append($v)", "$o['k'] = [$v]"),
        ("$o['i']", "del $o['k']", "$o['k'].insert(0, 1.0)"),
    ),
    "nested list": Layer(
        "[[$v, 1.0], [2.0, $v]]",
        ("$o[0][0]", "[r[0] for r in $o][0]", "copy.deepcopy($o)[0][0]", "[*zip(*$o)][0][0]", "sum($o, [])[0]"),
        ("$o[0][0] = $v", "$o[0] = [$v]", "$o.append([$v])", "$o[0], $o[1] = $o[1], $o[0]", "$o[0] = $o[1]"),
        ("$o.reverse()", "$o[0].clear()", "$o[0] *= 2", "$o += [[5.0]]", "del $o[0][0]"),
    ),
    "dict of dicts": Layer(
        "{'p': {'k': $v}, 'q': {}}",
        ("$o['p']['k']", "[*$o['p'].values()][0]", "($o.get('p') or {}).get('k', 7.0)", "copy.deepcopy($o)['p']['k']"),
        ("$o['p']['k'] = $v", "$o['p'] = {'k': $v}", "$o['q']['k'] = $v", "$o['p'], $o['q'] = {'k': $v}, $o['p']"),
        ("$o['q'] = $o['p']", "$o['p'].clear()", "$o['p'] |= {'j': 1.0}", "$o.pop('q')", "$o['p'].popitem()"),
    ),
    "set of numbers": Layer(
        "{$v, 9.0}",
        (
            "sum($o)",
            "max($o)",
            "len($o)",
            "sorted($o)[0]",
            "sum(v for v in $o)",
            "len($o | {4.0})",
            "(1.0 if 9.0 in $o else 3.0)",
        ),
        ("$o.add($v)", "$o |= {$v}", "$o.update([$v])", "$o ^= {$v}"),
        ("$o.discard(9.0)", "$o.pop()", "$o.clear()", "$o -= {9.0}", "$o &= {9.0}"),
        only=_NUMBER,
    ),
    "Counter of words": Layer(
        "collections.Counter(a=$v, b=1)",
        (
            "$o['a']",
            "$o.most_common(1)[0][1]",
            "$o['missing'] + 2.0",
            "sum($o.values())",
            "($o + $o)['a']",
            "$o.total()",
        ),
        ("$o['a'] = $v", "$o.update(a=$v)", "$o['c'] += $v"),
        ("$o.update('ab')", "$o.subtract('b')", "del $o['a']", "$o['a'] += 1"),
        only=_NUMBER,
    ),
    "UserString": Layer(
        "collections.UserString('ab' * int($v))",
        ("len($o)", "(2.0 if $o == 'abab' else 3.0)", "len($o.data)", "$o.count('a')", "len(str($o) + 'c')"),
        ("$o.data = 'ab' * int($v)",),
        (),
        only=_NUMBER,
    ),
    "items of a dict": Layer(
        "$C_made($v)",
        ("[*$o][0][1]", "first($o)[1]", "[v for _, v in $o][0]", "dict($o)['k']", "(len($o) + 0.0)"),
        ("$C_d['k'] = $v",),
        ("$C_d.clear()", "$C_d['j'] = 1"),
        "$C_d = {}\n\n\ndef $C_made(v):\n    $C_d['k'] = v\n    return $C_d.items()\n",
    ),
    "Mapping of the user's": Layer(
        "$C($v)",
        (
            "$o['k']",
            "$o.get('k', 7.0)",
            "[*$o.values()][0]",
            "({**$o})['k']",
            "($o['k'] if 'k' in $o else 7.0)",
            "$o.pop('k', 7.0)",
        ),
        ("$o['k'] = $v", "$o.update(k=$v)", "$o.setdefault('j', $v)"),
        ("del $o['k']", "$o.clear()", "$o.held['k'] = 4.0"),
        "class $C(collections.abc.MutableMapping):\n    def __init__(self, v):\n        self.held = {'k': v}\n\n"
        "    def __getitem__(self, k):\n        return self.held[k]\n\n    def __setitem__(self, k, v):\n"
        "        self.held[k] = v\n\n    def __delitem__(self, k):\n        del self.held[k]\n\n"
        "    def __iter__(self):\n        return iter(self.held)\n\n    def __len__(self):\n        return len(self.held)\n",
    ),
    "Sequence of the user's": Layer(
        "$C([$v])",
        ("$o[0]", "[*$o][0]", "first($o)", "[*reversed($o)][0]", "(len($o) + 0.0)", "$o.__getitem__(-1)"),
        ("$o.held[0] = $v", "$o.held.append($v)"),
        ("$o.held.insert(0, 1.0)", "$o.held = [3.0]"),
        "class $C(collections.abc.Sequence):\n    def __init__(self, v):\n        self.held = v\n\n"
        "    def __getitem__(self, k):\n        return self.held[k]\n\n    def __len__(self):\n        return len(self.held)\n",
    ),
    "WeakValueDictionary": Layer(
        "$C_made($v)",
        ("$o['k'].a", "[*$o.values()][0].a", "($o['k'].a if 'k' in $o else 7.0)", "$o.get('k').a"),
        ("$o['k'].a = $v", "$C_kept[0].a = $v"),
        ("$C_kept.clear()",),
        "class $C:\n" + _INIT + "\n\n$C_kept = []\n\n\ndef $C_made(v):\n    $C_kept[:] = [$C(v)]\n"
        "    return weakref.WeakValueDictionary(k=$C_kept[0])\n",
    ),
    "WeakKeyDictionary": Layer(
        "$C_made($v)",
        ("$o[$C_kept[0]]", "[*$o.values()][0]", "$o.get($C_kept[0], 7.0)"),
        ("$o[$C_kept[0]] = $v",),
        ("$o.pop($C_kept[0])",),
        "class $C:\n    pass\n\n\n$C_kept = [$C()]\n\n\ndef $C_made(v):\n"
        "    o = weakref.WeakKeyDictionary()\n    o[$C_kept[0]] = v\n    return o\n",
    ),
    # buffers and arrays
    "bytearray": Layer(
        "bytearray([1, int($v)])",
        (
            "$o[1]",
            "[*$o][1]",
            "(2.0 if $o == b'\\x01\\x02' else 3.0)",
            "sum($o)",
            "np.frombuffer($o, 'u1')[1]",
            "len(bytes($o))",
        ),
        ("$o[1] = int($v)", "$o.append(int($v))", "$o[:] = [7, int($v)]"),
        ("$o.pop()", "$o.reverse()", "$o += b'a'", "$o.clear()"),
        only=_NUMBER,
    ),
    "memoryview": Layer(
        "memoryview(bytearray([1, int($v)]))",
        (
            "$o[1]",
            "[*$o][1]",
            "sum($o)",
            "len($o)",
            "$o.tolist()[1]",
            "np.asarray($o)[1]",
            "(2.0 if $o == b'\\x01\\x02' else 3.0)",
        ),
        ("$o[1] = int($v)", "$o.obj[1] = int($v)", "$o[:1] = bytes([int($v)])"),
        ("$o[0] = 9",),
        only=_NUMBER,
    ),
    "memoryview of an array": Layer(
        "memoryview(np.array([1.0, $v]))",
        ("$o[1]", "$o.tolist()[1]", "np.asarray($o)[1]", "$o.obj[1]", "$o.nbytes / 8.0"),
        ("$o[1] = $v", "$o.obj[1] = $v"),
        ("$o[0] = 9.0",),
        only=_NUMBER,
    ),
    "array.array of ints": Layer(
        "array.array('i', [1, int($v)])",
        (
            "$o[1]",
            "sum($o)",
            "[*$o][1]",
            "$o.tolist()[1]",
            "np.array($o)[1]",
            "(2.0 if $o.typecode == 'i' else 3.0)",
            "$o.index(1) + 1.0",
        ),
        ("$o[1] = int($v)", "$o.append(int($v))", "$o.extend([int($v)])"),
        ("$o.pop()", "$o.reverse()", "$o.insert(0, 3)"),
        only=_NUMBER,
    ),
    "structured array": Layer(
        "np.array([(1.0, 3), ($v, 4)], [('p', 'f8'), ('q', 'i4')])",
        ("$o['p'][1]", "$o[1]['p']", "$o['p'].sum()", "$o['q'].max()", "$o[['p', 'q']]['p'][1]", "$o[1].item()[0]"),
        ("$o['p'][1] = $v", "$o['p'] = $v", "$o[0] = ($v, 5)", "$o['p'] += $v"),
        ("$o['q'] = 7", "$o[0], $o[1] = $o[1], $o[0].copy()", "$o.sort()"),
        only=_NUMBER,
    ),
    "record array": Layer(
        "np.rec.array([(1.0, 3), ($v, 4)], [('p', 'f8'), ('q', 'i4')])",
        ("$o.p[1]", "$o[1].p", "$o['p'].sum()", "$o.q.max()"),
        ("$o.p[1] = $v", "$o.p = $v"),
        ("$o.q = 7",),
        only=_NUMBER,
    ),
    "masked array": Layer(
        "np.ma.array([1.0, $v, 3.0], mask=[True, False, False])",
        (
            "$o[1]",
            "$o.sum()",
            "$o.filled(0.0)[1]",
            "$o.mask.sum()",
            "$o.data[1]",
            "$o.mean()",
            "$o.count()",
            "($o * 2).sum()",
        ),
        ("$o[1] = $v", "$o.data[1] = $v", "$o += $v"),
        ("$o[0] = np.ma.masked", "$o.mask = [False, True, False]", "$o.mask[0] = False"),
        only=_NUMBER,
    ),
    "matrix": Layer(
        "np.matrix([[1.0, $v], [3.0, 4.0]])",
        (
            "$o[0, 1]",
            "($o * $o)[0, 0]",
            "$o.sum()",
            "$o.A[0, 1]",
            "$o.T[1, 0]",
            "$o.A1[1]",
            "$o[0].shape[1]",
            "np.asarray($o)[0, 1]",
        ),
        ("$o[0, 1] = $v", "$o[0] = $v", "$o += $v"),
        ("$o[1, 1] = 9.0",),
        only=_NUMBER,
    ),
    "subclass of arrays": Layer(
        "$C_made($v)",
        (
            "$o.tag",
            "$o.sum()",
            "$o[0]",
            "(3.0 if type($o) is $C else 4.0)",
            "($o + 1).sum()",
            "getattr($o, 'tag', 7.0)",
        ),
        ("$o.tag = $v", "$o[0] = 5.0", "$o *= 2"),
        ("del $o.tag", "$o.other = 1"),
        "class $C(np.ndarray):\n    pass\n\n\ndef $C_made(v):\n    o = np.ones(2).view($C)\n    o.tag = v\n    return o\n",
    ),
    "array of ours": Layer(
        "kg.array([1.0, $v])",
        (
            "$o[1]",
            "$o.sum()",
            "($o * 2)[1]",
            "np.asarray($o)[1]",
            "$o.tolist()[1]",
            "len($o)",
            "float($o[1])",
            "max($o)",
        ),
        ("$o[1] = $v", "$o[:] = $v"),
        ("$o[0] = 9.0",),
        only=_NUMBER,
    ),
    "list of arrays": Layer(
        "[np.ones(2), np.array([3.0, 4.0])]",
        ("$o[0][0]", "sum(v.sum() for v in $o)", "$o[-1][1]", "np.stack($o)[0, 0]", "[v * 2 for v in $o][0][0]"),
        (
            "$o[0][0] = $v",
            "$o[1] = np.full(2, $v)",
            "$o.append(np.full(2, $v))",
            "$o[0], $o[1] = $o[1], $o[0]",
            "$o[0] += $v",
        ),
        ("$o.pop()", "$o.reverse()", "$o[0] = $o[1]", "$o[0] = np.zeros(3)"),
        only=_NUMBER,
    ),
    "view of an array": Layer(
        "$C_made($v)",
        ("$o[0]", "$C_base[1]", "$o.sum()", "($o.base is $C_base) + 1.0"),
        ("$o[0] = $v", "$C_base[1] = $v", "$o *= 2"),
        ("$C_base[:] = 3.0",),
        "$C_base = np.zeros(3)\n\n\ndef $C_made(v):\n    $C_base[:] = v\n    return $C_base[1:]\n",
        only=_NUMBER,
    ),
    "two names of one array": Layer(
        "$C($v)",
        ("$o.a[0]", "$o.b[0]", "($o.a is $o.b) + 1.0", "($o.a + $o.b).sum()"),
        ("$o.a[0] = $v", "$o.b += $v", "$o.a = np.full(2, $v)", "$o.a, $o.b = $o.b, $o.a * 2"),
        ("$o.b = $o.b.copy()",),
        "class $C:\n    def __init__(self, v):\n        self.a = self.b = np.full(2, v)\n",
        only=_NUMBER,
    ),
    "scalar of NumPy": Layer(
        "np.float64($v)",
        (*_TO_NUMBER, "$o.dtype.itemsize", "$o.item()", "(3.0 if type($o) is np.float64 else 4.0)"),
        ("$o = np.float64($v)",),
        ("$o += 1",),
        only=_NUMBER,
    ),
    "32-bit scalar": Layer(
        "np.float32($v)",
        (*_TO_NUMBER, "(x.astype('f4') * $o)[0]", "($o * np.float32(3)).dtype.itemsize"),
        ("$o = np.float32($v)",),
        ("$o += 1",),
        only=_NUMBER,
    ),
    "dtype": Layer(
        "np.dtype('f4' if $v < 3 else 'f8')",
        ("$o.itemsize", "np.zeros(2, $o).itemsize", "x.astype($o)[1]", "(2.0 if $o == 'f4' else 3.0)"),
        ("$o = np.dtype('f4' if $v < 3 else 'f8')",),
        only=_NUMBER,
    ),
    # numbers, texts and times
    "Fraction": Layer(
        "fractions.Fraction(int($v), 3)",
        (
            *_TO_NUMBER[:1],
            "$o.numerator",
            "float($o * 3)",
            "float($o + 1)",
            "(1.0 if $o > 1 else 3.0)",
            "round($o)",
            "float(sum([$o, $o]))",
        ),
        ("$o = fractions.Fraction(int($v), 3)",),
        ("$o += 1",),
        only=_NUMBER,
    ),
    "Decimal": Layer(
        "decimal.Decimal(int($v))",
        (
            "float($o)",
            "float($o * 3)",
            "int($o)",
            "(1.0 if $o > 1 else 3.0)",
            "len(str($o))",
            "float($o.quantize(decimal.Decimal('0.1')))",
            "float($o.sqrt())",
        ),
        ("$o = decimal.Decimal(int($v))",),
        ("$o += 1",),
        only=_NUMBER,
    ),
    "date and time": Layer(
        "datetime.datetime(2020, 1, int($v))",
        (
            "$o.day",
            "($o - datetime.datetime(2019, 1, 1)).days",
            "len($o.isoformat())",
            "$o.timetuple().tm_mday",
            "(1.0 if $o > datetime.datetime(2020, 1, 2) else 3.0)",
            "$o.replace(day=4).day",
        ),
        ("$o = datetime.datetime(2020, 1, int($v))",),
        ("$o += datetime.timedelta(days=1)",),
        only=_NUMBER,
    ),
    "timedelta": Layer(
        "datetime.timedelta(seconds=int($v))",
        ("$o.total_seconds()", "($o * 2).seconds", "$o / datetime.timedelta(seconds=1)", "(1.0 if $o else 3.0)"),
        ("$o = datetime.timedelta(seconds=int($v))",),
        ("$o *= 2",),
        only=_NUMBER,
    ),
    "path": Layer(
        "pathlib.PurePosixPath('a') / ('b' * int($v))",
        (
            "len($o.name)",
            "len($o.parts)",
            "len(str($o))",
            "len(($o / 'c').as_posix())",
            "(2.0 if $o.suffix else 3.0)",
            "len($o.parent.name)",
            "(1.0 if $o == pathlib.PurePosixPath('a/bb') else 3.0)",
        ),
        ("$o = pathlib.PurePosixPath('a') / ('b' * int($v))",),
        ("$o = $o.with_suffix('.txt')", "$o /= 'c'"),
        only=_NUMBER,
    ),
    "range": Layer(
        "range(int($v), 9)",
        ("$o[0]", "sum($o)", "len($o)", "$o.start", "[*$o][-1]", "(1.0 if 3 in $o else 3.0)", "x[$o[0] % 2]"),
        ("$o = range(int($v), 9)",),
        ("$o = $o[1:]",),
        only=_NUMBER,
    ),
    "slice": Layer(
        "slice(0, int($v))",
        ("x[$o].sum()", "$o.stop", "len(range(9)[$o])", "(1.0 if $o == slice(0, 2) else 3.0)", "$o.indices(5)[1]"),
        ("$o = slice(0, int($v))",),
        ("$o = slice(None)",),
        only=_NUMBER,
    ),
    "UUID": Layer(
        "uuid.UUID(int=int($v))",
        ("$o.int", "len($o.hex)", "(1.0 if $o == uuid.UUID(int=2) else 3.0)", "$o.bytes[-1]"),
        ("$o = uuid.UUID(int=int($v))",),
        only=_NUMBER,
    ),
    "pattern": Layer(
        "re.compile('b' * int($v))",
        ("len($o.findall('abbbbc'))", "len($o.pattern)", "$o.search('abbbbc').end()", "len($o.sub('', 'abbb') + 'c')"),
        ("$o = re.compile('b' * int($v))",),
        only=_NUMBER,
    ),
    "text of a class": Layer(
        "$C('ab' * int($v))",
        (
            "len($o)",
            "$o.size()",
            "(2.0 if $o == 'abab' else 3.0)",
            "({'abab': 2.0}.get($o, 5.0))",
            "len($o + 'c')",
            "(2.0 if type($o) is $C else 3.0)",
            "len(f'{$o}-')",
        ),
        ("$o = $C('ab' * int($v))",),
        ("$o.held = 1", "$C.size = lambda self: 8.5"),
        "class $C(str):\n    def size(self):\n        return len(self) * 2.0\n",
        only=_NUMBER,
    ),
    "whole number of a class": Layer(
        "$C(int($v))",
        (
            "$o + 1",
            "$o.twice()",
            "(2.0 if $o == 2 else 3.0)",
            "(2.0 if type($o) is $C else 3.0)",
            "range(9)[$o]",
            "x[$o % 2]",
            "(4.0 if isinstance($o, int) else 5.0)",
        ),
        ("$o = $C(int($v))",),
        ("$o.held = 1", "$C.twice = lambda self: 8.5"),
        "class $C(int):\n    def twice(self):\n        return self * 2.0\n",
        only=_NUMBER,
    ),
    "number class of the user's": Layer(
        "$C($v, 1.0)",
        (
            "($o * $o).a",
            "($o + 2.0).a",
            "(2.0 + $o).a",
            "$o.a",
            "(1.0 if $o > 1 else 3.0)",
            "abs(-$o).a",
            "float($o)",
            "(sum([$o, $o])).a",
        ),
        ("$o.a = $v", "$o += $v"),
        ("$o.b = 3.0", "$o *= $o"),
        "class $C:\n    def __init__(self, a, b=0.0):\n        self.a, self.b = a, b\n\n"
        "    def __add__(self, o):\n        o = o if isinstance(o, $C) else $C(o)\n        return $C(self.a + o.a, self.b + o.b)\n\n"
        "    __radd__ = __add__\n\n"
        "    def __mul__(self, o):\n        return $C(self.a * o.a, self.a * o.b + self.b * o.a)\n\n"
        "    def __iadd__(self, o):\n        self.a = self.a + o\n        return self\n\n"
        "    def __neg__(self):\n        return $C(-self.a, -self.b)\n\n    def __abs__(self):\n        return $C(abs(self.a), self.b)\n\n"
        "    def __gt__(self, o):\n        return self.b > o - 1\n\n    def __float__(self):\n        return float(self.b)\n",
    ),
    # enumerations
    "IntEnum": Layer(
        "$C(int($v) % 3)",
        (
            "$o + 1",
            "$o.value",
            "x[$o % 2]",
            "(2.0 if $o is $C.TWO else 3.0)",
            "len($o.name)",
            "range(9)[$o]",
            "[*$C].index($o) + 1.0",
        ),
        ("$o = $C(int($v) % 3)",),
        (),
        "class $C(enum.IntEnum):\n    ZERO = 0\n    ONE = 1\n    TWO = 2\n",
        only=_NUMBER,
    ),
    "Flag": Layer(
        "$C(int($v) % 4)",
        (
            "$o.value",
            "(2.0 if $C.B in $o else 3.0)",
            "(2.0 if $o & $C.B else 3.0)",
            "($o | $C.A).value",
            "len([*$o]) + 1.0",
        ),
        ("$o = $C(int($v) % 4)",),
        ("$o |= $C.A", "$o ^= $C.B"),
        "class $C(enum.Flag):\n    A = 1\n    B = 2\n",
        only=_NUMBER,
    ),
    "StrEnum": Layer(
        "$C('a' * (int($v) % 2 + 1))",
        (
            "len($o)",
            "(2.0 if $o is $C.AA else 3.0)",
            "(2.0 if $o == 'aa' else 3.0)",
            "({$C.A: 4.0}.get($o, 5.0))",
            "len(f'{$o}')",
        ),
        ("$o = $C('a' * (int($v) % 2 + 1))",),
        (),
        "class $C(enum.StrEnum):\n    A = 'a'\n    AA = 'aa'\n",
        only=_NUMBER,
    ),
    # classes
    "namedtuple": Layer(
        "$C($v, 1.0)",
        (
            "$o.a",
            "$o[0]",
            "[*$o][0]",
            "$o._replace(b=2.0).a",
            "(lambda a, b: a)(*$o)",
            "$o._asdict()['a']",
            "(2.0 if isinstance($o, tuple) else 3.0)",
        ),
        ("$o = $o._replace(a=$v)", "$o = $C($v, 2.0)"),
        (),
        "$C = collections.namedtuple('$C', 'a b')\n",
    ),
    "dataclass with post_init": Layer(
        "$C($v)",
        (
            *_ATTRIBUTE,
            "$o.twice",
            "dataclasses.replace($o, b=4.0).twice",
            "dataclasses.asdict($o)['a']",
            "copy.deepcopy($o).a",
            "len(repr($o.b))",
        ),
        ("$o.a = $v", "$o.twice = $v", "$o = dataclasses.replace($o, a=$v)"),
        ("$o.b = 7.0", "$o.more.append(1.0)", "del $o.twice"),
        "@dataclasses.dataclass(eq=False)\nclass $C:\n    a: typing.Any\n    b: float = 2.0\n"
        "    more: list = dataclasses.field(default_factory=list, repr=False)\n    twice: typing.Any = dataclasses.field(init=False)\n\n"
        "    def __post_init__(self):\n        self.twice = self.a * 2\n",
    ),
    "ordered dataclass": Layer(
        "$C(1.0, 3.0)",
        (
            "$o.a",
            "(2.0 if $o < $C(2.0, 2.0) else 3.0)",
            "max($o, $C(1.5, 0.0)).b",
            "(2.0 if $o == $C(1.0, 3.0) else 3.0)",
            "hash($o) % 7 * 0.0 + 1",
        ),
        ("object.__setattr__($o, 'a', $v)", "$o = $C($v, 3.0)"),
        ("$o.a = 1.0",),
        "@dataclasses.dataclass(order=True, frozen=True)\nclass $C:\n    a: float\n    b: float\n",
        only=_NUMBER,
    ),
    "slots of two classes": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "$o.b", "copy.copy($o).a", "copy.deepcopy($o).a"),
        ("$o.a = $v", "$o.b = $v", "$o.a, $o.b = $o.b, $v"),
        ("del $o.a", "$o.c = 1.0", "del $o.b"),
        "class $CB:\n    __slots__ = ('a',)\n\n\nclass $C($CB):\n    __slots__ = ('b', 'c')\n\n"
        "    def __init__(self, a):\n        self.a = a\n        self.b = 2.0\n",
    ),
    "private slots": Layer(
        "$C($v)",
        ("$o.get()", "$o.get() * 2", "copy.copy($o).get()"),
        ("$o.put($v)", "$o.public = $v"),
        ("$o.public = 3.0",),
        "class $C:\n    __slots__ = ('__a', 'public')\n\n    def __init__(self, a):\n        self.__a = a\n\n"
        "    def get(self):\n        return self.__a\n\n    def put(self, a):\n        self.__a = a\n",
    ),
    "object with a setattr": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "$o.count + 1.0"),
        (*_SET, "$o.__dict__['a'] = $v"),
        ("del $o.a", "$o.b = 1"),
        "class $C:\n    count = 0\n\n    def __init__(self, a):\n        self.a = a\n\n    def __setattr__(self, name, value):\n"
        "        object.__setattr__(self, name, value)\n        object.__setattr__(self, 'count', self.count + 1)\n\n"
        "    def __delattr__(self, name):\n        object.__delattr__(self, name)\n        object.__setattr__(self, 'count', -1)\n",
    ),
    "property that checks": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "$o.twice"),
        (*_SET, "$o.twice = $v"),
        ("$o._a = 3.0", "del $o.a"),
        "class $C:\n    def __init__(self, a):\n        self.a = a\n\n    @property\n    def a(self):\n        return self._a\n\n"
        "    @a.setter\n    def a(self, v):\n        if v is None:\n            raise ValueError('none')\n        self._a = v\n"
        "        self.writes = getattr(self, 'writes', 0) + 1\n\n    @a.deleter\n    def a(self):\n        self._a = 1.0\n\n"
        "    @property\n    def twice(self):\n        return self.a * 2\n\n    @twice.setter\n    def twice(self, v):\n        self.a = v / 2\n",
    ),
    "cached_property of an array": Layer(
        "$C($v)",
        ("$o.made", "$o.made + $o.a", "($o.made, $o.made)[1]", "(2.0 if 'made' in vars($o) else 3.0)"),
        ("$o.a = $v", "($o.__dict__.pop('made', None), setattr($o, 'a', $v))"),
        ("$o.__dict__.pop('made', None)", "$o.made = 4.0"),
        "class $C:\n" + _INIT + "\n    @functools.cached_property\n    def made(self):\n        return self.a * 3\n",
    ),
    "descriptor that keeps by object": Layer(
        "$C($v)",
        _ATTRIBUTE,
        (*_SET,),
        ("del $o.a",),
        "class $CD:\n    def __init__(self):\n        self.held = weakref.WeakKeyDictionary()\n\n"
        "    def __get__(self, o, kind=None):\n        if o is None:\n            return self\n"
        "        if o not in self.held:\n            raise AttributeError('a')\n        return self.held[o]\n\n"
        "    def __set__(self, o, v):\n        self.held[o] = v\n\n"
        "    def __delete__(self, o):\n        del self.held[o]\n\n\nclass $C:\n    a = $CD()\n\n" + _INIT,
    ),
    "abstract class": Layer(
        "$C($v)",
        ("$o.get()", "$o.a", "(2.0 if isinstance($o, $CB) else 3.0)", "$o.twice()"),
        ("$o.a = $v",),
        ("$C.get = lambda self: 8.5", "del $o.a"),
        "class $CB(abc.ABC):\n    @abc.abstractmethod\n    def get(self): ...\n\n    def twice(self):\n        return self.get() * 2\n\n\n"
        "class $C($CB):\n" + _INIT + "\n    def get(self):\n        return self.a\n",
    ),
    "generic class": Layer(
        "$C[float]($v)",
        (*_ATTRIBUTE, "$o.get()", "(2.0 if type($o) is $C else 3.0)", "$C[int](3.0).a"),
        _SET,
        ("del $o.a", "$C.get = lambda self: 8.5"),
        "$CT = typing.TypeVar('$CT')\n\n\nclass $C(typing.Generic[$CT]):\n"
        + _INIT
        + "\n    def get(self):\n        return self.a\n",
    ),
    "class made by a metaclass": Layer(
        "$C($v)",
        (*_ATTRIBUTE, "$o.extra", "len($C.made)", "type($o).extra"),
        (*_SET, "type($o).extra = $v"),
        ("del $o.a", "$C.made.append(1)"),
        "class $CM(type):\n    def __new__(meta, name, bases, body):\n        return super().__new__(meta, name, bases, {**body, 'extra': 3.0})\n\n"
        "    def __call__(cls, *args):\n        found = super().__call__(*args)\n        cls.made.append(len(cls.made))\n        return found\n\n\n"
        "class $C(metaclass=$CM):\n    made: list = []\n\n" + _INIT,
    ),
    "single object": Layer(
        "$C_made($v)",
        ("$C().a", "$o.a", "(2.0 if $C() is $o else 3.0)"),
        ("$C().a = $v", "$o.a = $v"),
        ("$o.b = 1.0",),
        "class $C:\n    _one = None\n\n    def __new__(cls):\n        if cls._one is None:\n            cls._one = super().__new__(cls)\n"
        "        return cls._one\n\n\ndef $C_made(v):\n    $C._one = None\n    o = $C()\n    o.a = v\n    return o\n",
    ),
    "linked objects": Layer(
        "$C_made($v)",
        ("$o.next.a", "$o.next.back.next.a", "$C_last($o).a", "(2.0 if $o.next.back is $o else 3.0)"),
        ("$o.next.a = $v", "$o.a = $v", "$o.next = $C($v)", "$o.a, $o.next.a = $o.next.a, $v"),
        ("$o.next.next = $o", "$o.next = None", "$o.next.back = None"),
        "class $C:\n    def __init__(self, a):\n        self.a = a\n        self.next = self.back = None\n\n\n"
        "def $C_made(v):\n    o = $C(1.0)\n    o.next = $C(v)\n    o.next.back = o\n    return o\n\n\n"
        "def $C_last(o):\n    for _ in range(9):\n        if o.next is None:\n            return o\n        o = o.next\n    return o\n",
    ),
    "tree of dicts and objects": Layer(
        "{'o': [$C($v)], 't': ({'n': $C(1.0)},)}",
        ("$o['o'][0].a", "[v.a for v in $o['o']][0]", "$o['t'][0]['n'].a", "copy.deepcopy($o)['o'][0].a"),
        (
            "$o['o'][0].a = $v",
            "$o['t'][0]['n'].a = $v",
            "$o['o'].append($C($v))",
            "$o['o'][0], $o['t'][0]['n'] = $o['t'][0]['n'], $o['o'][0]",
        ),
        ("$o['o'][0] = $o['t'][0]['n']", "$o['o'].clear()", "del $o['t']", "$o['t'][0]['m'] = 1.0"),
        "class $C:\n" + _INIT,
    ),
    "object compared by value": Layer(
        "$C($v)",
        (
            "$o.a",
            "(2.0 if $o == $C(2.0) else 3.0)",
            "(2.0 if $o != $C(2.0) else 3.0)",
            "(2.0 if $o in [$C(2.0)] else 3.0)",
        ),
        ("$o.a = $v",),
        ("$o.b = 1.0", "$C.__eq__ = lambda self, o: False"),
        "class $C:\n" + _INIT + "\n    def __eq__(self, o):\n        return bool(np.all(self.a == o.a))\n",
    ),
    "object with its own copies": Layer(
        "$C($v)",
        ("$o.a", "copy.copy($o).a", "copy.deepcopy($o).a", "copy.deepcopy([$o])[0].copies + 1.0"),
        ("$o.a = $v",),
        ("$o.copies = 5",),
        "class $C:\n    copies = 0\n\n"
        + _INIT
        + "\n    def __copy__(self):\n        found = $C(self.a)\n        found.copies = self.copies + 1\n"
        "        return found\n\n    def __deepcopy__(self, memo):\n        return self.__copy__()\n",
    ),
    # functions
    "lambda with defaults": Layer(
        "(lambda v=$v, *, w=1.0: v)",
        ("$o()", "$o(w=3.0)", "$o.__defaults__[0]", "[*map($o, [3.0])][0]", "$o.__kwdefaults__['w']"),
        ("$o.__defaults__ = ($v,)",),
        ("$o.__kwdefaults__ = {'w': 4.0}", "$o.held = 1"),
    ),
    "closure that counts": Layer(
        "$C($v)",
        ("$o[0]()", "($o[0](), $o[0]())[1]", "$o[1]()"),
        ("$o[2]($v)",),
        ("$o[0]()",),
        "def $C(v):\n    def bump():\n        nonlocal v\n        v = v + 1\n        return v\n\n    def get():\n        return v\n\n"
        "    def put(w):\n        nonlocal v\n        v = w\n\n    return bump, get, put\n",
    ),
    "cell": Layer(
        "types.CellType($v)",
        ("$o.cell_contents", "($o.cell_contents, 1)[0]"),
        ("$o.cell_contents = $v",),
        ("del $o.cell_contents",),
    ),
    "method of a list, put": Layer(
        "[$v, 1.0].append",
        ("$o.__self__[0]", "($o(3.0), $o.__self__[-1])[1]", "len($o.__self__)"),
        ("$o($v)", "$o.__self__[0] = $v"),
        ("$o.__self__.clear()",),
    ),
    "decorated function": Layer(
        "$C_wrapped($v)",
        ("$o()", "$o.__wrapped__()", "($o(), $o.calls + 0.0)[1]"),
        ("$o.held[0] = $v",),
        ("$o.calls = 0",),
        "def $C_wrapped(v):\n    held = [v]\n\n    def get():\n        return held[0]\n\n    @functools.wraps(get)\n    def outer(*args):\n"
        "        outer.calls += 1\n        return get(*args)\n\n    outer.calls = 0\n    outer.held = held\n    return outer\n",
    ),
    "singledispatchmethod": Layer(
        "$C($v)",
        ("$o.get(1)", "$o.get('a')", "$o.get(1.0)"),
        ("$o.a = $v",),
        ("$o.b = 1",),
        "class $C:\n"
        + _INIT
        + "\n    @functools.singledispatchmethod\n    def get(self, i):\n        return self.a\n\n"
        "    @get.register\n    def _(self, i: int):\n        return self.a * 2\n",
    ),
    # iterators
    "list iterator": _iterator("$C($v)", defs="def $C(v):\n    held = [1.0, v, v]\n    return iter(held), held\n"),
    "zip": _iterator(
        "$C($v)", defs="def $C(v):\n    held = [1.0, v, v]\n    return (a for a, _ in zip(held, 'abc')), held\n"
    ),
    "enumerate": Layer(
        "(enumerate([1.0, $v, $v, $v]),)",
        ("next($o[0], (0, 7.0))[1]", "[v for _, v in $o[0]][-1]", "sum(i for i, _ in $o[0])", "[*$o[0]][0][1]"),
        (),
        ("next($o[0], None)",),
    ),
    "zip of lists": Layer(
        "(zip([1.0, $v, $v, 2.0], itertools.count()),)",
        ("next($o[0], (7.0, 0))[0]", "[v for v, _ in $o[0]][-1]", "sum(i for _, i in $o[0])"),
        (),
        ("next($o[0], None)",),
    ),
    "count": Layer(
        "(itertools.count(int($v)),)",
        ("next($o[0])", "[i for i, _ in zip($o[0], 'ab')][1]", "next($o[0]) * x[0]"),
        (),
        ("next($o[0])",),
        only=_NUMBER,
    ),
    "cycle": Layer(
        "(itertools.cycle([1.0, $v]),)",
        ("next($o[0])", "[v for v, _ in zip($o[0], 'abc')][2]", "(next($o[0]), next($o[0]))[1]"),
        (),
        ("next($o[0])",),
    ),
    "chain": Layer(
        "(itertools.chain([1.0], [$v, $v, $v]),)",
        ("next($o[0], 7.0)", "[*$o[0]][-1]", "sum(1.0 for _ in $o[0])"),
        (),
        ("next($o[0], None)",),
    ),
    "map": Layer(
        "(map(identity, [1.0, $v, $v, $v]),)",
        ("next($o[0], 7.0)", "[*$o[0]][-1]", "first($o[0])"),
        (),
        ("next($o[0], None)",),
    ),
    "dict key iterator": Layer(
        "(iter({'a': $v, 'bb': 1.0, 'ccc': 2.0}),)",
        ("len(next($o[0], ''))", "len([*$o[0]])", "len(''.join($o[0]))"),
        (),
        ("next($o[0], None)",),
    ),
    "generator": Layer(
        "($C($v),)",
        ("next($o[0], 7.0)", "[*$o[0]][-1]", "first($o[0])", "[v for v in $o[0]][0]", "sum(1.0 for _ in $o[0])"),
        (),
        ("next($o[0], None)", "$o[0].close()"),
        "def $C(v):\n    for k in range(5):\n        yield v * k\n",
    ),
    "generator that is told": Layer(
        "($C($v),)",
        ("next($o[0])", "$o[0].send(3.0)", "($o[0].send(2.0), $o[0].send(4.0))[1]"),
        ("$o[0].send($v)",),
        ("$o[0].send(5.0)",),
        "def $C(v):\n    def made():\n        held = v\n        while True:\n            got = yield held\n            held = held if got is None else got\n\n"
        "    found = made()\n    next(found)\n    return found\n",
    ),
    "generator expression": Layer(
        "((v for v in [1.0, $v, $v, $v]),)",
        ("next($o[0], 7.0)", "[*$o[0]][-1]", "sum(1.0 for _ in $o[0])"),
        (),
        ("next($o[0], None)",),
    ),
    "iterator of a class": Layer(
        "$C($v)",
        ("next($o, 7.0)", "[*$o][-1]", "first($o)", "sum(1.0 for _ in $o)"),
        ("$o.a = $v",),
        ("$o.n = 0", "next($o, None)"),
        "class $C:\n    n = 0\n\n"
        + _INIT
        + "\n    def __iter__(self):\n        return self\n\n    def __next__(self):\n"
        "        if self.n == 4:\n            raise StopIteration\n        self.n += 1\n        return self.a\n",
    ),
    # others
    "exception with attributes": Layer(
        "$C($v)",
        ("$o.a", "$o.args[0]", "(2.0 if isinstance($o, ValueError) else 3.0)", "$C_caught($o)"),
        ("$o.a = $v", "$o.args = ($v,)"),
        ("$o.b = 1", "del $o.a"),
        "class $C(ValueError):\n    def __init__(self, a):\n        super().__init__(a)\n        self.a = a\n\n\n"
        "def $C_caught(o):\n    try:\n        raise o\n    except ValueError as error:\n        return error.a\n",
    ),
    "StringIO": Layer(
        "io.StringIO('ab' * int($v))",
        ("len($o.getvalue())", "len($o.read())", "len([*$o])", "$o.tell() + 1.0"),
        ("$o.write('c' * int($v))",),
        ("$o.seek(0)", "$o.truncate(1)"),
        only=_NUMBER,
    ),
    "random.Random": Layer(
        "random.Random(int($v))",
        ("$o.random()", "$o.randint(1, 9)", "($o.random(), $o.gauss(0, 1))[1]", "$o.choice([1.0, 2.0, 3.0])"),
        ("$o.seed(int($v))",),
        ("$o.random()",),
        only=_NUMBER,
    ),
    "Generator of NumPy": Layer(
        "np.random.default_rng(int($v))",
        ("$o.random()", "$o.normal(size=2)[0]", "$o.integers(9) + 1.0", "($o.random(), $o.random())[1]"),
        (),
        ("$o.random()",),
        only=_NUMBER,
    ),
    "RandomState of NumPy": Layer(
        "np.random.RandomState(int($v))",
        ("$o.rand()", "$o.randn(2)[0]", "$o.randint(9) + 1.0"),
        ("$o.seed(int($v))",),
        ("$o.rand()",),
        only=_NUMBER,
    ),
    "lock": Layer(
        "$C($v)",
        ("$o.get()", "$o.a"),
        ("$o.put($v)", "$o.a = $v"),
        ("$o.b = 1.0",),
        "class $C:\n    def __init__(self, a):\n        self.a = a\n        self.lock = threading.Lock()\n\n"
        "    def get(self):\n        with self.lock:\n            return self.a\n\n    def put(self, a):\n        with self.lock:\n            self.a = a\n",
    ),
    "logger": Layer(
        "$C_made($v)",
        ("$o.level + 1.0", "(2.0 if $o.isEnabledFor(30) else 3.0)", "len($o.name)"),
        ("$o.setLevel(int($v))",),
        ("$o.setLevel(40)",),
        "def $C_made(v):\n    o = logging.Logger('$C')\n    o.setLevel(int(v))\n    return o\n",
        only=_NUMBER,
    ),
    # classes that note what they are asked
    "object that an array can be made of": Layer(
        "$C($v)",
        ("np.sin($o)", "np.sum($o)", "($o * 2.0)", "$o.a", "len($o)", "np.asarray($o)"),
        _SET,
        ("$o.k = 3.0",),
        f"class $C:\n{_INIT}\n    def __array__(self, dtype=None, copy=None):\n        return np.asarray(self.a)\n\n"
        "    def __mul__(self, other):\n        return self.a * other * 100.0\n\n    def __len__(self):\n        return 77\n",
    ),
    "iterator that begins anew": Layer(
        "$C($v)",
        ("$o.a", "[*$o][-1]", "next($o, 7.0)", "[v for v in $o][0]", "$o.asked"),
        _SET,
        ("$o.left = 1", "$o.asked += 10"),
        f"class $C:\n    left = asked = 0\n\n{_INIT}\n    def __iter__(self):\n        self.left = 3\n        self.asked += 1\n"
        "        return self\n\n    def __next__(self):\n        if self.left == 0:\n            raise StopIteration\n"
        "        self.left -= 1\n        return self.a\n",
    ),
    "sequence that counts": Layer(
        "$C($v)",
        ("$o[1]", "len($o)", "[*reversed($o)][0]", "[v for v in $o][0]", "(9.0 in $o)", "$o.asked"),
        _SET,
        ("$o.asked += 1000",),
        f"class $C:\n    asked = 0\n\n{_INIT}\n    def __len__(self):\n        self.asked += 1\n        return 2\n\n"
        "    def __getitem__(self, i):\n        self.asked += 100\n        return [self.a, 2.0][i]\n",
    ),
    "dict that makes up what is missing": Layer(
        "$C(k=$v)",
        ("$o['k']", "$o.k", "$o['j']", "(len($o), $o.i)[0]", "$o.get('z', 7.0)", "len($o)"),
        ("$o['k'] = $v",),
        ("$o.clear()", "$o['j'] = 1.0"),
        "class $C(dict):\n    def __missing__(self, key):\n        self[key] = found = float(len(self))\n        return found\n\n"
        "    def __getattr__(self, name):\n        return self[name]\n",
    ),
}
ALL_LAYERS = LAYERS | KINDS
