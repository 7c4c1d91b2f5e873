"""A trial: honest clients alone with a server, then beside greedy ones."""

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
from tests.eventually import nothing_happens
from ucxstore.base.options import UcxValue

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


class Plane(NamedTuple):
    """How clients reach the server."""

    local: Literal["auto", "ucx"]
    ucx: dict[str, UcxValue]
    kinds: dict[str, kinds.Kind]


PLANES = {
    "local": Plane("auto", {}, kinds.KINDS),
    "tcp": Plane("ucx", dict(over_ucx.UCX), over_ucx.KINDS),
}


@dataclass(slots=True)
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
    log : int
        Bytes that the server has written to its log.
    lives : bool
        Whether the server did not end.
    """

    kind: str
    seen: list[Seen] = field(default_factory=list)
    memory: int = 0
    counted: int | None = None
    log: int = 0
    lives: bool = True

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
    compete : bool
        Whether all processes share this machine's processors. Else clients have one half of them,
        where the greedy ones run when no honest one wants to, and the server has the other.
    """

    def __init__(
        self,
        plane: str,
        folder: Path,
        honest: int = 4,
        greedy: int = 8,
        *,
        compete: bool = False,
    ) -> None:
        self.plane = PLANES[plane]
        self._name = plane
        self._folder = folder
        self._honest = honest
        self._greedy = greedy
        self._own, self._theirs = _halves()
        if compete:
            self._own = self._theirs = self._own | self._theirs
        self._user = _USER if os.geteuid() == 0 else 0
        self._nursery = Nursery(folder)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def idle(self, seconds: float) -> Round:
        """Let honest clients be alone with a server."""
        return self._round("idle", [], seconds)

    def beside(self, names: Sequence[str], seconds: float) -> Round:
        """Let them be beside greedy clients."""
        return self._round(", ".join(names), names, seconds)

    def apart(self, names: Sequence[str], seconds: float) -> Round:
        """Let greedy clients have a server of their own on the same processors.

        What honest clients notice then is this machine's doing alone.
        """
        return self._round("  at another server", names, seconds, apart=True)

    def busy(self, seconds: float) -> Round:
        """Let honest clients be alone with a server, on processors that never rest.

        Whoever computes there gives way at once to whoever else wants to. What honest clients
        notice is what a virtual machine does to processors that are all busy.
        """
        until = time.monotonic() + seconds
        cores = self._own | self._theirs
        spinning = [self._nursery.start(jobs.be_busy, until, frozenset({core})) for core in cores]
        found = self._round("  on a busy machine", [], seconds)
        for child in spinning:
            child.hear(_PATIENCE)
            child.close()
        return found

    def _round(
        self, kind: str, names: Sequence[str], seconds: float, *, apart: bool = False
    ) -> Round:
        found = Round(kind=kind)
        with ExitStack() as stack:
            server = other = stack.enter_context(Measured(self._folder, self._own))
            server.fill()
            if apart:
                other = stack.enter_context(Measured(self._folder, self._own))
                other.fill()
            until = time.monotonic() + seconds
            greedy = [child for name in names for child in self._start(name, other, until)]
            for child in greedy:
                stack.callback(child.end)
            honest = self._start_honest(server, until)
            _until(until, server.look)
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
            how = target, self._user, self._theirs
            yield self._nursery.start(jobs.be_greedy, name, self._name, *how)

    def _start_honest(self, server: Measured, until: float) -> list[Child]:
        plane = self.plane
        call = server.address, server.secret
        return [
            self._nursery.start(
                jobs.be_honest, *call, number, plane.ucx, plane.local, until, self._theirs
            )
            for number in range(self._honest)
        ]

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *error: object) -> None:
        self._nursery.__exit__(None, None, None)


def _until(until: float, look: Callable[[], None]) -> None:
    while time.monotonic() < until:
        look()
        nothing_happens(_LOOK_SECONDS)


def _halves() -> tuple[frozenset[int], frozenset[int]]:
    """Return one half of the processors that this process may use, and the other; both, of one."""
    processors = sorted(os.sched_getaffinity(0))
    middle = -(-len(processors) // 2)
    return frozenset(processors[:middle]), frozenset(processors[middle:] or processors)
