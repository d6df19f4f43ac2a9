"""Functions of Python's control flow at its hardest, and what they do outside of their result.

No test module: pytest compiles those from another source than what stands in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LOG: list[Any] = []
TOTAL = 0


@contextmanager
def logged(name: str) -> Iterator[str]:
    LOG.append(f"enter {name}")
    try:
        yield name
    except KeyError:
        LOG.append("swallowed")
    finally:
        LOG.append(f"leave {name}")


# each is called with 0 to 6; what it returns, raises and appends to LOG is compared


def nested_loops_with_else(n: int) -> Any:
    found = []
    for i in range(n):
        for j in range(i):
            if (i * j) % 5 == 4:
                found.append((i, j))
                break
            if j == 3:
                continue
            found.append(j)
        else:
            found.append("inner")
            continue
        break
    else:
        found.append("outer")
    return found


def while_with_else(n: int) -> Any:
    k = 0
    while k < n:
        k += 1
        if k == 2:
            continue
        LOG.append(k)
        if k == 4:
            break
    else:
        return "ended", k
    return k


def jumps_through_finally(n: int) -> Any:
    for i in range(9):
        try:
            LOG.append(("try", i))
            if i == n:
                return i
            if i % 2:
                continue
            if i > 4:
                break
            LOG.append("body")
        except ValueError:
            LOG.append("never")
        else:
            LOG.append("else")
        finally:
            LOG.append(("finally", i))
    return -1


def jumps_of_finally(n: int) -> Any:
    for _ in range(3):
        try:
            if n:
                raise KeyError(n)
        finally:
            if n == 1:
                break  # noqa: B012
            if n == 2:
                return "returned"  # noqa: B012
    return "ended"


def returns_are_overridden(n: int) -> Any:
    try:
        if n > 2:
            return "try"
        raise IndexError(n)
    except IndexError as error:
        if n == 1:
            raise KeyError("another") from error
        if n:
            return error.args
    finally:
        LOG.append("always")
    return "end"


def handlers(n: int) -> Any:
    for kind in (ValueError, KeyError, IndexError, None):
        try:
            if n == 3:
                int("x")
            elif kind is not None:
                raise kind(n)
        except (ValueError, KeyError) as error:
            LOG.append(repr(error))
            if n == 2:
                raise
        except IndexError:
            if n == 4:
                return "index"
        else:
            LOG.append("no error")
    return None


def error_names_are_unbound(n: int) -> Any:
    if n:
        try:
            raise ValueError(n)
        except ValueError as error:
            LOG.append(str(error))
    return error  # noqa: F821


def withs(n: int) -> Any:
    for i in range(4):
        with logged("a") as a, logged(f"b{i}") as b:
            if i == n:
                return a, b
            if i == 1:
                continue
            if n == 5:
                raise KeyError(n)
            if i == 2:
                break
            LOG.append("inside")
        LOG.append("after")
    return None


def matches(n: int) -> Any:
    match [n, n * 2] if n % 2 else {"n": n, "more": 1}:
        case [1, two]:
            return two
        case [x, _] if x > 3:
            found = x
        case {"n": 0 | 2 as value, **rest}:
            found = (value, rest)
        case _:
            found = None
    if n == 4:
        return "four"
    return found


def closures_over_loop_variables(n: int) -> Any:
    late = []
    bound = []
    for i in range(n):
        square = i * i
        late.append(lambda: (i, square))  # noqa: B023
        bound.append(lambda i=i: (i, square))  # noqa: B023
    return [f() for f in late + bound]


def counts(n: int) -> Any:
    total, calls = 0, 0

    def add(k: int) -> None:
        nonlocal total
        nonlocal calls
        calls += 1
        if k % 2:
            total += k
        else:
            total -= 1

    for k in range(n):
        add(k)
        if total > 3:
            total = -total
    return total, calls


def writes_globals(n: int) -> Any:
    global TOTAL
    TOTAL = 0
    for k in range(n):
        if k % 2:
            TOTAL += k
    return TOTAL


def walrus(n: int) -> Any:
    found = []
    while (half := n // 2) and len(found) < 5:
        found.append(half)
        n -= 1
    if (last := n) and (other := last * 2) > 2:
        found.append(other)
    found += [seen := k for k in range(n)]
    return found, last, seen if n else None


def deletes(n: int) -> Any:
    x = d = [1, 2, 3]
    if n:
        del x
    if n == 2:
        x = 5
    if n == 3:
        del d[0], d[-1]
    while d and n == 4:
        del d[0]
    return x, d


def unbound(n: int) -> Any:
    if n > 3:
        value = n
    elif n > 1:
        for value in ():  # noqa: B007
            pass
    return value


def comprehensions(n: int) -> Any:
    x = 10
    rows = [[x * y for x in range(y) if x % 2 or x == 0] for y in range(n) if y != 2]
    table = {k: v for k, v in zip("abc", rows, strict=False) if v}
    return rows, table, {x for x in (1, 2, 3) if 1 < x <= n}, [*(x if x else -1 for x in range(n))], x


def conditions(n: int) -> Any:
    def noted(value: Any) -> Any:
        LOG.append(value)
        return value

    chain = noted(1) < noted(n) <= noted(4) != noted(3)
    both = (noted(n) and noted([])) or (noted("third") and not noted(0))
    return chain, both, n if n > 2 else noted(-n), not n, noted(n) in (1, 2) != None, 1 < 2 < n, n or None


def lambdas(n: int) -> Any:
    pick = lambda a, b=n, *rest, c=3: a if a > b else (rest and rest[0]) or c  # noqa: E731
    return pick(1), pick(9, 2), pick(0, 1, 5), pick(0, 1, c=0)


def private_names(n: int) -> Any:
    class __Hidden:
        __count = 0

        def __init__(self) -> None:
            self.__value = n

        def bump(self, __by: int) -> Any:
            while self.__value < 4:
                self.__value += __by
                if self.__value == 3:
                    __Hidden._Hidden__count = 1  # type: ignore[attr-defined]
            return self.__value, sorted(vars(self))

    return __Hidden().bump(1), vars(__Hidden())


class Base:
    def size(self) -> Any:
        return 1


class Derived(Base):
    def size(self) -> Any:
        for _ in range(2):
            if super().size() == 1:
                return super().size() + 1, __class__.__name__  # type: ignore[name-defined]
        return None

    @staticmethod
    def twice(n: int) -> Any:
        return (Derived.twice(n - 1) if n else 0), Derived.__name__


def methods(n: int) -> Any:
    return Derived().size(), Derived.twice(n)


def classes(n: int) -> Any:
    class Local(Base):
        kind = "small" if n < 3 else "large"
        if n > 4:
            extra = n
        sizes = tuple(k for k in range(n))

        def size(self) -> Any:
            if self.kind == "large" and super().size():
                return super().size() + n
            return len(self.sizes)

        @property
        def label(self) -> Any:
            return f"{self.kind!r:>8}" if n else None

    return Local().size(), Local().label, Local.__qualname__, Local.size.__qualname__, getattr(Local, "extra", None)


def decorated(n: int) -> Any:
    def times(k: int) -> Callable[[Any], Any]:
        def wrap(f: Any) -> Any:
            def inner(*args: Any, **options: Any) -> Any:
                return [f(*args, **options) for _ in range(k if k < 3 else 3)]

            return inner

        return wrap

    @times(n)
    def f(a: int, /, b: int = n, *args: int, c: int = 2 if n else 3, **more: int) -> Any:
        if args and more:
            return a, b, args, c, more
        return a or b or c

    return f(0), f(1, 2, 3, c=4, d=5), f.__name__


def recursion(n: int) -> Any:
    def fib(k: int) -> int:
        if k < 2:
            return k
        return fib(k - 1) + fib(k - 2)

    return fib(n), recursion(n - 1) if n > 4 else None


def generators(n: int) -> Any:
    def odd() -> Iterator[int]:
        for k in range(n):
            if k % 2:
                got = yield k
                if got:
                    return

    return [*odd()], sum(k for k in range(n) if k > 1)


def unpacking(n: int) -> Any:
    rows = [(1, (2, 3)), (4, (5, 6))]
    out = []
    box: dict[Any, Any] = {}
    for a, (b, *c) in rows:
        out.append((a, b, c))
    for box[n], out[0] in ((1, 2), (3, 4)):
        if n == 3:
            break
    return out, box


def asserts(n: int) -> Any:
    assert n != 2
    assert n < 4, f"{n} is too much"
    return n


def imports(n: int) -> Any:
    if n:
        import math as m
        from os import path
    return m.floor(n), path.sep


def never_ends_but_by_a_return(n: int) -> Any:
    k = 0
    while True:
        k += 1
        if k > n:
            return k


def changes_what_it_iterates(n: int) -> Any:
    items = [*range(n)]
    for item in items:
        if item == 1:
            items.append(9)
        if len(items) > 6:
            break
        LOG.append(item)
    return items


def augmented(n: int) -> Any:
    x = [0] * 3
    total, k = 0, 0
    while k < n:
        x[k % 3] += k
        total |= 1 << k
        k += 1
        total **= 1
    x *= 2 if n > 2 else 1
    return x, total


def annotated(n: int) -> Any:
    if n:
        x: int = n
        y: list[int]  # noqa: F842
    z: undefined = 1  # type: ignore[name-defined]  # noqa: F821
    return x, z


def positions(n: int) -> Any:
    table = {"a": 1}
    while n:
        n -= 1
        if n == 1:
            return table["a"] + table["b"]
    return (1 if n else 2) + ((n and table["c"]) or None)


def yields(n: int) -> Any:
    if n:
        yield n


def looks_at_names(n: int) -> Any:
    if n:
        return locals()
    return None


async def awaits(n: int) -> Any:
    if n:
        return n
