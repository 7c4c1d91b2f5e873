"""Fixtures for modules and folders that import them, some in place of those of all tests."""

from collections.abc import Iterator

import pytest

from profiles.s3 import S3Server
from ucxstore import UcxStore
from ucxstore.server import Server


@pytest.fixture(name="storage")
def memory_alone() -> str:
    """For what storages have in common, as tests/stores proves."""
    return "memory"


@pytest.fixture(name="storage", params=["memory", "directory", "object"])
def every_storage(request: pytest.FixtureRequest) -> str:
    """For tests of servers, and of what a client sees of each storage."""
    return request.param


@pytest.fixture(name="server")
def server_of_its_own() -> Iterator[Server]:
    """For tests that count what a server holds, or change it."""
    with Server("memory://") as server:
        yield server


@pytest.fixture(name="store")
def store_of_the_server(server: Server) -> Iterator[UcxStore]:
    with UcxStore(server.address) as store:
        yield store


@pytest.fixture(autouse=True)
def over_the_local_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients choose, as users do: all is on one host."""
    monkeypatch.setenv("UCXSTORE_LOCAL", "auto")


@pytest.fixture(autouse=True, scope="module")
def over_ucx() -> Iterator[None]:
    """Let servers offer UCX, and clients use it, with its shared memory where servers let them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCXSTORE_LOCAL", "ucx")
        patch.setenv("UCXSTORE_NETWORK", "ucx")
        yield


@pytest.fixture
def s3_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
