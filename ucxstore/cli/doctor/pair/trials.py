"""Plan which ways between two hosts are tried, and how much is moved over each. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ucxstore.cli.doctor.pair.sides import Side

type TrialState = Literal["ok", "failed", "left out", "not reached"]

# UCX's names for groups of transports over RDMA, best first.
_FAMILIES = ("dc", "rc", "ud", "srd")

# Tried if ucx_info is missing, which would tell: any InfiniBand or RoCE adapter has them.
_USUAL = ("rc", "ud")

# Bytes of the large value.
_LEAST_LARGE = 64 << 10
_MOST_LARGE = 100_000_000

# Bytes of one of many values, and how many of them there are.
MIDDLE = 64 << 10
_LEAST_COUNT = 8
_MOST_COUNT = 1000

# Bytes of the value that is read into rows with gaps between them.
_MOST_STRIDED = 16 << 20

STEPS = (
    "connect",
    "values",
    "set",
    "get",
    "many",
    "small",
    "strided",
    "kill in get",
    "kill in set",
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A way between the hosts that is tried.

    Attributes
    ----------
    name : str
    network : str
        The option ``network`` of the store.
    tls : str
        UCX's option ``TLS`` at both ends; empty for UCX's own choice, or without UCX.
    progress : {"blocking", "polling"}
        The option ``progress`` at both ends.
    why_not : str
        Why it is left out; empty if it is tried.
    """

    name: str
    network: str
    tls: str = ""
    progress: str = "blocking"
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialStep:
    """The outcome of one step of a trial.

    Attributes
    ----------
    step : str
        One of `STEPS`.
    state : {"ok", "failed", "left out", "not reached"}
    what : str
        Why it failed or was not reached.
    figures : dict
        The measurements.
    """

    step: str
    state: TrialState
    what: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is moved over a way.

    Attributes
    ----------
    large : int
        Bytes of the large value.
    count : int
        How many values of `MIDDLE` bytes are moved in one request.
    strided : int
        Bytes of the value that is read into rows.
    """

    large: int
    count: int
    strided: int


def plan_trials(here: Side, there: Side) -> list[Trial]:
    """Return the ways to try between two hosts, and those that are left out with the reason."""
    without_ucx = _why_no_ucx(here, there)
    trials = [
        Trial(name="tcp", network="tcp"),
        Trial(name="ucx tcp", network="ucx", tls="tcp", why_not=without_ucx),
    ]
    families = _families_of(here, there)
    if without_ucx or not families:
        why = without_ucx or _why_no_rdma(here, there)
        return [*trials, Trial(name="ucx rdma", network="ucx", why_not=why)]
    together = ",".join(families)
    alone = families if len(families) > 1 else ()
    return [
        *trials,
        Trial(name=f"ucx {together}", network="ucx", tls=together),
        Trial(name=f"ucx {together}, polling", network="ucx", tls=together, progress="polling"),
        Trial(name="ucx", network="ucx"),
        *(Trial(name=f"ucx {tls}", network="ucx", tls=tls) for tls in alone),
    ]


def sizes_for(rate: float, seconds: float) -> Sizes:
    """Return how much is moved over a way at once.

    Parameters
    ----------
    rate : float
        The way's speed in bytes a second.
    seconds : float
        How long it may take.
    """
    fits = int(rate * seconds)
    large = min(max(fits, _LEAST_LARGE), _MOST_LARGE)
    return Sizes(
        large=large,
        count=min(max(fits // MIDDLE, _LEAST_COUNT), _MOST_COUNT),
        strided=min(large, _MOST_STRIDED) // _LEAST_LARGE * _LEAST_LARGE,
    )


def not_reached(steps: Sequence[str], why: str) -> list[TrialStep]:
    """Return the outcomes of steps that are not reached."""
    return [TrialStep(step=step, state="not reached", what=why) for step in steps]


def _why_no_ucx(here: Side, there: Side) -> str:
    for side, host in ((here, "this host"), (there, "the other host")):
        if not side.ucx:
            return f"{host} has no UCX"
    return ""


def _families_of(here: Side, there: Side) -> list[str]:
    """Return the groups of transports over RDMA that both hosts have."""
    ours, theirs = _families(here), _families(there)
    return [family for family in _FAMILIES if family in ours and family in theirs]


def _families(side: Side) -> set[str]:
    if side.transports is None:
        return set(_USUAL) if side.adapters else set()
    return {name.partition("_")[0] for name in side.transports}


def _why_no_rdma(here: Side, there: Side) -> str:
    sides = ((here, "this host"), (there, "the other host"))
    lacking = [(side, host) for side, host in sides if not _families(side) & set(_FAMILIES)]
    if not lacking:
        return "the hosts have no transport over RDMA in common"
    return "; ".join(
        f"{host} has "
        + ("no RDMA adapter" if not side.adapters else "an RDMA adapter, but UCX does not use it")
        for side, host in lacking
    )
