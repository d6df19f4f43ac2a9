"""A call's arguments as a trace sees them, and a trace that is over: data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ...compiler.graph.graph import Graph
from ...runtime.core.frozen import dataclass
from ..core.host_scalars import Host
from ..core.pytree import LEAF, Tree
from ..core.spec import Spec
from ..environment.guards import GuardSet
from ..state.argument_writes import ArgumentWrite, AssignedArguments
from ..state.changes import StateChanges
from ..trace.failures import Failures

Watched = tuple[tuple[tuple[int, ...], Callable[[Sequence[Any]], None]], ...]  # results, and what looks at them


@dataclass(frozen=True, slots=True)
class TracedArgument:
    """One leaf of the arguments: an array of a spec, a Python number that is passed at each call, or a static value.
    value: of what is no array, and of a 0-d NumPy array. key: what tells it apart from other arguments. strides: of an
    array whose layout (of a 0-d one: value) is part of the key. whole: what is assigned to it is wanted as a whole.
    own: of a static value whether each call has another one with the same contents."""

    spec: Spec | None
    value: Any
    key: Hashable
    static: bool = False
    strides: tuple[int, ...] | None = None
    whole: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class SpecializationEvent:
    """Something that happened to a function's versions.

    kind: `traced`, `traced again`, `compiled`, `placed`, `exchanges` or `split`; line: who called; shown: of a trace
    the leaves as people read them; tree: what they are the leaves of; microseconds: what it took."""

    kind: str
    text: str
    line: str = ""
    shown: tuple[str, ...] = ()
    microseconds: float = 0.0
    tree: Tree = LEAF


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A trace that is over, or a part of one. host: a call's leaves -> the graph's scalars, then the numbers that are
    returned. results: for each returned leaf ("array", output), ("number", place in host's results), ("argument",
    leaf), ("static", value), or ("fresh", value), of which each call gets a copy. feeds: the leaves that fill the
    graph's inputs, before `arrays`. text: of `host`, if it does anything. line: where it was split. watched: outputs
    that are looked at when they are there, and by what; failures: those that tell of errors, before anything is
    written; reruns: whether a call that has met one runs again in
    NumPy. rolled: remarks on Python loops. state: what the call does to
    its arguments, where they are opened."""

    graph: Graph
    arrays: tuple[np.ndarray[Any, Any], ...]
    host: Host
    checks: tuple[str, ...]
    tree: Tree
    results: tuple[tuple[str, Any], ...]
    assigned: AssignedArguments
    guards: GuardSet
    feeds: tuple[int, ...]
    text: str = ""
    line: str = ""
    watched: Watched = ()
    failures: Failures = ()
    reruns: bool = False
    rolled: tuple[str, ...] = ()
    state: StateChanges | None = None

    @property
    def writes(self) -> tuple[ArgumentWrite, ...]:
        """What is written to arguments, in order."""
        return tuple(write for _, writes in self.assigned for write in writes)

    @property
    def uses_holders(self) -> bool:
        """Whether a call changes, or gives, lists, dicts and objects that are opened in its arguments."""
        gives = any(kind == "holder" for kind, _ in self.results)
        return self.state is not None and (gives or bool(self.state.changes))


def no_host_numbers_of_call(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The `host` of a trace that does no arithmetic on the call's numbers."""
    return ()
