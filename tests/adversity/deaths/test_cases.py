"""The cases of the matrix: complete, readable, and the same from the same seed."""

from collections import Counter

import pytest

from tests.adversity.deaths.cases import (
    GETS,
    OF_BYTES,
    REASONS,
    SETS,
    Case,
    Combination,
    Direction,
    Hurt,
    Lane,
    Side,
    Stage,
    draw,
    every_combination,
    is_timed,
    kinds_of,
    reach,
    reason,
)
from tests.adversity.deaths.plan import Means, is_checked, means_of, trip_of
from tests.adversity.deaths.test_deaths import ALL, FEW, SEED
from tests.adversity.deaths.trips import Action, Event, Sockets, Trip

CASES = draw(SEED, ALL)


def test_every_combination_is_run_or_has_a_reason() -> None:
    run = {case.combination for case in CASES}
    product = set(every_combination())
    assert len(product) == 5 * 8 * 2 * 7 * 2
    for one in product:
        assert (one in run) is (reason(one) is None), str(one)


def test_every_reason_is_needed() -> None:
    """None of them hides behind another, and each lane and hurt has some cases."""
    for why, applies in REASONS.items():
        others = [other for text, other in REASONS.items() if text != why]
        only = [
            one
            for one in every_combination()
            if applies(one) and not any(other(one) for other in others)
        ]
        assert only, why
    pairs = {(one.lane, one.hurt) for one in every_combination() if reason(one) is None}
    assert pairs == {(lane, hurt) for lane in Lane for hurt in Hurt}


def test_plain_tcp_is_spared_nothing() -> None:
    """Whatever does not exist over plain TCP exists nowhere."""
    spared = {one[1:] for one in every_combination() if one.lane is Lane.TCP and reason(one)}
    for one in every_combination():
        assert reason(one) is not None or one[1:] not in spared, str(one)
    assert {reason(one) for one in every_combination() if one.lane is Lane.TCP} == {
        None,
        "no byte of a message goes either way before the handshake",
        "a client says nothing as it closes",
        "changed bytes hurt the side that receives them",
        "nothing goes to the client while it sends its request",
        "nothing goes to the server while it sends its reply",
    }


def test_any_beginning_has_all_lanes_and_hurts() -> None:
    for seed in range(5):
        few = draw(seed, FEW)
        assert {(case.lane, case.hurt) for case in few} == {
            (lane, hurt) for lane in Lane for hurt in Hurt
        }
    for stage in Stage:
        assert any(case.stage is stage for case in CASES[:FEW])


def test_combinations_take_turns() -> None:
    """None comes a third time before each other has come twice."""
    exist = [one for one in every_combination() if reason(one) is None]
    counts = Counter(case.combination for case in draw(3, 2 * len(exist)))
    assert counts == Counter(dict.fromkeys(exist, 2))


def test_a_seed_says_it_all() -> None:
    assert draw(SEED, ALL) == CASES
    assert draw(SEED, FEW) == CASES[:FEW]
    assert draw(SEED + 1, ALL) != CASES
    assert [Case.parse(str(case)) for case in CASES] == CASES


@pytest.mark.parametrize("text", ["", "tcp", "tcp.kill.client.close.to-client.get.memory.5000"])
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a case: '"):
        Case.parse(text)


def test_bytes_are_counted_where_there_are_some() -> None:
    for case in CASES:
        assert 0 <= case.at < reach(case.combination, case.size), str(case)
        assert case.kind in kinds_of(case.combination)
        if case.stage is Stage.SEGMENT:
            assert case.kind in (SETS if case.direction is Direction.TO_SERVER else GETS)
            assert case.size > 250_000
        if is_timed(case.combination):
            assert case.hurt in (Hurt.KILL, Hurt.STOP)
            assert means_of(case, has_hosts=True) is Means.FUSE


def test_ends_of_stages_are_not_forgotten() -> None:
    """Of each stage both the first byte and the last one are hurt, over plain TCP."""
    for stage in set(Stage) - {Stage.CONNECT}:
        cases = [case for case in CASES if case.lane is Lane.TCP and case.stage is stage]
        ends = {case.at in (0, reach(case.combination, case.size) - 1) for case in cases}
        assert ends == {True, False}, stage


def test_changed_bytes_can_be_noticed() -> None:
    checked = {case.lane: set[bool]() for case in CASES}
    for case in CASES:
        checked[case.lane].add(is_checked(case))
        if case.hurt in OF_BYTES:
            assert is_checked(case) or case.lane is Lane.ENCRYPTED
    assert checked.pop(Lane.ENCRYPTED) == {False}  # what is sealed needs none
    assert all(either == {False, True} for either in checked.values())


def case(text: str) -> Case:
    return Case.parse(text)


def test_a_relay_has_what_goes_over_the_first_connection() -> None:
    over = case("tcp.drop.server.segment.to-server.set.memory.300000.7")
    assert means_of(over, has_hosts=True) is Means.RELAY
    silent = case("tcp.black-hole.server.request.to-server.set.memory.300000.7")
    assert means_of(silent, has_hosts=False) is Means.RELAY
    assert means_of(silent, has_hosts=True) is Means.CABLE
    local = case("local.black-hole.server.connect.to-server.set.memory.300000.0")
    assert means_of(local, has_hosts=True) is Means.RELAY


def test_trip_wires_are_in_the_side_that_is_hurt() -> None:
    killed = trip_of(case("tcp.kill.server.segment.to-server.set.memory.300000.8"))
    before = 24 + 64 + len("set-300000")
    assert killed == Trip(Event.RECEIVE, Sockets.CONTROL, before + 8, Action.KILL)
    client = trip_of(case("tcp.stop.client.segment.to-server.set.memory.300000.7"))
    sums = 8
    assert client == Trip(Event.SEND, Sockets.CONTROL, before + sums + 7, Action.STOP)
    wired = trip_of(case("tcp.kill.client.wire-up.to-client.set.memory.300000.7"))
    assert wired == Trip(Event.RECEIVE, Sockets.CONTROL, 130 + 7, Action.KILL)
    joined = trip_of(case("local.kill.client.wire-up.to-server.set.memory.300000.7"))
    assert joined == Trip(Event.SEND, Sockets.UNIX, 7, Action.KILL)
    dials = trip_of(case("tcp.kill.client.connect.to-client.set.memory.300000.0"))
    assert dials == Trip(Event.CONNECT, Sockets.CONTROL, 1, Action.KILL)
    of_ucx = trip_of(case("ucx-tcp.reset.client.segment.to-client.get.memory.300000.7"))
    assert of_ucx == Trip(Event.RECEIVE, Sockets.DATA, 7, Action.RESET)


def test_sides_and_directions() -> None:
    one = Combination(Lane.TCP, Hurt.KILL, Side.SERVER, Stage.REPLY, Direction.TO_CLIENT)
    assert one.receiver is Side.CLIENT
