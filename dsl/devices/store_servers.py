"""Servers of a `dist_async` store: each keeps some keys' values and updates them at every push, one after another.

A server is a thread beside a rank. A key is on the server that its hash names; a large array is cut over all of them.
Workers and servers exchange short texts, each with an array's bytes; from one worker to one server they keep their
order, so what a worker pulls has all that it pushed before.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.core.errors import RankError
from ...runtime.core.frozen import dataclass
from ...runtime.core.settings import settings
from ...runtime.engine.communicator import EngineCommunicator
from ...runtime.program.world import World
from ..array.array import Array, from_numpy
from ..array.devices import device_named
from ..core.errors import ArgumentsError
from ..core.spec import Host, Spec, spec
from .compression import GradientCompression
from .stored_values import Key, Part, StoredValue, StoredValues

MISSED_SECONDS = 0.5  # so long after a rank has ended its last messages have come
BIG_ELEMENTS = 1_000_000  # MXNet's MXNET_KVSTORE_BIGARRAY_BOUND
NOTHING = np.empty(0, np.uint8)
NO_PART: Part = ("", 0)
NOTE_BYTES = 1024  # of what ranks tell each other at a barrier of updates that failed
UPDATES, ANSWERED = frozenset({"push", "pushpull"}), frozenset({"pull", "pushpull", "rows"})
USES = UPDATES | ANSWERED


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


@dataclass(frozen=True, slots=True)
class MessageArray:
    """The array of a message. compression: its codes come in its place."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    compression: GradientCompression | None = None

    def read(self, data: Host) -> Any:
        """The array whose bytes came."""
        if self.compression is None:
            return np.ndarray(self.shape, self.dtype, data)
        return self.compression.sum_of(data[None], spec(self.shape, self.dtype), "cpu")


def _request_as_text(kind: str, part: Part, array: MessageArray) -> bytes:
    """What a server is asked, and the array that comes with it. kind: `init`, `push`, `pull`, `pushpull`, `flush`,
    `meet`, `leave` or `rows`."""
    return pickle.dumps((kind, part, array))


NO_ARRAY = MessageArray(NOTHING.dtype, NOTHING.shape)
_read_request = functools.lru_cache(maxsize=4096)(pickle.loads)


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """What the server of a piece is asked, in its text. own: it is this rank's."""

    piece: ArrayPiece
    text: bytes
    array: MessageArray
    own: bool


class KeyValueStoreServer:
    """What one server keeps. Messages of all ranks are handled one after another.

    It ends when all ranks have left it, which may be long before the program ends."""

    def __init__(self, world: World, channel: int, ended: Callable[[], None]) -> None:
        """ended: called when all ranks have left."""
        self.world, self.channel, self._ended = world, channel, ended
        self.values = StoredValues(_refuse_push_without_updater)
        self.lock = threading.RLock()
        self._arrived: dict[int, str] = {}  # who is at the barrier, and what failed of his
        self._failures: dict[int, str] = {}  # of ranks' updates, which they do not know yet
        self._left: set[int] = set()  # who sends no more
        self._is_leaving: Callable[[], bool] = lambda: False
        self._missed_since = 0.0
        self._thread = threading.Thread(target=self._serve_messages, name=f"server of rank {world.rank}", daemon=True)
        self._thread.start()

    def leave(self, may_leave: Callable[[], bool]) -> None:
        """This rank sends no more as soon as it may leave; the thread tells the others. It waits for nothing."""
        self._is_leaving = may_leave

    def take_failures(self, source: int) -> str:
        """What has failed of a rank's updates, once."""
        with self.lock:
            return self._failures.pop(source, "")

    def join(self) -> None:
        """Wait until all ranks have left."""
        self._thread.join(settings.collective_timeout)

    def _serve_messages(self) -> None:
        try:
            while len(self._left) < self.world.size:
                message = self.world.receive(self.channel, self._has_news_without_message)
                if message is None:
                    self._leave_other_servers()
                    continue
                source, text, data = message
                kind, part, array = _read_request(text)
                answer = self.handle(source, kind, {part: array.read(data)})
                if answer is not None:
                    self.world.send_array(answer, source, self.channel + 1)
            self.values.clear()
            self._ended()
        except Exception as error:
            if not isinstance(error, RankError):  # which all ranks get
                self.world.fail(f"the store's server failed: {type(error).__name__}: {error}")

    def _leave_other_servers(self) -> None:
        """Tell them that this rank sends no more; who has ended says nothing any more."""
        own = self.world.rank
        if own not in self._left:
            text = _request_as_text("leave", NO_PART, NO_ARRAY)
            for server in range(self.world.size):
                if server != own:
                    self.world.send(text, NOTHING, server, self.channel)
        self._left |= {own, *self.world.lost()}

    def _has_news_without_message(self) -> bool:
        """Asked while there is no message: whether this rank leaves. Also a look at who will not come to the
        barrier."""
        missed = self.world.lost() - self._arrived.keys() if self._arrived else set()
        if not missed:
            self._missed_since = 0.0
        elif not self._missed_since:
            self._missed_since = time.monotonic()
        elif time.monotonic() - self._missed_since > MISSED_SECONDS:
            self.world.fail(f"rank {min(missed)} has ended, and others wait at the store's barrier", (min(missed),))
        if self.world.rank in self._left:
            return not self.world.lost() <= self._left
        return self._is_leaving()

    def handle(self, source: int, kind: str, arrays: Mapping[Part, Host]) -> Host | None:
        """Do what a message asks for; what is answered. arrays: of several parts from this rank alone, which are all
        updated, or none. An update that fails changes nothing: it is raised for this rank, and noted for others."""
        with self.lock:
            if kind in USES:
                return self._update(source, kind, arrays)
            if kind == "init":
                cpu = device_named("cpu")
                self.values.replace({p: StoredValue(from_numpy(x.copy(), cpu, own=True)) for p, x in arrays.items()})
            elif kind == "flush":
                return _text_as_note(self.take_failures(source))
            elif kind == "meet":
                self._arrive_at_barrier(source, _text_of_note(arrays[NO_PART]))
            elif kind == "leave":
                self._left.add(source)
        return None

    def _update(self, source: int, kind: str, arrays: Mapping[Part, Host]) -> Host | None:
        values, part = self.values, next(iter(arrays))

        def answer() -> Host | None:
            value = values.settled(part).value.numpy() if kind in ANSWERED else None  # which no update changes
            return _rows_of_piece(value, arrays[part]) if value is not None and kind == "rows" else value

        try:
            if kind in UPDATES:
                values.push(arrays)
            return answer()
        except Exception as error:
            keys = ", ".join(repr(key) for key, _ in arrays)
            self._failures[source] = f"rank {source}'s push of {keys} failed: {type(error).__name__}: {error}"
            if source == self.world.rank:
                raise
            return answer()

    def _arrive_at_barrier(self, source: int, failures: str) -> None:
        """failures: of the rank's pushes, which all others are told."""
        self._arrived[source] = failures
        self.world.awaited[self] = {*range(self.world.size)} - {*self._arrived}
        if len(self._arrived) == self.world.size:
            arrived, self._arrived = self._arrived, {}
            for rank in range(self.world.size):
                others = "; ".join(text for r, text in sorted(arrived.items()) if text and r != rank)
                self.world.send_array(_text_as_note(others), rank, self.channel + 1)


def _rows_of_piece(piece: Host, request: Host) -> Host:
    """The elements of some rows that lie in a piece. request: the elements of a row, the first of the piece's, and the
    numbers of the rows."""
    length, start = (int(n) for n in request[:2])
    places = _places_in_piece(request[2:], length, start, start + piece.size)[1]
    return piece.reshape(-1)[places]


def _places_in_piece(rows: Host, length: int, start: int, stop: int) -> tuple[Host, Host]:
    """Which of the rows' elements lie in a piece, and where there."""
    places = (rows[:, None] * length + np.arange(length)).reshape(-1)
    inside = np.flatnonzero((places >= start) & (places < stop))
    return inside, places[inside] - start


def _text_as_note(text: str) -> Host:
    note = np.zeros(NOTE_BYTES, np.uint8)
    words = text.encode(errors="replace")[:NOTE_BYTES]
    note[: len(words)] = np.frombuffer(words, np.uint8)
    return note


def _text_of_note(note: Host) -> str:
    return note.tobytes().rstrip(b"\0").decode(errors="replace")


def _refuse_push_without_updater(part: Part, pushed: Any, stored: StoredValue) -> StoredValue:
    raise ArgumentsError("this rank has set no updater")


class KeyValueStoreWorker:
    """A rank's side of the servers. Calls of one rank are in order; a push waits in the background for its values."""

    def __init__(self, communicator: EngineCommunicator) -> None:
        self.communicator, self.world = communicator, communicator.world
        self._channel = 2 * next(communicator.numbers)
        self.server = KeyValueStoreServer(self.world, self._channel, self._forget_ended_server)
        self._later = EngineCommunicator(self.world)
        self._waiting = 0
        self._failures: list[str] = []  # of updates, for `barrier`
        self._requests: dict[tuple[str, Key], list[PieceRequest]] = {}
        self._compression: GradientCompression | None = None
        self._residuals: dict[Part, Array] = {}  # what compression has left of pushes
        self._lock = threading.RLock()
        communicator.before_close.append(self.close)

    def init(self, values: Mapping[Key, Host]) -> None:
        """Rank 0's values count."""
        if self.world.rank == 0:
            self._send_pieces_to_servers("init", values)
        self.meet()

    def spec_of_piece(self, key: Key, whole: Spec) -> Spec:
        """Of what servers keep of a key: all of it, or flat pieces."""
        first, *more = pieces_of(key, whole.size, self.world.size)
        return spec(first.stop - first.start, whole.dtype) if more else whole

    def set_compression(self, compression: GradientCompression) -> None:
        """Of what is pushed from here on."""
        self._finish_pushes()
        with self._lock:
            self._compression, self._residuals = compression, {}
            self._requests.clear()

    def push(self, arrays: Mapping[Key, Host]) -> None:
        """Send arrays to their servers, after what this rank has pushed before; they may change after that."""
        with self._lock:
            if not self._waiting:
                self._send_pieces_to_servers("push", arrays)
                return
            copies = {key: array.copy() for key, array in arrays.items()}
        self.push_later(lambda: copies)

    def push_later(self, read: Callable[[], Mapping[Key, Host]]) -> None:
        """Send what `read` gives to its servers, in the background, since it takes time."""
        with self._lock:
            self._waiting += 1
        self._later.submit(lambda: self._push_value_from_thread(read), "a push")

    def _push_value_from_thread(self, read: Callable[[], Mapping[Key, Host]]) -> None:
        try:
            self._send_pieces_to_servers("push", read())
        except RankError:
            raise
        except Exception as error:
            self._failures.append(f"a push failed: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._waiting -= 1

    def pull(self, key: Key, out: Host) -> None:
        """Fill an array with a key's value, after all that this rank has pushed."""
        self._ask_and_receive("pull", key, None, out)

    def pull_rows(self, key: Key, rows: Host, out: Host, count: int) -> None:
        """Fill an array with rows of a key's value, of so many elements, after all that this rank has pushed."""
        self._finish_pushes()
        length, flat, own = out[:1].size, out.reshape(-1), self.world.rank
        with self._lock:
            requests, pieces = [], pieces_of(key, count, self.world.size) if out.size else []
            for piece in pieces:
                inside = _places_in_piece(rows, length, piece.start, piece.stop)[0]
                requests.append((piece, np.array([length, piece.start, *rows], np.int64), inside))
            for piece, given, _ in requests:
                if piece.server != own:
                    text = _request_as_text("rows", piece.part, MessageArray(given.dtype, given.shape))
                    self.world.send(text, given, piece.server, self._channel)
            for piece, given, inside in requests:
                values: Host | None = np.empty(inside.size, out.dtype)
                assert values is not None
                if piece.server != own:
                    self.world.receive_array(values, piece.server, self._channel + 1)
                else:
                    values = self.server.handle(own, "rows", {piece.part: given})
                flat[inside] = values

    def push_and_pull(self, key: Key, array: Host, out: Host) -> None:
        """Send an array to its servers and fill another with what they have then, in one message each way."""
        self._ask_and_receive("pushpull", key, array, out)

    def _ask_and_receive(self, kind: str, key: Key, array: Host | None, out: Host) -> None:
        self._finish_pushes()
        with self._lock:
            requests = self._requests_of_key(kind, key, array, out.size)
            given = [NOTHING for _ in requests] if array is None else self._contents_of_requests(array, requests)
            for request, data in zip(requests, given, strict=True):  # all are asked before any is waited for
                if not request.own:
                    self.world.send(request.text, data, request.piece.server, self._channel)
            for request, data, values in zip(requests, given, _pieces_of_array(out, requests), strict=True):
                if not request.own:
                    self.world.receive_array(values, request.piece.server, self._channel + 1)
                else:
                    own = {request.piece.part: request.array.read(data)}
                    values[...] = self.server.handle(self.world.rank, kind, own)

    def barrier(self) -> None:
        """Wait until all workers are here, and the servers have what they pushed before. Raises RankError, once, where
        an update of any rank's has failed."""
        self.meet()
        if self._failures:
            failures, self._failures = self._failures, []
            raise RankError("; ".join(failures))

    def meet(self) -> None:
        """The same, and what has failed is for a later `barrier`."""
        self._finish_pushes()
        others = [r for r in range(self.world.size) if r != self.world.rank]
        note = _text_as_note("")
        with self._lock:
            failures = [self.server.take_failures(self.world.rank)]  # which was raised here
            for server in others:
                self._send_note("flush", note, server)
            for server in others:
                self.world.receive_array(note, server, self._channel + 1)
                failures.append(_text_of_note(note))
            self._send_note("meet", _text_as_note("; ".join(filter(None, failures))), 0)
            self.world.receive_array(note, 0, self._channel + 1)
            self._failures += filter(None, (*failures[1:], _text_of_note(note)))

    def leave(self) -> None:
        """This rank has nothing more for the servers than what waits; it may be called anywhere."""
        self.server.leave(lambda: not self._waiting)

    def close(self) -> None:
        """When all workers have come here; the servers end."""
        self.leave()
        self.server.join()

    def _forget_ended_server(self) -> None:
        with contextlib.suppress(ValueError):  # which is closing
            self.communicator.before_close.remove(self.close)

    def _finish_pushes(self) -> None:
        if self._waiting:
            self._later.submit(lambda: None, "the pushes before").wait()

    def _send_pieces_to_servers(self, kind: str, arrays: Mapping[Key, Host]) -> None:
        own: dict[Part, Host] = {}
        others: list[tuple[PieceRequest, Host]] = []
        for key, array in arrays.items():
            array = np.asarray(array, order="C")
            requests = self._requests_of_key(kind, key, array, array.size)
            for request, data in zip(requests, self._contents_of_requests(array, requests), strict=True):
                if request.own:
                    own[request.piece.part] = request.array.read(data)
                else:
                    others.append((request, data))
        if own:  # first: where that fails nothing is sent
            self.server.handle(self.world.rank, kind, own)
        for request, data in others:
            self.world.send(request.text, data, request.piece.server, self._channel)

    def _requests_of_key(self, kind: str, key: Key, array: Host | None, count: int) -> list[PieceRequest]:
        """What the servers of a key's pieces are asked, the same each time: its arrays are of one dtype and shape.
        count: of its elements."""
        found = self._requests.get((kind, key))
        if found is None:
            found, pieces = [], pieces_of(key, count, self.world.size)
            for piece in pieces:
                shape = () if array is None else array.shape if len(pieces) == 1 else (piece.stop - piece.start,)
                compression = self._compression if kind in UPDATES else None
                sent = NO_ARRAY if array is None else MessageArray(array.dtype, shape, compression)
                text = _request_as_text(kind, piece.part, sent)
                found.append(PieceRequest(piece, text, sent, piece.server == self.world.rank))
            self._requests[kind, key] = found
        return found

    def _contents_of_requests(self, array: Host, requests: Sequence[PieceRequest]) -> list[Host]:
        """What is sent of an array with each request."""
        return [
            data if request.array.compression is None else self._compressed(request, data)
            for request, data in zip(requests, _pieces_of_array(array, requests), strict=True)
        ]

    def _compressed(self, request: PieceRequest, data: Host) -> Host:
        part, compression = request.piece.part, request.array.compression
        assert compression is not None
        given = from_numpy(data.reshape(request.array.shape), device_named("cpu"))
        packed, self._residuals[part] = compression.compress(given, self._residuals.get(part))
        return packed.numpy()

    def _send_note(self, kind: str, note: Host, server: int) -> None:
        text = _request_as_text(kind, NO_PART, MessageArray(note.dtype, note.shape))
        self.world.send(text, note, server, self._channel)


def _pieces_of_array(array: Host, requests: Sequence[PieceRequest]) -> list[Host]:
    """The parts of a key's array that go to servers, C-contiguous: all of it, or flat ones."""
    if len(requests) == 1:
        return [array]
    flat = array.reshape(-1)
    return [flat[request.piece.start : request.piece.stop] for request in requests]
