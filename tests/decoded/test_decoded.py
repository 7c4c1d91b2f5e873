"""Chunks that a server decodes, once for all: who reads them, who changes them, what it refuses."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.core.buffer import cpu
from zarr.storage import LocalStore

from tests.eventually import eventually, nothing_happens
from ucxstore import GrantError, InvalidKeyError, Secret, UcxStore
from ucxstore.client.requests import get
from ucxstore.codecs.recipe import recipe_of
from ucxstore.pipeline import kind_of
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.array_chunks import spec_of
from ucxstore.server import Server

type Make = Callable[..., Server]

DATA = np.cumsum(np.random.default_rng(0).integers(-3, 4, (400, 300)), axis=0).astype("i4")
COUNT = 4 * 3
ARRAY: dict[str, Any] = {"chunks": (100, 100), "compressors": ZstdCodec()}
SHARDS: dict[str, Any] = ARRAY | {"shards": (200, 300)}


def made(store: Any, name: str = "a", data: np.ndarray = DATA, **options: Any) -> zarr.Array:
    array = zarr.create_array(store, name=name, data=data, **(ARRAY | options))
    assert isinstance(array, zarr.Array)
    nothing_happens(0.03)  # what is decoded of newer files is not kept
    return array


def reader(server: Server, name: str = "a", **options: Any) -> zarr.Array:
    array = zarr.open_array(UcxStore(server, strict=True, **options), path=name, mode="r")
    assert isinstance(array, zarr.Array)
    return array


def counted(array: zarr.Array, name: str) -> int:
    stats = array.store.stats()  # type: ignore[attr-defined]
    return int(stats[name])


@pytest.mark.parametrize("options", [ARRAY, SHARDS], ids=["chunks", "shards"])
def test_each_chunk_is_decoded_once(
    location: Any, local: bool, serve: Make, options: dict[str, Any]
) -> None:
    server = serve(location)
    made(UcxStore(server), **options)
    arrays = [reader(server) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda a: results.append(a[:]), args=(array,)) for array in arrays
    ]
    results: list[Any] = []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, DATA)
    for array in arrays:
        np.testing.assert_array_equal(array[37], DATA[37])
        np.testing.assert_array_equal(array[::7, 50:250:3], DATA[::7, 50:250:3])
        assert counted(array, "decode") == 0
        assert counted(array, "decoded") > 0
    stats = server.stats()
    assert stats["decoded"] == COUNT
    assert stats["decodes_failed"] == 0
    assert stats["decoded_hits"] > COUNT
    assert DATA.nbytes <= stats["decoded_bytes"] <= stats["decoded_limit"] == 64 << 20


@pytest.mark.parametrize("options", [ARRAY, SHARDS], ids=["chunks", "shards"])
def test_a_change_is_seen_at_once(
    location: Any, local: bool, serve: Make, options: dict[str, Any]
) -> None:
    server = serve(location)
    writer = made(UcxStore(server), **options)
    array, other = reader(server), reader(server)
    for step in range(1, 5):
        np.testing.assert_array_equal(array[:], DATA * step)
        np.testing.assert_array_equal(other[:], DATA * step)
        writer[:] = DATA * (step + 1)
    writer[5:20, 5:20] = 7
    changed = DATA * 5
    changed[5:20, 5:20] = 7
    np.testing.assert_array_equal(array[:], changed)
    name = "a/c/0/0"
    UcxStore(server).delete_sync(name)
    rows, columns = options.get("shards", options["chunks"])
    changed[:rows, :columns] = 0
    np.testing.assert_array_equal(array[:], changed)
    np.testing.assert_array_equal(other[:], changed)
    assert counted(array, "decode") == 0


def test_a_change_of_a_file_by_others_is_seen_at_once(
    tmp_path: Path, local: bool, serve: Make
) -> None:
    made(LocalStore(tmp_path))
    array = reader(serve(tmp_path))
    np.testing.assert_array_equal(array[:], DATA)
    made(LocalStore(tmp_path), "b", 3 * DATA)
    for key in ("c/0/0", "c/3/2"):
        (tmp_path / "b" / key).replace(tmp_path / "a" / key)
    changed = DATA.copy()
    changed[:100, :100] *= 3
    changed[300:, 200:] *= 3
    np.testing.assert_array_equal(array[:], changed)


def test_other_codecs_under_the_same_keys_are_others(
    location: Any, local: bool, serve: Make
) -> None:
    server = serve(location)
    store = UcxStore(server)
    made(store)
    before = reader(server)
    np.testing.assert_array_equal(before[:], DATA)
    made(store, data=2 * DATA, compressors=BloscCodec(), overwrite=True)
    np.testing.assert_array_equal(reader(server)[:], 2 * DATA)


def test_a_part_of_a_chunk_is_sent_in_part(
    location: Any, serve: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "off")
    server = serve(location)
    made(UcxStore(server), chunks=(400, 300))
    array = reader(server)
    before = server.stats()["bytes_sent"]
    np.testing.assert_array_equal(array[17], DATA[17])
    eventually(lambda: server.stats()["bytes_sent"] - before >= DATA[17].nbytes)
    assert server.stats()["bytes_sent"] - before < 2 * DATA[17].nbytes


@pytest.mark.parametrize("options", [ARRAY, SHARDS], ids=["chunks", "shards"])
def test_a_broken_chunk_is_an_error_that_names_it_at_each_reader(
    location: Any, local: bool, serve: Make, options: dict[str, Any]
) -> None:
    server = serve(location)
    store = UcxStore(server)
    made(store, **options)
    value = bytearray(store.get_sync("a/c/1/0").to_bytes())
    value[2:60] = bytes(58)
    store.set_sync("a/c/1/0", cpu.Buffer.from_bytes(bytes(value)))
    for _ in range(2):
        array = reader(server)
        with pytest.raises(Exception, match=r"(?i)decompress|zstd") as caught:
            array[:]
        assert any("a/c/1/0" in note for note in caught.value.__notes__)
        np.testing.assert_array_equal(array[:100], DATA[:100])
    assert server.stats()["decodes_failed"] >= 2


def test_what_is_larger_than_the_limit_is_decoded_by_readers(
    location: Any, local: bool, serve: Make
) -> None:
    server = serve(location, decoded="1MiB")
    data = np.arange(600_000, dtype="f8").reshape(600, 1000)
    made(UcxStore(server), data=data, chunks=(300, 1000))
    array = reader(server)
    np.testing.assert_array_equal(array[:], data)
    assert counted(array, "decode") == 2
    stats = server.stats()
    assert stats["decoded"] == stats["decoded_bytes"] == 0


def test_the_limit_holds(location: Any, local: bool, serve: Make) -> None:
    server = serve(location, decoded="1MiB")
    data = np.arange(1_000_000, dtype="i4").reshape(1000, 1000)
    made(UcxStore(server), data=data, chunks=(100, 100))
    array = reader(server)
    for _ in range(3):
        np.testing.assert_array_equal(array[:], data)
        assert server.stats()["decoded_bytes"] <= 1 << 20
    assert server.stats()["decoded_evicted"] > 0


def test_what_a_server_does_not_decode_readers_do(serve: Make, local: bool) -> None:
    server = serve("memory://", decoded=None)
    array = made(UcxStore(server))
    array = reader(server)
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, "decode") == COUNT
    assert server.stats()["decoded_limit"] == 0


def test_scratch_space_is_not_shown_to_others(serve: Make, local: bool) -> None:
    server = serve("memory://")
    with UcxStore(server).scratch_sync("16MiB") as scratch:
        array = made(scratch.store())
        np.testing.assert_array_equal(array[:], DATA)
        assert server.stats()["decoded"] == 0


def test_several_servers_decode_what_is_theirs(serve: Make, local: bool) -> None:
    servers = [serve("memory://") for _ in range(3)]
    hosts = ",".join(server.address.removeprefix("ucx://") for server in servers)
    for options in (ARRAY, SHARDS):
        name = f"a{len(options)}"
        made(UcxStore(f"ucx://{hosts}"), name, **options)
        array = zarr.open_array(UcxStore(f"ucx://{hosts}"), path=name, mode="r")
        for _ in range(2):
            np.testing.assert_array_equal(array[:], DATA)
    each = [server.stats() for server in servers]
    assert sum(one["decoded"] for one in each) == 2 * COUNT
    assert all(one["decoded"] > 0 and one["decodes_failed"] == 0 for one in each)


def test_a_grant_opens_what_is_decoded_below_its_prefix(
    location: Any, local: bool, serve: Make
) -> None:
    secret = Secret("a secret that is long enough")
    server = serve(location, secret=secret)
    store = UcxStore(server)
    made(store, "run-1/a")
    made(store, "run-2/a", 2 * DATA)
    np.testing.assert_array_equal(reader(server, "run-2/a")[:], 2 * DATA)
    granted = secret.grant("run-1/", read_only=True)
    array = zarr.open_array(UcxStore(server.address, secret=granted), path="run-1/a", mode="r")
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, "decoded") == COUNT
    theirs = reader(server, "run-2/a")
    spec = spec_of(theirs.metadata)
    recipe = recipe_of(kind_of(theirs.async_array), spec)
    assert recipe is not None
    names = [f"{recipe.folder}all/run-2/a/c/0/0"]
    channel = access_to(array.store).channel
    with pytest.raises(GrantError, match="run-1"):
        channel.ask_sync(get(names, [[]], recipe=recipe.text))


def test_names_of_decoded_values_are_no_keys(location: Any, local: bool, serve: Make) -> None:
    server = serve(location)
    store = UcxStore(server)
    array = made(store)
    array[:]
    spec = spec_of(array.metadata)
    recipe = recipe_of(kind_of(array.async_array), spec)
    assert recipe is not None
    name = f"{recipe.folder}all/a/c/0/0"
    channel = access_to(store).channel
    found = channel.ask_sync(get([name], [[]], recipe=recipe.text))[0]
    assert found is not None
    np.testing.assert_array_equal(found[0].view("i4").reshape(100, 100), DATA[:100, :100])
    with pytest.raises(InvalidKeyError, match="decoded"):
        channel.ask_sync(get([name], [[]]))
    with pytest.raises(InvalidKeyError, match="decoded"):
        store.set_sync(name, cpu.Buffer.from_bytes(b"planted"))
    with pytest.raises(InvalidKeyError, match="decoded"):
        store.delete_sync(name)
    for other in ("a/c/0/0", f"{recipe.folder}a/c/0/0", f"{recipe.folder}all//a", name[:-30]):
        with pytest.raises(ValueError, match=r"name|key"):
            channel.ask_sync(get([other], [[]], recipe=recipe.text))
    np.testing.assert_array_equal(reader(server)[:], DATA)


def test_a_mapped_result_stays_as_it_is(
    location: Any, serve: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "auto")
    server = serve(location, decoded="40MiB")
    data = np.arange(4 << 20, dtype="i4").reshape(16, -1)
    writer = made(UcxStore(server), data=data, chunks=data.shape)
    array = reader(server)
    array[:]
    result = array[:]
    assert counted(array, "mapped") > 0
    for step in range(4):
        writer[:] = np.full_like(data, step)
        np.testing.assert_array_equal(array[:], np.full_like(data, step))
    np.testing.assert_array_equal(result, data)


def test_codecs_that_only_readers_run_are_left_to_them(serve: Make, local: bool) -> None:
    server = serve("memory://")
    store = UcxStore(server)
    array = zarr.create_array(store, name="a", shape=(20,), chunks=(10,), dtype=str)
    array[:] = np.array([f"text {i}" for i in range(20)], dtype=object)
    assert list(array[3:5]) == ["text 3", "text 4"]
    assert server.stats()["decoded"] == 0


def test_a_source_is_asked_once_where_only_what_was_decoded_is_kept(
    local: bool, serve: Make
) -> None:
    behind = MemoryStore()
    server = serve(behind, cache="1MiB")
    data = np.random.default_rng(0).integers(0, 1000, (4000, 1000)).astype("i4")
    made(UcxStore(server), data=data, chunks=(500, 1000), compressors=GzipCodec())
    array = reader(server)
    for _ in range(3):
        np.testing.assert_array_equal(array[:], data)
    stats = server.stats()
    assert stats["decoded"] == 8
    assert stats["cached_bytes"] <= 1 << 20
    misses = stats["cache_misses"]
    np.testing.assert_array_equal(array[:], data)
    assert server.stats()["cache_misses"] == misses
