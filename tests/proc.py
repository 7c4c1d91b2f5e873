"""Processes: what they hold, as Linux shows it, and forked children."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ucxstore.server.spawn import ServerProcess


def descriptors(pid: int | None = None) -> int:
    """Count the open descriptors of a process, by default of this one."""
    return len([*Path(f"/proc/{pid or os.getpid()}/fd").iterdir()])


def resident(server: "ServerProcess", *kinds: str) -> int:
    """Return the bytes of a server's memory, by default of its own alone."""
    fields = Path(f"/proc/{server.pid}/status").read_text().split()
    return sum(int(fields[fields.index(f"{kind}:") + 1]) << 10 for kind in kinds or ["RssAnon"])


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked child, which ends with status 1 if that raises; return its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return child
