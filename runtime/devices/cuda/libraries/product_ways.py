"""A product that takes three times as long as predicted, when first used, is tried in other ways of the libraries; the
fastest of them stays, in this process and on disk. Times in, ways out.

Libraries choose their algorithms by rules of their own, which miss by factors (measured, H100: 256x1000 @ 1000x10 in
float32, four times, 47 us by cuBLAS and 20 us by another of cuBLASLt's). Nobody sees it but by the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from ....core.disk_cache import DiskCache
from ....core.frozen import frozen
from .gemm import GemmCall

SLOW = 3.0  # times as long as predicted, from which on other ways are tried
LEAST_US = 5.0  # microseconds: what is predicted to take less is a launch and little else
GAIN = 0.95  # another way must take less than this part of the time
FEW = 64  # products of a batch at most that are tried one by one
CHOICES = 8  # of cuBLASLt's that are tried


@frozen
class ProductWay:
    """choice: which of cuBLASLt's algorithms; None where it is cuBLAS, or the first that is right for an epilogue.
    one_by_one: one product of a batch after another."""

    choice: int | None = None
    one_by_one: bool = False

    def __str__(self) -> str:
        if self.one_by_one:
            return "one by one"
        return "as usual" if self.choice is None else f"by algorithm {self.choice} of cuBLASLt"


USUAL, ONE_BY_ONE = ProductWay(), ProductWay(one_by_one=True)


@frozen
class ChosenProductWay:
    """note: for people, where the usual way took three times what was predicted."""

    way: ProductWay = USUAL
    note: str = ""


def other_product_ways(call: GemmCall) -> tuple[ProductWay, ...]:
    """Those that may do a call beside the usual one."""
    choices = [ProductWay(i) for i in range(CHOICES)] if call.dtype in ("float32", "float16", "bfloat16") else []
    return (*choices, *[ONE_BY_ONE] * (1 < call.batch <= FEW and not call.epilogue))


def choose_product_way(
    ways: Sequence[ProductWay], measure: Callable[[ProductWay], float | None], predicted: float
) -> tuple[ProductWay, dict[str, float]]:
    """The way that stays, and microseconds of those that were measured, the usual one first. measure: None for a way
    that there is not."""
    usual = measure(USUAL)
    if usual is None or usual <= SLOW * max(predicted, LEAST_US):
        return USUAL, {} if usual is None else {str(USUAL): usual}
    times = {USUAL: usual} | {way: took for way in ways if (took := measure(way)) is not None}
    best = min(times, key=lambda way: times[way])
    return best if times[best] < GAIN * usual else USUAL, {str(way): took for way, took in times.items()}


def describe_product_ways(
    call: GemmCall, count: int, predicted: float, way: ProductWay, times: dict[str, float]
) -> str:
    """One line; empty where the usual way was as fast as predicted. count: of such calls together."""
    if len(times) < 2 and times.get(str(USUAL), 0.0) <= SLOW * max(predicted, LEAST_US):
        return ""
    n, m, k = call.shape
    times_done = call.batch * count
    what = f"{m}x{k} @ {k}x{n} in {call.dtype}" + (f", {times_done} times" if times_done > 1 else "")
    text = f"matmul: {what} took {times[str(USUAL)]:.1f} us for {predicted:.1f} predicted"
    if way == USUAL:
        return f"{text}; of {len(times) - 1} other ways none is faster"
    return f"{text}; {way} it takes {times[str(way)]:.1f} us"


_cache = DiskCache("product_times")


def load_product_way(key: str) -> tuple[ProductWay, dict[str, float]] | None:
    """What an earlier process has found."""
    payload = _cache.get(key)
    return None if payload is None else _parse_product_way(payload)


def pin_product_way(key: str, way: ProductWay, times: dict[str, float]) -> tuple[ProductWay, dict[str, float]]:
    """What all processes do from now on: of two that measure at once, what the first has found."""
    row = {"choice": way.choice, "one_by_one": way.one_by_one, "times": times}
    return _parse_product_way(_cache.put_first(key, json.dumps(row).encode())) or (way, times)


def _parse_product_way(payload: bytes) -> tuple[ProductWay, dict[str, float]] | None:
    try:
        row = json.loads(payload)
        way = ProductWay(None if row["choice"] is None else int(row["choice"]), bool(row["one_by_one"]))
        return way, {str(name): float(took) for name, took in row["times"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
