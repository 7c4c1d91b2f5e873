"""The way to a server over a network: TCP, or UCX where that is asked for or both have RDMA."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import SECRET
from tests.hosts.listening import listening
from ucxstore import ConnectError, UcxStore
from ucxstore.base.address import HostPort
from ucxstore.client import connections
from ucxstore.client.connect import Greeting
from ucxstore.server import Server
from ucxstore.server.options import ucx_offer

RDMA_AT_START = "ucxstore.server.server.has_rdma"
RDMA_AT_HANDSHAKE = "ucxstore.server.accepting.reception.has_rdma"


@pytest.fixture(autouse=True)
def as_on_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "off")
    monkeypatch.delenv("UCXSTORE_NETWORK", raising=False)
    monkeypatch.delenv("UCX_TLS", raising=False)


@pytest.fixture
def plain() -> Iterator[Server]:
    """A server that does not offer UCX."""
    with Server("memory://") as server:
        yield server


@pytest.fixture
def offering() -> Iterator[Server]:
    with Server("memory://", network="ucx") as server:
        yield server


def tcp_listeners() -> set[str]:
    """Return where this process listens over TCP."""
    return {line.removeprefix("tcp ") for line in listening() if line.startswith("tcp ")}


def is_plain_tcp(server: Server, **options: object) -> bool:
    with UcxStore(server.address, **options) as store:
        store.ping_sync()
        return bool(store.stats()["lanes"] == ["tcp"])


def test_the_default_is_the_connection_of_the_handshake(plain: Server, offering: Server) -> None:
    assert is_plain_tcp(plain)
    assert is_plain_tcp(offering)


ASKING = [{"network": "ucx"}, {"local": "ucx"}, {"ucx": {"TLS": "tcp"}}]


@pytest.mark.parametrize("options", ASKING, ids=str)
def test_ucx_where_it_is_asked_for(offering: Server, options: Mapping[str, object]) -> None:
    assert not is_plain_tcp(offering, **options)
    assert is_plain_tcp(offering, **{**options, "network": "tcp"})


@pytest.mark.parametrize("options", ASKING, ids=str)
def test_ucx_where_it_is_not_offered(plain: Server, options: Mapping[str, object]) -> None:
    said = r"was given here, and the server does not offer UCX: start it with network=\"ucx\""
    with pytest.raises(ConnectError, match=said):
        is_plain_tcp(plain, **options)
    assert plain.sessions == 0


def test_ucx_where_the_environment_asks_for_it(
    offering: Server, plain: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    assert not is_plain_tcp(offering)
    # It is for all programs, so it is no reason to fail.
    assert is_plain_tcp(plain)
    with Server("memory://") as server:
        assert not is_plain_tcp(server)
    with Server("memory://", network="tcp") as server:
        assert is_plain_tcp(server)


def test_the_variable_holds_for_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_NETWORK", "ucx")
    with Server("memory://") as server:
        assert not is_plain_tcp(server)
        monkeypatch.setenv("UCXSTORE_NETWORK", "tcp")
        assert is_plain_tcp(server)


@pytest.mark.parametrize("offered", ["auto", "ucx", "tcp"])
@pytest.mark.parametrize("at_server", [True, False])
@pytest.mark.parametrize("at_client", [True, False])
def test_ucx_where_both_hosts_have_rdma(
    monkeypatch: pytest.MonkeyPatch, offered: str, at_server: bool, at_client: bool
) -> None:
    monkeypatch.setattr(RDMA_AT_START, lambda: at_server)
    monkeypatch.setattr(RDMA_AT_HANDSHAKE, lambda: at_server)
    monkeypatch.setattr(connections, "has_rdma", lambda: at_client)
    # As if it were RDMA's: there is none here.
    monkeypatch.setattr(ucx_offer, "without_tcp", lambda config: config)
    monkeypatch.setattr(connections, "without_tcp", lambda config: config)
    with Server("memory://", network=offered) as server:
        assert is_plain_tcp(server) is not (at_server and at_client and offered != "tcp")


def test_tcp_where_ucx_does_not_get_through(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both hosts have RDMA, but in networks of which neither reaches the other's."""
    for name in (RDMA_AT_START, RDMA_AT_HANDSHAKE):
        monkeypatch.setattr(name, lambda: True)
    monkeypatch.setattr(connections, "has_rdma", lambda: True)
    before = tcp_listeners()
    with Server("memory://") as server, caplog.at_level(logging.WARNING, "ucxstore"):
        assert is_plain_tcp(server)
        assert "UCX does not connect them, so plain TCP is used" in caplog.text
        # Nothing of UCX's listens, at either side: both are in this process.
        assert tcp_listeners() - before == {server.address.removeprefix("ucx://")}


def test_nothing_of_ucx_starts_where_it_is_not_offered() -> None:
    """In a process of its own: others may have started UCX in this one."""
    with Server.spawn("memory://", local=False) as server:
        assert is_plain_tcp(server)
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        assert "libuct" not in maps
        threads = Path(f"/proc/{server.pid}/task").glob("*/comm")
        assert not any(one.read_text().startswith("ucxstore-srv") for one in threads)
    with Server.spawn("memory://", local=False, network="ucx") as server:
        assert "libuct" in Path(f"/proc/{server.pid}/maps").read_text()


@pytest.mark.parametrize(
    ("options", "may_listen"),
    [
        ({}, False),
        ({"network": "tcp"}, False),
        ({"network": "ucx"}, True),
        ({"ucx": {"TLS": "tcp"}}, True),
        ({"ucx": {"TLS": "^tcp"}}, False),
    ],
    ids=str,
)
def test_a_warning_where_ucx_over_tcp_can_be_reached(
    caplog: pytest.LogCaptureFixture, options: Mapping[str, object], may_listen: bool
) -> None:
    for bind, secret in (("127.0.0.1:0", None), ("0.0.0.0:0", SECRET)):
        caplog.clear()
        with Server("memory://", bind, secret=secret, **options):
            is_warned = "use it in trusted networks only" in caplog.text
            assert is_warned == (may_listen and secret is not None)


def test_what_is_no_way_is_refused(plain: Server) -> None:
    said = "network: 'udp' is neither 'auto' nor 'tcp' nor 'ucx'"
    with pytest.raises(ValueError, match=said):
        UcxStore(plain.address, network="udp")
    with pytest.raises(ValueError, match=said):
        Server("memory://", network="udp")


@pytest.mark.parametrize(
    "options", [{"ucx": {"TLS": "tcp"}}, {"data_ports": "7500"}, {"ucx_shared_memory": True}]
)
def test_a_server_without_ucx_takes_no_options_of_it(options: Mapping[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^network: with 'tcp', a server has no UCX"):
        Server("memory://", network="tcp", **options)


def test_what_is_encrypted_goes_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (RDMA_AT_START, RDMA_AT_HANDSHAKE):
        monkeypatch.setattr(name, lambda: True)
    monkeypatch.setattr(connections, "has_rdma", lambda: True)
    with Server("memory://", secret=SECRET, encrypt=True) as server:
        for encrypt in (None, True):
            assert is_plain_tcp(server, secret=SECRET, encrypt=encrypt)
        for options, asked in zip(ASKING, ("network", "local", "ucx"), strict=True):
            said = rf"the server encrypts \(encrypt=True\), and {asked}.* use network=\"tcp\""
            with pytest.raises(ConnectError, match=said):
                is_plain_tcp(server, secret=SECRET, **options)
        monkeypatch.setenv("UCX_TLS", "tcp")
        assert is_plain_tcp(server, secret=SECRET)
    with pytest.raises(ValueError, match=r"^network: 'ucx' and encrypt=True exclude"):
        UcxStore("ucx://127.0.0.1:1", secret=SECRET, encrypt=True, network="ucx")
    with pytest.raises(ValueError, match=r"^network: 'ucx' and encrypt exclude"):
        Server("memory://", secret=SECRET, encrypt=True, network="ucx")


def test_an_attach_by_ucx_that_was_not_offered(plain: Server) -> None:
    place = HostPort.parse(plain.address.removeprefix("ucx://"))
    with (
        Greeting(place, None, 10.0) as greeting,
        pytest.raises(ConnectError, match="this server does not offer UCX"),
    ):
        greeting.attach(bytes(40))
