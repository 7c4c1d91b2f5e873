"""`RawClient`: a client of this host that has joined, and sends what it likes."""

import array
import fcntl
import mmap
import os
import select
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from ucxstore.base.address import Address
from ucxstore.base.secret import Secret
from ucxstore.client.connect import Greeting

# Kinds of native/local/frames.hpp.
REQUEST, VALUE, REPLY, PINS, INDEX, ARENA, UPLOAD, ROOM, DROPPED, FILE = range(1, 11)
HELD = 20

# Operations of native/protocol/wire.hpp.
PING, GET, STAT, REMOVE, REMOVE_PREFIX, MEASURE, LIST, ABANDON, STATS = range(9)
BEGIN_SPACE, RENEW_SPACE, END_SPACE = range(9, 12)

# Statuses of native/protocol/wire.hpp.
OK, BUSY, DENIED, GOING_ON = 0, 9, 14, 15

SEND_BYTES = 1
ANY = 2**64 - 1
IN_BODY = 2**64 - 1
SEGMENT = 16 << 20
MEMORY_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

# Of a body that is received; the rest is dropped.
_KEPT_BYTES = 64 << 10

_FRAME = struct.Struct("<IIIIQ")
_REQUEST = struct.Struct("<QIIII")
_VALUE = struct.Struct("<QIIQQQQQ")
_FILE = struct.Struct("<QIIQQQQ")


class Message(NamedTuple):
    """What a server has sent."""

    kind: int
    header: bytes
    body: bytes
    descriptors: list[int]

    @property
    def request(self) -> int:
        """Which request it answers."""
        return int.from_bytes(self.header[16:24], "little")

    @property
    def item(self) -> int:
        """Which item of that."""
        return int.from_bytes(self.header[24:28], "little")

    @property
    def status(self) -> int:
        """The status of the reply."""
        return int.from_bytes(self.header[28:32], "little")


class RawClient:
    """A client that has joined, and sends what it likes.

    Parameters
    ----------
    address : str
        Of the server.
    secret : Secret, optional
        Or a grant.
    timeout : float
        Seconds for each step.
    """

    def __init__(self, address: str, secret: Secret | None = None, timeout: float = 20.0) -> None:
        [place] = Address.parse(address).servers
        with Greeting(place, secret, timeout) as greeting:
            self.token = greeting.welcome.token
            fd = greeting.join()
            assert fd is not None
        self.sock = socket.socket(fileno=fd)
        self.sock.settimeout(timeout)
        self._timeout = timeout
        self._request = 0
        self._rest = b""  # of a frame, which the server did not take
        self._came = bytearray()
        self._descriptors: list[int] = []

    # ---- sending ----

    def send(
        self,
        kind: int,
        header: bytes = b"",
        body: bytes = b"",
        descriptors: Sequence[int] = (),
        *,
        says: tuple[int, int, int] | None = None,
    ) -> None:
        """Send a frame; `says` are other numbers of descriptors, header and body bytes."""
        message = frame(kind, header, body, descriptors=len(descriptors), says=says)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with suppress(BrokenPipeError, ConnectionResetError):  # it is refused already
            self.sock.sendmsg([message], rights if descriptors else [])

    def frame_of(self, op: int, body: bytes = b"", count: int = 1, flags: int = 0) -> bytes:
        """Return a request with a number of its own, ready to be sent."""
        self._request += 1
        header = self.token + _REQUEST.pack(self._request, op, 0, count, flags)
        return frame(REQUEST, header, body)

    def request(self, op: int, body: bytes = b"", count: int = 1, flags: int = 0) -> int:
        """Send a request, and return its number."""
        self.sock.sendall(self.frame_of(op, body, count, flags))
        return self._request

    def send_for(self, seconds: float, frames: Iterable[bytes]) -> int:
        """Send frames for as long as the server takes them, and return how many bytes that were.

        What it does not take of a frame goes first the next time.

        Parameters
        ----------
        seconds : float
            How long to wait for a server that takes nothing.
        frames : iterable of bytes
        """
        sent = 0
        self.sock.setblocking(False)
        coming = iter(frames)
        try:
            while True:
                self._rest = self._rest or next(coming, b"")
                if not self._rest or not _waits(self.sock, select.POLLOUT, seconds):
                    break
                with suppress(BlockingIOError):
                    taken = self.sock.send(self._rest)
                    self._rest = self._rest[taken:]
                    sent += taken
        finally:
            self.sock.settimeout(self._timeout)
        return sent

    def value(
        self,
        key: bytes,
        body: bytes = b"",
        place: int = IN_BODY,
        *,
        total: int | None = None,
        length: int | None = None,
        offset: int = 0,
        segment: int = 2 << 20,
        request: int = 1,
        token: bytes | None = None,
    ) -> None:
        """Send a segment of a value: in the message, or at a place in the upload."""
        size = len(body) if total is None else total
        length = size if length is None else length
        numbers = _VALUE.pack(request, 0, 0, size, segment, offset, length, place)
        self.send(VALUE, (token or self.token) + numbers + key, body)

    def segment(
        self, key: bytes, body: bytes, *, request: int, total: int | None = None, offset: int = 0
    ) -> bytes:
        """Return a segment of a value, to be sent; without a body, it begins the upload."""
        length, place = len(body) or 4096, IN_BODY if body else 0
        total = length if total is None else total
        numbers = _VALUE.pack(request, 0, 0, total, 4096, offset, length, place)
        return frame(VALUE, self.token + numbers + key, body)

    def file(self, key: bytes, total: int, fd: int) -> int:
        """Pass a file with a whole value, and return the number of the request."""
        self._request += 1
        numbers = _FILE.pack(self._request, 0, 0, total, total, 0, total)
        self.send(FILE, self.token + numbers + key, descriptors=[fd])
        return self._request

    # ---- receiving ----

    def receive(self) -> Message | None:
        """Return the next message, with at most 64 KiB of its body; ``None`` at the end."""
        if not self._fill(_FRAME.size):
            return None
        kind, descriptors, header_bytes, _, body_bytes = _FRAME.unpack(self._take(_FRAME.size))
        kept = min(body_bytes, _KEPT_BYTES)
        if not self._fill(header_bytes + kept):
            return None
        header, body = self._take(header_bytes), self._take(kept)
        left = body_bytes - kept
        while left:
            if not self._fill(1):
                return None
            left -= len(self._take(min(left, len(self._came))))
        passed, self._descriptors = self._descriptors[:descriptors], self._descriptors[descriptors:]
        return Message(kind, header, body, passed)

    def _fill(self, size: int) -> bool:
        """Read until there are so many bytes; ``False`` if there will not be."""
        while len(self._came) < size:
            try:
                data, rights, _, _ = self.sock.recvmsg(1 << 18, socket.CMSG_SPACE(16 * 4))
            except ConnectionResetError:
                return False
            if not data:
                return False
            for _, _, passed in rights:
                self._descriptors += array.array("i", passed[: len(passed) // 4 * 4])
            self._came += data
        return True

    def _take(self, size: int) -> bytes:
        taken = bytes(self._came[:size])
        del self._came[:size]
        return taken

    def answer(self, request: int) -> Message | None:
        """Return the reply to a request, and drop what comes before; ``None`` at the end."""
        while (message := self.receive()) is not None:
            if message.kind == REPLY and message.request == request and message.status != GOING_ON:
                return message
            for descriptor in message.descriptors:
                os.close(descriptor)
        return None

    def drop(self) -> bool:
        """Read what is there, and drop it; ``False`` if the server has hung up."""
        try:
            while _waits(self.sock, select.POLLIN, 0):
                if not self.sock.recv(1 << 20):
                    return False
        except ConnectionResetError:
            return False
        return True

    def has_hung_up(self) -> bool:
        """Whether the server has, without reading what it sent."""
        return _waits(self.sock, 0, 0)  # for its end alone

    def is_hung_up_on(self) -> bool:
        """Read to the end, if there is one."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        """Hang up."""
        self.sock.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _waits(sock: socket.socket, events: int, seconds: float) -> bool:
    """Whether one of the events comes, or an end. Descriptors may have any number."""
    poll = select.poll()
    poll.register(sock, events)
    return bool(poll.poll(seconds * 1e3))


def frame(
    kind: int,
    header: bytes = b"",
    body: bytes = b"",
    *,
    descriptors: int = 0,
    says: tuple[int, int, int] | None = None,
) -> bytes:
    """Return a message of the local plane."""
    counts = says or (descriptors, len(header), len(body))
    return _FRAME.pack(kind, counts[0], counts[1], 0, counts[2]) + header + body


# ---- bodies of requests ----


def text(name: str) -> bytes:
    """Return a key, a prefix, a cursor or a name, as it is in a body."""
    data = name.encode()
    return struct.pack("<H", len(data)) + data


def _get(key: str, selection: bytes) -> bytes:
    return text(key) + struct.pack("<QQQQ", ANY, SEGMENT, ANY, 0) + selection


def get_all(key: str) -> bytes:
    """Return an item of a get: the whole value."""
    return _get(key, struct.pack("<BH", 0, 0))


def get_ranges(key: str, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return an item of a get: byte ranges, from and to, in one reply."""
    selection = struct.pack("<BH", 0, len(ranges))
    return _get(key, selection + b"".join(struct.pack("<BQQ", 1, *each) for each in ranges))


def get_box(key: str, run: int, dims: Sequence[tuple[int, int]]) -> bytes:
    """Return an item of a get: a box of runs, with a count and a stride an axis."""
    axes = b"".join(struct.pack("<Qq", *dim) for dim in dims)
    return _get(key, struct.pack("<BqQB", 1, 0, run, len(dims)) + axes)


def get_boxes(key: str, offsets: Sequence[int], run: int) -> bytes:
    """Return an item of a get: a run of bytes at each offset, in one reply."""
    places = struct.pack(f"<BI{len(offsets)}q", 2, len(offsets), *offsets)
    return _get(key, places + struct.pack("<QB", run, 0))


def keys(names: Sequence[str]) -> bytes:
    """Return the body of a stat or a remove."""
    return b"".join(map(text, names))


def listing(prefix: str, *, delimited: bool = False, cursor: str = "") -> bytes:
    """Return the body of a list."""
    return text(prefix) + struct.pack("<B", delimited) + text(cursor)


def measure(prefix: str) -> bytes:
    """Return the body of a measure."""
    return text(prefix) + b"\0"


def space(name: str, quota: int, timeout_ms: int) -> bytes:
    """Return the body of a begin_space."""
    return text(name) + struct.pack("<QQ", quota, timeout_ms)


# ---- memory ----


def memory(size: int, seals: int = MEMORY_SEALS) -> int:
    """Return a file in memory that is all holes."""
    fd = os.memfd_create("raw", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Tables:
    """The tables of pins of a client: what a server believes that it reads.

    Parameters
    ----------
    fd : int
        The file that the server has passed. This takes it over.
    """

    # As native/shared/family.hpp.
    STRIDE, COUNT, PINS = 64 << 10, 128, 4096
    _CHILDREN = 3  # the word of the header
    _F_OFD_SETLK = 37

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, self.STRIDE * (1 + self.COUNT))
        self._opened = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)

    def take(self, count: int) -> None:
        """Say that so many children have tables of their own."""
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, count, 0)
        fcntl.fcntl(self._opened, self._F_OFD_SETLK, lock)
        struct.pack_into("<Q", self._memory, 8 * self._CHILDREN, count)

    def write(self, number: int, places: bytes) -> None:
        """Write all pins of a table: 8 bytes each."""
        at = self.STRIDE * (1 + number)
        self._memory[at : at + len(places)] = places

    def close(self) -> None:
        """Let go of it."""
        self._memory.close()
        os.close(self._opened)
        os.close(self._fd)
