"""Results of tasks that Dask passes on by reference."""

import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from distributed import Client
from distributed.protocol.serialize import deserialize, serialize
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from tests.dask.conftest import SECONDS
from tests.eventually import eventually
from tests.values import keys_of
from ucxstore import Server, UcxStore, UcxStoreError
from ucxstore.dask import deploy, share
from ucxstore.dask.sharing import LEAST_BYTES, SharedArray

SHAPE = 1000, 700  # 5.6 MB of float64


def numbers(seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).random(SHAPE)


def context(here: str, there: str) -> dict[str, Any]:
    return {"sender": {"address": here}, "recipient": {"address": there}}


SAME_HOST = context("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")


@pytest.fixture
def store() -> Iterator[UcxStore]:
    with Server("memory://", local=True) as server, UcxStore(server.address, local="auto") as store:
        yield store


@pytest.fixture
def scratch(client: Client) -> Iterator[UcxStore]:
    with (
        deploy(client, memory="256MiB", local=True) as deployed,
        deployed.scratch("128MiB", local="auto") as scratch,
    ):
        yield scratch.store()


def make(store: UcxStore, seed: int) -> npt.NDArray[np.float64]:
    return share(store, numbers(seed))


def look(x: npt.NDArray[np.float64], seed: int) -> tuple[str, bool, bool, bool]:
    """Say what a task finds: its type, whether it is right, writable, and in shared memory."""
    address = x.__array_interface__["data"][0]
    names = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        names += [line] if begin <= address < end else []
    right = bool((x == numbers(seed)).all())
    return type(x).__name__, right, x.flags.writeable, "memfd" in "".join(names)


def test_workers_of_a_host_map_the_result(client: Client, scratch: UcxStore) -> None:
    first, second = client.scheduler_info()["workers"]
    for seed, (maker, user) in enumerate([(first, second), (second, first)]):
        x = client.submit(make, scratch, seed, workers=[maker], pure=False)
        used = client.submit(look, x, seed, workers=[user], pure=False)
        assert used.result(SECONDS) == ("ndarray", True, False, True)
        # The maker's own: it is over the same memory, at its own server.
        used = client.submit(look, x, seed, workers=[maker], pure=False)
        assert used.result(SECONDS) == ("SharedArray", True, False, True)
        # A client of the same host, by way of the scheduler.
        np.testing.assert_array_equal(x.result(SECONDS), numbers(seed))


def test_a_released_result_is_deleted(client: Client, scratch: UcxStore) -> None:
    first, second = client.scheduler_info()["workers"]
    x = client.submit(make, scratch, 1, workers=[first], pure=False)
    y = client.submit(lambda x: x[::2], x, workers=[second], pure=False)
    y.result(SECONDS)
    assert len(sync(keys_of(scratch))) == 1
    x.release()
    eventually(lambda: not sync(keys_of(scratch)))
    # What was made of it keeps the memory.
    np.testing.assert_array_equal(y.result(SECONDS), numbers(1)[::2])


def test_a_result_that_is_gone_is_an_error_that_names_its_key(
    client: Client, scratch: UcxStore
) -> None:
    first, second = client.scheduler_info()["workers"]
    x = client.submit(make, scratch, 1, workers=[first], pure=False)
    client.submit(lambda x: None, x, workers=[first]).result(SECONDS)
    (key,) = sync(keys_of(scratch))
    scratch.delete_sync(key)
    y = client.submit(look, x, 1, workers=[second], pure=False)
    error = y.exception(SECONDS)
    assert error is not None
    assert key in str(error)


def test_only_messages_to_this_host_have_references(store: UcxStore) -> None:
    x = share(store, numbers())
    assert isinstance(x, SharedArray)
    np.testing.assert_array_equal(x, numbers())
    elsewhere = context("tcp://10.0.0.1:1", "tcp://10.0.0.2:2")
    for where, referred in ((SAME_HOST, True), (elsewhere, False), (None, False)):
        header, frames = serialize(x, context=where)
        assert (sum(memoryview(frame).nbytes for frame in frames) < 1000) == referred
        found = deserialize(header, frames)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, numbers())


def test_a_mapped_result_outlives_its_maker(store: UcxStore) -> None:
    x = share(store, numbers())
    message = serialize(x, context=SAME_HOST)
    found = deserialize(*message)
    (key,) = sync(keys_of(store))
    del x
    gc.collect()
    eventually(lambda: not sync(keys_of(store)))
    store.set_sync("other", cpu.Buffer.from_bytes(numbers(2).tobytes()))
    np.testing.assert_array_equal(found, numbers())
    lost = deserialize(*message)
    uses: list[Callable[[Any], Any]] = [len, np.asarray, np.sum, np.sqrt, bool, iter]
    uses += [lambda x: x + 1, lambda x: x[0], lambda x: x.sum(), lambda x: x.shape]
    for use in uses:
        with pytest.raises(UcxStoreError, match=f"'{key}' is gone"):
            use(lost)
    assert repr(pickle.loads(pickle.dumps(lost))) == repr(lost)


def test_what_comes_of_it_is_as_of_any_array(store: UcxStore) -> None:
    x = share(store, numbers())
    y = numbers()
    for found, expected in ((x + 1, y + 1), (np.sqrt(x), np.sqrt(y)), (x.sum(0), y.sum(0))):
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)
    assert x.sum() == y.sum()
    part = x[3:, ::2]
    header, frames = serialize(part, context=SAME_HOST)
    np.testing.assert_array_equal(deserialize(header, frames), y[3:, ::2])
    assert sum(memoryview(frame).nbytes for frame in frames) >= part.nbytes
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 0
    transposed = share(store, np.asfortranarray(y))
    np.testing.assert_array_equal(transposed, y)


def test_small_arrays_and_objects(store: UcxStore) -> None:
    small = np.zeros(LEAST_BYTES - 1, "u1")
    assert share(store, small) is small
    with pytest.raises(TypeError, match="array: elements of object"):
        share(store, np.array([{}] * 1000, object))
