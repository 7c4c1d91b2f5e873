"""Servers with a local plane, for tests that make their own with `Server(...)`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

import pytest

from ucxstore.base.address import HostPort
from ucxstore.server import Server
from ucxstore.server.opening.opening import Storage
from ucxstore.server.options.keywords import ServerKeywords
from ucxstore.server.options.server_options import LOOPBACK
from ucxstore.server.spawn import START_SECONDS, ServerProcess


class LocalServer(Server):
    """A server with a local plane, unless the test says otherwise."""

    def __init__(
        self,
        storage: Storage,
        bind: str | HostPort = LOOPBACK,
        **options: Unpack[ServerKeywords],
    ) -> None:
        options.setdefault("local", True)
        super().__init__(storage, bind, **options)

    @staticmethod
    def spawn(
        storage: Storage,
        bind: str | HostPort = LOOPBACK,
        *,
        die_with_parent: bool = True,
        start_timeout: float = START_SECONDS,
        **options: Unpack[ServerKeywords],
    ) -> ServerProcess:
        options.setdefault("local", True)
        return Server.spawn(
            storage,
            bind,
            die_with_parent=die_with_parent,
            start_timeout=start_timeout,
            **options,
        )


@pytest.fixture(name="server")
def local_server_of_its_own(own_server: Server) -> Server:
    return own_server


@pytest.fixture(name="server")
def server_of_anybody(root: Path) -> Iterator[Server]:
    """A server of a directory, for clients that run as other users, too."""
    with Server(root, local=True, insecure=True) as server:
        yield server


@pytest.fixture(autouse=True)
def local_servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `LocalServer` in the place of `Server` where the test and its fixtures look it up."""
    names = request.function.__globals__
    if names.get("Server") is Server:
        monkeypatch.setitem(names, "Server", LocalServer)
