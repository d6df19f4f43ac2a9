"""CUDA kernel text run in plain Python, one thread after another, on checked memory.

Every access is checked: inside its buffer, aligned as its vector needs, shared memory written and read by different
threads only across a barrier, and no global element written by two threads or read by one and written by another.
A block's threads are generators: `barrier()` and exchanges become yields, so a divergent one is an error.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Sequence
from itertools import product
from queue import SimpleQueue
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
    thread = Thread()
    namespace: dict[str, Any] = {}
    text = ast.unparse(_AsGenerator().visit(ast.parse(source)))
    exec(compile(text, f"<kernel {name}>", "exec"), namespace)
    function = namespace[name]
    own = {n: call for f in functions for n, call in user(f).items()}
    namespace.update({n: own.get(n) or vocabulary(thread, n) for n in function.__code__.co_names})
    thread.bdim = tuple(block)
    if cluster:
        tids = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(block)))]
        thread.cluster = cluster
        for first in range(0, grid[0], cluster):
            thread.shared_of, thread.together = {}, 0
            blocks = range(first, first + cluster)
            _blocks(thread, function, arguments, [(b, t) for b in blocks for t in tids], len(tids), order)
        return
    for bid in product(*(range(n) for n in reversed(grid))):
        thread.bid, thread.shared, thread.epoch, thread.turn = bid[::-1], [], 0, 0
        tids = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(block)))]
        if "yield" in text:
            _block(thread, function, arguments, tids, order)
        else:
            for tid in tids:
                thread.tid, thread.calls = tid, 0
                function(*arguments)


def _block(thread: Thread, function: Any, arguments: Sequence[Any], tids: list[Any], order: Any) -> None:
    thread.shared_of = {thread.bid[0]: thread.shared}
    _blocks(thread, function, arguments, [(None, t) for t in tids], len(tids), order)


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
            bid, thread.tid = places[k]
            if bid is not None:
                thread.bid, thread.shared = (bid, 0, 0), thread.shared_of.setdefault(bid, [])
            thread.calls, thread.turn, thread.epoch = calls[k], turns[k], epochs[k // size]
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
        for k, (kind, x, which) in exchanges.items():
            warp = range(k // 32 * 32, min(k // 32 * 32 + 32, k // size * size + size))
            same = all(t in exchanges and exchanges[t][0] == kind for t in warp)
            assert same, "an exchange diverges within a warp"
            assert kind == "idx" or all(exchanges[t][2] == which for t in warp)
            turns[k] += kind == "sync"
            answers[k] = _exchanged(k, warp, kind, x, whole(which), [exchanges[t][1] for t in warp])
            del asked[k]


def _exchanged(k: int, warp: range, kind: str, x: Any, which: int, values: list[Any]) -> Any:
    """What thread k gets; `values` are those of its warp."""
    lane = k - warp[0]
    if kind == "sync":
        return None
    if kind in ("match", "ballot"):
        mask, own = (1 << which) - 1, int(lanes(x)[0])
        same = (((int(lanes(y)[0]) ^ own) & mask == 0) if kind == "match" else bool(lanes(y)[0]) for y in values)
        return np.full(1, sum(1 << t for t, holds in enumerate(same) if holds), np.uint32)
    other = {"xor": lane ^ which, "up": lane - which, "idx": which}[kind]
    return values[other] if 0 <= other < len(values) else x


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
    thread = Thread()
    thread.bdim = tuple(block)

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
            thread.bid, thread.shared, thread.epoch, thread.turn = bid[::-1], [], 0, 0
            thread.shared_of = {thread.bid[0]: thread.shared}
            tids = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(block)))]
            running = [_Stepped(kernel, arguments) for _ in tids]
            _threads(thread, running, [(None, t) for t in tids], len(tids), None)


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
