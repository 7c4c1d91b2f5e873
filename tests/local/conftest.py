"""The servers of all tests, with a local plane: tests of other folders run over it from here."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.backdoor import Backdoor, MemoryBackdoor
from ucxstore import UcxStore
from ucxstore.server import Server


@pytest.fixture(autouse=True)
def over_the_local_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "auto")


@pytest.fixture(scope="session")
def memory_server() -> Iterator[Server]:
    with Server("memory://", local=True) as server:
        yield server


@pytest.fixture(scope="session")
def directory_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def directory_server(directory_root: Path) -> Iterator[Server]:
    with Server(directory_root, local=True) as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="session")
def object_server(object_store: MemoryStore) -> Iterator[Server]:
    with Server(object_store, local=True) as server:
        yield server


@pytest.fixture(scope="session")
def three_servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server("memory://", local=True)) for _ in range(3)]


@pytest.fixture(scope="session")
def memory_backdoor(memory_server: Server) -> Iterator[Backdoor]:
    with MemoryBackdoor(memory_server.address) as backdoor:
        yield backdoor


@pytest.fixture
def store(memory_server: Server, prefix: str) -> Iterator[UcxStore]:
    """A store on a memory server, over the local plane."""
    with UcxStore(f"{memory_server.address}/{prefix}") as store:
        yield store
