"""A trial: honest clients alone, then beside greedy ones, then beside processes that only burn."""

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tests.adversity.greedy import jobs, kinds, over_ucx
from tests.adversity.greedy.honest import Seen, Times, times
from tests.adversity.greedy.server import Measured
from tests.adversity.nursery import Child, Nursery
from ucxstore.options import UcxValue

OPERATIONS = ("get", "ping", "set", "list")

# An honest client's p99 beside greedy ones, by that of an idle server.
MOST_RATIO = 3.0

# Whose the greedy processes are, where that can be chosen: then they are another origin.
_USER = 65534

# For what a process does at its beginning and its end, on a machine that has much else to do.
_PATIENCE = 180.0
_LOOK_SECONDS = 0.05

# For a greedy process to say that it has done its work to the end.
_END_SECONDS = 0.2

_TICKS = os.sysconf("SC_CLK_TCK")


class Plane(NamedTuple):
    """How clients reach the server."""

    local: Literal["auto", "ucx"]
    ucx: dict[str, UcxValue]
    kinds: dict[str, kinds.Kind]


PLANES = {
    "local": Plane("auto", {}, kinds.KINDS),
    "tcp": Plane("ucx", dict(over_ucx.UCX), over_ucx.KINDS),
}


@dataclass(slots=True, kw_only=True)
class Round:
    """What honest clients have seen of a server, and what that took.

    Parameters
    ----------
    kind : str
        Who was beside them.
    seen : list of Seen
    memory : int
        The most bytes that the server has mapped, files apart.
    counted : int or None
        The most that the kernel has counted to its control group, if it has one of its own.
    processor : float
        Processors that the greedy processes took.
    log : int
        Bytes that the server has written to its log.
    lives : bool
        Whether the server did not end.
    burning : list of Seen
        What they have seen beside processes that burn as much, and leave the server alone.
    """

    kind: str
    seen: list[Seen] = field(default_factory=list)
    memory: int = 0
    counted: int | None = None
    processor: float = 0.0
    log: int = 0
    lives: bool = True
    burning: list[Seen] = field(default_factory=list)

    @property
    def refused(self) -> list[str]:
        """Errors of honest clients."""
        return [error for seen in self.seen for error in seen.refused]

    def operations(self) -> int:
        """How many operations of honest clients were carried out."""
        return sum(len(seconds) for seen in self.seen for seconds in seen.seconds.values())

    def times(self, operation: str) -> Times:
        """The times of an operation beside the greedy."""
        return times(self.seen, operation)

    def ratio(self, operation: str, idle: "Round") -> float:
        """How many times as long its p99 was as that of an idle server."""
        return self.times(operation).p99 / idle.times(operation).p99


class Trial:
    """A trial over one plane. A context manager.

    Parameters
    ----------
    plane : {"local", "tcp"}
    folder : Path
        For outputs.
    honest, greedy : int
        How many clients: honest ones, and greedy ones of each kind.
    """

    def __init__(self, plane: str, folder: Path, honest: int = 4, greedy: int = 8) -> None:
        self.plane = PLANES[plane]
        self._name = plane
        self._folder = folder
        self._honest = honest
        self._greedy = greedy
        self._user = _USER if os.geteuid() == 0 else 0
        self._nursery = Nursery(folder)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def idle(self, seconds: float) -> Round:
        """Let honest clients be alone with a server."""
        return self._round("idle", [], seconds)

    def beside(self, names: Sequence[str], seconds: float, *, burn: bool = True) -> Round:
        """Let them be beside greedy clients, and then beside processes that burn as much."""
        found = self._round(", ".join(names), names, seconds)
        if burn:
            found.burning = self._beside_burners(
                len(names) * self._greedy, found.processor, seconds
            )
        return found

    def _round(self, kind: str, names: Sequence[str], seconds: float) -> Round:
        found = Round(kind=kind)
        with ExitStack() as stack:
            server = stack.enter_context(Measured(self._folder))
            server.fill()
            until = time.monotonic() + seconds
            greedy = [child for name in names for child in self._start(name, server, until)]
            for child in greedy:
                stack.callback(child.end)
            begun = [_processor_seconds(child.pid) for child in greedy]
            honest = self._start_honest(server, until)
            _until(until, server.look)
            spent = [_processor_seconds(child.pid) for child in greedy]
            found.processor = (sum(spent) - sum(begun)) / seconds
            for child in greedy:
                if child.channel.poll(_END_SECONDS):  # else it stands still
                    child.hear()
            found.seen = [Seen(*child.hear(_PATIENCE)) for child in honest]
            for child in honest:
                child.close()
            found.memory, found.counted = server.peak, server.counted
            found.lives = server.lives
            found.log = server.log.stat().st_size
        return found

    def _start(self, name: str, server: Measured, until: float) -> Iterator[Child]:
        kind = self.plane.kinds[name]
        secret = server.grant(kind.opens)
        for number in range(self._greedy):
            target = server.address, secret, until, number
            yield self._nursery.start(jobs.be_greedy, name, self._name, target, self._user)

    def _start_honest(self, server: Measured, until: float) -> list[Child]:
        plane = self.plane
        call = server.address, server.secret
        return [
            self._nursery.start(jobs.be_honest, *call, number, plane.ucx, plane.local, until)
            for number in range(self._honest)
        ]

    def _beside_burners(self, count: int, processors: float, seconds: float) -> list[Seen]:
        with ExitStack() as stack:
            server = stack.enter_context(Measured(self._folder))
            server.fill()
            until = time.monotonic() + seconds
            share = min(processors / count, 1.0)
            for _ in range(count):
                stack.callback(self._nursery.start(jobs.burn, share, until).end)
            honest = self._start_honest(server, until)
            seen = [Seen(*child.hear(seconds + _PATIENCE)) for child in honest]
            for child in honest:
                child.close()
            return seen

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *error: object) -> None:
        self._nursery.__exit__(None, None, None)


def _until(until: float, look: Callable[[], None]) -> None:
    while time.monotonic() < until:
        look()
        time.sleep(_LOOK_SECONDS)


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
