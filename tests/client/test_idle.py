"""An idle client or server takes no processor time, whatever it has done before."""

import os
from pathlib import Path

import pytest

from tests.eventually import eventually, nothing_happens
from ucxstore import UcxStore
from ucxstore.server import Server

WINDOW = 0.3
SHARE = 0.05


def processor_seconds(pid: int) -> float:
    """Return what all threads of the process have taken so far."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    )


def is_idle(pid: int) -> bool:
    before = processor_seconds(pid)
    nothing_happens(WINDOW)  # not to wait for something: it is the time that is measured
    return processor_seconds(pid) - before < WINDOW * SHARE


@pytest.mark.parametrize("ucx", [{}, {"TLS": "tcp"}], ids=["default", "tcp"])
def test_idle_after_use(ucx: dict[str, str]) -> None:
    with Server.spawn("memory://", ucx=ucx) as server:
        for _ in range(3):  # it takes some luck to fall asleep in the wrong state
            with UcxStore(server.address, ucx=ucx) as store:
                assert store.get_sync("missing") is None
                eventually(lambda: is_idle(os.getpid()))
                eventually(lambda: is_idle(server.pid))
