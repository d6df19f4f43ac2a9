"""Well-known NumPy programs of many fields, written as their authors would: plain NumPy, nothing of `kernelgraph`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

MODULES = (
    "fluids",
    "stencils",
    "patterns",
    "particles",
    "finance",
    "imaging",
    "statistics",
    "learning",
    "networks",
    "signals",
    "earth",
    "solvers",
)
LOOPS = ("polybench", "classics")  # whose programs are loops of all kinds; some have the names of others above


@dataclass(frozen=True)
class Case:
    """One program. make: a size -> its arguments, made anew at each call. small, large: the sizes of tests and of
    benchmarks. decides: its loops end as values decide, so that numbers which it returns are arrays of no axis. ulps:
    of the largest element, for programs that amplify rounding. after: where the algorithm is described. turns: a number
    -> arguments with which its outermost loop has so many turns."""

    function: Callable[..., Any]
    make: Callable[[int], tuple[Any, ...]]
    small: int
    large: int
    after: str
    decides: bool = False
    ulps: float = 64
    turns: Callable[[int], tuple[Any, ...]] | None = None

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def field(self) -> str:
        return self.function.__module__.rpartition(".")[2]


def cases(modules: Iterable[str] = MODULES) -> list[Case]:
    """All programs, field by field."""
    return [case for module in modules for case in import_module(f".{module}", __name__).CASES]
