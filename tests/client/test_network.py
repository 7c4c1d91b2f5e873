"""The way to a server over a network: TCP, or UCX where that is asked for or both have RDMA."""

from collections.abc import Mapping

import pytest

from ucxstore import UcxStore
from ucxstore.client import connections
from ucxstore.server import Server


@pytest.fixture(autouse=True)
def as_on_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "off")
    monkeypatch.delenv("UCXSTORE_NETWORK", raising=False)


def is_plain_tcp(server: Server, **options: object) -> bool:
    with UcxStore(server.address, **options) as store:
        store.ping_sync()
        return bool(store.stats()["lanes"] == ["tcp"])


def test_the_default_is_the_connection_of_the_handshake(server: Server) -> None:
    assert is_plain_tcp(server)


@pytest.mark.parametrize(
    "options", [{"network": "ucx"}, {"local": "ucx"}, {"ucx": {"TLS": "tcp"}}], ids=str
)
def test_ucx_where_it_is_asked_for(server: Server, options: Mapping[str, object]) -> None:
    assert not is_plain_tcp(server, **options)
    assert is_plain_tcp(server, **{**options, "network": "tcp"})


@pytest.mark.parametrize(("name", "value"), [("UCX_TLS", "tcp"), ("UCXSTORE_NETWORK", "ucx")])
def test_ucx_where_the_environment_asks_for_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert not is_plain_tcp(server)


@pytest.mark.parametrize("at_server", [True, False])
@pytest.mark.parametrize("at_client", [True, False])
def test_ucx_where_both_hosts_have_rdma(
    monkeypatch: pytest.MonkeyPatch, at_server: bool, at_client: bool
) -> None:
    monkeypatch.setattr("ucxstore.server.accepting.reception.has_rdma", lambda: at_server)
    monkeypatch.setattr(connections, "has_rdma", lambda: at_client)
    with Server("memory://") as server:
        assert is_plain_tcp(server) is not (at_server and at_client)


def test_what_is_no_way_is_refused(server: Server) -> None:
    with pytest.raises(ValueError, match="network: 'udp' is neither 'auto' nor 'tcp' nor 'ucx'"):
        UcxStore(server.address, network="udp")
