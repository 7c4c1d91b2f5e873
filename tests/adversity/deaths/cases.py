"""The cases of the matrix of deaths: values, drawn from a seed, without any I/O.

A case says which lane is hurt, how, at which stage, in which direction, at which side, and after
how many bytes. `draw` covers every combination that can exist, in turn, before it repeats one.
`reason` says why the others cannot exist.
"""

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import product
from typing import NamedTuple, Self


class Lane(StrEnum):
    """How the bytes of a request go between a client and a server."""

    LOCAL = "local"
    TCP = "tcp"
    ENCRYPTED = "tcp-encrypted"
    UCX_TCP = "ucx-tcp"
    UCX_SHM = "ucx-shm"


class Hurt(StrEnum):
    """A death: of a process, or of the link between two, or of some bytes."""

    KILL = "kill"
    STOP = "stop"
    LINK_DOWN = "link-down"
    RESET = "reset"
    BLACK_HOLE = "black-hole"
    DROP = "drop"
    REPEAT = "repeat"
    FLIP = "flip"


class Stage(StrEnum):
    """A part of the life of a connection, in order."""

    CONNECT = "connect"
    HANDSHAKE = "handshake"
    WIRE_UP = "wire-up"
    REQUEST = "request"
    SEGMENT = "segment"
    REPLY = "reply"
    CLOSE = "close"


class Direction(StrEnum):
    """Where the bytes go that are counted; at the close, away from the side that closes."""

    TO_SERVER = "to-server"
    TO_CLIENT = "to-client"


class Side(StrEnum):
    """The side that is hurt. The other one is tested, and both are if nobody is killed."""

    CLIENT = "client"
    SERVER = "server"


class Kind(StrEnum):
    """The request that is under way."""

    GET = "get"
    GET_STRIDED = "get-strided"
    GET_MANY = "get-many"
    GET_ZSTD = "get-zstd"
    SET = "set"
    SET_STRIDED = "set-strided"
    SET_MANY = "set-many"
    LIST = "list"
    DELETE = "delete"
    SIZE = "size"


class Storage(StrEnum):
    """Where the server has its values."""

    MEMORY = "memory"
    DIRECTORY = "directory"


GETS = (Kind.GET, Kind.GET_STRIDED, Kind.GET_MANY, Kind.GET_ZSTD)
SETS = (Kind.SET, Kind.SET_STRIDED, Kind.SET_MANY)
CHANGES = (*SETS, Kind.DELETE)

OF_PROCESSES = frozenset({Hurt.KILL, Hurt.STOP})
OF_BYTES = frozenset({Hurt.DROP, Hurt.REPEAT, Hurt.FLIP})
OF_SILENCE = frozenset({Hurt.LINK_DOWN, Hurt.BLACK_HOLE})
OVER_TCP = frozenset({Lane.TCP, Lane.ENCRYPTED})
OVER_UCX = frozenset({Lane.UCX_TCP, Lane.UCX_SHM})
BEFORE_REQUESTS = (Stage.CONNECT, Stage.HANDSHAKE, Stage.WIRE_UP)

# Bytes of a value: one message; some; a few segments of a client; two segments of a server.
SMALL, MEDIUM, LARGE, HUGE = SIZES = (5_000, 300_000, 3_000_000, 17_500_000)


class Combination(NamedTuple):
    """Those properties of a case of which each combination is covered."""

    lane: Lane
    hurt: Hurt
    side: Side
    stage: Stage
    direction: Direction

    @property
    def receiver(self) -> Side:
        """The side that gets the bytes."""
        return Side.SERVER if self.direction is Direction.TO_SERVER else Side.CLIENT

    def __str__(self) -> str:
        return ".".join(self)


ABORTS = (
    "UCX over TCP may end its process, by SIGSEGV or SIGABRT, if bytes of its own messages are "
    "missing, repeated or changed"
)

# Why combinations do not exist, or are not run: the first that applies.
REASONS: dict[str, Callable[[Combination], bool]] = {
    "the local plane is a Unix socket and memory, both in one kernel: there is no link to hurt": (
        lambda one: (
            one.lane is Lane.LOCAL
            and one.hurt not in OF_PROCESSES
            and one.stage not in (Stage.CONNECT, Stage.HANDSHAKE)
        )
    ),
    "UCX's shared memory is in one kernel: there is no link to hurt": (
        lambda one: (
            one.lane is Lane.UCX_SHM
            and one.hurt not in OF_PROCESSES
            and one.stage not in BEFORE_REQUESTS
        )
    ),
    "no byte of a message goes either way before the handshake": (
        lambda one: one.hurt in OF_BYTES and one.stage is Stage.CONNECT
    ),
    "a client says nothing as it closes": (
        lambda one: (
            one.hurt in OF_BYTES
            and one.stage is Stage.CLOSE
            and one.direction is Direction.TO_SERVER
        )
    ),
    "changed bytes hurt the side that receives them": (
        lambda one: one.hurt in OF_BYTES and one.side is not one.receiver
    ),
    "nothing goes to the client while it sends its request": (
        lambda one: one.stage is Stage.REQUEST and one.direction is Direction.TO_CLIENT
    ),
    "nothing goes to the server while it sends its reply": (
        lambda one: one.stage is Stage.REPLY and one.direction is Direction.TO_SERVER
    ),
    ABORTS: (
        lambda one: (
            one.lane is Lane.UCX_TCP and one.hurt in OF_BYTES and one.stage not in BEFORE_REQUESTS
        )
    ),
}


def reason(one: Combination) -> str | None:
    """Say why a combination is not run; ``None`` if it is."""
    return next((why for why, applies in REASONS.items() if applies(one)), None)


def every_combination() -> Iterator[Combination]:
    """Yield the whole product."""
    yield from map(Combination._make, product(Lane, Hurt, Side, Stage, Direction))


@dataclass(frozen=True, slots=True)
class Case:
    """One death.

    Parameters
    ----------
    lane, hurt, side, stage, direction
        See `Combination`.
    kind : Kind
    storage : Storage
    size : int
        Bytes of the values of the request.
    at : int
        Bytes of the stage that get there before the hurt; where no bytes can be counted,
        microseconds.
    """

    lane: Lane
    hurt: Hurt
    side: Side
    stage: Stage
    direction: Direction
    kind: Kind
    storage: Storage
    size: int
    at: int

    @property
    def combination(self) -> Combination:
        """The properties that `draw` covers."""
        return Combination(self.lane, self.hurt, self.side, self.stage, self.direction)

    @property
    def receiver(self) -> Side:
        """The side that gets the bytes."""
        return self.combination.receiver

    @property
    def amount(self) -> int:
        """How many bytes are dropped or repeated."""
        return (1, 8, 24, 104, 1000)[self.at % 5]

    def __str__(self) -> str:
        return ".".join(str(getattr(self, field.name)) for field in fields(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        parts = text.split(".")
        if len(parts) != len(fields(cls)):
            raise ValueError(f"not a case: {text!r}")
        lane, hurt, side, stage, direction, kind, storage, size, at = parts
        return cls(
            Lane(lane),
            Hurt(hurt),
            Side(side),
            Stage(stage),
            Direction(direction),
            Kind(kind),
            Storage(storage),
            int(size),
            int(at),
        )


def kinds_of(one: Combination) -> tuple[Kind, ...]:
    """Return the requests that send bytes in this direction at this stage."""
    if one.stage is Stage.SEGMENT:
        return SETS if one.direction is Direction.TO_SERVER else GETS
    if one.lane is Lane.LOCAL and one.stage in (Stage.REQUEST, Stage.REPLY):
        return (*CHANGES, Kind.LIST)  # the client may see the others by itself
    return tuple(Kind)


def may_leak(one: Combination) -> bool:
    """Whether UCX may keep what it had for a connection, as docs/requests.md says.

    Its queue in shared memory was full, and who was to empty it has been killed.
    """
    return one.lane is Lane.UCX_SHM and one.hurt is Hurt.KILL and one.stage not in BEFORE_REQUESTS


def is_timed(one: Combination) -> bool:
    """Whether no bytes can be counted, so that the hurt comes after a time."""
    if one.stage is Stage.CLOSE:
        return one.hurt in OF_PROCESSES
    if one.stage in BEFORE_REQUESTS:
        return False
    seen = one.lane is Lane.LOCAL and one.stage is Stage.SEGMENT
    return one.lane is Lane.UCX_SHM or (seen and one.direction is Direction.TO_CLIENT)


def reach(one: Combination, size: int) -> int:
    """Return the bytes of a stage, or less, in this direction; or microseconds that it takes."""
    to_server = one.direction is Direction.TO_SERVER
    if is_timed(one):
        return {Stage.REQUEST: 300, Stage.SEGMENT: 50 + size // 2000}.get(one.stage, 2000)
    if one.stage is Stage.CONNECT:
        return 1
    if one.stage is Stage.HANDSHAKE:
        return handshake(one.lane, one.direction)
    if one.stage is Stage.WIRE_UP:
        # The frames of the wire-up; over TCP, the beginning of the first message, too.
        if one.lane in OVER_TCP:
            return ATTACH + message(one) if to_server else READY + message(one)
        # Over UCX's TCP also the first bytes of its own connections; changed ones abort it.
        by_ucx = one.lane is Lane.UCX_TCP and one.hurt not in OF_BYTES
        return READY if one.lane is Lane.LOCAL else ATTACH + 45 * by_ucx
    if one.stage is Stage.SEGMENT and one.lane is not Lane.LOCAL:
        return size
    if one.lane in OVER_TCP:
        return message(one)
    return 64 if to_server else 80


# Bytes of frames and headers: see docs/wire.md.
HELLO = PROOF = READY = 44
ATTACH = 45
CHALLENGE, WELCOME = 48, 82
ENCRYPT = 76
FRAME = 24
REQUEST_HEADER, VALUE_HEADER, REPLY_HEADER = 40, 64, 80
SUMS = 8
SEAL, TAG = 24, 16  # of a header, with its number; of data


def handshake(lane: Lane, direction: Direction) -> int:
    """Return the bytes of a direction before the wire-up."""
    given = HELLO + PROOF if direction is Direction.TO_SERVER else CHALLENGE + WELCOME
    return given + ENCRYPT * (lane is Lane.ENCRYPTED)


def message(one: Combination) -> int:
    """Return the bytes of a message over TCP before its body, as long as it has no checksums."""
    header = REQUEST_HEADER if one.direction is Direction.TO_SERVER else REPLY_HEADER
    return FRAME + header + SEAL * (one.lane is Lane.ENCRYPTED)


def draw(
    seed: int, count: int, *, lanes: Container[Lane] = tuple(Lane), why: str | None = None
) -> list[Case]:
    """Return `count` cases: each combination in turn, in an order of the seed, and then again.

    Parameters
    ----------
    lanes : container of Lane
        Those that they have.
    why : str or None
        The reason not to run them that they have.
    """
    rng = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        order = _in_turn(rng, lanes, why)
        cases += [_complete(one, rng) for one in order[: count - len(cases)]]
    return cases


def _in_turn(rng: random.Random, lanes: Container[Lane], why: str | None) -> list[Combination]:
    """Shuffle all combinations; lanes and hurts take turns, so that any beginning has them all."""
    groups: dict[tuple[Lane, Hurt], list[Combination]] = {}
    for one in every_combination():
        if one.lane in lanes and reason(one) == why:
            groups.setdefault((one.lane, one.hurt), []).append(one)
    for group in groups.values():
        rng.shuffle(group)
    rounds = max(map(len, groups.values()))
    turns = list(groups.values())
    rng.shuffle(turns)
    return [group[index] for index in range(rounds) for group in turns if index < len(group)]


def _complete(one: Combination, rng: random.Random) -> Case:
    kind = rng.choice(kinds_of(one))
    sizes = SIZES[1:] if one.stage is Stage.SEGMENT else SIZES
    size = rng.choices(sizes, [6, 4, 3, 1][-len(sizes) :])[0]
    most = reach(one, size)
    # The ends are where mistakes are.
    at = rng.choice([0, most - 1, rng.randrange(most), rng.randrange(most)])
    return Case(*one, kind, rng.choice(list(Storage)), size, at)
