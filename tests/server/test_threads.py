"""How much of a processor the threads of a server get that others want, too, and when."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ucxstore import Server, UcxStore


def threads_of(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the names and numbers of a process's threads."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            yield (task / "comm").read_text().strip(), int(task.name)


def turn_of(thread: int) -> int:
    """Return how long a thread asks to run at a time, in nanoseconds (`sched_getattr(2)`)."""
    attributes = ctypes.create_string_buffer(48)
    library = ctypes.CDLL(None, use_errno=True)
    sched_getattr = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
    if library.syscall(sched_getattr, thread, attributes, len(attributes), 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    [turn] = struct.unpack_from("<Q", attributes, 24)
    return int(turn)


def serve_both_planes(server: Server) -> None:
    """Have the server start all of its threads."""
    for local in ("auto", "ucx"):
        with UcxStore(server.address, local=local) as store:
            store.ping_sync()


def test_handshakes_give_way_to_sessions() -> None:
    """Also to threads that a handshake has made: those of UCX."""
    found: dict[str, set[int]] = {}
    with Server.spawn("memory://", network="ucx") as server:
        serve_both_planes(server)
        for name, thread in threads_of(server.pid):
            with suppress(ProcessLookupError):
                niceness = os.getpriority(os.PRIO_PROCESS, thread)
                found.setdefault(name, set()).add(niceness)
    assert found["ucxstore-loc0"] == found["ucxstore-srv0"] == {0}
    assert sum(max(nice) > 0 for name, nice in found.items() if not name.startswith("ucxs")) == 1


@pytest.mark.skipif(not turn_of(0), reason="the kernel has no turns of a thread's own: 6.12 has")
def test_who_is_waited_for_asks_for_short_turns() -> None:
    """On the local plane, but not where it polls."""
    found = {}
    with Server.spawn("memory://", network="ucx") as server:
        serve_both_planes(server)
        for name, thread in threads_of(server.pid):
            with suppress(ProcessLookupError):
                found[name] = turn_of(thread)
        usual = turn_of(server.pid)
    assert found["ucxstore-loc0"] == 100_000 < usual
    assert found["ucxstore-srv0"] == usual
