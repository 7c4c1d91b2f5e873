"""Stages are where the cases have them: of each request the bytes are recorded, and parsed."""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.adversity.deaths.cases import (
    MEDIUM,
    SUMS,
    Case,
    Combination,
    Direction,
    Hurt,
    Kind,
    Lane,
    Side,
    Stage,
    Storage,
    kinds_of,
    reach,
)
from tests.adversity.deaths.plan import offset_of
from tests.adversity.deaths.processes import OPTIONS_OF_SERVERS, open_store
from tests.adversity.deaths.requests import Request, create
from tests.adversity.fake_servers import FakeServer, relays_to
from ucxstore.server import Server

ATTACH_KIND, READY_KIND = 5, 6
VALUE_KIND, REPLY_KIND = 2, 3


class Part(NamedTuple):
    """A frame of the handshake, or a message: its kind, where it begins, its data, its end."""

    kind: int
    begin: int
    data: int
    end: int


def frames_of_handshake(stream: bytes) -> Iterator[Part]:
    """Yield the frames before the messages; see docs/wire.md."""
    at, kind = 0, 0
    while kind not in (ATTACH_KIND, READY_KIND):
        magic, _, kind, length = struct.unpack_from("<4sHHI", stream, at)
        assert magic == b"UCXS"
        yield Part(kind, at, at + 12, at + 12 + length)
        at += 12 + length


def messages(stream: bytes, at: int) -> Iterator[Part]:
    """Yield the messages over TCP from there on."""
    while at < len(stream):
        kind, descriptors, header, reserved, body = struct.unpack_from("<IIIIQ", stream, at)
        assert (descriptors, reserved) == (0, 0)
        yield Part(kind, at, at + 24 + header, at + 24 + header + body)
        at += 24 + header + body
    assert at == len(stream)


class Recorded(NamedTuple):
    """The bytes of a direction: of the whole connection, and where the request begins."""

    stream: bytes
    request: int


def record(lane: Lane, kind: Kind, *, checked: bool) -> dict[Direction, Recorded]:
    """Make a request in which nothing goes wrong, on a connection that is recorded."""
    to_server, to_client = bytearray(), bytearray()
    with Server("memory://", **OPTIONS_OF_SERVERS[lane]) as server:
        place = server.address.removeprefix("ucx://")
        with (
            FakeServer(relays_to(place, to_server, to_client)) as box,
            open_store(lane, box.address, integrity=checked) as store,
        ):
            create(store, kind, MEDIUM)
            request = Request(store, kind, MEDIUM)
            request.open()
            begins = len(to_server), len(to_client)
            assert request.make()
    return {
        Direction.TO_SERVER: Recorded(bytes(to_server), begins[0]),
        Direction.TO_CLIENT: Recorded(bytes(to_client), begins[1]),
    }


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    ("lane", "checked"), [(Lane.TCP, False), (Lane.TCP, True), (Lane.ENCRYPTED, False)]
)
def test_stages_are_there(lane: Lane, kind: Kind, checked: bool) -> None:
    for direction, recorded in record(lane, kind, checked=checked).items():
        first = at_first(lane, kind, direction, checked=checked)
        stream, begin = recorded
        *greeting, wired = frames_of_handshake(stream)
        assert offset_of(first(Stage.HANDSHAKE)) == 0
        assert reach(first(Stage.HANDSHAKE).combination, MEDIUM) == greeting[-1].end

        said = next(messages(stream, wired.end))
        assert offset_of(first(Stage.WIRE_UP)) == greeting[-1].end
        last = greeting[-1].end + reach(first(Stage.WIRE_UP).combination, MEDIUM) - 1
        assert wired.end <= last < said.data

        asked = list(messages(stream[begin:], 0))
        whole = Stage.REQUEST if direction is Direction.TO_SERVER else Stage.REPLY
        assert offset_of(first(whole)) == 0
        assert reach(first(whole).combination, MEDIUM) <= asked[0].data - SUMS * checked
        if kind in kinds_of(first(Stage.SEGMENT).combination):
            data = offset_of(first(Stage.SEGMENT))
            kinds = {VALUE_KIND, REPLY_KIND}
            assert data == next(one.data for one in asked if one.kind in kinds)
            last = data + reach(first(Stage.SEGMENT).combination, MEDIUM) - 1
            assert last < max(one.end for one in asked if one.kind in kinds)


def at_first(
    lane: Lane, kind: Kind, direction: Direction, *, checked: bool
) -> Callable[[Stage], Case]:
    """Return what makes the case of a stage, of its first byte."""
    hurt = Hurt.FLIP if checked else Hurt.STOP

    def case(stage: Stage) -> Case:
        one = Combination(lane, hurt, Side.CLIENT, stage, direction)
        return Case(*one, kind, Storage.MEMORY, MEDIUM, 0)

    return case
