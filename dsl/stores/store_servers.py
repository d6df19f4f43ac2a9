"""Servers of a `dist_async` store: each keeps some keys' values and updates them at every push, one after another.

A server is a process beside a rank. A key is on the server that its hash names; a large array is cut over all of them.
Workers send short texts to servers, each with an array's bytes; from one worker to one server they keep their order, so
what a worker pulls has all that it pushed before.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.core.errors import RankError
from ...runtime.core.frozen import frozen
from ...runtime.engine.communicator import EngineCommunicator, rank_agreement_on_collective
from ..array.array import Array, from_numpy
from ..array.devices import device_named
from ..core.errors import ArgumentsError
from ..core.spec import Host, Spec, spec
from .compression import GradientCompression
from .server_processes import ADDRESS_BYTES, ROOT, TOKEN_BYTES, ServerConnection, start_server_process
from .stored_values import Key, Part, StoredValue, StoredValues, Update

BIG_ELEMENTS = 1_000_000  # MXNet's MXNET_KVSTORE_BIGARRAY_BOUND
NOTHING = np.empty(0, np.uint8)
NO_PART: Part = ("", 0)
NOTE_BYTES = 1024  # of what ranks tell each other at a barrier of updates that failed
UPDATES, ANSWERED = frozenset({"push", "pushpull"}), frozenset({"pull", "pushpull", "rows"})
USES = UPDATES | ANSWERED


@frozen
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


@frozen
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
    """What a server is asked, and the array that comes with it. kind: `init`, `push`, `pull`, `pushpull`, `rows`,
    `flush`, `items` or `replace`."""
    return pickle.dumps((kind, part, array))


NO_ARRAY = MessageArray(NOTHING.dtype, NOTHING.shape)
_read_request = functools.lru_cache(maxsize=4096)(pickle.loads)


@frozen
class PieceRequest:
    """What the server of a piece is asked, in its text. own: it is this rank's."""

    piece: ArrayPiece
    text: bytes
    array: MessageArray
    own: bool


class KeyValueStoreServer:
    """What one server keeps. Requests of all ranks are handled one after another."""

    def __init__(self, own: int | None) -> None:
        """own: the rank that an update's failure is raised for, since it is of this process."""
        self.own = own
        self.values = StoredValues(_refuse_push_without_updater)
        self.lock = threading.RLock()
        self._failures: dict[int, str] = {}  # of ranks' updates, which they do not know yet

    def handle_text(self, source: int, text: bytes, data: Host) -> Host | None:
        """Do what a message asks for; see `handle`."""
        kind, part, array = _read_request(text)
        return self.handle(source, kind, {part: array.read(data)})

    def handle(self, source: int, kind: str, arrays: Mapping[Part, Any]) -> Host | None:
        """Do what a request asks for; what is answered. arrays: of several parts from this server's own rank alone,
        which are all updated, or none. An update that fails changes nothing: it is raised for the own rank, and noted
        for others."""
        with self.lock:
            if kind in USES:
                return self._update(source, kind, arrays)
            if kind == "init":
                cpu = device_named("cpu")
                self.values.replace({p: StoredValue(from_numpy(x.copy(), cpu, own=True)) for p, x in arrays.items()})
            elif kind == "flush":
                return _text_as_note(self._failures.pop(source, ""))
            elif kind == "items":
                return np.frombuffer(pickle.dumps(_plain_values(self.values.items())), np.uint8)
            elif kind == "replace":
                self.values.replace(_stored_values(pickle.loads(arrays[NO_PART].tobytes())))
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
            if source == self.own:
                raise
            return answer()


PlainValues = list[tuple[Part, Host, list[Host], int]]


def _plain_values(values: Sequence[tuple[Part, StoredValue]]) -> PlainValues:
    """Stored values as they travel."""
    return [(part, x.value.numpy(), [state.numpy() for state in x.states], x.count) for part, x in values]


def _stored_values(values: PlainValues) -> dict[Part, StoredValue]:
    def stored(array: Host) -> Array:
        return from_numpy(np.ascontiguousarray(array).copy(), device_named("cpu"), own=True)

    return {p: StoredValue(stored(x), tuple(map(stored, states)), count) for p, x, states, count in values}


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


_servers_here: weakref.WeakValueDictionary[str, KeyValueStoreServer] = weakref.WeakValueDictionary()


class KeyValueStoreWorker:
    """A rank's side of the servers. Calls of one rank are in order; a push waits in the background for its values.

    Where each rank is a process, its server is another, which is made again, with the values, for each updater. Ranks
    that are threads of one process call each other's servers."""

    def __init__(self, communicator: EngineCommunicator) -> None:
        self.communicator, self.world = communicator, communicator.world
        self._here = self.world.kind != "mpi"
        self._server = KeyValueStoreServer(self.world.rank if self._here else None)
        self._servers: list[KeyValueStoreServer] = []  # of all ranks, if they are in this process
        self._addresses: list[str] = []  # else where they are,
        self._connections: dict[int, ServerConnection] = {}  # and those that this rank has talked to
        self._token = b""
        self.process = 0  # of this rank's server
        self._pushed: set[int] = set()  # servers that may still be at something, or know of a failure
        self._later = EngineCommunicator(self.world)
        self._waiting = 0
        self._leaves = False
        self._failures: list[str] = []  # of updates, for `barrier`
        self._requests: dict[tuple[str, Key], list[PieceRequest]] = {}
        self._compression: GradientCompression | None = None
        self._residuals: dict[Part, Array] = {}  # what compression has left of pushes
        self._lock = threading.RLock()
        communicator.before_close.append(self.leave)

    def _start_servers(self) -> None:
        """All ranks' servers, which exchange where they are. Raises RankError."""
        world, server, token = self.world, self._server, np.frombuffer(os.urandom(TOKEN_BYTES), np.uint8).copy()
        own, every = np.zeros(ADDRESS_BYTES, np.uint8), np.zeros((world.size, ADDRESS_BYTES), np.uint8)
        address = f"here:{id(server)}"

        def exchange_addresses() -> None:
            nonlocal address
            world.broadcast(token, 0)
            if not self._here:
                one_machine = world.local_size == world.size
                address, self.process = start_server_process(
                    world.rank, world.size, one_machine, token.tobytes(), server.handle_text
                )
            own[: len(address)] = np.frombuffer(address.encode(), np.uint8)
            world.all_gather(own, every.reshape(-1))

        _servers_here[address] = server
        self.communicator.run(rank_agreement_on_collective("the store's servers"), exchange_addresses)
        addresses = [row.tobytes().rstrip(b"\0").decode() for row in every]
        if self._here:
            self._servers = [_servers_here[each] for each in addresses]
            self.communicator.run(rank_agreement_on_collective("the store's servers"))  # which all have found
            return
        self._close_connections()
        self._addresses, self._token = addresses, token.tobytes()
        self._connection(world.rank).request(ROOT, np.frombuffer(addresses[0].encode(), np.uint8))

    def _connection(self, server: int) -> ServerConnection:
        found = self._connections.get(server)
        if found is None:
            address, rank = self._addresses[server], self.world.rank
            try:
                found = self._connections[server] = ServerConnection(address, self._token, rank, server, self.world)
            except OSError as error:
                text = f"rank {rank} does not reach the store's server of rank {server} at {address}: {error}"
                self.world.fail(text, (server,))
                raise RankError(text, (server,)) from None
        return found

    def _close_connections(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def init(self, values: Mapping[Key, Host]) -> None:
        """Have the servers keep rank 0's values; all ranks call it."""
        if not (self._servers or self._addresses):
            self._start_servers()
        if self.world.rank == 0:
            self._send_pieces_to_servers("init", values)
        self.meet()

    def set_update(self, update: Update, agree: Callable[[], None]) -> None:
        """Update in another way from now on, without states. agree: raises where ranks differ; then nothing changes."""
        self.meet()  # what was pushed before is for the updater before
        if not self._here:
            agree()
            values = self.items()
            self._server.values.set_update(update)
            self._server.values.replace({part: StoredValue(stored.value) for part, stored in values})
            self._start_servers()
            self._server.values.clear()
            return
        with self._server.lock:
            stored = dict(self._server.values.items())
            before = self._server.values.set_update(update)
        try:
            agree()
        except BaseException:
            with self._server.lock:
                self._server.values.set_update(before)
                self._server.values.replace(stored)
            raise

    def items(self) -> list[tuple[Part, StoredValue]]:
        """What this rank's server keeps."""
        if self._here or not self._addresses:
            with self._server.lock:
                return self._server.values.items()
        with self._lock:
            connection = self._connection(self.world.rank)
            connection.request(_request_as_text("items", NO_PART, NO_ARRAY), NOTHING)
            return [*_stored_values(pickle.loads(connection.receive_answer().tobytes())).items()]

    def replace(self, values: Mapping[Part, StoredValue]) -> None:
        """Have this rank's server keep values whatever was there."""
        if self._here or not self._addresses:
            with self._server.lock:
                self._server.values.replace(values)
            return
        data = np.frombuffer(pickle.dumps(_plain_values([*values.items()])), np.uint8)
        text = _request_as_text("replace", NO_PART, MessageArray(data.dtype, data.shape))
        with self._lock:
            self._connection(self.world.rank).request(text, data)
            self._pushed.add(self.world.rank)

    def spec_of_piece(self, key: Key, whole: Spec) -> Spec:
        """The spec of what a server keeps of a key: all of it, or a flat piece."""
        first, *more = pieces_of(key, whole.size, self.world.size)
        return spec(first.stop - first.start, whole.dtype) if more else whole

    def set_compression(self, compression: GradientCompression) -> None:
        """Compress what is pushed from here on."""
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
            arrays = read()
            with self._lock:
                self._send_pieces_to_servers("push", arrays)
        except RankError:
            raise
        except Exception as error:
            self._failures.append(f"a push failed: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._waiting -= 1
                if self._leaves and not self._waiting:
                    self._close_connections()

    def pull(self, key: Key, out: Host) -> None:
        """Fill an array with a key's value, after all that this rank has pushed."""
        self._ask_and_receive("pull", key, None, out)

    def pull_rows(self, key: Key, rows: Host, out: Host, count: int) -> None:
        """Fill an array with rows of a key's value, of so many elements, after all that this rank has pushed."""
        self._finish_pushes()
        length, flat, own = out[:1].size, out.reshape(-1), self.world.rank
        with self._lock:
            for piece in pieces_of(key, count, self.world.size) if out.size else []:
                inside = _places_in_piece(rows, length, piece.start, piece.stop)[0]
                given = np.array([length, piece.start, *rows], np.int64)
                array, values = MessageArray(given.dtype, given.shape), np.empty(inside.size, out.dtype)
                text = _request_as_text("rows", piece.part, array)
                self._request("rows", PieceRequest(piece, text, array, piece.server == own), given, values)
                flat[inside] = values

    def push_and_pull(self, key: Key, array: Host, out: Host) -> None:
        """Send an array to its servers and fill another with what they have then, in one message each way."""
        self._ask_and_receive("pushpull", key, array, out)

    def _ask_and_receive(self, kind: str, key: Key, array: Host | None, out: Host) -> None:
        """One server after another: who waits for an answer sends nothing meanwhile, so no two wait for each other."""
        self._finish_pushes()
        with self._lock:
            requests = self._requests_of_key(kind, key, array, out.size)
            given = [NOTHING for _ in requests] if array is None else self._contents_of_requests(array, requests)
            for request, data, values in zip(requests, given, _pieces_of_array(out, requests), strict=True):
                self._request(kind, request, data, values)

    def _request(self, kind: str, request: PieceRequest, data: Host, out: Host | None = None) -> None:
        """Ask the server of a piece. out: the answer's place, if there is one."""
        server, part = request.piece.server, request.piece.part
        if out is None or kind in UPDATES:
            self._pushed.add(server)
        if self._here:
            answer = self._servers[server].handle(self.world.rank, kind, {part: request.array.read(data)})
            if out is not None:
                out[...] = answer
            return
        connection = self._connection(server)
        connection.request(request.text, data)
        if out is not None:
            connection.receive_into(out)

    def barrier(self) -> None:
        """Wait until all workers are here, and the servers have what they pushed before. Raises RankError, once, where
        an update of any rank's has failed."""
        self.meet()
        if self._failures:
            failures, self._failures = self._failures, []
            raise RankError("; ".join(failures))

    def meet(self) -> None:
        """Wait as `barrier` does; what has failed is kept for a later one."""
        self._finish_pushes()
        world = self.world
        with self._lock:
            found = [(server, self._failures_at_server(server)) for server in sorted(self._pushed)]
            self._pushed.clear()
        unknown = [text for server, text in found if text and not (self._here and server == world.rank)]
        own = _text_as_note("; ".join(text for _, text in found if text))
        some, any_of_all = np.array([own.any()], np.uint8), np.zeros(1, np.uint8)
        every = np.zeros((world.size, NOTE_BYTES), np.uint8)

        def exchange_failures() -> None:
            world.all_reduce(some, any_of_all, "max")
            if any_of_all[0]:
                world.all_gather(own, every.reshape(-1))

        self.communicator.run(rank_agreement_on_collective("the store's barrier"), exchange_failures)
        texts = [_text_of_note(note) for rank, note in enumerate(every) if rank != world.rank]
        self._failures += filter(None, (*unknown, *texts))

    def _failures_at_server(self, server: int) -> str:
        """What has failed of this rank's updates there; it is given once."""
        if self._here:
            note = self._servers[server].handle(self.world.rank, "flush", {})
        else:
            note = np.zeros(NOTE_BYTES, np.uint8)
            self._connection(server).request(_request_as_text("flush", NO_PART, NO_ARRAY), NOTHING)
            self._connection(server).receive_into(note)
        assert note is not None
        return _text_of_note(note)

    def leave(self) -> None:
        """This rank has nothing more for the servers than what waits; it may be called anywhere."""
        with contextlib.suppress(ValueError):  # which is closing
            self.communicator.before_close.remove(self.leave)
        self._leaves = True
        self._later.stop()
        if not self._waiting:
            self._close_connections()

    def _finish_pushes(self) -> None:
        if self._waiting:
            self._later.submit(lambda: None, "the pushes before").wait()

    def _send_pieces_to_servers(self, kind: str, arrays: Mapping[Key, Host]) -> None:
        """Send arrays to their servers. What is for this rank's own server, where that is in this process, comes first,
        and together: where that fails nothing is sent."""
        own: dict[Part, Any] = {}
        others: list[tuple[PieceRequest, Host]] = []
        for key, array in arrays.items():
            array = np.asarray(array, order="C")
            requests = self._requests_of_key(kind, key, array, array.size)
            for request, data in zip(requests, self._contents_of_requests(array, requests), strict=True):
                if self._here and request.own:
                    own[request.piece.part] = request.array.read(data)
                else:
                    others.append((request, data))
        if own:
            self._pushed.add(self.world.rank)
            self._servers[self.world.rank].handle(self.world.rank, kind, own)
        for request, data in others:
            self._request(kind, request, data)

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


def _pieces_of_array(array: Host, requests: Sequence[PieceRequest]) -> list[Host]:
    """The parts of a key's array that go to servers, C-contiguous: all of it, or flat ones."""
    if len(requests) == 1:
        return [array]
    flat = array.reshape(-1)
    return [flat[request.piece.start : request.piece.stop] for request in requests]
