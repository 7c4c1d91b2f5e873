"""Stores and servers that encrypt: who gets on with whom, and what is said of it."""

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from obstore.store import LocalStore

from tests.backdoor import options_of
from tests.conftest import SECRET
from tests.durability.recording import preload
from tests.values import as_buffer
from ucxstore import Secret, Server, UcxStore
from ucxstore.base import grants
from ucxstore.base.errors import AuthenticationError, ConnectError
from ucxstore.base.options import ClientOptions
from ucxstore.server.options.server_options import ServerOptions

OVER_TCP: dict[str, Any] = {"secret": SECRET, "local": "off"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("memory://", secret=SECRET, encrypt=True) as server:
        yield server


def writes_and_reads(store: UcxStore, name: str = "array") -> bool:
    data = np.random.default_rng(5).integers(0, 1000, (300, 400))
    array: Any = zarr.create_array(store, name=name, data=data, chunks=(77, 90), overwrite=True)
    return bool((array[:] == data).all() and (array[5:200:3, 7:300] == data[5:200:3, 7:300]).all())


@pytest.mark.parametrize("encrypt", [None, True])
def test_a_store_follows_the_server(server: Server, encrypt: bool | None) -> None:
    with UcxStore(server.address, encrypt=encrypt, **OVER_TCP) as store:
        assert writes_and_reads(store)
        assert store.stats()["encrypted"]
        assert store.stats()["integrity"]


@pytest.mark.parametrize("encrypt", [None, False])
def test_a_server_that_does_not_is_believed(guarded: Server, encrypt: bool | None) -> None:
    with UcxStore(guarded.address, encrypt=encrypt, **OVER_TCP) as store:
        assert writes_and_reads(store)
        assert not store.stats()["encrypted"]


def test_a_store_that_insists_refuses_a_server_that_does_not(guarded: Server) -> None:
    for local in ("off", "auto"):
        options = {**OVER_TCP, "local": local}
        with (
            UcxStore(guarded.address, encrypt=True, **options) as store,
            pytest.raises(ConnectError, match=r"does not encrypt.*--encrypt"),
        ):
            store.get_sync("key")


def test_a_store_that_does_not_is_refused(server: Server) -> None:
    with (
        UcxStore(server.address, encrypt=False, **OVER_TCP) as store,
        pytest.raises(ConnectError, match=r"encrypts what goes over a network, and encrypt=False"),
    ):
        store.get_sync("key")


def test_a_wrong_secret_is_refused(server: Server) -> None:
    with (
        UcxStore(server.address, secret="another secret", local="off") as store,
        pytest.raises(AuthenticationError, match="the secret is wrong"),
    ):
        store.get_sync("key")


@pytest.mark.parametrize("encrypt", [None, True, False])
def test_shared_memory_is_used_as_ever(server: Server, encrypt: bool | None) -> None:
    with UcxStore(server.address, secret=SECRET, local="auto", encrypt=encrypt) as store:
        assert writes_and_reads(store)
        assert store.stats()["lanes"] == ["local"]
        assert not store.stats()["encrypted"]


def test_a_grant_encrypts(server: Server) -> None:
    grant = grants.narrow(SECRET.encode(), grants.caveats_of("part", read_only=True))
    with UcxStore(server.address, **OVER_TCP) as store:
        store.set_sync("part/key", as_buffer(b"value"))
    with UcxStore(f"{server.address}/part", secret=grant, local="off", encrypt=True) as store:
        found = store.get_sync("key")
        assert found is not None
        assert found.to_bytes() == b"value"
        assert store.stats()["encrypted"]


def test_several_servers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server("memory://", secret=SECRET, encrypt=encrypt))
            for encrypt in (True, True, False)
        ]
        places = [server.address.removeprefix("ucx://") for server in servers]
        with UcxStore(f"ucx://{places[0]},{places[1]}", **OVER_TCP) as store:
            assert writes_and_reads(store)
            assert store.stats()["encrypted"]
        with (
            UcxStore(f"ucx://{places[0]},{places[2]}", encrypt=True, **OVER_TCP) as store,
            pytest.raises(ConnectError, match="does not encrypt"),
        ):
            writes_and_reads(store)


def test_scratch_space(server: Server) -> None:
    with (
        UcxStore(server.address, **OVER_TCP) as store,
        store.scratch_sync(quota="16MiB") as scratch,
    ):
        temporary = scratch.store()
        assert writes_and_reads(temporary)
        assert temporary.stats()["encrypted"]


def test_pickles_keep_it(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    secret = Secret.from_file(file)
    with UcxStore(server.address, secret=secret, local="off", encrypt=True) as store:
        copy = pickle.loads(pickle.dumps(store))
        assert copy == store
        assert options_of(copy).encrypt is True
        copy.close()


def test_a_source_with_two_servers(tmp_path: Path) -> None:
    """What one writes the other one serves, though they say so in what nobody can read."""
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(Server(LocalStore(tmp_path), secret=SECRET, encrypt=True))
            for _ in range(2)
        )
        writing = stack.enter_context(UcxStore(one.address, **OVER_TCP))
        reading = stack.enter_context(UcxStore(other.address, **OVER_TCP))
        for value in (b"first", b"second", b"third"):
            writing.set_sync("key", as_buffer(value))
            found = reading.get_sync("key")
            assert found is not None
            assert found.to_bytes() == value


def test_a_lost_connection_gets_other_keys(server: Server) -> None:
    async def go() -> bool:
        with UcxStore(server.address, **OVER_TCP) as store:
            await store.set("key", as_buffer(b"value"))
        with UcxStore(server.address, **OVER_TCP) as store:
            return await store.exists("key")

    assert asyncio.run(go())


_WITHOUT_OPENSSL = """
import sys
from ucxstore import Server, UcxStore
from ucxstore.base.errors import ConnectError

try:
    Server("memory://", secret="a secret that is long enough", encrypt=True)
except ValueError as error:
    print(error)
try:
    UcxStore(sys.argv[1], secret="a secret that is long enough", local="off").get_sync("key")
except ConnectError as error:
    print(error)
"""


def test_without_openssl_it_says_what_to_install(server: Server, tmp_path: Path) -> None:
    library = preload(Path(__file__).with_name("no_openssl.c"), tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_OPENSSL, server.address],
        env={**os.environ, "LD_PRELOAD": str(library)},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
        text=True,
    )
    at_the_server, at_the_client = done.stdout.splitlines()
    needs = "encryption needs OpenSSL 3, and libcrypto.so.3 is not to be found; install libssl3"
    assert at_the_server.startswith(f"encrypt: {needs}")
    place = server.address.removeprefix("ucx://")
    assert at_the_client.startswith(f"cannot connect to {place}: {needs}")


class TestOptions:
    @pytest.mark.parametrize("value", [0, 1, "on"])
    def test_is_wanted_or_not_or_left_open(self, value: object) -> None:
        assert ClientOptions.of().encrypt is None
        with pytest.raises(ValueError, match=r"^encrypt:"):
            ClientOptions.of(encrypt=value)
        with pytest.raises(TypeError, match=r"^encrypt:"):
            ServerOptions(encrypt=value, secret=SECRET)

    def test_needs_a_secret(self) -> None:
        with pytest.raises(ValueError, match=r"^encrypt: it needs a secret"):
            ClientOptions.of(encrypt=True)
        with pytest.raises(ValueError, match=r"^encrypt: it needs a secret"):
            ServerOptions(encrypt=True)
        assert ServerOptions(encrypt=True, secret=Secret(SECRET)).encrypt
