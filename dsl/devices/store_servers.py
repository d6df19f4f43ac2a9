"""Servers of a `dist_async` store: each keeps some keys' values and updates them at every push, one after another.

A server is a thread beside a rank. A key is on the server that its hash names; a large array is cut over all of them.
Workers and servers exchange short texts, each with an array's bytes; from one worker to one server they keep their
order, so what a worker pulls has all that it pushed before.
"""

from __future__ import annotations

import functools
import pickle
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.core.errors import RankError
from ...runtime.core.frozen import dataclass
from ...runtime.engine.communicator import EngineCommunicator
from ...runtime.program.world import World
from ..array.array import Array, from_numpy
from ..array.devices import device_named

MISSED_SECONDS = 0.5  # so long after a rank has ended its last messages have come
BIG_ELEMENTS = 1_000_000  # MXNet's MXNET_KVSTORE_BIGARRAY_BOUND
Host = np.ndarray[Any, Any]
Key = int | str
Part = tuple[Key, int]  # a key, and the number of a piece of its array
# update(part, pushed, stored): change what is stored, in place
Update = Callable[[Part, Host, Array], None]
NOTHING = np.empty(0, np.uint8)
UPDATES, ANSWERED = frozenset({"push", "pushpull"}), frozenset({"pull", "pushpull"})


@dataclass(frozen=True, slots=True)
class ArrayPiece:
    """Elements start to stop of a flat array, on a server."""

    part: Part
    server: int
    start: int
    stop: int


def pieces_of(key: Key, count: int, servers: int) -> list[ArrayPiece]:
    """Where the elements of a key's array are."""
    if count < BIG_ELEMENTS or servers == 1:
        return [ArrayPiece((key, 0), zlib.crc32(repr(key).encode()) % servers, 0, count)]
    edges = [count * i // servers for i in range(servers + 1)]
    return [ArrayPiece((key, i), i, edges[i], edges[i + 1]) for i in range(servers)]


def _request_as_text(kind: str, part: Part, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What a server is asked, and the array that comes with it. kind: `init`, `push`, `pull`, `pushpull`, `flush` or
    `meet`."""
    return pickle.dumps((kind, part, dtype, shape))


_read_request = functools.lru_cache(maxsize=4096)(pickle.loads)


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """What the server of a piece is asked, in its text. own: it is this rank's."""

    piece: ArrayPiece
    text: bytes
    own: bool


class KeyValueStoreServer:
    """What one server keeps. Messages of all ranks are handled one after another."""

    def __init__(self, world: World, channel: int, update: Update) -> None:
        self.world, self.channel, self.update = world, channel, update
        self.values: dict[Part, Array] = {}
        self._arrived: list[int] = []  # who is at the barrier
        self._lock = threading.RLock()
        self._stopped = False
        self._missed_since = 0.0
        self._thread = threading.Thread(target=self._serve_messages, name=f"server of rank {world.rank}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._thread.join()

    def _serve_messages(self) -> None:
        try:
            while (message := self.world.receive(self.channel, self._has_server_stopped)) is not None:
                source, text, data = message
                kind, part, dtype, shape = _read_request(text)
                answer = self.handle(source, kind, part, np.ndarray(shape, dtype, data))
                if answer is not None:
                    self.world.send_array(answer, source, self.channel + 1)
        except Exception as error:  # `handle` has told all ranks
            if isinstance(error, RankError):
                return
            self.world.fail(f"the store's server failed: {type(error).__name__}: {error}")

    def _has_server_stopped(self) -> bool:
        """Asked while there is no message: also a look at who will not come to the barrier."""
        missed = self.world.lost() - {*self._arrived} if self._arrived else set()
        if not missed:
            self._missed_since = 0.0
        elif not self._missed_since:
            self._missed_since = time.monotonic()
        elif time.monotonic() - self._missed_since > MISSED_SECONDS:
            self.world.fail(f"rank {min(missed)} has ended, and others wait at the store's barrier", (min(missed),))
        return self._stopped

    def handle(self, source: int, kind: str, part: Part, data: Host) -> Host | None:
        """Do what a message asks for; what a pull is answered. What fails is an error on all ranks."""
        try:
            with self._lock:
                if kind in UPDATES:
                    self.update(part, data, self.values[part])
                if kind in ANSWERED:
                    return self.values[part].numpy()  # an update does not change that, but puts another in its place
                if kind == "init":
                    self.values[part] = from_numpy(data.copy(), device_named("cpu"), own=True)
                elif kind == "flush":
                    return data
                elif kind == "meet":
                    self._arrive_at_barrier(source)
                return None
        except Exception as error:
            self.world.fail(f"an update of {part[0]!r} failed: {type(error).__name__}: {error}")
            raise

    def _arrive_at_barrier(self, source: int) -> None:
        self._arrived.append(source)
        self.world.awaited[self] = {*range(self.world.size)} - {*self._arrived}
        if len(self._arrived) == self.world.size:
            self._arrived.clear()
            for rank in range(self.world.size):
                self.world.send_array(NOTHING, rank, self.channel + 1)


class KeyValueStoreWorker:
    """A rank's side of the servers. Calls of one rank are in order; a push waits in the background for its values."""

    def __init__(self, communicator: EngineCommunicator, update: Update) -> None:
        self.communicator, self.world = communicator, communicator.world
        self._channel = 2 * next(communicator.numbers)
        self.server = KeyValueStoreServer(self.world, self._channel, update)
        self._later = EngineCommunicator(self.world)
        self._waiting = 0
        self._requests: dict[tuple[str, Key], list[PieceRequest]] = {}
        self._lock = threading.RLock()
        communicator.before_close.append(self.close)

    def init(self, key: Key, value: Host) -> None:
        """Rank 0's value counts."""
        if self.world.rank == 0:
            self._send_pieces_to_servers("init", key, value)
        self.barrier()

    def push(self, key: Key, array: Host) -> None:
        """Send an array to its servers, after what this rank has pushed before; it may change after that."""
        with self._lock:
            if not self._waiting:
                self._send_pieces_to_servers("push", key, array)
                return
            copy = array.copy()
        self.push_later(key, lambda: copy)

    def push_later(self, key: Key, read: Callable[[], Host]) -> None:
        """Send what `read` gives to its servers, in the background, since it takes time."""
        with self._lock:
            self._waiting += 1
        self._later.submit(lambda: self._push_value_from_thread(key, read), f"the push of {key!r}")

    def _push_value_from_thread(self, key: Key, read: Callable[[], Host]) -> None:
        try:
            self._send_pieces_to_servers("push", key, read())
        finally:
            with self._lock:
                self._waiting -= 1

    def pull(self, key: Key, out: Host) -> None:
        """Fill an array with a key's value, after all that this rank has pushed."""
        self._ask_and_receive("pull", key, None, out)

    def push_and_pull(self, key: Key, array: Host, out: Host) -> None:
        """Send an array to its servers and fill another with what they have then, in one message each way."""
        self._ask_and_receive("pushpull", key, array, out)

    def _ask_and_receive(self, kind: str, key: Key, array: Host | None, out: Host) -> None:
        self._finish_pushes()
        with self._lock:
            requests = self._requests_of_key(kind, key, array, out.size)
            given = [NOTHING for _ in requests] if array is None else _pieces_of_array(array, requests)
            for request, data in zip(requests, given, strict=True):  # all are asked before any is waited for
                if not request.own:
                    self.world.send(request.text, data, request.piece.server, self._channel)
            for request, data, values in zip(requests, given, _pieces_of_array(out, requests), strict=True):
                if not request.own:
                    self.world.receive_array(values, request.piece.server, self._channel + 1)
                else:
                    values[...] = self.server.handle(self.world.rank, kind, request.piece.part, data)

    def barrier(self) -> None:
        """Wait until all workers are here, and the servers have what they pushed before."""
        self._finish_pushes()
        others = [r for r in range(self.world.size) if r != self.world.rank]
        with self._lock:
            for server in others:
                self._send_request_without_array("flush", server)
            for server in others:
                self.world.receive_array(NOTHING, server, self._channel + 1)
            self._send_request_without_array("meet", 0)
            self.world.receive_array(NOTHING, 0, self._channel + 1)

    def close(self) -> None:
        """When all workers have come here; the servers end."""
        self.barrier()
        self.server.stop()

    def _finish_pushes(self) -> None:
        if self._waiting:
            self._later.submit(lambda: None, "the pushes before").wait()

    def _send_pieces_to_servers(self, kind: str, key: Key, array: Host) -> None:
        array = np.asarray(array, order="C")
        requests = self._requests_of_key(kind, key, array, array.size)
        for request, data in zip(requests, _pieces_of_array(array, requests), strict=True):
            if request.own:
                self.server.handle(self.world.rank, kind, request.piece.part, data)
            else:
                self.world.send(request.text, data, request.piece.server, self._channel)

    def _requests_of_key(self, kind: str, key: Key, array: Host | None, count: int) -> list[PieceRequest]:
        """What the servers of a key's pieces are asked, the same each time: its arrays are of one dtype and shape.
        count: of its elements."""
        found = self._requests.get((kind, key))
        if found is None:
            found, pieces = [], pieces_of(key, count, self.world.size)
            for piece in pieces:
                shape = (0,) if array is None else array.shape if len(pieces) == 1 else (piece.stop - piece.start,)
                text = _request_as_text(kind, piece.part, NOTHING.dtype if array is None else array.dtype, shape)
                found.append(PieceRequest(piece, text, piece.server == self.world.rank))
            self._requests[kind, key] = found
        return found

    def _send_request_without_array(self, kind: str, server: int) -> None:
        self.world.send(_request_as_text(kind, ("", 0), NOTHING.dtype, NOTHING.shape), NOTHING, server, self._channel)


def _pieces_of_array(array: Host, requests: Sequence[PieceRequest]) -> list[Host]:
    """The parts of a key's array that go to servers, C-contiguous: all of it, or flat ones."""
    if len(requests) == 1:
        return [array]
    flat = array.reshape(-1)
    return [flat[request.piece.start : request.piece.stop] for request in requests]
