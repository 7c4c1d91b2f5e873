"""What encryption takes of memory: nothing of a value's size, at either side."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.values import as_buffer
from ucxstore import Server, UcxStore

SECRET = "a secret that is long enough"
MB = 1_000_000
SIZE = 64 * MB
ROOM = 16 * MB  # UCX's own fragments among it


def status(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@contextmanager
def at_most(pid: int | str, nbytes: int) -> Iterator[None]:
    """Assert that a process has never had so much more memory meanwhile than now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
    before = status(pid, "VmRSS")
    yield
    assert status(pid, "VmHWM") - before < nbytes


def test_no_copy_of_a_value(tmp_path: Path) -> None:
    values = np.random.default_rng(5).integers(0, 255, SIZE, "u1")
    out = np.ones(SIZE, "u1")
    rows = np.ones((4000, 2 * SIZE // 4000), "u1")[:, : SIZE // 4000]  # strided
    with (
        Server.spawn("memory://", secret=SECRET, encrypt=True, local=False) as server,
        UcxStore(server.address, secret=SECRET, integrity=True, encrypt=True) as store,
    ):
        store.set_sync("warm", as_buffer(values[:MB].tobytes()))
        store.get_into_sync("warm", out[:MB])
        with at_most("self", ROOM), at_most(server.pid, SIZE + ROOM):
            store.set_sync("key", as_buffer(values))
        with at_most("self", ROOM), at_most(server.pid, ROOM):
            store.get_into_sync("key", out)
        assert (out == values).all()
        with at_most("self", ROOM), at_most(server.pid, ROOM):
            store.get_into_sync("key", rows)
        assert (rows.reshape(-1) == values).all()
        assert store.stats()["encrypted"]
