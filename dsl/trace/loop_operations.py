"""What NumPy's functions are made of in the body of a recorded loop: each writes statements there. Elsewhere they make
nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...compiler.core.types import DType
from ..core.context import context
from .tracer import Tracer


class LoopOperations(Protocol):
    """Operations on numbers and arrays of a loop's body, which stand where functions have traced arrays."""

    def lift(self, x: Any) -> Any:
        """An operand of any kind as one of the loop's; Python's own numbers as they are."""

    def to_array(self, x: Any) -> Tracer:
        """An operand of any kind as an array, or as a number of NumPy's."""

    def scalar(self, x: Any, dtype: DType) -> Tracer:
        """A number in the dtype of an array that it takes part in."""

    def apply(self, op: str, *args: Any, dtype: Any = None, **attrs: Any) -> Tracer:
        """Row `op` on broadcast operands."""

    def reduce(self, op: str, x: Tracer, axes: Sequence[int], dtype: DType | None) -> Tracer:
        """Row `op` along axes, which are gone then."""

    def matmul(self, x: Tracer, y: Tracer) -> Tracer:
        """x @ y."""

    def cast(self, x: Tracer, dtype: DType) -> Tracer:
        """With NumPy's C casts."""

    def view(self, x: Tracer, steps: Sequence[Any]) -> Tracer:
        """The same memory, looked at in other ways."""

    def copied(self, x: Tracer) -> Tracer:
        """In memory of its own."""

    def filled(self, shape: Any, value: Any, dtype: DType | None) -> Tracer:
        """A new array. value: of all its elements; None where nobody reads them."""

    def store(self, target: Any, value: Tracer, casting: str) -> Tracer:
        """`target[...] = value`, of the same shape; target."""

    def get_item(self, x: Any, key: Any) -> Tracer:
        """`x[key]`."""

    def set_item(self, x: Any, key: Any, value: Any) -> None:
        """`x[key] = value`."""


def loop_operations() -> LoopOperations | None:
    """Those of the loop whose body runs in this thread, if one is recorded."""
    return None if context.trace is None else context.trace.recorder
