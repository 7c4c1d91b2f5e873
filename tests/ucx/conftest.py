"""The servers of all tests, over UCX: tests of other folders run over it from here.

UCX's TCP carries those of memory and of object stores, and its shared memory those of directories.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.conftest import connected, directory_root, memory_backdoor, object_store
from tests.fixtures import over_ucx
from ucxstore.server import Server

# Those of all tests depend on servers, or belong to them, so that these servers need others.
__all__ = ["directory_root", "memory_backdoor", "object_store", "over_ucx"]


@pytest.fixture(scope="session")
def memory_server() -> Iterator[Server]:
    with Server("memory://", ucx={"TLS": "tcp"}) as server, connected(server):
        yield server


@pytest.fixture(scope="session")
def directory_server(directory_root: Path) -> Iterator[Server]:
    with Server(directory_root, ucx_shared_memory=True) as server, connected(server):
        yield server


@pytest.fixture(scope="session")
def object_server(object_store: MemoryStore) -> Iterator[Server]:
    with Server(object_store, ucx={"TLS": "tcp"}) as server, connected(server):
        yield server


@pytest.fixture(scope="session")
def three_servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("memory://", network="ucx")) for _ in range(3)]
        stack.enter_context(connected(*servers))
        yield servers
