"""A client is killed or stopped: the server and its other clients go on as if nothing were."""

import mmap
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype

from tests.adversity.clients import read_forever, write_forever
from tests.adversity.conftest import StartServer, Ucx
from tests.adversity.nursery import Child, Nursery
from tests.adversity.servers import RemoteServer, files_under
from tests.adversity.transfers import (
    BLANK,
    VALUE,
    Bytes,
    Repeated,
    filled,
    partly_filled,
    until_begun,
)
from tests.eventually import eventually, nothing_happens
from tests.values import as_buffer
from ucxstore import UcxStore

LARGE = 33_000_000
SMALL = 1_000_000

PROTOTYPE = default_buffer_prototype()


@pytest.fixture(params=["memory", "directory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else str(tmp_path / "served")


@pytest.fixture
def server(start_server: StartServer, root: str) -> RemoteServer:
    return start_server(root)


@pytest.fixture
def out() -> Iterator[tuple[Bytes, str]]:
    """Memory that is shared with other processes, and the path by which they open it."""
    memory = os.memfd_create("out")
    os.truncate(memory, LARGE)
    array = np.frombuffer(mmap.mmap(memory, LARGE), "u1")
    array[:] = BLANK
    yield array, f"/proc/{os.getpid()}/fd/{memory}"
    os.close(memory)


def bystander(store: UcxStore) -> Repeated:
    """A client that reads, writes and checks, all the while."""
    store.set_sync("small", as_buffer(filled(3, SMALL)))
    numbers = count()

    def use() -> None:
        array = filled(BLANK, SMALL)
        assert store.get_into_sync("small", array) == SMALL
        assert (array == 3).all()
        value = as_buffer(filled(next(numbers) % 256, 50_000))
        store.set_sync("own", value)
        found = store.get_sync("own")
        assert found is not None
        assert found.to_bytes() == value.to_bytes()

    return Repeated(use)


def is_served(others: Repeated) -> None:
    """See that the other clients get on."""
    rounds = others.rounds
    eventually(lambda: others.rounds > rounds + 1)


def reader(
    nursery: Nursery, server: RemoteServer, ucx: Ucx, key: str, out: tuple[Bytes, str]
) -> Child:
    """Start a client that reads; return it in the middle of that."""
    array, path = out
    client = nursery.start(read_forever, server.address, ucx, key, path)
    assert client.hear() == "reads"
    until_begun(array)
    return client


def test_killed_while_it_reads(
    server: RemoteServer, store: UcxStore, nursery: Nursery, ucx: Ucx, out: tuple[Bytes, str]
) -> None:
    store.set_sync("large", as_buffer(filled(VALUE, LARGE)))
    with bystander(store) as others:
        in_the_middle = 0
        for _ in range(10):
            client = reader(nursery, server, ucx, "large", out)
            client.kill()
            in_the_middle += partly_filled(out[0])
            is_served(others)
            client.close()
    assert in_the_middle > 0
    eventually(lambda: server.sessions == 1)
    found = store.get_sync("large")
    assert found is not None
    assert (found.as_numpy_array() == VALUE).all()


def test_killed_while_it_writes(
    server: RemoteServer, store: UcxStore, nursery: Nursery, ucx: Ucx, root: str
) -> None:
    resident: list[int] = []
    descriptors: list[int] = []
    with bystander(store) as others:
        for round_ in range(12 if root == "memory://" else 8):
            client = nursery.start(write_forever, server.address, ucx, "large", LARGE)
            acknowledged = 0
            while acknowledged < 1:  # one was written, and the next is being
                acknowledged = int(client.hear()) - 1
            while client.channel.poll(0.001 * (round_ % 5)):
                acknowledged = int(client.hear()) - 1
            client.kill()
            announced = acknowledged + 1
            is_served(others)
            found = store.get_sync("large")
            assert found is not None
            array = found.as_numpy_array()
            assert (array == array[0]).all(), "a mixture"
            assert acknowledged <= array[0] <= announced + 1
            client.close()
            del found, array
            eventually(lambda: server.sessions == 1)
            resident.append(server.process.resident)
            descriptors.append(server.process.descriptors)
    assert server.stats["sessions_lost"] > 0
    # Recycled memory, one value that arrives and one that is sent, but not one for each client.
    assert max(resident[5:]) < max(resident[:5]) + LARGE
    # Those of replaced files are closed a little later.
    assert max(descriptors[5:]) <= max(descriptors[:5]) + 4
    if root != "memory://":
        assert files_under(Path(root)) == {"large", "small", "own"}


def test_killed_while_it_connects(
    server: RemoteServer, store: UcxStore, nursery: Nursery, ucx: Ucx
) -> None:
    with bystander(store) as others:
        for round_ in range(10):
            client = nursery.start(write_forever, server.address, ucx, "small-too", SMALL)
            nothing_happens(0.004 * round_)  # somewhere between the fork and the first write
            client.kill()
            client.close()
        is_served(others)
    eventually(lambda: server.sessions == 1)


def test_stopped_while_it_reads(
    server: RemoteServer, store: UcxStore, nursery: Nursery, ucx: Ucx, out: tuple[Bytes, str]
) -> None:
    store.set_sync("large", as_buffer(filled(VALUE, LARGE)))
    client = reader(nursery, server, ucx, "large", out)
    client.stop()
    array = filled(BLANK, LARGE)
    start = time.monotonic()
    with bystander(store) as others:
        is_served(others)
    for _ in range(3):
        assert store.get_into_sync("large", array) == LARGE
        assert (array == VALUE).all()
    store.set_sync("large", as_buffer(filled(5, LARGE)))
    assert time.monotonic() - start < 20
    assert server.sessions == 2
    client.go_on()
    eventually(lambda: out[0][0] == out[0][-1] == 5)
    client.kill()
    eventually(lambda: server.sessions == 1)


def test_stopped_while_it_writes(
    server: RemoteServer, store: UcxStore, nursery: Nursery, ucx: Ucx
) -> None:
    with bystander(store) as others:
        client = nursery.start(write_forever, server.address, ucx, "large", LARGE)
        assert [client.hear() for _ in range(2)] == [1, 2]
        client.stop()
        is_served(others)
        found = store.get_sync("large")
        assert found is not None
        array = found.as_numpy_array()
        assert (array == array[0]).all()
        client.go_on()
        while client.channel.poll():
            client.hear()
        client.hear()
        client.kill()
        is_served(others)
