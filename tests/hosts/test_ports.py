"""The ports at which a server listens for clients of other hosts, where a firewall is between."""

from collections.abc import Sequence

from tests.hosts.conftest import RunOn
from tests.hosts.network import Host

FIRST, LAST = 7500, 7501

# Connects, and waits until the test says that it may go.
CLIENT = """
store = UcxStore(store.address, network="ucx", connect_timeout=20)
store.set_sync("key", as_buffer(b"value"))
print("connected", flush=True)
sys.stdin.readline()
"""

REFUSED = """
store = UcxStore(store.address, network="ucx", connect_timeout=20)
try:
    store.set_sync("key", as_buffer(b"value"))
except ConnectError as error:
    print(error)
"""


def test_ucx_listens_at_the_data_ports_alone(hosts: Sequence[Host], run_on: RunOn) -> None:
    serving, one, two, three = hosts
    options = ("--data-ports", f"{FIRST}-{LAST}")
    message = f"no port of {FIRST}-{LAST} is free (data_ports)"
    with serving.serving("memory://", *options, warns=message):
        clients = []
        for host in (one, two):
            client = run_on(host, serving.address, CLIENT)
            assert client.line() == "connected"
            clients.append(client)
        assert listening(serving) == {7400, FIRST, LAST}
        refused = run_on(three, serving.address, REFUSED).end()
        assert message in refused
        for client in clients:
            client.say("\n")
            assert client.end() == ""


def listening(host: Host) -> set[int]:
    """Return the TCP ports at which processes of a host listen."""
    lines = host.output("cat /proc/net/tcp").splitlines()[1:]
    fields = [line.split() for line in lines]
    return {int(place.rpartition(":")[2], 16) for _, place, _, state, *_ in fields if state == "0A"}
