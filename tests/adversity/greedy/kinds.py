"""What greedy clients do: one function a kind, over the local plane, with a socket of its own.

Each begins with a `Target`, takes what it can, and ends or raises where the server hangs up: `run`
then begins anew, until the time is over.
"""

import array
import ctypes
import fcntl
import mmap
import os
import random
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from itertools import repeat

from tests.adversity.greedy import raw
from tests.adversity.greedy.raw import RawClient, Tables
from tests.eventually import nothing_happens
from ucxstore.base.address import Address
from ucxstore.base.errors import UcxStoreError
from ucxstore.base.secret import Secret
from ucxstore.client.connect import Greeting

# What lies on the server for them (`values`): a large value, and a folder with many.
FOLDER = "mine/"
BIG = "mine/big"
BIG_BYTES = 64 << 20
FEW = [f"mine/few/{number}" for number in range(64)]
MANY = 2000

# How long a client waits for a server that takes nothing more from it.
_FULL_SECONDS = 1.0

# Between two looks whether the time is over.
_PAUSE_SECONDS = 0.02

_PASSED_BYTES = 16 << 20

_KEEP_SIZE = 1  # of fallocate(2)


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and until when it is to be bothered.

    Parameters
    ----------
    address : str
    secret : bytes
        The server's, or a grant.
    until : float
        By the monotonic clock.
    number : int
        Of this client.
    """

    address: str
    secret: bytes
    until: float
    number: int = 0

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until

    def join(self) -> RawClient:
        """Return a client that has joined."""
        return RawClient(self.address, Secret(self.secret) if self.secret else None)

    def wait(self) -> None:
        """Wait until the time is over."""
        while self.goes_on():
            nothing_happens(_PAUSE_SECONDS)


type Work = Callable[[Target], None]


def run(work: Work, target: Target) -> list[str]:
    """Do it until the time is over; return the errors that have ended it meanwhile."""
    errors = []
    while target.goes_on():
        try:
            work(target)
        except (OSError, UcxStoreError, AssertionError, EOFError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            nothing_happens(_PAUSE_SECONDS)
    return errors


def values() -> Iterator[tuple[str, int]]:
    """Yield the keys that greedy clients need, and the sizes of their values."""
    yield BIG, BIG_BYTES
    for key in FEW:
        yield key, 64
    for number in range(MANY):
        yield f"mine/many/{number}", 1


# ---- replies ----


def many_ranges(target: Target) -> None:
    """Ask for a large value many times in one get, and read the reply slowly."""
    with target.join() as client:
        body = raw.get_ranges(BIG, [(0, BIG_BYTES)] * 40)
        while target.goes_on():
            number = client.request(raw.GET, body, flags=raw.SEND_BYTES)
            if client.answer(number) is None:
                return


def _unread(target: Target, op: int, body: bytes) -> None:
    """Ask and never read."""
    with target.join() as client:
        while target.goes_on() and not client.has_hung_up():
            client.send_for(_FULL_SECONDS, _until(target, client, op, body))


def _until(target: Target, client: RawClient, op: int, body: bytes) -> Iterator[bytes]:
    while target.goes_on():
        yield b"".join(client.frame_of(op, body) for _ in range(50))


def listings_unread(target: Target) -> None:
    """Ask for listings, and read none."""
    _unread(target, raw.LIST, raw.listing(FOLDER))


def pings_unread(target: Target) -> None:
    """Ping, and read no answer."""
    _unread(target, raw.PING, b"")


def stats_unread(target: Target) -> None:
    """Ask for the server's counters, and read none."""
    _unread(target, raw.STATS, b"")


# ---- work ----


def _stream(
    target: Target, op: int, body: bytes, *, count: int = 1, ahead: int = 8, flags: int = 0
) -> None:
    """Keep so many requests under way, and read the replies."""
    with target.join() as client:
        under_way = 0
        while target.goes_on():
            while under_way < ahead:
                client.request(op, body, count, flags)
                under_way += 1
            message = client.receive()
            if message is None:
                return
            if message.kind == raw.REPLY and message.status != raw.GOING_ON:
                under_way -= 1


def statistics(target: Target) -> None:
    """Ask for the sizes of 64 values, all the time."""
    _stream(target, raw.STAT, raw.keys(FEW), count=len(FEW), ahead=256)


def single_bytes(target: Target) -> None:
    """Get 16,384 boxes of a byte each, three such gets at a time."""
    offsets = [number * 4001 for number in range(16_384)]
    body = raw.get_boxes(BIG, offsets, 1)
    _stream(target, raw.GET, body, ahead=3, flags=raw.SEND_BYTES)


def one_byte_runs(target: Target) -> None:
    """Get half of a large value in runs of a byte."""
    body = raw.get_box(BIG, 1, [(BIG_BYTES // 2, 2)])
    _stream(target, raw.GET, body, ahead=1, flags=raw.SEND_BYTES)


def many_listings(target: Target) -> None:
    """Have 3,000 listings under way."""
    _stream(target, raw.LIST, raw.listing(FOLDER), ahead=3000)


def many_measures(target: Target) -> None:
    """Have 3,000 measures of a folder under way."""
    _stream(target, raw.MEASURE, raw.measure(FOLDER), ahead=3000)


def removals_behind_listings(target: Target) -> None:
    """Remove an empty prefix, with own listings before it and behind it."""
    with target.join() as client:
        while target.goes_on():
            for _ in range(100):
                client.request(raw.LIST, raw.listing(FOLDER))
            number = client.request(raw.REMOVE_PREFIX, raw.text(f"mine/none-{target.number}/"))
            if client.answer(number) is None:
                return


# ---- connections ----


def refused_handshakes(target: Target) -> None:
    """Try another secret."""
    [place] = Address.parse(target.address).servers
    while target.goes_on():
        with suppress(UcxStoreError), Greeting(place, Secret(secrets.token_bytes(16)), 5.0):
            pass


def port_checks(target: Target) -> None:
    """Open and close the port, as health checks do."""
    [place] = Address.parse(target.address).servers
    while target.goes_on():
        socket.create_connection((place.host, place.port), 5.0).close()


# ---- what is shared ----


def _seen(client: RawClient, stack: ExitStack) -> tuple[Tables, dict[int, int]]:
    """Return the client's tables of pins, and the arenas that it sees, with their sizes."""
    number = client.request(raw.GET, raw.get_all(FEW[0]))
    tables, arenas = None, {}
    while (message := client.receive()) is not None:
        if message.kind == raw.PINS:
            # Whether the server lives, the table, a lifeline, what may be held.
            for position, descriptor in enumerate(message.descriptors):
                if position == 1:
                    tables = Tables(descriptor)
                    stack.callback(tables.close)
                else:
                    stack.callback(os.close, descriptor)
            continue
        if message.kind == raw.ARENA:
            arena, _, size = struct.unpack_from("<QQQ", message.header)
            arenas[arena] = size
        for descriptor in message.descriptors:
            stack.callback(os.close, descriptor)
        if message.kind == raw.REPLY and message.request == number:
            break
    if tables is None:
        raise EOFError("shows nothing")
    return tables, arenas


def pins_everywhere(target: Target) -> None:
    """Pin every place where a block can begin, in all tables, as forked children would."""
    with ExitStack() as stack:
        client = stack.enter_context(target.join())
        tables, arenas = _seen(client, stack)
        tables.take(Tables.COUNT - 1)
        places = [
            arena << 32 | offset // 64
            for arena in range(max(arenas, default=0) + 8)
            for offset in range(0, arenas.get(arena, 64 << 20), 4096)
        ]
        step = Tables.PINS
        for number in range(Tables.COUNT):
            chosen = places[number * step : (number + 1) * step]
            tables.write(number, struct.pack(f"<{len(chosen)}Q", *chosen))
        while target.goes_on():
            client.send(raw.HELD)
            nothing_happens(0.05)
            if not client.drop():
                return


def nonsense_in_pins(target: Target) -> None:
    """Write nonsense to all pins, again and again."""
    with ExitStack() as stack:
        client = stack.enter_context(target.join())
        tables, _ = _seen(client, stack)
        tables.take(Tables.COUNT - 1)
        while target.goes_on():
            for number in range(Tables.COUNT):
                tables.write(number, random.randbytes(8 * Tables.PINS))
            client.send(raw.HELD)
            if not client.drop():
                return


def held(target: Target) -> None:
    """Tell all the time that what is held has changed, and hang up now and then."""
    while target.goes_on():
        with ExitStack() as stack:
            client = stack.enter_context(target.join())
            _seen(client, stack)
            client.send_for(_FULL_SECONDS, repeat(raw.frame(raw.HELD) * 100, 200))


def announced_values(target: Target) -> None:
    """Announce large values, and send 4 KiB of each."""
    with target.join() as client:
        for number in range(1000):
            if not target.goes_on():
                break
            key = f"mine/announced-{target.number}-{number}".encode()
            client.value(
                key, bytes(4096), total=128 << 20, segment=4096, length=4096, request=number + 1
            )
            if not client.drop():
                return
        while target.goes_on():
            nothing_happens(_PAUSE_SECONDS)
            if not client.drop():
                return


def hole_uploads(target: Target) -> None:
    """Send values out of an upload that is all holes."""
    with ExitStack() as stack:
        client = stack.enter_context(target.join())
        fd = raw.memory(1 << 30)
        stack.callback(os.close, fd)
        client.send(raw.UPLOAD, descriptors=[fd])
        key = f"mine/holes-{target.number}".encode()
        number = 0
        while target.goes_on():
            number += 1
            place = number % 512 * (2 << 20)
            client.value(key, place=place, total=2 << 20, request=number)
            if client.answer(number) is None:
                return


def passed_files(target: Target) -> None:
    """Pass files as values whose pages are not where the value is."""
    with target.join() as client:
        while target.goes_on():
            key = f"mine/passed-{target.number}".encode()
            fd = file_of_holes(key, _PASSED_BYTES)
            number = client.file(key, _PASSED_BYTES, fd)
            os.close(fd)
            if client.answer(number) is None:
                return


def file_of_holes(key: bytes, size: int) -> int:
    """Return a sealed file whose pages lie behind its end, but for the key's: all else is holes."""
    total = -(-(size + len(key)) // mmap.PAGESIZE) * mmap.PAGESIZE
    fd = raw.memory(total, seals=0)
    try:
        os.pwrite(fd, key, size)
        _keep_size(fd, 2 * total, total - mmap.PAGESIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, raw.MEMORY_SEALS | fcntl.F_SEAL_WRITE)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)


def _keep_size(fd: int, offset: int, length: int) -> None:
    """Take pages of a file, and leave its size (`fallocate(2)`)."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.fallocate(fd, _KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def spaces_for_a_year(target: Target) -> None:
    """Begin scratch spaces for a year, and hang up."""
    year = 365 * 24 * 3600 * 1000
    while target.goes_on():
        with target.join() as client:
            for _ in range(512):
                body = raw.space(secrets.token_hex(16), 1 << 20, year)
                if client.answer(client.request(raw.BEGIN_SPACE, body)) is None:
                    return


def slow_closes(target: Target) -> None:
    """Pass descriptors that nobody asked for, whose close waits."""
    lingering = _lingering()
    with target.join() as client:
        while target.goes_on():
            fd = lingering.make()
            client.send(raw.REQUEST, bytes(40), descriptors=[fd], says=(0, 40, 0))
            lingering.close(fd)
            if not client.drop():
                return


def strangers_with_slow_closes(target: Target) -> None:
    """Connect to the Unix socket without a word, and pass descriptors whose close waits."""
    [place] = Address.parse(target.address).servers
    with Greeting(place, Secret(target.secret) if target.secret else None, 20.0) as greeting:
        name = greeting.welcome.socket
    lingering = _lingering()
    while target.goes_on():
        fd = lingering.make()
        with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
            sock.settimeout(1.0)
            sock.connect(name)
            rights = array.array("i", [fd])
            sock.sendmsg([bytes(20)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        lingering.close(fd)
        nothing_happens(_PAUSE_SECONDS)


class Lingering:
    """Makes TCP connections whose last close waits for a minute: nobody reads what they sent."""

    _SECONDS = 60

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(8)
        self._ends: list[socket.socket] = []

    @property
    def ends(self) -> list[int]:
        """Return the descriptors of the other ends."""
        return [end.fileno() for end in self._ends]

    def make(self) -> int:
        """Return the descriptor of one."""
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            sock.connect(self._listener.getsockname())
            self._ends.append(self._listener.accept()[0])
            sock.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    sock.send(bytes(65536))
            linger = struct.pack("ii", 1, self._SECONDS)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return sock.detach()

    @staticmethod
    def close(fd: int) -> None:
        """Close a descriptor that was passed on, which may wait here instead."""
        threading.Thread(target=os.close, args=(fd,), daemon=True).start()

    def __enter__(self) -> "Lingering":
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        self._listener.close()

    def reset(self) -> None:
        """Reset all: then nobody waits any more."""
        for end in self._ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        self._ends.clear()


@cache
def _lingering() -> Lingering:
    """Return those of this process: they linger until it ends."""
    return Lingering()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of greedy clients.

    Parameters
    ----------
    work : callable
        What one does.
    opens : {"all", "reads", "folder", "nothing"}
        What their grant opens: everything, everything to read, or their own folder. Nothing: the
        handshake is all that they do.
    """

    work: Work
    opens: str = "folder"


KINDS: dict[str, Kind] = {
    "many ranges": Kind(many_ranges),
    "listings unread": Kind(listings_unread),
    "pings unread": Kind(pings_unread),
    "stats unread": Kind(stats_unread, "all"),
    "statistics": Kind(statistics),
    "single bytes": Kind(single_bytes),
    "runs of a byte": Kind(one_byte_runs),
    "3,000 listings": Kind(many_listings),
    "3,000 measures": Kind(many_measures),
    "removals behind listings": Kind(removals_behind_listings),
    "refused handshakes": Kind(refused_handshakes),
    "port checks": Kind(port_checks),
    "pins everywhere": Kind(pins_everywhere, "reads"),
    "nonsense in pins": Kind(nonsense_in_pins, "reads"),
    "held": Kind(held, "reads"),
    "announced values": Kind(announced_values),
    "hole uploads": Kind(hole_uploads),
    "passed files": Kind(passed_files),
    "spaces for a year": Kind(spaces_for_a_year, "all"),
    "slow closes": Kind(slow_closes),
    "strangers' slow closes": Kind(strangers_with_slow_closes),
}
