"""A server dies while its client connects: at twenty moments, from the first call to the last."""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.adversity.deaths.cases import (
    ATTACH,
    FRAME,
    READY,
    REPLY_HEADER,
    REQUEST_HEADER,
    Direction,
    Kind,
    Lane,
    handshake,
)
from tests.adversity.deaths.conftest import TRIP
from tests.adversity.deaths.processes import Job, be_client, be_server
from tests.adversity.deaths.trips import Action, Event, Sockets, Trip
from tests.adversity.nursery import Child, Nursery
from tests.durability.recording import preload

COUNT = 20
# What a client sends until its first request is answered, and what it gets.
GREETED = {direction: handshake(Lane.TCP, direction) for direction in Direction}
SENT = GREETED[Direction.TO_SERVER] + ATTACH + FRAME + REQUEST_HEADER
GOT = GREETED[Direction.TO_CLIENT] + READY + FRAME + REPLY_HEADER


def moments(*, of_data: int) -> list[Trip]:
    """Return trip wires for a server, evenly between its first call and its last byte.

    Parameters
    ----------
    of_data : int
        How many of them are of the connections of UCX's own.
    """
    wires = [Trip(Event.CONNECT, Sockets.CONTROL, after, Action.KILL) for after in (0, 1)]
    half = (COUNT - of_data) // 2 - 1
    most = {Event.RECEIVE: SENT, Event.SEND: GOT}
    if of_data:  # the last frames have addresses of UCX, and a few bytes more
        most = {
            Event.RECEIVE: SENT - FRAME - REQUEST_HEADER,
            Event.SEND: GOT - FRAME - REPLY_HEADER,
        }
    for event, last in most.items():
        offsets = [number * (last - 1) // (half - 1) for number in range(half)]
        wires += [Trip(event, Sockets.CONTROL, after, Action.KILL) for after in offsets]
    for number in range(of_data):
        event = (Event.CONNECT, Event.RECEIVE, Event.SEND)[number % 3]
        wires.append(Trip(event, Sockets.DATA, number // 3, Action.KILL))
    return wires


OVER_TCP = moments(of_data=0)
OVER_UCX = moments(of_data=8)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("connecting")
    with Nursery(folder, preload(TRIP, folder)) as nursery:
        yield nursery


def attempt(client: Child, lane: Lane, address: str) -> str:
    """Let a client connect; return the text of its exception, or that it has died."""
    job = Job(
        lane, address, Kind.SIZE, 5000, checked=False, opened=False, closes=False, timeout=1.0
    )
    assert client.ask(job) == "ready"
    client.channel.send((None, None))
    assert client.channel.poll(30.0), "the client hangs"
    try:
        outcome = client.channel.recv()
        assert client.ask("look").memory_untouched
    except EOFError:
        return "it died"
    assert outcome.is_ours, outcome
    return str(outcome.error)


def connect_while_they_die(
    nursery: Nursery, clients: Sequence[Child], lane: Lane, moments: Sequence[Trip]
) -> list[str]:
    """Return the ends of attempts, of which each server dies at its moment."""
    servers = [nursery.start(be_server, lane, "memory://", "127.0.0.1:0") for _ in moments]
    try:
        addresses = [str(server.hear()) for server in servers]
        for server, moment in zip(servers, moments, strict=True):
            assert server.ask(moment) == "armed"
        turns = [addresses[number :: len(clients)] for number in range(len(clients))]

        def attempts(client: Child, own: Sequence[str]) -> list[str]:
            return [attempt(client, lane, address) for address in own]

        with ThreadPoolExecutor(len(clients)) as pool:
            ends = [end for own in pool.map(attempts, clients, turns) for end in own]
        assert {server.wait(20.0) for server in servers} == {-signal.SIGKILL}
    finally:
        for server in servers:
            server.end()
    return ends


def test_the_client_lives_over_plain_tcp(nursery: Nursery) -> None:
    assert len(set(OVER_TCP)) == COUNT
    clients = [nursery.start(be_client) for _ in range(4)]
    ends = connect_while_they_die(nursery, clients, Lane.TCP, OVER_TCP)
    for client in clients:  # they live, and end well
        client.close()
    assert len(ends) == COUNT
    assert {end.partition(":")[0] for end in ends} <= {"ConnectError", "ServerLostError"}, ends


@pytest.mark.full
def test_over_ucx_it_fails_in_time(nursery: Nursery, capsys: pytest.CaptureFixture[str]) -> None:
    """UCX might end the process of the client; it prints how many live."""
    clients = [nursery.start(be_client) for _ in OVER_UCX]
    ends = connect_while_they_die(nursery, clients, Lane.UCX_TCP, OVER_UCX)
    died = [client.wait() for client in clients if client.has_ended()]
    for client in clients:
        client.end()
    with capsys.disabled():
        print(f"\n{COUNT - len(died)} of {COUNT} clients live over UCX; others: {died}")
    assert set(died) <= {-signal.SIGABRT, -signal.SIGSEGV}
    allowed = {"ConnectError", "ServerLostError", "it died"}
    assert {end.partition(":")[0] for end in ends} <= allowed, ends
