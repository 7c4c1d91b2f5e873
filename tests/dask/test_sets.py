"""A deployment whose workers are only told: which servers a store has, and what is asked for."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from tests.values import write
from ucxstore import ClusterError
from ucxstore.base.address import Address
from ucxstore.dask import Deployment
from ucxstore.dask.host_server import Running
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.server import Server

TEXT = b"a secret of this test"


class Workers:
    """What a Dask client is asked for: the workers that are there, each with a server."""

    def __init__(self) -> None:
        self.running: dict[str, dict[str, Running]] = {}
        self.asked = 0

    def sync(self, *_: object, **__: object) -> dict[str, dict[str, Running]]:
        return self.running

    @property
    def dashboard_link(self) -> str:
        self.asked += 1
        return "http://127.0.0.1:8787/status"

    def be(self, deployed: Deployment, *servers: Server) -> None:
        """Let these be the servers that run."""
        found = [Running(Address.parse(one.address).servers[0], one.identity) for one in servers]
        self.running = {f"tcp://{one.server}": {deployed.name: one} for one in found}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server("memory://", secret=TEXT)) for _ in range(3)]


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def deployed(workers: Workers, request: pytest.FixtureRequest) -> Deployment:
    name = f"ucxstore-{request.node.name}"
    secret = DeploymentSecret.hold(name, TEXT)
    return Deployment(cast(Any, workers), name, secret, "memory://", {})


def test_an_accepted_store_begins_empty_even_over_servers_of_before(
    deployed: Deployment, workers: Workers, servers: list[Server]
) -> None:
    workers.be(deployed, *servers[:2])
    first = deployed.store("a")
    write(first, "x", b"1")
    workers.be(deployed, *servers)
    second = deployed.store("a", accept_changed=True)
    assert second.get_sync("x") is None
    write(second, "x", b"2")
    workers.be(deployed, *servers[:2])
    third = deployed.store("a", accept_changed=True)
    assert third.servers == first.servers
    assert third.get_sync("x") is None
    # Nothing has changed since: it keeps its values.
    write(third, "x", b"3")
    for again in deployed.store("a"), deployed.store("a", accept_changed=True):
        assert again.get_sync("x").to_bytes() == b"3"
    # Whoever has the first one still reads its values, and no fill values.
    assert first.get_sync("x").to_bytes() == b"1"


def test_a_prefix_below_another_has_the_servers_of_that(
    deployed: Deployment, workers: Workers, servers: list[Server]
) -> None:
    workers.be(deployed, *servers[:2])
    write(deployed.store(), "step-1/x", b"1")
    workers.be(deployed, *servers)
    for below in deployed.store("step-1"), deployed.store("/step-1/"):
        assert below.get_sync("x").to_bytes() == b"1"
    wide = deployed.store("step-2", accept_changed=True)
    assert len(wide.servers) == 3
    assert deployed.store("step-2/a/b").servers == wide.servers
    assert deployed.store("step-20").servers == deployed.store().servers != wide.servers


def test_a_prefix_above_others_needs_their_servers(
    deployed: Deployment, workers: Workers, servers: list[Server]
) -> None:
    workers.be(deployed, *servers[:2])
    write(deployed.store("run/a"), "x", b"1")
    assert deployed.store("run").get_sync("a/x").to_bytes() == b"1"
    workers.be(deployed, *servers)
    with pytest.raises(ClusterError, match=r"below '' were made .* now: 'run', 'run/a'; use these"):
        deployed.store()
    assert len(deployed.store("ru").servers) == 3
    whole = deployed.store(accept_changed=True)
    assert len(whole.servers) == 3
    assert whole.get_sync("run/a/x") is None
    write(whole, "run/a/x", b"2")
    assert deployed.store("run/a").get_sync("x").to_bytes() == b"2"


def test_a_store_below_one_whose_worker_is_lost_raises(
    deployed: Deployment, workers: Workers, servers: list[Server]
) -> None:
    workers.be(deployed, *servers[:2])
    deployed.store("run")
    workers.be(deployed, *servers[1:])
    lost = servers[0].address.removeprefix("ucx://")
    for prefix in "run", "run/a":
        with pytest.raises(ClusterError, match=rf"store\('run'\) .* missing .* are {lost}, and"):
            deployed.store(prefix)
    assert lost not in str(deployed.store("other"))


def test_the_link_is_asked_for_once(deployed: Deployment, workers: Workers) -> None:
    """The scheduler may be gone when somebody looks at the deployment."""
    workers.be(deployed)
    deployed._add_page()
    for _ in range(2):
        assert deployed.dashboard_link == "http://127.0.0.1:8787/ucxstore"
        assert "http://127.0.0.1:8787/ucxstore" in deployed._repr_html_()
    assert workers.asked == 1
