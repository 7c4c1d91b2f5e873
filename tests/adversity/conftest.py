"""Servers and stores that tests kill, stop and break, over UCX and over plain TCP."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.adversity.nursery import Nursery
from tests.adversity.servers import RemoteServer, serve
from tests.adversity.transfers import MEDIUM, filled
from tests.fixtures import over_ucx as over_ucx
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.base.options import UcxValue
from ucxstore.client import connections

# Seconds for a request in which nothing is to go wrong, however busy the machine is.
PATIENCE = 60.0

type Ucx = Mapping[str, UcxValue]
type StartServer = Callable[..., RemoteServer]
type OpenStore = Callable[..., UcxStore]


# For tests that take long, of what is above any transport: in full runs over each.
any_transport = pytest.mark.parametrize(
    "ucx",
    [{}, pytest.param({"TLS": "tcp"}, marks=pytest.mark.full)],
    ids=["shared-memory", "tcp"],
)


@pytest.fixture(params=[{}, {"TLS": "tcp"}, None], ids=["shared-memory", "tcp", "plain-tcp"])
def ucx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ucx:
    """Options of UCX; over plain TCP it is not used, by stores of this and of other processes."""
    if request.param is None:
        monkeypatch.setenv("UCXSTORE_NETWORK", "tcp")
    return dict(request.param or {})


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("outputs")) as nursery:
        yield nursery


@pytest.fixture
def start_server(nursery: Nursery, ucx: Ucx) -> Iterator[StartServer]:
    """Start servers in processes of their own, which must end well unless the test ends them."""
    with ExitStack() as stack:

        def start(
            root: str | Path = "memory://",
            bind: str = "127.0.0.1:0",
            read_only: bool = False,
            shared: bool = False,
        ) -> RemoteServer:
            process = nursery.start(serve, str(root), bind, ucx, read_only, shared)
            stack.callback(process.close)
            return RemoteServer(process)

        yield start


@pytest.fixture
def native_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Native clients of this test's own."""
    clients = connections.NativeClients()
    monkeypatch.setattr(connections, "_clients", clients)
    yield
    clients.close()


@pytest.fixture
def open_store(ucx: Ucx, native_clients: None) -> Iterator[OpenStore]:
    with ExitStack() as stack:

        def open_one(server: Any, **options: Any) -> UcxStore:
            address = server if isinstance(server, str) else server.address
            options = {"timeout": PATIENCE, "connect_timeout": PATIENCE, **options}
            return stack.enter_context(UcxStore(address, ucx=ucx, **options))

        yield open_one


@pytest.fixture
def server(start_server: StartServer) -> RemoteServer:
    return start_server()


@pytest.fixture
def store(server: RemoteServer, open_store: OpenStore) -> UcxStore:
    return open_store(server)


@pytest.fixture
def other(start_server: StartServer, open_store: OpenStore) -> UcxStore:
    """A store on another server, which shares the native client with the one that is lost."""
    store = open_store(start_server())
    store.set_sync("other", as_buffer(filled(3, MEDIUM)))
    return store


@pytest.fixture
def own(start_server: StartServer) -> list[RemoteServer]:
    """Three servers with values of their own, in memory."""
    return [start_server() for _ in range(3)]
