"""A store's server as a process of its own, so that nobody waits for the Python that runs in its rank.

It is a fork of its rank, which has what the updater needs, and talks by sockets alone. Each connection begins with the
store's token and a rank's number. A rank that closes its connection to its own server, or ends in whatever way, has
left. Who has left is told to the server of rank 0; when all have, that closes its connections, and each server ends.
"""

from __future__ import annotations

import contextlib
import gc
import hmac
import os
import selectors
import signal
import socket
import struct
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ...runtime.core.errors import RankError
from ...runtime.core.settings import settings
from ...runtime.program.world import World, bytes_of_array
from ..core.spec import Host

LOOK_SECONDS = 0.2  # how often who waits looks at the clock
LINGER_SECONDS = 10.0  # a server that nobody is connected to waits so long for who has never been
TOKEN_BYTES = 16
ADDRESS_BYTES = 128
HELLO = struct.Struct(f"<{TOKEN_BYTES}sI")  # the token and a rank
REQUEST = struct.Struct("<IQ")  # bytes of a request's text and of its array
ANSWER = struct.Struct("<Q")
LEFT = b"left"  # the text by which a server tells rank 0's that its rank has left
ROOT = b"root"  # the text by which a rank tells its server where rank 0's is
# Answers a request: of a rank, its text and the bytes of its array.
Handle = Callable[[int, bytes, Host], Host | None]


class ServerConnection:
    """A socket to a server; requests are sent, and answered, in order."""

    def __init__(self, address: str, token: bytes, rank: int, server: int, world: World | None) -> None:
        """world: whose ranks are told where this fails. Raises OSError."""
        family, _, place = address.partition(":")
        self.server, self.world = server, world
        self.socket = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET, socket.SOCK_STREAM)
        if family == "unix":
            self.socket.connect(f"\0{place}")
        else:
            host, _, port = place.rpartition(":")
            self.socket.connect((host, int(port)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(LOOK_SECONDS)
        self._send(HELLO.pack(token, rank))
        _connections.add(self)

    def request(self, text: bytes, array: Host) -> None:
        """Send a request; `array` may change after it. Raises RankError."""
        self._send(REQUEST.pack(len(text), array.nbytes) + text)
        if array.nbytes:
            self._send(bytes_of_array(array))

    def receive_answer(self) -> Host:
        """The bytes of the next answer. Raises RankError."""
        head = self._receive(np.empty(ANSWER.size, np.uint8))
        (nbytes,) = ANSWER.unpack(head.tobytes())
        return self._receive(np.empty(nbytes, np.uint8))

    def receive_into(self, array: Host) -> None:
        """Fill an array with the next answer. Raises RankError."""
        self._receive(np.empty(ANSWER.size, np.uint8))
        self._receive(bytes_of_array(array))

    def close(self) -> None:
        self.socket.close()

    def _send(self, data: Any) -> None:
        view, until = memoryview(data), time.monotonic() + settings.collective_timeout
        while view:
            try:
                view = view[self.socket.send(view) :]
            except TimeoutError:
                self._look_at_clock(until)
            except OSError:
                self._fail("has ended")

    def _receive(self, array: Host) -> Host:
        view, until = memoryview(array.data), time.monotonic() + settings.collective_timeout
        while view:
            try:
                count = self.socket.recv_into(view)
            except TimeoutError:
                self._look_at_clock(until)
                continue
            except OSError:
                count = 0
            if not count:
                self._fail("has ended")
            view = view[count:]
        return array

    def _look_at_clock(self, until: float) -> None:
        """Raises RankError where it has been waited for too long. until: on the clock."""
        if time.monotonic() > until:
            self._fail(f"does not answer within {settings.collective_timeout:g} s (KERNELGRAPH_COLLECTIVE_TIMEOUT)")

    def _fail(self, text: str) -> NoReturn:
        whole = f"the store's server of rank {self.server} {text}"
        if self.world is not None:
            self.world.fail(whole, (self.server,))
        raise RankError(whole, (self.server,))


_connections: weakref.WeakSet[ServerConnection] = weakref.WeakSet()


def _close_connections_in_forked_child() -> None:
    """They are its parent's: a server is to find out that they are closed."""
    for connection in [*_connections]:
        connection.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_connections_in_forked_child)


def start_server_process(rank: int, size: int, one_machine: bool, token: bytes, handle: Handle) -> tuple[str, int]:
    """Fork a server of this rank; its address and its process. one_machine: all ranks are on it."""
    listener = _listening_socket(one_machine)
    address = _address_of(listener)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # nobody's child, in the end, so that nobody has to wait for it
        with contextlib.suppress(BaseException):
            os.close(reading)
            if grandchild := os.fork():
                os.write(writing, str(grandchild).encode())
                os._exit(0)
            os.close(writing)
            _become_server(listener, rank, size, token, handle)
        os._exit(1)
    os.close(writing)
    listener.close()
    os.waitpid(child, 0)
    process = int(os.read(reading, 32) or b"0")
    os.close(reading)
    return address, process


def _listening_socket(one_machine: bool) -> socket.socket:
    if one_machine and hasattr(socket, "AF_UNIX"):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(f"\0kernelgraph-{os.getpid()}-{os.urandom(8).hex()}")
    else:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.bind(("", 0))
    made.listen(128)
    return made


def _address_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    if listener.family == socket.AF_INET:
        return f"tcp:{socket.gethostname()}:{name[1]}"
    return f"unix:{name[1:].decode()}"


def _become_server(listener: socket.socket, rank: int, size: int, token: bytes, handle: Handle) -> None:
    """Handle requests until all ranks have left, and end the process."""
    gc.disable()  # what was the rank's is not finalized here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to all; the ranks' end is this one's
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # who reads what the rank prints waits for the end of it
        os.dup2(nothing, stream)
    _ServerLoop(listener, rank, size, token, handle).run()
    os._exit(0)


class _ServerLoop:
    """Handles requests of all ranks, one after another, until they have left."""

    def __init__(self, listener: socket.socket, rank: int, size: int, token: bytes, handle: Handle) -> None:
        self._listener, self._rank, self._size = listener, rank, size
        self._token, self._handle = token, handle
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._ranks: dict[socket.socket, int] = {}
        self._own: socket.socket | None = None  # the rank's connection
        self._root: ServerConnection | None = None  # to rank 0's server
        self._has_left = False  # this rank
        self._left: set[int] = set()  # ranks that have, as rank 0's server knows
        self._alone_since = time.monotonic()

    def run(self) -> None:
        while not self._is_over():
            for key, _ in self._selector.select(LOOK_SECONDS):
                if key.fileobj is self._listener:
                    self._accept()
                elif self._root is not None and key.fileobj is self._root.socket:
                    self._forget_root()
                else:
                    self._serve(key.fileobj)
            if self._ranks:
                self._alone_since = time.monotonic()

    def _is_over(self) -> bool:
        alone = not self._ranks and time.monotonic() - self._alone_since > LINGER_SECONDS
        if self._rank == 0:
            return len(self._left) == self._size or alone
        return (self._has_left and self._root is None) or (alone and self._own is None)

    def _accept(self) -> None:
        made, _ = self._listener.accept()
        made.settimeout(LINGER_SECONDS)
        try:
            token, rank = HELLO.unpack(_receive_bytes(made, HELLO.size))
        except (OSError, EOFError):
            token = b""
        if not hmac.compare_digest(token, self._token):
            made.close()
            return
        made.settimeout(settings.collective_timeout)
        self._ranks[made] = rank
        if rank == self._rank and self._own is None:
            self._own = made
        self._selector.register(made, selectors.EVENT_READ)

    def _serve(self, source: Any) -> None:
        rank = self._ranks[source]
        try:
            text_bytes, array_bytes = REQUEST.unpack(_receive_bytes(source, REQUEST.size))
            text, data = bytes(_receive_bytes(source, text_bytes)), _receive_bytes(source, array_bytes)
            if text == ROOT:
                self._join_root(data)
            elif text == LEFT:
                self._left.add(rank)
            else:
                answer = self._handle(rank, text, np.frombuffer(data, np.uint8))
                if answer is not None:
                    whole = np.ascontiguousarray(answer)
                    source.sendall(ANSWER.pack(whole.nbytes))
                    source.sendall(bytes_of_array(whole))
        except (OSError, EOFError):
            self._close(source)

    def _join_root(self, address: bytearray) -> None:
        if self._rank:
            self._root = ServerConnection(address.decode(), self._token, self._rank, 0, None)
            self._selector.register(self._root.socket, selectors.EVENT_READ)

    def _forget_root(self) -> None:
        assert self._root is not None
        self._selector.unregister(self._root.socket)
        self._root.close()
        self._root = None

    def _close(self, source: socket.socket) -> None:
        """Forget a connection that a rank has closed, or its server, which had it to tell that the rank has left."""
        self._selector.unregister(source)
        source.close()
        rank = self._ranks.pop(source)
        if source is not self._own:
            if self._rank == 0 and rank not in self._ranks.values():
                self._left.add(rank)  # its server has ended
            return
        self._own, self._has_left = None, True
        self._left.add(self._rank)
        if self._root is not None:
            try:
                self._root.request(LEFT, np.empty(0, np.uint8))
            except RankError:
                self._forget_root()


def _receive_bytes(source: socket.socket, count: int) -> bytearray:
    """So many bytes. Raises OSError, EOFError."""
    found = bytearray(count)
    view = memoryview(found)
    while view:
        read = source.recv_into(view)
        if not read:
            raise EOFError
        view = view[read:]
    return found
