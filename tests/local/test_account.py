"""What a client of this host takes of its server: bounded, and in turns with other clients."""

import itertools
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from zarr.abc.store import ByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from tests.adversity.greedy.raw import (
    ABANDON,
    ANY,
    BUSY,
    GET,
    GOING_ON,
    LIST,
    PING,
    REPLY,
    SEGMENT,
    SEND_BYTES,
    STAT,
    STATS,
    UPLOAD,
    RawClient,
    memory,
)
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import Secret, UcxStore
from ucxstore.server import Server

SECRET = Secret("of the servers that make grants")
RANGES, BOX, GATHERED = range(3)
MIB = 1 << 20


class Raw(RawClient):
    """Reads replies only if it is asked to."""

    def pour(self, message: bytes, times: int, patience: float = 2.0) -> int:
        """Send that often; return how many bytes the server does not take."""
        return len(message) * times - self.send_for(patience, itertools.repeat(message, times))

    def ping(self) -> None:
        assert self.answer(self.request(PING)) is not None


def get_item(key: bytes, selection: bytes) -> bytes:
    numbers = struct.pack("<QQQQ", ANY, SEGMENT, ANY, 0)
    return struct.pack("<H", len(key)) + key + numbers + selection


def ranges(count: int) -> bytes:
    """All of a value, that often."""
    return struct.pack("<BH", RANGES, count) + struct.pack("<BQQ", 2, 0, 0) * count


def strided(run: int, count: int, stride: int) -> bytes:
    return struct.pack("<BqQB", BOX, 0, run, 1) + struct.pack("<Qq", count, stride)


def boxes(offsets: range, count: int, stride: int) -> bytes:
    return (
        struct.pack("<BI", GATHERED, len(offsets))
        + np.array(offsets, "<i8").tobytes()
        + struct.pack("<QB", 1, 1)
        + struct.pack("<Qq", count, stride)
    )


def memory_of(pid: int) -> int:
    """What only this process has: its values, and memory of its own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError


class Greedy:
    """A raw client beside others of a server in a process of its own."""

    def __init__(self, storage: str, **options: Any) -> None:
        self._stack = ExitStack()
        self.server = self._stack.enter_context(Server.spawn(storage, local=True, **options))
        self.store = self._stack.enter_context(UcxStore(self.server.address))

    def client(self) -> Raw:
        return self._stack.enter_context(Raw(self.server.address, timeout=120))

    def held(self, kind: str) -> int:
        origins = self.store.server_stats_sync()["origins"]
        return sum(origin["held"].get(kind, 0) for origin in origins)

    def memory(self) -> int:
        return memory_of(self.server.pid)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def beside_memory() -> Iterator[Greedy]:
    greedy = Greedy("memory://", memory=64 * MIB)
    yield greedy
    greedy.close()


@pytest.fixture
def beside_directory(tmp_path: Path) -> Iterator[Greedy]:
    greedy = Greedy(f"file://{tmp_path}")
    yield greedy
    greedy.close()


@pytest.mark.parametrize("op", [PING, STATS], ids=["ping", "stats"])
def test_replies_that_nobody_reads(beside_memory: Greedy, op: int) -> None:
    """The server reads no more requests, and so keeps no more replies."""
    raw, other = beside_memory.client(), beside_memory.client()
    other.ping()
    before = beside_memory.memory()
    assert raw.pour(raw.frame_of(op) * 100, 4000) > 0
    assert beside_memory.memory() - before < 32 * MIB
    other.ping()


def test_room_in_an_upload_that_nobody_reads(beside_memory: Greedy) -> None:
    """The messages that say so wait as replies do."""
    raw, other = beside_memory.client(), beside_memory.client()
    other.ping()
    fd = memory(16 * MIB)
    raw.send(UPLOAD, descriptors=[fd])
    os.close(fd)
    value = raw.segment(b"key", b"", request=raw.request(ABANDON))
    before = beside_memory.memory()
    assert raw.pour(value * 100, 4000) > 0
    assert beside_memory.memory() - before < 32 * MIB
    assert beside_memory.held("reply_bytes") >= 4 * MIB
    other.ping()


def segments(raw: Raw, request: int, total: int, offsets: range) -> Iterator[bytes]:
    """Yield segments of a value, each with its bytes."""
    for offset in offsets:
        yield raw.segment(b"v", bytes(4096), request=request, total=total, offset=offset)


def test_segments_of_a_value_that_waits_for_room(beside_memory: Greedy) -> None:
    """Their bytes are held, as far as there is room for these."""
    raw, other = beside_memory.client(), beside_memory.client()
    other.ping()
    raw.send_for(2, segments(raw, 1, 30 * MIB, range(0, 4096, 4096)))
    before = beside_memory.memory()
    raw.send_for(2, segments(raw, 2, 1 << 30, range(0, 300 * MIB, 4096)))
    other.ping()
    assert beside_memory.memory() - before < 80 * MIB
    refused = raw.answer(2)
    assert refused is not None
    assert refused.status == BUSY
    eventually(lambda: beside_memory.held("request_bytes") < MIB)
    other.ping()


def test_segments_out_of_order(beside_memory: Greedy) -> None:
    """The list of them is charged, whatever becomes of the value."""
    raw = beside_memory.client()
    offsets = range(4096, 128 * MIB, 8192)
    assert raw.send_for(10, segments(raw, 1, 1 << 33, offsets)) > 64 * MIB
    eventually(lambda: beside_memory.held("request_bytes") > len(offsets) * 32)
    raw.close()
    eventually(lambda: beside_memory.held("request_bytes") == 0)


def test_listings_that_nobody_reads(beside_directory: Greedy) -> None:
    for i in range(1200):
        beside_directory.store.set_sync(f"{i:0240}", as_buffer(b"v"))
    raw = beside_directory.client()
    before = beside_directory.memory()
    listing = struct.pack("<H", 0) + b"\0" + struct.pack("<H", 0)
    raw.pour(raw.frame_of(LIST, listing), 1000)
    other = beside_directory.client()
    for _ in range(100):
        other.ping()
    assert beside_directory.memory() - before < 32 * MIB


def test_many_ranges_in_a_small_request(beside_directory: Greedy) -> None:
    """Its reply goes in segments, however long it is; others get theirs meanwhile."""
    beside_directory.store.set_sync("k", as_buffer(bytes(16 * MIB)))
    raw, other = beside_directory.client(), beside_directory.client()
    other.ping()
    before = beside_directory.memory()
    raw.request(GET, get_item(b"k", ranges(40)), flags=SEND_BYTES)
    for _ in range(20):
        other.ping()
    assert beside_directory.memory() - before < 40 * MIB


def reads_while(raw: Raw, size: int) -> tuple[threading.Thread, list[int]]:
    """Read so many bytes of replies in a thread; and how many it has."""
    read = [0]

    def go_on() -> None:
        while read[0] < size and (message := raw.receive()) is not None:
            if message.kind == REPLY and message.status != GOING_ON:
                read[0] += int.from_bytes(message.header[72:80], "little")

    thread = threading.Thread(target=go_on)
    thread.start()
    return thread, read


def test_a_get_in_runs_of_a_byte(beside_memory: Greedy) -> None:
    size = 16 * MIB
    beside_memory.store.set_sync("k", as_buffer(bytes(2 * size)))
    raw, other = beside_memory.client(), beside_memory.client()
    other.ping()
    thread, read = reads_while(raw, size)
    raw.request(GET, get_item(b"k", strided(1, size, 2)), flags=SEND_BYTES)
    eventually(lambda: read[0] > 0)
    for _ in range(3):
        other.ping()
    assert read[0] < size
    thread.join(120)
    assert read[0] == size


def test_a_get_in_runs_of_a_byte_that_nobody_reads(beside_memory: Greedy) -> None:
    size = 4 * MIB
    beside_memory.store.set_sync("k", as_buffer(bytes(2 * size)))
    other = beside_memory.client()
    other.ping()
    before = beside_memory.memory()
    clients = [beside_memory.client() for _ in range(8)]
    for raw in clients:
        raw.request(GET, get_item(b"k", strided(1, size, 2)), flags=SEND_BYTES)
    eventually(lambda: beside_memory.held("reply_bytes") >= 8 * 2 * MIB - MIB)
    other.ping()
    assert beside_memory.memory() - before < 64 * MIB


def test_gets_of_many_boxes(beside_memory: Greedy) -> None:
    size = 4 * MIB
    beside_memory.store.set_sync("k", as_buffer(bytes(size)))
    raw, other = beside_memory.client(), beside_memory.client()
    other.ping()
    selection = boxes(range(0, size, size // (16 << 10)), 128, 2)
    replies = 3 * 128 * (16 << 10)
    thread, read = reads_while(raw, replies)
    for _ in range(3):
        raw.request(GET, get_item(b"k", selection), flags=SEND_BYTES)
    eventually(lambda: read[0] > 0)
    for _ in range(3):
        other.ping()
    assert read[0] < replies
    thread.join(120)
    assert read[0] == replies


def test_a_stream_of_statistics(beside_directory: Greedy) -> None:
    keys = [f"{i}".encode() for i in range(64)]
    for key in keys:
        beside_directory.store.set_sync(key.decode(), as_buffer(b"v"))
    raw, other = beside_directory.client(), beside_directory.client()
    other.ping()
    body = b"".join(struct.pack("<H", len(key)) + key for key in keys)
    many = 4000
    thread, read = reads_while(raw, many * 512)
    stream = raw.frame_of(STAT, body, len(keys)) * many
    sender = threading.Thread(target=lambda: raw.sock.sendall(stream))
    sender.start()
    eventually(lambda: read[0] > 0)
    for _ in range(3):
        other.ping()
    assert read[0] < many * 512
    thread.join(120)
    sender.join(120)
    assert read[0] == many * 512


# A client whose grant ends sees no memory of the server: all is sent to it.
@pytest.mark.parametrize("local", ["auto", "off"])
@pytest.mark.parametrize("storage", ["memory", "directory"])
def test_ranges_of_more_than_a_segment(
    storage: str, local: Literal["auto", "off"], tmp_path: Path
) -> None:
    size = 12 * MIB
    value = np.random.default_rng(0).integers(0, 256, size, "u1").tobytes()
    wanted: list[ByteRequest | None] = [
        RangeByteRequest(0, size),
        RangeByteRequest(5, size - 3),
        RangeByteRequest(7, 7),
        SuffixByteRequest(1000),
        RangeByteRequest(1, size),
    ]
    expected = [value, value[5 : size - 3], b"", value[-1000:], value[1:]]
    with (
        Server(
            "memory://" if storage == "memory" else f"file://{tmp_path}", local=True, secret=SECRET
        ) as server,
        UcxStore(
            server.address,
            local=local,
            secret=SECRET.grant(None, expires="1h"),
        ) as store,
    ):
        store.set_sync("k", as_buffer(value))
        found = store.get_ranges_sync("k", wanted, prototype=default_buffer_prototype())
        for index, part in found:
            assert part is not None
            assert part.to_bytes() == expected[index]
        assert len(found) == len(wanted)
