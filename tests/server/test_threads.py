"""How much of a processor the threads of a server get that others want, too, and when."""

import ctypes
import os
import struct
from pathlib import Path

import pytest

from ucxstore import Server, UcxStore


def niceness_of_threads(pid: int) -> dict[str, list[int]]:
    """Return how nice threads are, by their names."""
    found: dict[str, list[int]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        found.setdefault(name, []).append(int(fields.split()[16]))
    return found


def test_handshakes_give_way_to_sessions() -> None:
    """Also to threads that a handshake has made: those of UCX."""
    with Server.spawn("memory://") as server:
        for local in ("auto", "ucx"):
            with UcxStore(server.address, local=local) as store:
                store.ping_sync()
        found = niceness_of_threads(server.pid)
    assert found["ucxstore-loc0"] == found["ucxstore-srv0"] == [0]
    assert sum(max(nice) > 0 for name, nice in found.items() if not name.startswith("ucxs")) == 1


def turn_of(thread: int) -> int:
    """Return how long a thread asks to run at a time, in nanoseconds (`sched_getattr(2)`)."""
    attributes = ctypes.create_string_buffer(48)
    library = ctypes.CDLL(None, use_errno=True)
    sched_getattr = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
    if library.syscall(sched_getattr, thread, attributes, len(attributes), 0) != 0:
        raise OSError(ctypes.get_errno(), "sched_getattr")
    [turn] = struct.unpack_from("<Q", attributes, 24)
    return int(turn)


@pytest.mark.skipif(not turn_of(0), reason="the kernel has no turns of a thread's own: 6.12 has")
def test_who_is_waited_for_asks_for_short_turns() -> None:
    with Server.spawn("memory://") as server:
        for local in ("auto", "ucx"):
            with UcxStore(server.address, local=local) as store:
                store.ping_sync()
        tasks = Path(f"/proc/{server.pid}/task")
        found = {
            (one / "comm").read_text().strip(): turn_of(int(one.name)) for one in tasks.iterdir()
        }
        usual = turn_of(server.pid)
    assert found["ucxstore-loc0"] == 100_000 < usual
    assert found["ucxstore-srv0"] == usual
