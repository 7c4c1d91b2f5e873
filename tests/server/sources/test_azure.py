"""A server in front of Azure's blobs, as Azurite has them; `make azure` installs it."""

import asyncio
from collections.abc import Iterator

import numpy as np
import obstore
import pytest
import zarr
from obstore.store import from_url
from zarr.core.buffer import cpu

from tests.server.sources.azurite import PROGRAM, AzureServer, azure_server
from tests.server.sources.test_blocks import BLOCK, get_part
from tests.server.sources.test_cache import get, put
from tests.values import keys_of, noise
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.server import Server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    if not PROGRAM.exists():
        pytest.skip("there is no Azurite: `make azure` installs it, with npm")
    with azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_an_array(azure: AzureServer, compressors: str | None) -> None:
    values = np.random.default_rng(0).integers(0, 9, (300, 300))
    location = f"az://{azure.container}/arrays/{compressors}"
    for mode in ("w", "r"):  # the second server has nothing in its cache
        with (
            Server(location, storage_options=azure.options()) as server,
            UcxStore(server.address, strict=True) as store,
        ):
            if mode == "w":
                zarr.create_array(store, data=values, chunks=(100, 100), compressors=compressors)
            np.testing.assert_array_equal(zarr.open_array(store, mode="r")[:], values)
            assert len(asyncio.run(keys_of(store))) == 10


def test_keys(azure: AzureServer) -> None:
    location = f"az://{azure.container}/keys"
    with (
        Server(location, storage_options=azure.options()) as server,
        UcxStore(server.address) as store,
    ):
        assert get(store, "a/1") is None
        for key in ("a/1", "a/2", "b"):
            put(store, key, key.encode())
        assert get(store, "a/2") == b"a/2"
        assert asyncio.run(keys_of(store)) == ["a/1", "a/2", "b"]
        asyncio.run(store.set_if_not_exists("b", cpu.Buffer.from_bytes(b"other")))
        assert get(store, "b") == b"b"
        asyncio.run(store.delete("a/2"))
        assert get(store, "a/2") is None
        asyncio.run(store.delete_dir("a"))
        assert asyncio.run(keys_of(store)) == ["b"]


def test_what_others_replace_is_read_anew(azure: AzureServer) -> None:
    location = f"az://{azure.container}/replaced"
    objects = from_url(location, config=azure.options(), client_options={"allow_http": True})
    old, new = noise(20 * BLOCK, 1), noise(20 * BLOCK, 2)
    with (
        Server(
            location, storage_options=azure.options(), freshness="always", block_size=BLOCK
        ) as server,
        UcxStore(server.address) as store,
    ):
        for value in (old, new):
            obstore.put(objects, "k", value)
            assert get_part(store, "k", 10, 20) == value[10:20]
            assert get_part(store, "k", 8 * BLOCK, 9 * BLOCK) == value[8 * BLOCK : 9 * BLOCK]
        obstore.delete(objects, "k")
        assert get(store, "k") is None


def test_a_missing_container_and_a_wrong_key_are_told(azure: AzureServer) -> None:
    wrong_key = "bm90IHRoZSBrZXk="
    for location, options, cause in (
        ("az://no-such-container", azure.options(), "there is no such bucket"),
        (f"az://{azure.container}", azure.options(account_key=wrong_key), "permission denied"),
    ):
        with pytest.raises(StorageError, match=f"^storage: .*{cause}") as refused:
            Server(location, storage_options=options)
        assert wrong_key not in str(refused.value)
        with (
            Server(location, storage_options=options, check=False) as server,
            UcxStore(server.address) as store,
            pytest.raises(StorageError, match=rf"'k' .*{cause}") as caught,
        ):
            get(store, "k")
        assert wrong_key not in str(caught.value)
