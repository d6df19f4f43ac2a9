"""What no trace can do: the function runs in NumPy, and gives or raises what it does as it is written."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import pickle
import pprint
import reprlib
import string
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same

X = np.arange(4.0) + 0.25
TEMPLATE = string.Template("$a b")


@dataclasses.dataclass
class Held:
    a: Any

    def get(self) -> Any:
        return self.a


HELD = Held(2.0)
TEXTS: dict[str, Callable[[Any], Any]] = {
    "pformat": lambda x: pprint.pformat(x.sum()),
    "pformat of a list": lambda x: pprint.pformat([x.sum()]),
    "pformat of a number": lambda x: pprint.pformat(x.shape[0] * 0.5),
    "reprlib": lambda x: reprlib.repr(x.sum()),
    "a template": lambda x: TEMPLATE.substitute(a=x.sum()),
    "a dataclass": lambda x: repr(Held(x.sum())),
    "a list": lambda x: str([x.sum()]),
    "percent": lambda x: "%s" % x.sum(),  # noqa: UP031
    "format": lambda x: format(x.sum(), ".3f"),
    "join": lambda x: " ".join(map(str, x)),
    "json": lambda x: json.dumps(x.sum(), default=repr),
    "ascii": lambda x: ascii(x.sum()),
    "a set": lambda x: repr(frozenset([x.sum()])),
    "a pickle": lambda x: pickle.dumps(HELD),
    "a pickle of what is made": lambda x: pickle.dumps(Held(float(x.sum()))),
}
DTYPES: dict[str, Callable[[Any], Any]] = {
    "longdouble": lambda x: x.astype(np.longdouble) * 2,
    "a longdouble of NumPy's": lambda x: x + np.finfo(np.longdouble).eps,
    "dates": lambda x: (np.datetime64("2020-01-01") + np.arange(4), x * 2),
    "seconds": lambda x: x.astype("M8[s]"),
    "objects": lambda x: x.astype(object),
    "bytes": lambda x: np.array(x, "S3"),
    "a dtype that is tried": lambda x: tried(lambda: x.astype("M8[s]"), x),
}
ERRORS: dict[str, Callable[[Any], Any]] = {
    "an array is called": lambda x: x(3),
    "a number is called": lambda x: x.sum()(3),
    "None": lambda x: x * None,
    "no attribute": lambda x: HELD.missing * x,  # type: ignore[attr-defined]
}


def tried(run: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return run()
    except TypeError:
        return otherwise


def decorated(f: Callable[..., Any]) -> Any:
    return kg.kernel_graph(f, device="cpu", untraceable="numpy")


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_used(name: str) -> None:
    def f(x: Any) -> Any:
        return x * len(TEXTS[name](x))

    assert_same(decorated(f)(X), f(X))


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_that_no_kernel_has(name: str) -> None:
    found, wanted = decorated(DTYPES[name])(X), DTYPES[name](X)
    for a, b in zip(*(x if type(x) is tuple else (x,) for x in (found, wanted)), strict=True):
        assert np.asarray(a).dtype == b.dtype and np.asarray(a).tolist() == b.tolist()


# values of NumPy's that no `kg.Array` has, or not as they are
NUMPYS: dict[str, Callable[[], Any]] = {
    "a text": lambda: np.str_("a"),
    "bytes": lambda: np.bytes_(b"a"),
    "a longdouble": lambda: np.longdouble(2) / 3,
    "a clongdouble": lambda: np.clongdouble(2) / 3,
    "a date": lambda: np.datetime64("2020-01-01"),
    "a duration": lambda: np.timedelta64(3, "s"),
    "a record": lambda: np.zeros(2, [("a", "i4"), ("b", "f8")])[1],
    "longdoubles": lambda: np.ones(3, np.longdouble),
    "a longdouble of no axes": lambda: np.array(np.longdouble(3)),
    "clongdoubles": lambda: np.ones(3, np.clongdouble),
    "texts": lambda: np.array(["a", "bb"]),
    "dates": lambda: np.arange(3).astype("M8[D]"),
    "objects": lambda: np.array([1, None], object),
    "records": lambda: np.zeros(2, [("a", "i4"), ("b", "f8")]),
    "voids": lambda: np.zeros(2, "V4"),
    "a polynomial": lambda: np.poly1d([1, 2]),
}
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda v: v, lambda r: r),
    "a list": (lambda v: [v, v], lambda r: r[1]),
    "a tuple": (lambda v: (v, 1.0), lambda r: r[0]),
    "a dict": (lambda v: {"k": [v]}, lambda r: r["k"][0]),
    "an object": (Held, lambda r: r.a),
    "a deque": (lambda v: collections.deque([v]), lambda r: r[0]),
}
WAYS: dict[str, Callable[[Callable[[], Any], Callable[[Any], Any]], Callable[..., Any]]] = {
    "made where nothing is traced": lambda make, hold: lambda x: (hold(make()), np.unique(x))[0],
    "made where values decide": lambda make, hold: lambda x: hold(make()) if float(x.sum()) > 0 else x,
    "made in a trace": lambda make, hold: lambda x: (hold(make()), x * 2)[0],
    "of outside": lambda make, hold: functools.partial(lambda v, x: hold(v), make()),
    "of an object that is given": lambda make, hold: lambda x, held: hold(held.a),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NUMPYS)
def test_what_no_array_holds_is_returned_as_it_is(name: str, way: str) -> None:
    for hold, read in HOLDERS.values():
        f = WAYS[way](NUMPYS[name], hold)
        traced, given = decorated(f), (Held(NUMPYS[name]()),) * way.endswith("given")
        for _ in range(2):
            found, wanted = read(traced(X, *given)), read(f(X, *given))
            assert type(found) is type(wanted) and np.array_equal(found, wanted)
            assert np.asarray(found).dtype == np.asarray(wanted).dtype


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_pythons_own(name: str) -> None:
    raised = []
    for f in (ERRORS[name], decorated(ERRORS[name])):
        with pytest.raises(Exception) as caught:
            f(X)
        raised.append(caught.value)
    assert isinstance(raised[1], type(raised[0]))
    assert "Tracer" not in str(raised[1]) and (
        isinstance(raised[1], kg.KernelGraphError) or str(raised[0]) == str(raised[1])
    )


# what is one object stays one


class Named(np.ndarray[Any, Any]):
    pass


class Plain:
    def __init__(self, a: Any) -> None:
        self.a = a

    def get(self) -> Any:
        return self.a


def iterator_and_list(x: Any) -> Any:
    held = [1.0, x * 2]
    return held, iter(held)


def test_a_list_of_the_result_stays_that_of_an_iterator() -> None:
    held, items = decorated(iterator_and_list)(X)
    held[0] = 5.0
    assert next(items) == 5.0


def test_results_of_a_class_of_arrays_are_of_it() -> None:
    f = decorated(lambda x, o: (x * o.sum(), type(o).__name__))
    assert [type(x) for x in f(X, X.view(Named))] == [Named, str] and f(X, X.view(Named))[1] == "Named"


@pytest.mark.parametrize("make", [list, dict, Held, set, lambda x: {"k": [x]}, lambda x: functools.partial(max, x)])
def test_what_is_returned_twice_is_one_object(make: Any) -> None:
    made = make if type(make) is not type or make is Held else (lambda x: make() if make is not list else [x])

    def f(x: Any) -> Any:
        p = made(x * 2)
        return p, [p], (p, {"k": p})

    a, (b,), (c, d) = decorated(f)(X)
    assert a is b is c is d["k"]


@pytest.mark.parametrize(
    "make", [lambda x: [x], lambda x: {"k": x}, Held, Plain, lambda x: collections.OrderedDict(k=x)]
)
def test_what_a_value_chooses_is_returned_itself(make: Any) -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        if x.sum() > 4:
            a, b = b, a
        return a, b

    one, other = make(X), make(X + 1)
    for x in (X, X - 3):
        assert all(a is b for a, b in zip(decorated(f)(x, one, other), f(x, one, other), strict=True))


def test_a_method_of_an_argument_is_no_holder() -> None:
    """What is assigned to its object was put into its function, too."""

    def f(x: Any, get: Any) -> Any:
        if x.sum() > 4:
            get.__self__.a = x * 2
        return x * 2

    traced, held = kg.kernel_graph(f, device="cpu"), Plain(X)
    get = held.get
    for x in (X - 3, X, X - 3, X):
        traced(x, get)
        assert not vars(Plain.get)
    assert_same(held.a, X * 2)


def test_a_cache_is_not_asked_before_what_it_reads_is_written() -> None:
    def made(v: Any) -> Any:
        return functools.lru_cache(lambda: v)

    def f(x: Any, get: Any) -> Any:
        get.__wrapped__.__closure__[0].cell_contents = 3.0
        return x * get()

    assert_same(decorated(f)(X, made(2.0)), f(X, made(2.0)))


def test_equal_ranges_are_told_apart() -> None:
    f = decorated(lambda x, o, p: (x * 2, o is p))
    one = range(2, 9)
    assert f(X, one, one)[1] and not f(X, one, range(2, 9))[1]


class Views:
    def __init__(self) -> None:
        self.a = np.arange(4.0)
        self.b = self.a[1:]


def test_fields_that_are_views_of_each_other() -> None:
    def f(x: Any, views: Any) -> Any:
        views.b[0] = x.sum()
        return x * views.a

    mine, theirs, traced = Views(), Views(), decorated(f)
    for x in (X, X + 1):
        assert_same(traced(x, mine), f(x, theirs))
        assert_same(mine.a, theirs.a)
