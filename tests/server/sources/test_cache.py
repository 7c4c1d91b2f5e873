"""A server in front of an object store: which requests it makes, and when."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, default_buffer_prototype

from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from ucxstore import UcxStore
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()


def fill(objects: HttpObjects) -> np.ndarray:
    """Put an array of 100 chunks there, without a server of ours."""
    stored: dict[str, Buffer] = {}
    values = np.random.default_rng(0).random((500, 500), dtype="f4")
    array = zarr.create_array(
        zarr.storage.MemoryStore(stored), shape=(500, 500), chunks=(50, 50), dtype="f4"
    )
    array[:] = values
    objects.objects.update({key: value.to_bytes() for key, value in stored.items()})
    return values


def get(store: UcxStore, key: str) -> bytes | None:
    value = asyncio.run(store.get(key, PROTOTYPE))
    return None if value is None else value.to_bytes()


def put(store: UcxStore, key: str, value: bytes) -> None:
    asyncio.run(store.set(key, PROTOTYPE.buffer.from_bytes(value)))


def test_many_clients_cost_one_request_for_each_object(objects: HttpObjects) -> None:
    values = fill(objects)
    objects.gate.clear()
    with Server(objects.store(), threads=2) as server, ThreadPoolExecutor(4) as pool:

        def read(number: int) -> bool:
            # Of other options, so that it has a connection of its own.
            ucx = {"TCP_TX_SEG_SIZE": f"{200 + number}K"}
            with UcxStore(server.address, ucx=ucx, network="tcp") as one:
                return bool((zarr.open_array(one, mode="r")[:] == values).all())

        reads = [pool.submit(read, number) for number in range(4)]
        eventually(lambda: objects.requests)
        objects.gate.set()
        assert all(read.result() for read in reads)
        assert read(0)
    chunks = {path: n for (_, path), n in objects.requests.items() if path.startswith("c/")}
    assert len(chunks) == 100
    assert set(chunks.values()) == {1}


def test_a_value_that_is_there_is_sent_while_others_are_waited_for(objects: HttpObjects) -> None:
    objects.objects.update({"there": b"1", "slow": b"2"})
    with Server(objects.store()) as server, UcxStore(server.address) as store:
        assert get(store, "there") == b"1"
        objects.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(get, store, "slow")
            eventually(lambda: objects.requests["GET", "slow"] == 1)
            assert get(store, "there") == b"1"
            assert not slow.done()
            objects.gate.set()
            assert slow.result() == b"2"
    assert objects.requests["GET", "there"] == 1


def test_a_missing_object_is_asked_for_each_time(objects: HttpObjects) -> None:
    with Server(objects.store()) as server, UcxStore(server.address) as store:
        assert get(store, "k") is None
        objects.objects["k"] = b"now"
        assert get(store, "k") == b"now"


def test_a_write_goes_through_and_stays(objects: HttpObjects) -> None:
    objects.objects["k"] = b"old"
    with Server(objects.store()) as server, UcxStore(server.address) as store:
        assert get(store, "k") == b"old"
        objects.gate.clear()
        with ThreadPoolExecutor(2) as pool:
            written = pool.submit(put, store, "k", b"new")
            eventually(lambda: objects.requests["PUT", "k"] == 1)
            read = pool.submit(get, store, "k")
            eventually(lambda: objects.requests["GET", "k"] == 2)  # the source has either value
            assert not written.done()
            objects.gate.set()
            written.result()
            assert read.result() in (b"old", b"new")
        assert objects.objects["k"] == b"new"
        assert get(store, "k") == b"new"
        asyncio.run(store.delete("k"))
        assert "k" not in objects.objects
        assert get(store, "k") is None
    assert objects.requests["GET", "k"] == 3


def test_the_cache_is_bounded(objects: HttpObjects) -> None:
    """Values are read one after another, so that each has left the server before the next comes."""
    keys = [f"{number:02}" for number in range(100)]
    objects.objects.update({key: key.encode() * 5000 for key in keys})
    with Server(objects.store(), cache=200_000) as server, UcxStore(server.address) as store:
        assert get(store, keys[0]) == objects.objects[keys[0]]
        each = server.stats()["cached_bytes"]
        assert 10_000 < each < 11_000
        for key in keys[1:] + keys:
            assert get(store, key) == objects.objects[key]
            assert server.stats()["cached_bytes"] <= 200_000
        stats = server.stats()
    kept = objects.asked("GET") - stats["evicted"]
    assert kept == 200_000 // each
    assert kept * each <= stats["cached_bytes"]


def test_without_a_cache_all_is_asked_for(objects: HttpObjects) -> None:
    objects.objects["k"] = b"v"
    with Server(objects.store(), cache=0) as server, UcxStore(server.address) as store:
        assert get(store, "k") == get(store, "k") == b"v"
        assert server.stats()["cached_bytes"] == 0
    assert objects.requests["GET", "k"] == 2


def test_a_server_closes_with_a_request_under_way(objects: HttpObjects) -> None:
    objects.objects["k"] = b"v"
    objects.gate.clear()
    server = Server(objects.store())
    with UcxStore(server.address, timeout=10) as store, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(get, store, "k")
        eventually(lambda: objects.requests["GET", "k"] == 1)
        server.close(0.2)
        with pytest.raises(ConnectionError):
            reading.result()
