"""Windows of time in which clients of one way after another do what they can."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.network.programs import Program, ProgramError
from benchmarks.network.ways import Load
from benchmarks.process import cpu_seconds

_LEAD_SECONDS = 0.05  # until all have heard when to begin


class Window(NamedTuple):
    """What all clients together have done in a time.

    Parameters
    ----------
    rate : float
        GB/s.
    p50, p99 : float or None
        Seconds within which half, or 99 %, of the operations were done. ``None``: not measured.
    client_cpu, server_cpu : float or None
        Processor time, in seconds a GB.
    """

    rate: float
    p50: float | None
    p99: float | None = None
    client_cpu: float | None = None
    server_cpu: float | None = None

    @property
    def cpu(self) -> float | None:
        """The processor time of both sides."""
        if self.client_cpu is None or self.server_cpu is None:
            return None
        return self.client_cpu + self.server_cpu


def watch(
    clients: Program, server: int, load: Load, seconds: float, warm_up: float = 0.0
) -> Window:
    """Let clients work for a time; an operation that has begun is finished.

    Parameters
    ----------
    warm_up : float
        Seconds in which they do the same before.
    """
    if warm_up > 0:
        _work(clients, warm_up)
    used = cpu_seconds(server)
    answer = _work(clients, seconds)
    gigabytes = answer["done"] * load.nbytes / 1e9
    return Window(
        rate=answer["rate"] * load.nbytes / 1e9,
        p50=answer["p50"],
        p99=answer["p99"],
        client_cpu=answer["cpu"] / gigabytes,
        server_cpu=(cpu_seconds(server) - used) / gigabytes,
    )


def _work(clients: Program, seconds: float) -> dict[str, float]:
    begin = time.monotonic() + _LEAD_SECONDS
    clients.say([begin, begin + seconds])
    answer: dict[str, float] = clients.hear()
    return answer


def take_turns(
    turns: Mapping[str, Callable[[], Window]],
    rounds: int,
    fail: Callable[[str, Exception], object],
) -> dict[str, list[Window]]:
    """Give each a window a round; each round starts with another one.

    Parameters
    ----------
    turns : mapping
        What measures a window, by name.
    rounds : int
    fail : callable
        It is told the name and the error of one that has failed, which has no more turns.
    """
    found: dict[str, list[Window]] = {name: [] for name in turns}
    for number in range(rounds):
        names = list(found)
        first = number % len(names) if names else 0
        for name in names[first:] + names[:first]:
            try:
                found[name].append(turns[name]())
            except (ProgramError, RuntimeError, OSError) as error:
                fail(name, error)
                del found[name]
    return found
