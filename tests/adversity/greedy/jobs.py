"""What the processes of a trial do: jobs for `tests.adversity.nursery`."""

import encodings.idna  # noqa: F401  looked up by name, and another user may not read its file
import os
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Literal

from tests.adversity.greedy import honest, kinds, over_ucx
from tests.adversity.greedy.kinds import Target, run
from ucxstore.base.options import UcxValue


def be_honest(
    channel: Connection,
    address: str,
    secret: bytes,
    number: int,
    ucx: Mapping[str, UcxValue],
    local: Literal["auto", "ucx"],
    until: float,
    processors: frozenset[int],
) -> None:
    """Be an honest client, and tell what it has seen."""
    os.sched_setaffinity(0, processors)
    channel.send(tuple(honest.work(address, secret, number, ucx, local, until)))


def be_busy(channel: Connection, until: float, processors: frozenset[int]) -> None:
    """Compute until the time is over, when nobody else wants to, and tell that it is."""
    os.sched_setaffinity(0, processors)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while time.monotonic() < until:
        pass
    channel.send(None)


def be_greedy(
    channel: Connection,
    kind: str,
    plane: str,
    target: tuple[str, bytes, float, int],
    user: int,
    processors: frozenset[int],
) -> None:
    """Be a greedy client of a kind, and tell how often the server has ended it, and how at last."""
    os.sched_setaffinity(0, processors)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if user:
        os.setgid(user)
        os.setuid(user)
    known = kinds.KINDS if plane == "local" else over_ucx.KINDS
    errors = run(known[kind].work, Target(*target))
    channel.send((len(errors), errors[-1] if errors else ""))
