"""How a case is carried out: by which means, and after which bytes. Pure."""

from enum import StrEnum

from tests.adversity.deaths.cases import (
    ATTACH,
    FRAME,
    OF_BYTES,
    OF_PROCESSES,
    OF_SILENCE,
    OVER_TCP,
    REPLY_HEADER,
    SEAL,
    SUMS,
    VALUE_HEADER,
    Case,
    Direction,
    Hurt,
    Lane,
    Side,
    Stage,
    handshake,
    is_timed,
)
from tests.adversity.deaths.requests import first_key
from tests.adversity.deaths.trips import Action, Event, Sockets, Trip


class Means(StrEnum):
    """What hurts."""

    TRIP = "a trip wire in the side that is hurt"
    FUSE = "a signal after a time"
    RELAY = "a box between the two"
    CABLE = "the network of a host of our own making"


_ACTIONS = {
    Hurt.KILL: Action.KILL,
    Hurt.STOP: Action.STOP,
    Hurt.RESET: Action.RESET,
    Hurt.DROP: Action.DROP,
    Hurt.REPEAT: Action.REPEAT,
    Hurt.FLIP: Action.FLIP,
}


def means_of(case: Case, *, has_hosts: bool) -> Means:
    """Return the means of a case; where hosts can be made, links between them go down.

    A relay takes the place of hosts where the connection of the handshake has it all.
    """
    if case.hurt in OF_PROCESSES:
        return Means.FUSE if is_timed(case.combination) else Means.TRIP
    if case.hurt in OF_SILENCE and (
        (has_hosts and case.lane in OVER_TCP) or case.lane is Lane.UCX_TCP
    ):
        return Means.CABLE
    return Means.TRIP if _hurts_ucx(case) else Means.RELAY


def _hurts_ucx(case: Case) -> bool:
    """Whether it is a connection of UCX's own that is hurt, which no relay has."""
    if case.lane is not Lane.UCX_TCP:
        return False
    if case.stage is Stage.WIRE_UP:
        return case.at >= ATTACH
    if case.stage is Stage.CLOSE:
        return case.hurt in OF_BYTES
    return case.stage in (Stage.REQUEST, Stage.SEGMENT, Stage.REPLY)


def offset_of(case: Case) -> int:
    """Return the bytes of the connection of the handshake before the hurt, in its direction."""
    if case.stage is Stage.WIRE_UP and case.lane is not Lane.LOCAL:
        return case.at + handshake(case.lane, case.direction)
    if case.stage is Stage.SEGMENT and case.lane in OVER_TCP:
        return case.at + before_data(case)
    return case.at


def before_data(case: Case) -> int:
    """Return the bytes over TCP before the data of a segment, the first of its request."""
    around = SEAL if case.lane is Lane.ENCRYPTED else SUMS * is_checked(case)
    if case.direction is Direction.TO_CLIENT:
        return FRAME + REPLY_HEADER + around
    return FRAME + VALUE_HEADER + len(first_key(case.kind, case.size).encode()) + around


def trip_of(case: Case, *, stops: bool = False) -> Trip:
    """Return the trip wire, for the side that is hurt.

    Parameters
    ----------
    stops : bool
        Whether the process is only to stop, so that something else can be hurt meanwhile.
    """
    action = Action.STOP if stops else _ACTIONS[case.hurt]
    if case.stage is Stage.CONNECT:
        after = int(case.direction is Direction.TO_CLIENT)
        return Trip(Event.CONNECT, Sockets.CONTROL, after, action)
    receives = case.side is case.receiver
    event = Event.RECEIVE if receives else Event.SEND
    sockets, after = _sockets_of(case)
    return Trip(event, sockets, after, action, case.amount if case.hurt in OF_BYTES else 0)


def _sockets_of(case: Case) -> tuple[Sockets, int]:
    if case.stage is Stage.HANDSHAKE:
        return Sockets.CONTROL, case.at
    if case.lane is Lane.LOCAL:
        return Sockets.UNIX, case.at
    if case.lane in OVER_TCP:
        return Sockets.CONTROL, offset_of(case)
    if case.stage is Stage.WIRE_UP and (case.at < ATTACH or case.lane is Lane.UCX_SHM):
        return Sockets.CONTROL, offset_of(case)
    return Sockets.DATA, case.at - (ATTACH if case.stage is Stage.WIRE_UP else 0)


def is_checked(case: Case) -> bool:
    """Whether messages have checksums: always where bytes change, else as `at` has it."""
    if case.lane is Lane.ENCRYPTED:
        return False  # what is sealed needs none
    return case.hurt in OF_BYTES or case.at % 2 == 1


def closes_server(case: Case) -> bool:
    """Whether it is the server that closes."""
    return case.stage is Stage.CLOSE and case.direction is Direction.TO_CLIENT


def is_killed(case: Case, side: Side) -> bool:
    return case.hurt is Hurt.KILL and case.side is side
