"""When a Python loop is captured: it runs turn by turn until it is seen to be long, goes back, and becomes one node.

A loop that cannot be captured goes on turn by turn where it stands, and is not asked again. The outermost one of a nest
is asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import length_hint
from types import CodeType
from typing import Any, NoReturn

from ...compiler.graph.graph import Node
from ...runtime.core.frozen import frozen
from ...runtime.core.settings import settings
from ..control_flow.loops import FEW
from ..control_flow.savepoint import Savepoint
from ..core.errors import Refusal, UnsupportedError
from ..core.object_model import is_user_class
from ..trace.trace import REPEATED, ROUTINE, KnownLoops, LoopNotRecordable, Trace, TraceAgain
from .iterables import axes_of_indices, count_loop_items, goes_over_list
from .record import record_loop_as_repeated_body, record_loop_as_routine, record_while_as_routine

# When a loop is captured, by the operations that it will have made:
LONG = 128  # most of them on single elements, or on arrays of ever new shapes
SURE = 512  # any others, and nests of loops
MANY = 2048  # the same on a GPU; and loops of at most FEW turns

# When it is looked at, and what is seen there:
LOOKS = 3  # turns before the first look; twice as many before each next one
RAGGED = 6  # shapes change where one operation in so many is new
SINGLE = 0.75  # the part of the operations that have one element
CAPTURES = 64  # times that one loop is captured, in turns of another one that is not

# When tracing turn by turn is given up, by the operations of the trace:
TURNS = 8  # to a line of the source: with fewer these are no turns
LONGEST = 4096
HEAVY = 128  # that are calls of libraries
UNWRITTEN = 8192  # and there are functions without source, whose loops cannot be captured
ENDLESS = 65_536  # whatever they are; half as many in a nest of loops


@frozen
class UserLoop:
    """A loop of the user's. site: the code of its body. count: of its turns, if that is known. functions: all that it
    calls. turns: runs it turn by turn, and calls what it is given after each. captures: the ways to make it a node."""

    site: CodeType
    count: int | None
    functions: tuple[Callable[..., Any], ...]
    turns: Callable[[Callable[[], None]], Any]
    captures: Mapping[str, Callable[[], Any]]

    @property
    def is_short(self) -> bool:
        return self.count is not None and self.count <= FEW


class LoopGoesBack(TraceAgain):
    """A loop goes back to where it began, to be captured."""

    def __init__(self, run: RunningLoop) -> None:
        super().__init__()
        self.run = run


class RunningLoop:
    """A loop that runs turn by turn, and may go back to be captured in one of these ways."""

    def __init__(self, loop: UserLoop, ways: list[str], began: int, savepoint: Savepoint) -> None:
        self.loop, self.ways, self.began, self.savepoint = loop, ways, began, savepoint
        self.done, self.next_look = 0, LOOKS
        self.turn = self.next_turn = began  # the first nodes of the latest turn, and behind it
        self.nested = False  # whether other loops are in it


class LoopCapture:
    """The loops of one trace."""

    def __init__(self, trace: Trace, known: KnownLoops) -> None:
        self.trace, self.known = trace, known
        self.running: list[RunningLoop] = []  # outermost first
        self.nesting = 0  # how many loops run turn by turn, one in another
        self.way: str | None = None  # in which a loop was captured: so are the next ones, from their first turn on
        self.captured: list[CodeType] = []
        self.is_due = False  # whether the trace has become that much longer

    # what loops there are

    def run_for(
        self, iterable: Any, body: Callable[[Any], Any], stop: Callable[[], Any] | None, turns: Callable[..., Any]
    ) -> None:
        """`for item in iterable: body(item)`, until `stop()`."""
        trace, count = self.trace, count_loop_items(iterable)
        captures: dict[str, Callable[[], Any]] = {}
        is_listed = goes_over_list(iterable)
        if count is not None and not is_listed:
            captures[ROUTINE] = partial(record_loop_as_routine, trace, iterable, body, stop, count <= FEW)
        if count is not None and stop is None and not axes_of_indices(iterable):
            captures[REPEATED] = partial(record_loop_as_repeated_body, trace, iterable, body, count, self.known)
        is_other = (count is None or is_listed) and not is_user_class(type(iterable))  # whose `__len__` may do more
        if is_other and length_hint(iterable) > FEW:
            self.known.refuse(body.__code__, ROUTINE, "it goes over more than ranges and arrays")
        self._run(UserLoop(body.__code__, count, (body, *([stop] if stop else [])), turns, captures))

    def run_while(
        self,
        test: Callable[[], Any],
        body: Callable[[], Any],
        stop: Callable[[], Any] | None,
        turns: Callable[..., bool],
    ) -> None:
        """`while test(): body()`, until `stop()`."""
        captures = {ROUTINE: partial(record_while_as_routine, self.trace, test, body, stop)}
        self._run(UserLoop(body.__code__, None, (test, body, *([stop] if stop else [])), turns, captures))

    # what becomes of one

    def _ways(self, loop: UserLoop) -> list[str]:
        """In which it may be captured here."""
        trace = self.trace
        if trace.depth > trace.deriving or trace.turn is not None or loop.count == 0:
            return []
        apart = not (trace.depth > trace.deriving or trace.loops or trace.path or trace.handlers)
        ways = [way for way in loop.captures if self.known.may_capture(loop.site, way)]
        return [way for way in ways if way == ROUTINE or apart]

    def _way_at_once(self, loop: UserLoop, ways: list[str]) -> str | None:
        """In which it is captured without a turn."""
        way = self.known.at_once.get(loop.site, self.way if (loop.count or 0) > FEW else None)
        way = REPEATED if way == ROUTINE and ROUTINE not in ways else way
        if way not in ways or (way == REPEATED and (loop.count or 0) <= FEW):
            return None
        return way

    def _run(self, loop: UserLoop) -> Any:
        while True:
            ways = self._ways(loop)
            way = self._way_at_once(loop, ways)
            waits = any(ROUTINE in run.ways and not run.loop.is_short for run in self.running)
            if way is None and (not ways or waits):
                return self._turns(loop, None)
            savepoint, goes_back = Savepoint(self.trace, loop.functions), True
            run = RunningLoop(loop, ways, len(self.trace.builder.nodes), savepoint) if way is None else None
            try:
                found = self._captured(loop, way) if way is not None else self._turns(loop, run)
                goes_back = False
                return found
            except (LoopGoesBack, LoopNotRecordable, Refusal) as reason:
                if not (goes_back := self._goes_back(loop, run, way, reason)):
                    raise
            except BaseException:
                goes_back = False
                raise
            finally:
                if not goes_back:
                    savepoint.close()
            if not savepoint.go_back():
                if way is not None and not self.trace.caught_refusals():
                    self._refuse_all(loop.site, self.known.reasons.get(loop.site, "it cannot go back"))
                self.trace.restart = None  # the reason, which is noted by now
                raise TraceAgain

    def _goes_back(
        self,
        loop: UserLoop,
        run: RunningLoop | None,
        way: str | None,
        reason: LoopGoesBack | LoopNotRecordable | Refusal,
    ) -> bool:
        """Whether a loop goes back for this reason. What it shall do then is noted."""
        known, site = self.known, loop.site
        if isinstance(reason, LoopGoesBack):
            goes = reason.run is run
        elif isinstance(reason, LoopNotRecordable):
            goes = way is not None and reason.site in (None, site)
            if goes and reason.way:
                known.at_once[site] = reason.way
            elif way is not None and goes:
                known.refuse(site, way, reason.reason)
        else:  # which may be followed in a routine
            goes = run is not None and ROUTINE in run.ways and not self.trace.depth
            if goes:
                known.at_once[site] = ROUTINE
        return goes

    def _send_back(self, run: RunningLoop, way: str) -> NoReturn:
        self.known.at_once[run.loop.site] = way
        raise LoopGoesBack(run)

    @contextmanager
    def _restarts_raised(self) -> Iterator[None]:
        """Raises the restart that the function's own handler has swallowed, or its `finally` made another error."""
        try:
            yield
        except Exception:
            if self.trace.restart is None:
                raise
        if self.trace.restart is not None:
            raise self.trace.restart

    def _refuse_all(self, site: CodeType, reason: str) -> None:
        for way in (ROUTINE, REPEATED):
            self.known.refuse(site, way, reason)

    def _captured(self, loop: UserLoop, way: str) -> Any:
        if self.captured.count(loop.site) >= CAPTURES:
            self._refuse_all(loop.site, f"it is in more than {CAPTURES} turns of a loop that are traced one by one")
            raise TraceAgain
        with self._restarts_raised():
            found = loop.captures[way]()
        self.captured.append(loop.site)
        self.trace.has_repeated_bodies |= way == REPEATED
        self.way = self.way or way
        return found

    def _turns(self, loop: UserLoop, run: RunningLoop | None) -> Any:
        for around in self.running:
            around.nested = True
        self.nesting += 1
        if run is not None:
            self.running.append(run)
        refusals = len(self.trace.refusals)
        try:
            with self._restarts_raised():
                found = loop.turns(partial(self._end_turn, run))
            if run is not None and ROUTINE in run.ways:
                if len(self.trace.refusals) > refusals:
                    self.trace.check_refusals()
                if found is True and self._is_better_as_routine(run):
                    self._send_back(run, ROUTINE)
            return found
        finally:
            self.nesting -= 1
            if run is not None:
                self.running.remove(run)

    # when

    def _end_turn(self, run: RunningLoop | None) -> None:
        """To be called after each turn."""
        if run is not None:
            run.done += 1
            run.turn, run.next_turn = run.next_turn, len(self.trace.builder.nodes)
        if not self.is_due and (run is None or run.done < run.next_look):
            return
        self.is_due = False
        if run is not None and run.done >= run.next_look:
            run.next_look *= 2
        for other in self.running:
            way = self._better_way(other) if settings.roll else None
            if way is not None and not other.savepoint.has_changed_others():
                self._send_back(other, way)
            if way is not None:
                self._refuse_all(other.loop.site, "it changes what cannot be put back, such as an iterator")
                other.ways = []

    def _better_way(self, run: RunningLoop) -> str | None:
        """How a loop had better be captured; None where it had better go on."""
        trace, count = self.trace, run.loop.count or 0
        nodes, length = trace.builder.nodes[run.began :], len(trace.builder.nodes)
        total = run.began + len(nodes) * max(count, run.done, 1) // max(run.done, 1)
        if total < LONG or (run.loop.is_short and len(nodes) < MANY):
            return None
        if ROUTINE in run.ways and (self._is_ragged_or_single(run, nodes) or (run.nested and total >= SURE)):
            return ROUTINE
        most = SURE if trace.target_name() == "cpu" else MANY
        if REPEATED in run.ways and count > FEW and total >= most:
            return REPEATED
        return ROUTINE if ROUTINE in run.ways and length >= SURE else None

    def _is_better_as_routine(self, run: RunningLoop) -> bool:
        """Whether a loop that a value ends is over single elements."""
        trace = self.trace  # which has to be able to run again in NumPy: errors have the user's lines there
        return trace.reruns and not trace.deriving and _are_single_elements(self.trace.builder.nodes[run.began :])

    def _is_ragged_or_single(self, run: RunningLoop, nodes: list[Node]) -> bool:
        """Whether most is done to single elements, or to arrays of ever new shapes."""
        if _are_single_elements(nodes):
            return True
        latest = run.turn - run.began if run.done <= LOOKS else len(nodes) // 2
        return run.done > 1 and _do_shapes_change(nodes, latest)

    def note_length(self) -> None:
        """To be called where a trace has become long. Raises UnsupportedError, at the loop's line, where it would
        compile for hours."""
        builder = self.trace.builder
        length = len(builder.nodes)
        self.is_due, builder.limit = True, length * 2
        if self.trace.turn is not None:
            builder.limit = length + SURE
            self.trace.turn.check_length()
            return
        if length < TURNS * len({*builder.lines}):
            return
        most = UNWRITTEN if self.trace.unwritten and not self.nesting else ENDLESS // max(min(self.nesting, 2), 1)
        is_long = length >= LONGEST or sum(node.kind == "library" for node in builder.nodes) >= HEAVY
        if length >= most or (is_long and not self._may_go_back()):
            raise UnsupportedError(self._text_of_too_long_loop())

    def _may_go_back(self) -> bool:
        """Whether a loop around may still be captured."""
        return self.trace.builder.limit <= LONGEST and any(ROUTINE in run.ways for run in self.running)

    def _text_of_too_long_loop(self) -> str:
        found = [f"of {name}: {reason}" for name, reason in self.trace.unwritten.items()]
        found = [text for text in dict.fromkeys((*found, *self.known.reasons.values())) if _TURN_BY_TURN not in text]
        why = f", since {'; '.join(found[:3])}" if found else ""
        return (
            f"{_TURN_BY_TURN}{why}, and has made {len(self.trace.builder.nodes)} operations; decorate a "
            "function of its body, called from a loop in Python, or write kg.fori_loop, kg.scan or whole-array "
            "operations"
        )


_TURN_BY_TURN = "a loop is traced turn by turn"


def _do_shapes_change(nodes: list[Node], half: int) -> bool:
    """Whether many operations are none that there was before, whatever they are done to."""
    known = {(node.op, node.shape) for node in nodes[:half]}
    new = {(node.op, node.shape) for node in nodes[half:]} - known
    return len(new) * RAGGED >= len(nodes) - half


def _are_single_elements(nodes: list[Node]) -> bool:
    """Whether most is done to single elements."""
    found = [node for node in nodes if node.kind in ("map", "view", "reduce")]
    most = FEW if any(node.kind == "library" for node in nodes) else 1  # a call costs more than a few elements
    return bool(found) and sum(node.type.size <= most for node in found) >= SINGLE * len(found)
