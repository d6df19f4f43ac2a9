"""CUDA kernel text run in plain Python, one thread after another, on checked memory.

Every access is checked: inside its buffer, aligned as its vector needs, shared memory written and read by different
threads only across a barrier, and no global element written by two threads or read by one and written by another.
A block's threads are generators: `barrier()` and exchanges become yields, so a divergent one is an error.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Sequence
from functools import cache
from inspect import isgeneratorfunction
from itertools import product
from queue import SimpleQueue
from types import CodeType
from typing import Any
from unittest.mock import patch

import numpy as np

from kernelgraph.compiler.targets.cuda.algorithms.kernel_language import Word
from kernelgraph.runtime.program.user_function import UserFunction

from .emulator_memory import Pointer, Thread, lanes, whole
from .emulator_vocabulary import user, vocabulary


class _AsGenerator(ast.NodeTransformer):
    """Calls of what threads do together become yields."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        assert isinstance(node.func, ast.Name)
        kind, _, which = node.func.id.partition("_")
        match kind, which:
            case "barrier", "":
                text = "(yield None)"
            case "cluster", "arrive":
                text = "None"
            case "cluster", "barrier" | "wait":
                text = "(yield ('cluster', 0, 0))"
            case "sync", "warp":
                text = "(yield ('sync', 0, 0))"
            case "ballot", "":
                text = f"(yield ('ballot', {ast.unparse(node.args[0])}, 0))"
            case "match", bits:
                text = f"(yield ('match', {ast.unparse(node.args[0])}, {bits}))"
            case "shuffle", _:
                text = f"(yield ('{which}', {', '.join(map(ast.unparse, node.args))}))"
            case "warp", _:
                text = f"(yield from butterfly({which}, {', '.join(map(ast.unparse, node.args))}))"
            case _:
                return node
        return ast.parse(text, mode="eval").body


def run(
    source: str,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Any],
    order: Any = None,
    functions: Sequence[UserFunction] = (),
    cluster: int = 0,
) -> None:
    """Launch the kernel. order: a random generator that shuffles the threads between barriers.

    functions: the user's, which the text calls. cluster: how many blocks run at the same time; 0: one after another."""
    thread = Thread(block)
    namespace: dict[str, Any] = {}
    exec(_compiled(source, name), namespace)
    function = namespace[name]
    own = {n: call for f in functions for n, call in user(f).items()}
    namespace.update({n: own.get(n) or vocabulary(thread, n) for n in function.__code__.co_names})
    tids = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(block)))]
    with np.errstate(all="ignore"):
        _run_blocks(thread, function, grid, tids, arguments, order, cluster)


@cache
def _compiled(source: str, name: str) -> CodeType:
    return compile(ast.unparse(_AsGenerator().visit(ast.parse(source))), f"<kernel {name}>", "exec")


def _run_blocks(
    thread: Thread,
    function: Any,
    grid: Sequence[int],
    tids: list[Any],
    arguments: Sequence[Any],
    order: Any,
    cluster: int,
) -> None:
    if cluster:
        thread.cluster = cluster
        for first in range(0, grid[0], cluster):
            thread.shared_of, thread.together = {}, 0
            blocks = [(block, 0, 0) for block in range(first, first + cluster)]
            _blocks(thread, function, arguments, [(b, t) for b in blocks for t in tids], len(tids), order)
        return
    for bid in product(*(range(n) for n in reversed(grid))):
        thread.shared = []
        if isgeneratorfunction(function):
            _block(thread, function, arguments, bid[::-1], tids, order)
        else:
            for tid in tids:
                thread.become(bid[::-1], tid, 0, 0, 0)
                function(*arguments)


def _block(thread: Thread, function: Any, arguments: Sequence[Any], bid: Any, tids: list[Any], order: Any) -> None:
    thread.shared_of = {bid[0]: thread.shared}
    _blocks(thread, function, arguments, [(bid, t) for t in tids], len(tids), order)


def _blocks(thread: Thread, function: Any, arguments: Sequence[Any], places: list[Any], size: int, order: Any) -> None:
    """Threads of one block, or of several (places: the number of each one's block) that run at the same time."""
    _threads(thread, [function(*arguments) for _ in places], places, size, order)


def _threads(thread: Thread, running: list[Any], places: list[Any], size: int, order: Any) -> None:
    calls, turns = [0] * len(places), [0] * len(places)
    epochs, clock = [0] * (len(places) // size), 0
    answers: list[Any] = [None] * len(places)
    alive = set(range(len(places)))
    asked: dict[int, Any] = {}  # by those that wait: None for a barrier, else an exchange
    while alive:
        turn = sorted(alive - asked.keys())
        if order is not None:
            order.shuffle(turn)
        for k in turn:
            bid, tid = places[k]
            thread.shared = thread.shared_of.setdefault(bid[0], [])
            thread.become(bid, tid, calls[k], epochs[k // size], turns[k])
            try:
                asked[k] = running[k].send(answers[k])
            except StopIteration:
                alive.discard(k)
            calls[k] = thread.calls
        answers = [None] * len(places)
        exchanges = {k: a for k, a in asked.items() if a is not None and a[0] != "cluster"}
        if not exchanges and asked:
            clock += 1
            here = {k // size for k, a in asked.items() if a is None}
            if here:
                for block in here:
                    members = range(block * size, block * size + size)
                    same = all(asked.get(k, 0) is None for k in members)
                    assert same, "a barrier that some threads of the block never reach"
                    epochs[block] = clock
                    for k in members:
                        del asked[k]
            else:
                assert len(asked) == len(places), "a barrier that some threads of the cluster never reach"
                epochs, thread.together, asked = [clock] * len(epochs), clock, {}
        while exchanges:
            k, (kind, _, which) = next(iter(exchanges.items()))
            warp = range(k // 32 * 32, min(k // 32 * 32 + 32, k // size * size + size))
            same = all(t in exchanges and exchanges[t][0] == kind for t in warp)
            assert same, "an exchange diverges within a warp"
            assert kind == "idx" or all(exchanges[t][2] == which for t in warp)
            _, values, others = zip(*(exchanges.pop(t) for t in warp), strict=True)
            for t, answer in zip(warp, _exchanged(kind, values, [whole(other) for other in others]), strict=True):
                turns[t] += kind == "sync"
                answers[t] = answer
                del asked[t]


def _exchanged(kind: str, values: Sequence[Any], others: Sequence[int]) -> list[Any]:
    """What each thread of a warp gets for its value and the number that it gives beside."""
    if kind == "sync":
        return [None] * len(values)
    if kind in ("match", "ballot"):
        numbers = [int(lanes(x)[0]) & ((1 << others[0]) - 1) if kind == "match" else bool(lanes(x)[0]) for x in values]
        masks: dict[int, int] = {}
        for lane, number in enumerate(numbers):
            masks[number] = masks.get(number, 0) | 1 << lane
        return [np.full(1, masks.get(n if kind == "match" else True, 0), np.uint32) for n in numbers]
    sources = [{"xor": lane ^ n, "up": lane - n, "idx": n}[kind] for lane, n in enumerate(others)]
    return [values[k] if 0 <= k < len(values) else x for k, x in zip(sources, values, strict=True)]


class _Stepped:
    """A thread of a kernel that is a Python function, as a thread of Python's: `send` lets it run on to what it does
    together with others."""

    def __init__(self, kernel: Any, arguments: Sequence[Any]) -> None:
        self.asked, self.answer = SimpleQueue[Any](), SimpleQueue[Any]()
        self.started = False
        self.thread = threading.Thread(target=self._work, args=(kernel, arguments), daemon=True)
        self.thread.stepped = self  # type: ignore[attr-defined]

    def _work(self, kernel: Any, arguments: Sequence[Any]) -> None:
        try:
            with np.errstate(all="ignore"):
                kernel(*arguments)
            self.asked.put(StopIteration())
        except BaseException as error:
            self.asked.put(error)

    def ask(self, request: Any) -> Any:
        self.asked.put(request)
        return self.answer.get()

    def send(self, answer: Any) -> Any:
        if self.started:
            self.answer.put(answer)
        else:
            self.started = True
            self.thread.start()
        request = self.asked.get()
        if isinstance(request, BaseException):
            raise request
        return request


def step(kernel: Any, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> None:
    """Launch a kernel of the kernel language as the Python function that it is, so that a debugger can step through."""
    thread = Thread(block)

    def call(word: Word, *given: Any) -> Any:
        request = _request(word.name, given)
        if request is None:
            return vocabulary(thread, word.name)(*given)
        stepped = threading.current_thread().stepped  # type: ignore[attr-defined]
        if request[0] != "butterfly":
            return stepped.ask(None if request[0] == "barrier" else request)
        combine, answer = vocabulary(thread, "butterfly")(vocabulary(thread, request[2]), *given), None
        while True:
            try:
                answer = stepped.ask(combine.send(answer))
            except StopIteration as end:
                return end.value

    with patch.object(Word, "__call__", call):
        for bid in product(*(range(n) for n in reversed(grid))):
            thread.shared_of = {bid[-1]: []}
            tids = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(block)))]
            running = [_Stepped(kernel, arguments) for _ in tids]
            _threads(thread, running, [(bid[::-1], t) for t in tids], len(tids), None)


def _request(name: str, given: Sequence[Any]) -> tuple[str, Any, Any] | None:
    """What a word asks other threads for."""
    kind, _, which = name.partition("_")
    match kind:
        case "barrier":
            return "barrier", 0, 0
        case "sync":
            return "sync", 0, 0
        case "ballot":
            return "ballot", given[0], 0
        case "match":
            return "match", given[0], int(which)
        case "shuffle":
            return which, *given  # type: ignore[return-value]
        case "warp":
            return "butterfly", 0, which
    return None


def pointer(array: np.ndarray[Any, Any], offset: int = 0, name: str = "", again: bool = False) -> Pointer:
    """A pointer to byte `offset` of a contiguous array's memory; writes go to the array. again: several to one place,
    where barriers are between them."""
    return Pointer(array.reshape(-1).view(np.uint8), offset, name, again=again)
