"""What is measured, and for how long: by a full run, and by a quick one as a smoke test."""

from dataclasses import dataclass

from benchmarks.network.links import LOOPBACK, NETWORKS, VETH
from benchmarks.network.ways import Flight, RawTcp, Redis, UcxMessages, Ucxstore, Way

RAW = "raw TCP"
RAW_TWO = "raw TCP, 2 streams"
RAW_ZERO_COPY = "raw TCP, MSG_ZEROCOPY"
UCX = "UCX, as ucxstore sets it"
PERFTEST = "ucx_perftest"
OURS = "ucxstore, tcp"
OURS_BY_UCX = "ucxstore, ucx"
CHECKED = "ucxstore, tcp, checksums"
ENCRYPTED = "ucxstore, tcp, encrypted"
REDIS = "Redis"
REDIS_BARE = "Redis, bare sockets"
FLIGHT = "Arrow Flight"

# Each with as many streams as the key says.
RAW_BY_STREAMS = {1: RAW, 2: RAW_TWO}

_RAW = RawTcp(RAW)
_UCX = UcxMessages(UCX)
_OURS = Ucxstore(OURS, "tcp")
_OURS_BY_UCX = Ucxstore(OURS_BY_UCX, "ucx")
# By its own client, as its users have it; and by no more than the calls of the kernel.
_REDIS = [Redis(REDIS), Redis(REDIS_BARE, bare=True)]

# One client of one value after the other; ucx_perftest comes beside.
ONE_CLIENT: list[Way] = [
    _RAW,
    RawTcp(RAW_TWO, streams=2),
    RawTcp(RAW_ZERO_COPY, zero_copy=True),
    RawTcp("raw TCP, polling", linger=600),
    _UCX,
    _OURS_BY_UCX,
    _OURS,
    *_REDIS,
    Flight(FLIGHT),
]
# Of these, those that differ from the others where the network is the limit.
ONE_CLIENT_SHAPED: list[Way] = [_RAW, _UCX, _OURS_BY_UCX, _OURS, *_REDIS, Flight(FLIGHT)]
# These differ from plain TCP only in how large values go.
FOR_LARGE = {RAW_TWO, RAW_ZERO_COPY}
# What protection costs: only where the network is not the limit.
PROTECTED: list[Way] = [
    Ucxstore(CHECKED, "tcp", integrity=True),
    Ucxstore(ENCRYPTED, "tcp", encrypt=True, optional=True),
]
MANY_CLIENTS: list[Way] = [_RAW, _UCX, _OURS_BY_UCX, _OURS, *_REDIS, Flight(FLIGHT)]
# To open 64 clients of it takes two cores most of a minute.
MOST_CLIENTS = {FLIGHT: 8}
CROWDS: list[Way] = [_RAW, _OURS_BY_UCX, _OURS, Redis(REDIS_BARE, bare=True)]

UNSHAPED = [name for name, rate in NETWORKS.items() if rate is None]

# Each differs from the first in one thing.
SETTINGS: list[UcxMessages] = [
    _UCX,
    *(
        UcxMessages(
            f"TCP segments of {size}{' (the default)' if size == '8K' else ''}",
            variables={"UCX_TCP_TX_SEG_SIZE": size, "UCX_TCP_RX_SEG_SIZE": size},
        )
        for size in ("8K", "64K", "1M")
    ),
    UcxMessages("rendezvous from 64 KiB on", {"eager": "65536"}),
    UcxMessages("rendezvous where UCX wants it", {"eager": "ucx"}),
    UcxMessages("no rendezvous", {"eager": "ucx"}, {"UCX_RNDV_THRESH": "inf"}),
    UcxMessages("contiguous memory, no list", {"list": "no"}),
    UcxMessages("one message a value", {"segment": str(1 << 30)}),
    UcxMessages("up to 4 lanes", {}, {"UCX_MAX_RNDV_LANES": "4", "UCX_MAX_EAGER_LANES": "4"}),
    UcxMessages("one worker for all peers", {"workers": "one"}),
    UcxMessages("sleep at once", {"linger": "0"}),
    UcxMessages("never sleep", {"linger": "ever"}),
    UcxMessages("connect by UCX's listener", {"connect": "listener"}),
    UcxMessages("no handling of errors", {"errors": "none"}),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes and repetitions.

    Parameters
    ----------
    networks : tuple of str
    rounds, shaped_rounds : int
        Windows of each way, where the network does not limit and where it does.
    seconds, other_seconds : float
        Of a window of many clients, on loopback and on other networks.
    one_seconds, small_seconds : float
        Of a window of one client, with large values and with small ones.
    settings_rounds : int
    settings_seconds : float
        Of a window of one of UCX's settings.
    clients : tuple of int
    at_once : int
        Processes that connect at the same moment.
    crowds : dict
        How many times they do so, by way: those of before stay.
    """

    networks: tuple[str, ...]
    rounds: int
    shaped_rounds: int
    seconds: float
    other_seconds: float
    one_seconds: float
    small_seconds: float
    settings_rounds: int
    settings_seconds: float
    clients: tuple[int, ...]
    at_once: int
    crowds: dict[str, int]


FULL = Plan(
    networks=tuple(NETWORKS),
    rounds=3,
    shaped_rounds=2,
    seconds=2.0,
    other_seconds=1.0,
    one_seconds=0.8,
    small_seconds=0.5,
    settings_rounds=2,
    settings_seconds=0.3,
    clients=(1, 8, 64),
    at_once=500,
    # A process that has loaded UCX is larger, and so are its sessions at a server.
    crowds={RAW: 2, OURS: 2, REDIS_BARE: 2, OURS_BY_UCX: 1},
)

QUICK = Plan(
    networks=(LOOPBACK, VETH),
    rounds=1,
    shaped_rounds=1,
    seconds=0.2,
    other_seconds=0.2,
    one_seconds=0.2,
    small_seconds=0.1,
    settings_rounds=1,
    settings_seconds=0.1,
    clients=(1, 2, 4),
    at_once=20,
    crowds={RAW: 2, OURS: 2, REDIS_BARE: 2, OURS_BY_UCX: 1},
)
