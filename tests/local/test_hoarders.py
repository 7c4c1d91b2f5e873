"""Clients of this host that have joined, and take more than their share."""

import array
import ctypes
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import pytest

from tests.adversity.greedy.raw import (
    ARENA,
    BEGIN_SPACE,
    GET,
    GOING_ON,
    OK,
    PING,
    PINS,
    REPLY,
    UPLOAD,
    RawClient,
    Tables,
    get_all,
    memory,
    space,
)
from tests.eventually import eventually
from tests.fixtures import store_of_the_server as store_of_the_server
from tests.values import as_buffer, read
from ucxstore import StorageError, UcxStore
from ucxstore.base.keys import SCRATCH_FOLDER
from ucxstore.server import Server

SHOWN, UNMOVED = 12, 13
MIB = 1 << 20
PAGE = 4096
MEMORY = 64 * MIB


class Hoarder(RawClient):
    """A client that keeps the descriptors that it is passed."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.address)
        self.kept: dict[int, list[int]] = {}

    def get(self, key: str) -> None:
        """Ask for a value, and keep what is passed for it."""
        self.request(GET, get_all(key))
        assert self.status() == SHOWN

    def status(self) -> int:
        """Read messages up to the next reply, and return its status."""
        while (message := self.receive()) is not None:
            self.kept.setdefault(message.kind, []).extend(message.descriptors)
            if message.kind == REPLY and message.status != GOING_ON:
                return message.status
        pytest.fail("the server has hung up")

    def close(self) -> None:
        for descriptors in self.kept.values():
            for fd in descriptors:
                os.close(fd)
        self.kept.clear()
        super().close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("memory://", memory=MEMORY) as server:
        yield server


@pytest.fixture
def hoarder(server: Server) -> Iterator[Hoarder]:
    hoarder = Hoarder(server)
    yield hoarder
    hoarder.close()


def memory_of(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def is_stored(store: UcxStore, key: str, size: int) -> bool:
    with suppress(StorageError):
        store.set_sync(key, as_buffer(bytes([7]) * size))
        return True
    return False


# ---- holes ----


def test_holes_of_an_upload_are_not_filled(hoarder: Hoarder, store: UcxStore) -> None:
    """What the server reads there would be its memory, and count nowhere."""
    fd = memory(16 * MIB)
    os.pwrite(fd, b"there", 3 * MIB)
    hoarder.send(UPLOAD, descriptors=[fd])
    for number in range(8):
        hoarder.value(
            b"holes/%d" % number, place=2 * MIB * number, total=2 * MIB, request=number + 1
        )
        assert hoarder.status() == OK
    assert read(store, "holes/0") == bytes(2 * MIB)
    assert read(store, "holes/1") == bytes(MIB) + b"there" + bytes(MIB - 5)
    assert memory_of(fd) == PAGE
    os.close(fd)


def test_a_file_of_holes_is_not_taken_over(hoarder: Hoarder, store: UcxStore) -> None:
    """Pages beyond its end make up for the holes, in the number of its blocks."""
    size, key = 8 * MIB - PAGE, b"holes"
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size + PAGE)
    os.pwrite(fd, key, size)
    keep_size = 1
    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(size + PAGE), ctypes.c_int64(size)
    assert libc.fallocate64(fd, keep_size, offset, length) == 0
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0b1111)
    before = memory_of(fd)
    assert before == size + PAGE
    readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    hoarder.file(key, size, readable)
    status = hoarder.status()
    if status == OK:  # then whoever reads it has it filled
        assert read(store, "holes") == bytes(size)
    assert memory_of(fd) == before
    assert status == UNMOVED
    os.close(readable)
    os.close(fd)


# ---- memory that others keep ----


def test_memory_of_an_ended_space_counts_while_somebody_has_it(
    server: Server, hoarder: Hoarder, store: UcxStore
) -> None:
    with store.scratch_sync("1GiB") as scratch:
        scratch.store().set_sync("a", as_buffer(bytes([7]) * 40 * MIB))
        hoarder.get(f"{SCRATCH_FOLDER}{scratch.name}/a")
        arenas = hoarder.kept.pop(ARENA)
    kept = sum(memory_of(fd) for fd in arenas)
    assert kept >= 40 * MIB
    eventually(lambda: server.stats()["scratch_bytes"] == 0)
    assert server.stats()["memory_used"] >= kept
    assert not is_stored(store, "a", 40 * MIB)
    for fd in arenas:
        os.close(fd)
    eventually(lambda: is_stored(store, "a", 40 * MIB))


# ---- pins ----


def pin_everything(table: int) -> Tables:
    """Pin each place where a block of whole pages can begin, in the first arenas."""
    tables = Tables(table)
    tables.take(Tables.COUNT - 1)
    for number in range(Tables.COUNT):
        first = number * Tables.PINS
        places = (
            1 + i % 4 << 32 | i // 4 * (PAGE // 64) for i in range(first, first + Tables.PINS)
        )
        tables.write(number, array.array("Q", places).tobytes())
    return tables


def test_who_pins_everything_stops_no_overwrite(
    hoarder: Hoarder, store: UcxStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ucxstore")
    count = 0
    while is_stored(store, f"c/{count}", MIB // 2):
        count += 1
    assert count > 100
    hoarder.get("c/0")
    tables = pin_everything(hoarder.kept[PINS].pop(1))
    refused = sum(not is_stored(store, f"c/{number}", MIB // 2) for number in range(count))
    assert refused == 0, f"{refused} of {count}"
    assert hoarder.is_hung_up_on()
    eventually(lambda: "places where no value begins" in caplog.text)
    tables.close()


# ---- what nobody takes ----


def test_what_is_kept_for_a_client_goes_with_it(hoarder: Hoarder, store: UcxStore) -> None:
    """Though it keeps its table of pins: that of all clients of its origin has room again."""

    def held() -> int:
        origins = store.server_stats_sync()["origins"]
        return sum(origin["held"].get("reply_bytes", 0) for origin in origins)

    assert is_stored(store, "key", MIB)
    hoarder.get("key")
    hoarder.send_for(1.0, repeat(hoarder.frame_of(PING) * 100, 1000))
    assert held() >= MIB
    hoarder.sock.close()
    eventually(lambda: held() < PAGE)
    assert PINS in hoarder.kept


# ---- what is announced ----


def test_values_that_are_announced_take_little(server: Server, store: UcxStore) -> None:
    """Of each, a small part is sent: the last one, so that it is a whole segment."""
    hoarder = Hoarder(server)
    before = len(list(Path("/proc/self/fd").iterdir()))
    maps = mapped_bytes()
    total = 40 * MIB + PAGE
    for number in range(300):
        hoarder.value(
            b"announced/%d" % number,
            bytes(PAGE),
            total=total,
            length=PAGE,
            offset=40 * MIB,
            request=number + 1,
        )
    assert is_stored(store, "other", 10_000)
    assert read(store, "other") == bytes([7]) * 10_000
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10
    assert mapped_bytes() < maps + 4 * MEMORY
    hoarder.close()
    eventually(lambda: is_stored(store, "large", 40 * MIB))


def mapped_bytes() -> int:
    """Return the address space of the arenas of this process."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:ucxstore-" in line:
            begin, end = line.split(" ")[0].split("-")
            total += int(end, 16) - int(begin, 16)
    return total


# ---- scratch spaces ----


def test_spaces_of_one_client_leave_room_for_others(server: Server, hoarder: Hoarder) -> None:
    refused = 0
    for number in range(4200):
        hoarder.request(BEGIN_SPACE, space(f"{number:032x}", MIB, 23 * 3600 * 1000))
        refused += hoarder.status() != OK
    assert refused > 0
    with UcxStore(server.address) as store, store.scratch_sync("1MiB") as scratch:
        scratch.store().set_sync("a", as_buffer(b"value"))
