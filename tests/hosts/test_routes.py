"""Peers that UCX must reach, whatever way leads to them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.adversity.scripts import Script
from tests.hosts.network import Host, Namespaces, hosts_on_a_switch, why_not

SERVER = """
server = Server("memory://", {bind!r}, insecure=True, threads=2, network="ucx", ucx={ucx!r})
print("ready", flush=True)
sys.stdin.readline()
"""

CLIENT = """
from concurrent.futures import ThreadPoolExecutor
value = bytes(1 << 20)

def use(address):
    with UcxStore(address, connect_timeout=15, local="ucx", ucx={ucx!r}) as store:
        store.set_sync("key", as_buffer(value))
        assert store.get_sync("key").to_bytes() == value

with ThreadPoolExecutor() as pool:
    for addresses in {rounds!r}:
        list(pool.map(use, addresses))
print("done", flush=True)
"""

PORT = 7400


@pytest.fixture(scope="module")
def pair() -> Iterator[Sequence[Host]]:
    """Two hosts with two links: the first with two addresses of IPv4 and one of IPv6, the second
    with IPv6 alone."""
    if (problem := why_not()) is not None:
        pytest.skip(problem)
    with ExitStack() as stack:
        pair = stack.enter_context(hosts_on_a_switch(2))
        other = stack.enter_context(Namespaces())
        other.run("ip link add bridge type bridge")
        other.run("ip link set bridge up")
        for number, host in enumerate(pair, 1):
            other.run(f"ip link add port{number} type veth peer name eth1 netns {host.pid}")
            other.run(f"ip link set port{number} master bridge up")
            host.run(f"ip addr add 10.98.0.{number}/24 dev eth0")
            host.run(f"ip addr add fd99::{number}/64 dev eth0 nodad")
            host.run(f"ip addr add fd97::{number}/64 dev eth1 nodad")
            host.run("ip link set eth1 up")
            host.await_link("eth1")
        yield pair


def at(host: str) -> str:
    return f"ucx://{host}:{PORT}"


FIRST, SECOND = at("10.99.0.1"), at("10.98.0.1")
V6, V6_ALONE = at("[fd99::1]"), at("[fd97::1]")
ROUNDS = {
    "first address": [[FIRST]],
    "second address": [[SECOND]],
    "IPv6": [[V6]],
    "a device of IPv6 alone": [[V6_ALONE]],
    "all at once and again": [[FIRST, SECOND, V6, V6_ALONE] * 2] * 3,
}


def connect(hosts: Sequence[Host], bind: str, rounds: object, ucx: dict[str, str]) -> None:
    serving, using = hosts

    def run(host: Host, code: str, **names: object) -> Script:
        return Script("ucx://127.0.0.1:1", {}, code.format(ucx=ucx, **names), inside=host.inside)

    with run(serving, SERVER, bind=bind) as server:
        assert server.line() == "ready"
        with run(using, CLIENT, rounds=rounds) as client:
            assert client.end() == "done\n"
        assert server.end() == ""


@pytest.mark.parametrize("rounds", ROUNDS.values(), ids=ROUNDS)
def test_any_address_of_a_server_on_all(pair: Sequence[Host], rounds: list[list[str]]) -> None:
    connect(pair, f"[::]:{PORT}", rounds, {})


def test_the_second_address_of_a_server_on_it(pair: Sequence[Host]) -> None:
    connect(pair, f"10.98.0.1:{PORT}", [[SECOND]], {})


@pytest.mark.parametrize("address", [FIRST, V6_ALONE], ids=["first", "IPv6"])
def test_two_devices_that_the_user_names(pair: Sequence[Host], address: str) -> None:
    """UCX may connect over both, more than once, whichever of them the handshake used."""
    ucx = {"NET_DEVICES": "eth0,eth1"}
    connect(pair, f"[::]:{PORT}", [[address] * 4] * 3, ucx)


@pytest.mark.parametrize("address", [at("127.0.0.1"), FIRST], ids=["loopback", "outer"])
def test_two_devices_within_a_host(pair: Sequence[Host], address: str) -> None:
    ucx = {"NET_DEVICES": "lo,eth0", "TLS": "tcp"}
    connect([pair[0], pair[0]], f"[::]:{PORT}", [[address] * 4] * 3, ucx)
