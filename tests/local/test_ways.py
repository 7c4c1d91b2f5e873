"""Which way a client takes to a server: the local plane where it can, else UCX."""

import gc
import logging
import os
import pickle
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

from tests.adversity.fake_servers import FakeServer, relays_to
from tests.adversity.scripts import Script
from tests.backdoor import acceptor_of
from tests.base.test_logs import Recorder
from tests.base.test_logs import recorder as recorder
from tests.conftest import address_of
from tests.eventually import eventually
from tests.hosts.conftest import hosts as hosts
from tests.hosts.network import Host
from tests.values import as_buffer
from ucxstore import AuthenticationError, ConnectError, UcxStore
from ucxstore.client.connect import Greeting
from ucxstore.server import Server

ROUND_TRIP = """
store.set_sync("c/0", as_buffer(b"value"))
assert store.get_sync("c/0").to_bytes() == b"value"
print(store.stats()["lanes"], flush=True)
"""


def lanes_of(store: UcxStore) -> list[str]:
    """Use a store, and return the lanes that it has then."""
    store.set_sync("c/0", as_buffer(b"value"))
    value = store.get_sync("c/0")
    assert value is not None
    assert value.to_bytes() == b"value"
    return store.stats()["lanes"]


def uses_ucx(lanes: Sequence[str]) -> bool:
    return bool(lanes) and "local" not in lanes


# ---- the local plane ----


@pytest.mark.parametrize("storage", ["memory", "directory", "object"])
def test_a_client_of_this_process(address: str) -> None:
    with UcxStore(address) as store:
        assert lanes_of(store) == ["local"]


def test_the_server_knows() -> None:
    with Server("memory://", local=True) as server:
        with UcxStore(server.address) as store:
            assert lanes_of(store) == ["local"]
            assert server.sessions == 1
            clients = sync(store.server_stats())["clients"]
            assert [client["lanes"] for client in clients] == [["local"]]
        eventually(lambda: server.sessions == 0)


def test_a_client_in_another_process(memory_server: Server) -> None:
    with Script(memory_server.address, {}, ROUND_TRIP) as script:
        assert script.end().strip() == "['local']"


def test_a_server_in_another_process() -> None:
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        assert lanes_of(store) == ["local"]


def test_a_client_that_leaves_in_order(recorder: Recorder) -> None:
    with Server("memory://", local=True) as server, UcxStore(server.address) as store:
        lanes_of(store)
        assert recorder.hears("client", "connected").getMessage().endswith(" by local")
        assert recorder.hears("server", "connected").levelno == logging.INFO
        store.close()
        del store
        gc.collect()
        recorder.hears("client", "closed")
        recorder.hears("server", "closed")
        assert not recorder.of("server", "lost")


def test_it_needs_no_ucx(memory_server: Server) -> None:
    """Options of UCX that no context can be made with are not even looked at."""
    with UcxStore(memory_server.address, ucx={"TLS": "no-such-transport"}) as store:
        assert lanes_of(store) == ["local"]


def test_several_servers(three_servers: list[Server], prefix: str) -> None:
    with UcxStore(address_of(three_servers, prefix)) as store:
        x = np.arange(400.0).reshape(20, 20)
        z = zarr.create_array(store, name="a", data=x, chunks=(5, 5), compressors=None)
        np.testing.assert_array_equal(z[:], x)
        assert store.stats()["lanes"] == ["local"]


def test_one_with_and_one_without(prefix: str) -> None:
    with Server("memory://", local=True) as one, Server("memory://", local=False) as other:
        x = np.arange(400.0).reshape(20, 20)
        with UcxStore(address_of([one, other], prefix)) as store:
            z = zarr.create_array(store, name="a", data=x, chunks=(5, 5), compressors=None)
            np.testing.assert_array_equal(z[:], x)
            lanes = store.stats()["lanes"]
            assert "local" in lanes
            assert len(lanes) > 1


def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Server("memory://", local=True, socket=path) as server:
        assert stat.S_ISSOCK(path.stat().st_mode)
        with UcxStore(server.address) as store:
            assert lanes_of(store) == ["local"]
    assert not path.exists()


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "ucxstore", "serve", "memory://", "--local", "--socket", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            words = server.stdout.readline().split()
            [address] = [word for word in words if word.startswith("ucx://")]
            with UcxStore(address) as store:
                assert lanes_of(store) == ["local"]
        finally:
            server.terminate()
            server.wait(60)
        assert server.returncode == 0
    assert not path.exists()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_of_a_server_take_turns(threads: int) -> None:
    with Server("memory://", local=True, threads=threads) as server:
        # Stores that differ in their options of UCX have connections of their own.
        stores = [UcxStore(server.address, ucx={"MAX_EAGER_LANES": each}) for each in (1, 2, 3, 4)]
        for number, store in enumerate(stores):
            store.set_sync(f"c/{number}", as_buffer(bytes([number]) * 100_000))
        assert server.sessions == 4
        for store in stores:
            for other in range(4):
                value = store.get_sync(f"c/{other}")
                assert value is not None
                assert value.to_bytes() == bytes([other]) * 100_000
            assert store.stats()["lanes"] == ["local"]
            store.close()
        del store, stores
        eventually(lambda: server.sessions == 0)


# ---- a secret ----


def test_a_secret() -> None:
    with Server("memory://", local=True, secret="right") as server:
        with UcxStore(server.address, secret="right") as store:
            assert lanes_of(store) == ["local"]
        for wrong in ("wrong", None):
            with (
                UcxStore(server.address, secret=wrong) as store,
                pytest.raises(AuthenticationError),
            ):
                store.get_sync("c/0")


# ---- UCX instead ----


def test_a_server_without() -> None:
    with Server("memory://", local=False) as server, UcxStore(server.address) as store:
        assert uses_ucx(lanes_of(store))


def test_a_client_that_does_not_want_to(memory_server: Server, prefix: str) -> None:
    address = f"{memory_server.address}/{prefix}"
    with UcxStore(address, local="ucx") as store, UcxStore(address) as other:
        assert uses_ucx(lanes_of(store))
        assert lanes_of(other) == ["local"]
        assert lanes_of(pickle.loads(pickle.dumps(store))) == store.stats()["lanes"]
        # Both see the same values.
        for one, two in ((store, other), (other, store)):
            for size in (0, 1, 100_000, 5_000_000):
                one.set_sync("c/1", as_buffer(bytes([size % 251]) * size))
                value = two.get_sync("c/1")
                assert value is not None
                assert value.to_bytes() == bytes([size % 251]) * size


@pytest.mark.parametrize("by", ["option", "environment"])
def test_as_between_hosts(
    by: str, memory_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "environment":
        monkeypatch.setenv("UCXSTORE_LOCAL", "off")
    local = "off" if by == "option" else None
    with UcxStore(f"{memory_server.address}/{prefix}", local=local) as store:
        lanes = lanes_of(store)
        assert lanes
        assert all("tcp" in lane for lane in lanes)


def test_the_option_is_above_the_environment(
    memory_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "ucx")
    address = f"{memory_server.address}/{prefix}"
    with UcxStore(address, local="auto") as store, UcxStore(address) as other:
        assert lanes_of(store) == ["local"]
        assert uses_ucx(lanes_of(other))


def test_no_way_at_all(memory_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="local: 'on' is neither 'auto' nor 'ucx' nor 'off'"):
        UcxStore(memory_server.address, local="on")
    monkeypatch.setenv("UCXSTORE_LOCAL", "on")
    with pytest.raises(ValueError, match="UCXSTORE_LOCAL: 'on' is neither"):
        UcxStore(memory_server.address)


def test_a_url(memory_server: Server, prefix: str) -> None:
    url = f"{memory_server.address}/{prefix}/a"
    x = np.arange(100.0)
    for options in ({}, {"local": "ucx"}):
        z = zarr.create_array(url, data=x, overwrite=True, storage_options=options)
        np.testing.assert_array_equal(z[:], x)


def test_a_socket_that_cannot_be_joined(
    memory_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Greeting, "join", lambda _: None)
    with UcxStore(f"{memory_server.address}/{prefix}", ucx={"MAX_EAGER_LANES": 5}) as store:
        assert uses_ucx(lanes_of(store))


def test_a_name_that_nobody_has_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server("memory://", local=True) as server:
        joining = acceptor_of(server).reception.joining
        assert joining is not None
        monkeypatch.setattr(joining, "name", b"\0ucxstore-of-another-namespace")
        with UcxStore(server.address) as store:
            assert uses_ucx(lanes_of(store))


def test_a_path_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Server("memory://", local=True, socket=path) as server:
        path.unlink()
        with UcxStore(server.address) as store:
            assert uses_ucx(lanes_of(store))


def test_a_path_that_another_program_has(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Server("memory://", local=True, socket=path) as server:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(os.fspath(path))
            other.listen()

            def hang_up() -> None:
                sock, _ = other.accept()
                with sock:
                    sock.recv(4096)

            thread = threading.Thread(target=hang_up)
            thread.start()
            with UcxStore(server.address) as store:
                assert uses_ucx(lanes_of(store))
            thread.join(20)


def test_a_socket_that_says_nothing(tmp_path: Path) -> None:
    """The time for it is that for connecting."""
    path = tmp_path / "socket"
    with Server("memory://", local=True, socket=path) as server:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(os.fspath(path))
            silent.listen()
            start = time.monotonic()
            with (
                UcxStore(server.address, connect_timeout=0.5, local="auto") as store,
                pytest.raises(ConnectError, match=server.address.removeprefix("ucx://")),
            ):
                store.get_sync("c/0")
            assert time.monotonic() - start < 20


def test_behind_a_relay_that_runs_here(memory_server: Server) -> None:
    """The server takes the relay's address for the client's; the socket is there, so it is used."""
    place = memory_server.address.removeprefix("ucx://")
    with FakeServer(relays_to(place)) as relay, UcxStore(relay.address) as store:
        assert lanes_of(store) == ["local"]


# ---- hosts ----


def test_another_host(hosts: Sequence[Host], tmp_path: Path) -> None:
    one, two = hosts[:2]
    with one.serving("memory://", "--local"):
        with Script(one.address, {}, ROUND_TRIP, inside=one.inside) as script:
            assert script.end().strip() == "['local']"
        with Script(one.address, {}, ROUND_TRIP, inside=two.inside) as script:
            assert "tcp" in script.end()


def test_a_folder_that_hosts_share(hosts: Sequence[Host], tmp_path: Path) -> None:
    """A path is found in other network namespaces, as containers have them."""
    one, two = hosts[:2]
    with one.serving("memory://", "--local", "--socket", str(tmp_path / "socket")):
        for host in (one, two):
            with Script(one.address, {}, ROUND_TRIP, inside=host.inside) as script:
                assert script.end().strip() == "['local']"


def test_a_folder_that_another_host_does_not_see(hosts: Sequence[Host], tmp_path: Path) -> None:
    one, two = hosts[:2]
    with one.serving("memory://", "--local", "--socket", str(tmp_path / "socket")):
        hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs {tmp_path} && exec "$@"']
        with Script(one.address, {}, ROUND_TRIP, inside=[*two.inside, *hidden, "sh"]) as script:
            assert "tcp" in script.end()
