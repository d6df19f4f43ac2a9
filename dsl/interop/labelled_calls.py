"""Calls with labelled arrays (`interop/labelled.py`): compiled where the result is elementwise, so that each of its
elements keeps its label; else as the function is written.

The first call of a kind runs as it is written. Its result says which of the results have labels, and what else belongs
to them (names, attributes); later calls compute the values and put the arguments' index on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ...compiler.graph.graph import Graph
from ...runtime.core.frozen import dataclass
from ..core.errors import ArgumentKindError, UserError, user_line
from ..core.pytree import Tree, flatten, unflatten
from .labelled import LabelledKind, labelled_kind

MOST = 256  # kinds of calls that are remembered


class LabelledArguments(BaseException):
    """A call has labelled arrays among its arguments. Not an Exception, so that nobody swallows it."""


@dataclass(frozen=True)
class LabelledResult:
    """What the first call gave: the structure, and of each leaf the library's own result, the number of the argument
    that it is, or None for any other. captured: the trace that computes the same."""

    captured: Any
    tree: Tree
    leaves: tuple[Any, ...]


class LabelledCalls:
    """The calls of one function. compiled(*args): the values; written(args, options, reason): the call as
    it is written, with the reason to tell, if any; trace(*args): what is compiled."""

    def __init__(
        self,
        compiled: Callable[..., Any],
        trace: Callable[..., Any],
        written: Callable[[tuple[Any, ...], dict[str, Any], ArgumentKindError | None], Any],
    ) -> None:
        self._compiled, self._trace, self._written = compiled, trace, written
        self._known: dict[Hashable, LabelledResult | ArgumentKindError] = {}

    def call(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of a call, of the arguments' own kind where the library gives that."""
        leaves: list[Any] = []
        tree = flatten((args, options), leaves)
        which = {i: kind for i, x in enumerate(leaves) if (kind := labelled_kind(type(x))) is not None}
        values = {i: kind.values(leaves[i]) for i, kind in which.items()}
        if not which or any(array is None for array in values.values()):
            kind = next((which[i] for i, array in values.items() if array is None), None)
            return self._written(args, options, _refusal(kind, "its values are no array of one dtype"))
        first, kind = next(iter(which.items()))
        if any(row is not kind or not kind.alike(leaves[first], leaves[i]) for i, row in which.items()):
            return self._written(args, options, _refusal(kind, "the labels of two arguments differ"))
        key = (tree, tuple(_key_of_leaf(x) for x in leaves))
        plain, named = unflatten(tree, [values.get(i, x) for i, x in enumerate(leaves)])
        known = self._known.get(key)
        if known is None:
            return self._first_call(key, args, options, (plain, named), leaves, which)
        if isinstance(known, ArgumentKindError):
            return self._written(args, options, known)
        if self._trace(*plain, **named) is not known.captured:
            del self._known[key]
            return self.call(args, options)
        found: list[Any] = []
        flatten(self._compiled(*plain, **named), found, results=True)
        return unflatten(
            known.tree,
            [self._with_labels(*pair, leaves, kind, first) for pair in zip(found, known.leaves, strict=True)],
        )

    def _with_labels(self, ours: Any, theirs: Any, given: Sequence[Any], kind: LabelledKind, first: int) -> Any:
        if type(theirs) is int:
            return given[theirs]
        return ours if theirs is None else kind.relabelled(np.array(ours), given[first], theirs)

    def _first_call(
        self,
        key: Hashable,
        args: tuple[Any, ...],
        options: dict[str, Any],
        plain: tuple[Any, Any],
        leaves: Sequence[Any],
        which: dict[int, LabelledKind],
    ) -> Any:
        """Runs as it is written, and is remembered."""
        if len(self._known) >= MOST:
            self._known.clear()
        first, kind = next(iter(which.items()))
        try:
            captured = self._trace(*plain[0], **plain[1])
            reason = why_labels_are_lost(captured, which, leaves, kind.own)
        except Exception as error:  # what is written may be right for these objects, or says what is wrong itself
            captured, reason = None, str(error) if isinstance(error, UserError) else repr(error)
        if captured is None or reason:
            refusal = self._known[key] = _refusal(kind, reason)
            return self._written(args, options, refusal)
        values: list[Any] = []
        flatten(self._compiled(*plain[0], **plain[1]), values, results=True)
        result = self._written(args, options, None)
        found: list[Any] = []
        tree = flatten(result, found, results=True)
        places = {id(x): i for i, x in enumerate(leaves) if i in which}
        known = []
        for ours, x in zip(values, found, strict=True):
            row = labelled_kind(type(x))
            if row is not None and not (row is kind and _is_result_alike(kind, leaves[first], x, ours)):
                self._known[key] = _refusal(kind, "the library gives labels or a dtype of its own")
                return result
            known.append(places.get(id(x), None if row is None else x))
        self._known[key] = LabelledResult(captured, tree, tuple(known))
        return result


def _is_result_alike(kind: LabelledKind, given: Any, result: Any, ours: Any) -> bool:
    """Whether the library's result is the values that are computed here, with the labels of what is given."""
    values = kind.values(result)
    return values is not None and values.dtype == np.asarray(ours).dtype and kind.alike(given, result)


def _key_of_leaf(leaf: Any) -> Hashable:
    kind = labelled_kind(type(leaf))
    header = None if kind is None else kind.header(leaf)
    return type(leaf), getattr(leaf, "shape", None), str(getattr(leaf, "dtype", "")), header


def _refusal(kind: LabelledKind | None, reason: str) -> ArgumentKindError:
    array = "np.asarray(x)" if kind is None else kind.array
    return ArgumentKindError(
        f"an argument has labels, which only elementwise operations keep when they are compiled: {reason}; "
        f"pass {array} for the values alone",
        user_line(),
    )


def why_labels_are_lost(
    captured: Any, which: dict[int, LabelledKind], leaves: Sequence[Any], own: frozenset[str]
) -> str:
    """Why elements of a trace's results need not belong to those of its labelled arguments in the same places; nothing
    where they do. own: ops that are not NumPy's for these arguments."""
    if captured.state is not None or captured.assigned or captured.watched or captured.failures:
        return "the function changes or checks more than its result"
    return _not_elementwise(captured.graph, [n for n, leaf in enumerate(captured.feeds) if leaf in which], own)


def _not_elementwise(graph: Graph, labelled: Sequence[int], own: frozenset[str]) -> str:
    follows = {graph.inputs[i] for i in labelled}
    shapes = {graph.nodes[i].shape for i in follows}
    for number, node in enumerate(graph.nodes):
        if follows.isdisjoint(node.args):
            continue
        if node.kind != "map" or node.op in own or node.shape not in shapes:
            return f"{node.op} at {graph.lines[number]} is none of them"
        follows.add(number)
    return ""
