"""Records of sets of servers: who belongs together, and who is where."""

import random
from itertools import permutations

import pytest

from ucxstore.base.address import HostPort
from ucxstore.base.errors import ClusterError, ProtocolError
from ucxstore.cluster.record import Record, choose

A, B, C, D = (HostPort(host, 7400) for host in "abcd")
IDENTITY = {server: bytes([number]) * 16 for number, server in enumerate((A, B, C, D), 1)}


def record_of(*servers: HostPort) -> Record:
    return Record.make({server: IDENTITY[server] for server in servers})


def names_of(record: Record) -> list[str]:
    return [place.name for place in record.members]


def test_it_is_what_it_was_written_from() -> None:
    record = record_of(A, B, C)
    assert Record.decode(record.encode()) == record
    assert Record.decode(b"") is None
    assert record_of(A, B) != record_of(A, B), "two sets of the same servers are two sets"


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"{}",
        b"[]",
        b"null",
        b'{"set":"00","generation":1,"members":[]}',
        b'{"set":"00","generation":1,"members":[{"identity":"00","name":"a:1"}]}',
        b'{"set":"00","generation":1,"members":[{"identity":5,"name":"a:1"}]}',
        b'{"set":"zz","generation":1,"members":1}',
        b'{"set":"00","generation":"x","members":[]}',
    ],
)
def test_what_is_no_record(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a record"):
        Record.decode(data)


def test_every_server_is_at_the_place_of_its_identity() -> None:
    record = record_of(A, B, C)
    for order in permutations((A, B, C)):
        moved = dict(zip(order, (IDENTITY[A], IDENTITY[B], IDENTITY[C]), strict=True))
        bound = record.bind(moved)
        assert [moved[server] for server in bound] == [one.identity for one in record.members]
        assert names_of(record) == ["a:7400", "b:7400", "c:7400"]


def test_who_is_not_connected_takes_the_place_of_its_name_or_what_is_left() -> None:
    record = record_of(A, B, C)
    assert record.bind({C: None, B: IDENTITY[B], A: None}) == [A, B, C]
    assert record.bind({D: None, B: IDENTITY[B], A: None}) == [A, B, D]
    assert record.bind({D: IDENTITY[A], B: None, A: None}) == [D, B, A]
    assert record.bind({A: IDENTITY[D], B: IDENTITY[B], C: IDENTITY[C]}) == [A, B, C]


def test_too_few_too_many_and_twice() -> None:
    record = record_of(A, B, C)
    with pytest.raises(ClusterError, match="names 2 servers, and their set has 3") as caught:
        record.bind({A: IDENTITY[A], B: None})
    assert "c:7400 (03030303" in str(caught.value)
    assert "b:7400 (not connected)" in str(caught.value)
    with pytest.raises(ClusterError, match="names 4 servers, and their set has 3"):
        record.bind(IDENTITY)
    with pytest.raises(ClusterError, match="a:7400 and d:7400 have the same storage"):
        record.bind({A: IDENTITY[A], D: IDENTITY[A], C: None})
    with pytest.raises(ClusterError, match="a:7400 and b:7400 have the same storage"):
        Record.make({A: IDENTITY[A], B: IDENTITY[A]})


def test_the_newest_is_valid_and_other_sets_are_refused() -> None:
    first = record_of(A, B, C)
    second = first.accept({A: IDENTITY[A], B: IDENTITY[D], C: IDENTITY[C]})
    assert [place.identity for place in second.members] == [
        IDENTITY[A],
        IDENTITY[D],
        IDENTITY[C],
    ]
    assert names_of(second) == names_of(first)
    third = second.forget(1)
    assert names_of(third) == ["a:7400", "c:7400"]
    order = [first, None, second, third]
    for _ in range(10):
        random.shuffle(order)
        assert choose(dict(zip((A, B, C, D), order, strict=True))) == third
    assert choose({A: None}) is None
    assert choose({}) is None
    with pytest.raises(ClusterError, match="a:7400 and c:7400 belong to different sets"):
        choose({A: first, B: first, C: record_of(A, B, C)})
    with pytest.raises(ClusterError, match="different sets"):
        choose({A: second, B: first.forget(0)})


def test_one_that_cannot_be_reached_keeps_its_place_when_a_loss_is_accepted() -> None:
    now = record_of(A, B, C).accept({A: IDENTITY[A], B: IDENTITY[D], C: None})
    assert [place.identity for place in now.members] == [IDENTITY[A], IDENTITY[D], IDENTITY[C]]
