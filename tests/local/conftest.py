"""The servers of all tests, with a local plane: tests of other folders run over it from here."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.conftest import directory_root, memory_backdoor, object_store, shared
from tests.fixtures import over_the_local_plane
from ucxstore import UcxStore
from ucxstore.server import Server

# Those of all tests depend on servers, or belong to them, so that these servers need others.
__all__ = ["directory_root", "memory_backdoor", "object_store", "over_the_local_plane"]


@pytest.fixture(scope="session")
def memory_server() -> Iterator[Server]:
    with Server("memory://", local=True, network="ucx") as server, shared(server):
        yield server


@pytest.fixture(scope="session")
def directory_server(directory_root: Path) -> Iterator[Server]:
    with Server(directory_root, local=True, network="ucx") as server:
        yield server


@pytest.fixture(scope="session")
def object_server(object_store: MemoryStore) -> Iterator[Server]:
    with Server(object_store, local=True, network="ucx") as server, shared(server):
        yield server


@pytest.fixture(scope="session")
def three_servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server("memory://", local=True, network="ucx")) for _ in range(3)
        ]
        stack.enter_context(shared(*servers))
        yield servers


@pytest.fixture
def store(memory_server: Server, prefix: str) -> Iterator[UcxStore]:
    """A store on a memory server, over the local plane."""
    with UcxStore(f"{memory_server.address}/{prefix}") as store:
        yield store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory to serve."""
    path = tmp_path / "served"
    path.mkdir()
    return path


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that has no other values, and no other clients."""
    with Server("memory://", local=True, network="ucx") as server:
        yield server


@pytest.fixture
def own_store(own_server: Server) -> Iterator[UcxStore]:
    with UcxStore(own_server.address) as store:
        yield store
