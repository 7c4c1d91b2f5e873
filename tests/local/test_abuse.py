"""A client of this host that has joined, and then does not keep to the messages."""

import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.core.sync import sync

from tests.adversity.greedy.kinds import Lingering
from tests.adversity.greedy.raw import (
    ARENA,
    DROPPED,
    IN_BODY,
    INDEX,
    PINS,
    REPLY,
    REQUEST,
    ROOM,
    UPLOAD,
    VALUE,
    RawClient,
    memory,
)
from tests.drawing import examples
from tests.eventually import eventually
from tests.stopping import stop
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.server import Server

UPLOAD_BYTES = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("memory://", local=True) as server, UcxStore(server.address) as store:
        store.set_sync("key", as_buffer(bytes(3_000_000)))
        yield server


@pytest.fixture
def intruder(server: Server) -> Iterator[RawClient]:
    intruder = RawClient(server.address)
    yield intruder
    intruder.close()
    goes_on(server)


def goes_on(server: Server) -> None:
    """See that the server serves others."""
    with UcxStore(server.address) as store:
        value = store.get_sync("key")
        assert value is not None
        assert value.to_bytes() == bytes(3_000_000)
        store.set_sync("other", as_buffer(bytes([3]) * 3_000_000))
        other = store.get_sync("other")
        assert other is not None
        assert other.to_bytes() == bytes([3]) * 3_000_000


def test_it_could_behave(server: Server, intruder: RawClient) -> None:
    """What these tests send is right but for what is wrong in each."""
    intruder.value(b"small", b"value")
    fd = memory(UPLOAD_BYTES)
    os.pwrite(fd, b"x" * 100_000, 4096)
    intruder.send(UPLOAD, descriptors=[fd])
    intruder.value(b"large", place=4096, total=100_000)
    with UcxStore(server.address) as store:
        eventually(lambda: store.get_sync("large") is not None)
        for key, expected in (("small", b"value"), ("large", b"x" * 100_000)):
            value = store.get_sync(key)
            assert value is not None
            assert value.to_bytes() == expected
    os.close(fd)


@pytest.mark.parametrize(
    "frame",
    [
        lambda one: one.send(REQUEST, says=(0, 2049, 0)),
        lambda one: one.send(REQUEST, says=(0, 2**32 - 1, 2**64 - 1)),
        lambda one: one.send(REQUEST, says=(9, 0, 0)),
        lambda one: one.send(UPLOAD, says=(1, 0, 0)),
        lambda one: one.send(UPLOAD),
        lambda one: one.send(0),
        lambda one: one.send(REPLY, bytes(80)),
        lambda one: one.send(PINS),
        lambda one: one.send(INDEX),
        lambda one: one.send(ARENA, bytes(8)),
        lambda one: one.send(ROOM, bytes(16)),
        lambda one: one.send(DROPPED, bytes(8)),
        lambda one: one.send(99),
        lambda one: one.send(2**32 - 1, bytes(2048)),
        lambda one: one.send(ROOM, body=bytes(100)),
        lambda one: one.send(VALUE),
        lambda one: one.send(VALUE, bytes(71)),
        lambda one: one.send(VALUE, says=(0, 72, 16_385)),
        lambda one: one.send(REQUEST, says=(0, 40, (256 << 10) + 1)),
        lambda one: one.value(b"key", b"value", total=4),
        lambda one: one.value(b"key", b"value", total=2**63),
        lambda one: one.value(b"key", place=0, total=100_000),
        lambda one: one.value(b"k" * 1025, b"value"),
        lambda one: one.value(b"\xff", b"value"),
    ],
)
def test_a_message_that_breaks_the_rules(
    intruder: RawClient, frame: Callable[[RawClient], None]
) -> None:
    frame(intruder)
    intruder.sock.shutdown(socket.SHUT_WR)
    assert intruder.is_hung_up_on()


@pytest.mark.parametrize(
    ("place", "length"),
    [
        (0, UPLOAD_BYTES + 1),
        (UPLOAD_BYTES, 1),
        (UPLOAD_BYTES - 1, 2),
        (2**63, 1),
        (IN_BODY - 1, 100_000),
        (4096, 2**64 - 4096),
    ],
)
def test_a_place_outside_of_the_upload(intruder: RawClient, place: int, length: int) -> None:
    fd = memory(UPLOAD_BYTES)
    intruder.send(UPLOAD, descriptors=[fd])
    intruder.value(b"large", place=place, total=length)
    assert intruder.is_hung_up_on()
    os.close(fd)


def test_memory_that_could_be_cut(intruder: RawClient) -> None:
    """To read what is cut off would end the server's process."""
    fd = memory(UPLOAD_BYTES, seals=0)
    intruder.send(UPLOAD, descriptors=[fd])
    assert intruder.is_hung_up_on()
    os.close(fd)


@pytest.mark.parametrize("size", [0, (16 << 20) + 4096])
def test_memory_of_a_size_that_is_not_taken(intruder: RawClient, size: int) -> None:
    fd = memory(size)
    intruder.send(UPLOAD, descriptors=[fd])
    assert intruder.is_hung_up_on()
    os.close(fd)


@pytest.mark.parametrize("kind", [REQUEST, UPLOAD])
def test_a_descriptor_whose_close_waits(server: Server, kind: int) -> None:
    """Nobody waits for it: neither if it was read, nor if the socket was closed before that."""
    with Lingering() as lingering:
        for _ in range(2):
            intruder = RawClient(server.address)
            fds = [lingering.make() for _ in range(2)]
            for fd in fds:
                intruder.send(kind, bytes(40), descriptors=[fd])
                lingering.close(fd)
            goes_on(server)
            intruder.close()
            goes_on(server)


def test_many_descriptors_whose_close_waits() -> None:
    """Of more than there is room for, the kernel would close the rest as they are received."""
    with (
        Server.spawn("memory://", local=True) as server,
        UcxStore(server.address, timeout=10) as store,
        RawClient(server.address) as intruder,
        Lingering() as lingering,
    ):
        store.set_sync("key", as_buffer(b"value"))
        fds = [lingering.make() for _ in range(20)]
        stop(server.pid)
        intruder.send(REQUEST, bytes(40), descriptors=fds, says=(0, 40, 0))
        for fd in fds:  # the server has the last of each
            os.close(fd)
        os.kill(server.pid, signal.SIGCONT)
        store.set_sync("key", as_buffer(b"other"))
        assert intruder.is_hung_up_on()


def test_descriptors_that_wait_to_be_closed(server: Server) -> None:
    """However many, they are closed in the end, and are counted until then."""

    def held() -> int:
        origins = store.server_stats_sync()["origins"]
        return sum(origin["held"].get("descriptors", 0) for origin in origins)

    def pass_on(*fds: int) -> RawClient:
        one = RawClient(server.address)
        one.send(REQUEST, bytes(40), descriptors=fds, says=(0, 40, 0))
        return one

    with UcxStore(server.address) as store, Lingering() as lingering:
        assert held() == 0
        while held() < 41:
            fd = lingering.make()
            one = pass_on(fd)
            lingering.close(fd)  # before the server does, mostly: the last one waits
            assert one.is_hung_up_on()
            one.close()
        with pass_on(*[lingering.ends[0]] * 253) as one:
            assert one.is_hung_up_on()
        with pytest.raises(AssertionError):  # until then, no more of its origin may join
            RawClient(server.address)
        assert held() >= 40 + 253
        lingering.reset()
        eventually(lambda: held() == 0)
    goes_on(server)


@pytest.mark.parametrize("kind", ["memory", "device"])
@pytest.mark.parametrize("says", [0, 1])
def test_a_descriptor_that_is_not_asked_for(intruder: RawClient, kind: str, says: int) -> None:
    fd = memory(UPLOAD_BYTES) if kind == "memory" else os.open("/dev/null", os.O_RDONLY)
    intruder.send(REQUEST, bytes(40), descriptors=[fd], says=(says, 40, 0))
    assert intruder.is_hung_up_on()
    os.close(fd)


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "/dev/zero", "socket"])
def test_what_is_no_memory(intruder: RawClient, kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(UPLOAD_BYTES))
    if kind == "pipe":
        fd, other = os.pipe()
        os.close(other)
    elif kind == "socket":
        fd = os.dup(intruder.sock.fileno())
    else:
        path = {"file": tmp_path / "file", "folder": tmp_path}.get(kind, kind)
        fd = os.open(path, os.O_RDONLY)
    intruder.send(UPLOAD, descriptors=[fd])
    assert intruder.is_hung_up_on()
    os.close(fd)


def test_a_second_upload(intruder: RawClient) -> None:
    fd = memory(UPLOAD_BYTES)
    intruder.send(UPLOAD, descriptors=[fd])
    intruder.send(UPLOAD, descriptors=[fd])
    assert intruder.is_hung_up_on()
    os.close(fd)


def test_no_descriptors_are_left(server: Server) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    goes_on(server)
    eventually(lambda: server.sessions == 1)
    before = opened()
    for kind, count in ((UPLOAD, 1), (UPLOAD, 8), (REQUEST, 8), (99, 3), (UPLOAD, 30)):
        intruder = RawClient(server.address)
        fd = memory(UPLOAD_BYTES)
        intruder.send(kind, descriptors=[fd] * count, says=(min(count, 8), 0, 0))
        intruder.send(kind, descriptors=[fd] * count, says=(0, 0, 0))
        intruder.sock.shutdown(socket.SHUT_WR)
        assert intruder.is_hung_up_on()
        os.close(fd)
        intruder.close()
    eventually(lambda: server.sessions == 1)
    eventually(lambda: opened() <= before)


def test_descriptors_one_at_a_time(intruder: RawClient) -> None:
    """Messages that say they have none, each with one."""
    fd = memory(UPLOAD_BYTES)
    for _ in range(100):
        intruder.send(REQUEST, bytes(40), descriptors=[fd], says=(0, 40, 0))
    intruder.sock.shutdown(socket.SHUT_WR)
    assert intruder.is_hung_up_on()
    os.close(fd)


def test_another_token_is_counted_and_dropped(server: Server, intruder: RawClient) -> None:
    refused = server.stats()["messages_refused"]
    intruder.value(b"stolen", b"value", token=bytes(16))
    intruder.send(REQUEST, bytes(40))
    intruder.value(b"own", b"value")
    with UcxStore(server.address) as store:
        eventually(lambda: store.get_sync("own") is not None)
        assert store.get_sync("stolen") is None
    assert server.stats()["messages_refused"] >= refused + 2


def test_a_value_that_changes_while_it_is_taken(server: Server, intruder: RawClient) -> None:
    fd = memory(UPLOAD_BYTES)
    intruder.send(UPLOAD, descriptors=[fd])
    for byte in range(1, 50):
        os.pwrite(fd, bytes([byte]) * UPLOAD_BYTES, 0)
        intruder.value(b"own", place=0, total=UPLOAD_BYTES)
    with UcxStore(server.address) as store:
        eventually(lambda: (store.get_sync("own") or as_buffer(b"\0")).to_bytes()[-1] == 49)
    os.close(fd)


def test_one_that_does_not_read(server: Server) -> None:
    """Its answers wait, and are freed with it."""
    with UcxStore(server.address) as store:
        bytes_before = sync(store.server_stats())["bytes_in_flight"]
    intruder = RawClient(server.address)
    intruder.sock.settimeout(2)
    key = b"key"
    item = struct.pack("<H", len(key)) + key + struct.pack("<QQQQ", *[2**64 - 1] * 3, 0) + b"\0\0\0"
    for number in range(200):
        header = intruder.token + struct.pack("<QIIII", number + 1, 1, 0, 1, 1)
        try:
            intruder.send(REQUEST, header, item)
        except TimeoutError:
            break
    goes_on(server)
    intruder.close()
    with UcxStore(server.address) as store:
        eventually(lambda: sync(store.server_stats())["bytes_in_flight"] == bytes_before)


frames = st.builds(
    lambda kind, descriptors, header, body, cut: (
        struct.pack("<IIIIQ", kind, descriptors, len(header), 0, len(body)) + header + body
    )[:cut],
    st.one_of(st.integers(0, 12), st.integers(0, 2**32 - 1)),
    st.sampled_from([0, 0, 0, 1, 9]),
    st.binary(max_size=120),
    st.binary(max_size=200),
    st.one_of(st.none(), st.integers(0, 100)),
)


@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.one_of(frames, st.binary(max_size=200)), max_size=8), st.booleans())
def test_anything(server: Server, data: list[bytes], with_token: bool) -> None:
    intruder = RawClient(server.address)
    for each in data:
        frame = each[:24] + intruder.token + each[40:] if with_token else each
        try:
            intruder.sock.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            break
    with suppress(OSError):
        intruder.sock.shutdown(socket.SHUT_WR)
    assert intruder.is_hung_up_on()
    intruder.close()


def test_the_server_is_well_after_all(server: Server) -> None:
    goes_on(server)
    eventually(lambda: server.sessions == 1)
