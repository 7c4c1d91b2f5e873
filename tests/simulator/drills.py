"""Plans that bring about what chance seldom does: each for one planted fault.

Each has the salt with which delays are drawn. The histories are as random ones are.
"""

from tests.simulator.chances import Fault, Plan
from tests.simulator.monitor import GET, REMOVE, SET
from tests.simulator.world import SECOND

KEY = "a/0"

type _Operation = tuple[int, str, str, int]


def _at(seconds: float, kind: str, server: int) -> tuple[_Operation, ...]:
    return ((int(seconds * SECOND), kind, KEY, server),)


def _watch(server: int, begin: float, count: int, every: float = 0.05) -> tuple[_Operation, ...]:
    """Read all the time."""
    return _at(begin, GET, server) + _at(every, GET, server) * count


def _fault(at: float, lasting: float, kind: str, *about: object, stage: str = "") -> Fault:
    return Fault(int(at * SECOND), int(lasting * SECOND), kind, about, stage)


def _plan(
    servers: int,
    clients: tuple[tuple[_Operation, ...], ...],
    faults: tuple[Fault, ...],
    *,
    starts: tuple[float, ...] = (),
    message: int = 400,
    request: int = 4_000,
    turn: int = 400,
) -> Plan:
    return Plan(
        seed=1,
        servers=servers,
        keys=1,
        conditional=True,
        same_host=False,
        rates=(1.0,) * servers,
        starts=tuple(int(one * SECOND) for one in starts or (0.0,) * servers),
        clients=clients,
        faults=faults,
        message=message,
        request=request,
        turn=turn,
        impatience=0.0,
        length=30 * SECOND,
    )


# A third server joins while another one shuts the first one out, which still has its lease.
_IGNORES_FENCES = _plan(
    3,
    (_at(0.5, SET, 0), _at(1.6, SET, 1), _at(5.0, SET, 2), _watch(0, 1.0, 200)),
    (_fault(2.0, 20.0, "cut from all", 0),),
    starts=(0.0, 0.0, 5.0),
)

# The first one stands still before it sends a removal; the other one shuts it out, and writes.
_SENDS_UNCHECKED = _plan(
    2,
    (
        _at(0.5, SET, 0),
        _at(1.5, REMOVE, 0),
        _at(2.5, SET, 1),
        _watch(0, 2.0, 500),
        _watch(1, 2.0, 500),
    ),
    (_fault(2.0, 12.0, "pause", 0, stage="due"),),
    turn=200_000,
)

# The same while it looks for the version that it is to replace.
_SENDS_AGAIN_UNCHECKED = _plan(
    2,
    (
        _at(1.5, SET, 1) + _at(1.2, SET, 1),
        _at(2.5, SET, 0),
        _watch(0, 12.0, 200, 0.01),
        _watch(1, 11.5, 200, 0.01),
    ),
    (_fault(2.9, 9.7, "pause", 0, stage="looking"),),
    request=10_000,
)

# The answer to a write is late. What replaces it is given up before, and made after that answer.
_SETTLES = _plan(
    2,
    (
        _at(0.5, SET, 0) + _at(1.2, SET, 0),
        _at(1.0, SET, 1) + _at(0.4, SET, 1),
        _watch(0, 4.0, 60, 0.3),
        _watch(1, 4.0, 60, 0.3),
    ),
    (_fault(2.1, 4.0, "cut from the source", 1), _fault(2.7, 2.0, "source", 0, "lose")),
    request=40_000,
)

# A server joins while a write is under way, and hears late of it.
_WAITS_FOR_NO_SYNC = _plan(
    3,
    (_at(0.1, SET, 0) + _at(2.3, SET, 0), _watch(1, 2.5, 200, 0.02), _watch(2, 2.0, 200, 0.02)),
    (_fault(2.9, 5.0, "source", 0, "slow"),),
    starts=(0.0, 3.2, 0.0),
    message=80_000,
)

DRILLS = {
    "ignores-fences": (_IGNORES_FENCES, 0),
    "sends-unchecked": (_SENDS_UNCHECKED, 48),
    "sends-again-unchecked": (_SENDS_AGAIN_UNCHECKED, 16),
    "settles-what-came-later": (_SETTLES, 240),
    "waits-for-no-sync": (_WAITS_FOR_NO_SYNC, 611),
}
"""By fault: a plan that shows it, and the salt."""
