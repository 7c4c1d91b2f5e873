"""One of several servers is killed, or comes back without what it held."""

import asyncio
import gc
import itertools
import pickle
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore

from tests.adversity.conftest import OpenStore, StartServer, any_transport
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import (
    BLANK,
    DEADLINE,
    LARGE,
    MEDIUM,
    VALUE,
    Background,
    Repeated,
    filled,
    partly_filled,
    until_begun,
    wipe,
)
from tests.conftest import address_of
from tests.eventually import eventually, loop_turns
from tests.values import as_buffer
from ucxstore import ServerLostError, ServerRestartedError, UcxStore, UnknownOutcomeError
from ucxstore.cluster.placement import Placement
from ucxstore.server.identity import OLD_FILE

pytestmark = pytest.mark.usefixtures("retried_soon")

SHAPE, CHUNKS, INNER = (1200, 1000), (150, 125), (30, 25)
LAYOUTS: dict[str, dict[str, Any]] = {
    "raw": {"chunks": CHUNKS, "compressors": None},
    "zstd": {"chunks": CHUNKS},
    "raw shards": {"chunks": INNER, "shards": CHUNKS, "compressors": None},
    "zstd shards": {"chunks": INNER, "shards": CHUNKS},
}


# As if no other test had been there.


@pytest.fixture
def shared(start_server: StartServer, tmp_path: Path) -> list[RemoteServer]:
    """Servers of one directory."""
    return [start_server(tmp_path / "data", shared=True) for _ in range(3)]


def key_on(servers: list[RemoteServer], wanted: RemoteServer) -> str:
    """Return a key whose place is the wanted server."""
    placement = Placement([server.place for server in servers])
    keys = (f"c/{number}" for number in itertools.count())
    return next(key for key in keys if servers[placement.servers_of([key])[0]] is wanted)


def make_arrays(
    store: UcxStore | LocalStore, values: np.ndarray, **options: Any
) -> list[zarr.Array]:
    arrays = []
    for name, layout in LAYOUTS.items():
        layout = options | layout
        array = zarr.create_array(
            store, name=name, shape=values.shape, dtype=values.dtype, fill_value=-1, **layout
        )
        array[...] = values
        arrays.append(array)
    return arrays


def some_values() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1000, SHAPE, "i4")


# ---- others serve the same ----


def test_a_value_is_read_to_its_end(shared: list[RemoteServer], open_store: OpenStore) -> None:
    store = open_store(address_of(shared))
    for lost in list(shared[:2]):
        key = key_on(shared, lost)
        store.set_sync(key, as_buffer(filled(VALUE)))
        out = filled(BLANK)

        def read(key: str = key, out: np.ndarray = out) -> None:
            wipe(out)
            assert store.get_into_sync(key, out) == LARGE
            assert (out == VALUE).all()

        with Repeated(read) as reading:
            until_begun(out)
            lost.process.kill()
            rounds = reading.rounds
            eventually(lambda: reading.rounds > rounds + 1 or not reading.running)  # noqa: B023
        assert store.stats()["servers"][lost.place]["failovers"] > 0


async def test_a_value_is_awaited_to_its_end(
    shared: list[RemoteServer], open_store: OpenStore
) -> None:
    store = open_store(address_of(shared))
    key = key_on(shared, shared[0])
    await store.set(key, as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = asyncio.create_task(store.get_into(key, out))
    while not partly_filled(out):
        assert not reading.done()
        await loop_turns()
    shared[0].process.kill()
    assert await asyncio.wait_for(reading, DEADLINE) == LARGE
    assert (out == VALUE).all()


def test_a_value_is_written_or_its_end_is_not_known(
    shared: list[RemoteServer], open_store: OpenStore
) -> None:
    """What may have been written is not written again: that could undo another's change."""
    store = open_store(address_of(shared))
    key = key_on(shared, shared[0])
    value = as_buffer(filled(VALUE))
    unknown: list[str] = []

    def write() -> None:
        try:
            store.set_sync(key, value)
        except UnknownOutcomeError as error:
            unknown.append(str(error))

    with Repeated(write) as writing:
        eventually(lambda: writing.rounds)
        shared[0].process.kill()
        rounds = writing.rounds
        eventually(lambda: writing.rounds > rounds + 1 or not writing.running)
    assert len(unknown) <= 1
    assert all(shared[0].place in message and repr(key) in message for message in unknown)
    out = filled(BLANK)
    assert open_store(address_of(shared)).get_into_sync(key, out) == LARGE
    assert (out == VALUE).all()


@any_transport
def test_arrays_are_read_while_servers_come_and_go(
    shared: list[RemoteServer],
    open_store: OpenStore,
    start_server: StartServer,
    tmp_path: Path,
) -> None:
    store = open_store(address_of(shared), strict=True)
    values = some_values()
    arrays = make_arrays(store, values)

    def reading(array: zarr.Array) -> Callable[[], None]:
        def read() -> None:
            np.testing.assert_array_equal(array[...], values)
            np.testing.assert_array_equal(array[5:900:3, 7:800], values[5:900:3, 7:800])

        return read

    readings = [Repeated(reading(array)) for array in arrays]

    def go_on() -> None:
        """Wait until every array was read once more, from its beginning to its end."""
        rounds = [reading.rounds for reading in readings]
        for reading, before in zip(readings, rounds, strict=True):
            eventually(lambda: reading.rounds > before + 1 or not reading.running)  # noqa: B023

    try:
        for position in (0, 1, 2):
            go_on()
            lost = shared[position]
            lost.process.kill()
            go_on()
            shared[position] = start_server(tmp_path / "data", bind=lost.place, shared=True)
            eventually(lambda: shared[position].stats["gets"] > 0)  # noqa: B023
    finally:
        for reading_ in readings:
            with reading_:
                pass


@any_transport
def test_servers_of_equal_values_with_versions_of_their_own(
    open_store: OpenStore, start_server: StartServer, tmp_path: Path
) -> None:
    """What is known of a shard from one server, such as where its chunks are, is asked anew."""
    values = some_values()
    roots = [tmp_path / str(number) for number in range(3)]
    for level, root in zip((1, 9, 19), roots, strict=True):
        make_arrays(LocalStore(root), values, compressors=ZstdCodec(level=level))
        (root / OLD_FILE).write_text("1" * 32)  # as in copies of a directory of an earlier version
    servers = [start_server(root, shared=True, read_only=True) for root in roots]
    store = open_store(address_of(servers), strict=True)
    arrays = [zarr.open_array(store, path=name, mode="r") for name in LAYOUTS]
    for lost in [None, *servers[:2]]:
        if lost is not None:
            lost.process.kill()
        for array in arrays:
            np.testing.assert_array_equal(array[...], values)
            np.testing.assert_array_equal(array[3:700:2, 9:900:4], values[3:700:2, 9:900:4])


def test_all_are_lost(shared: list[RemoteServer], open_store: OpenStore) -> None:
    store = open_store(address_of(shared))
    store.set_sync("c/0", as_buffer(b"value"))
    for server in shared:
        server.process.kill()
    places = "|".join(re.escape(server.place) for server in shared)
    for _ in range(3):
        attempt = Background(lambda: store.get_sync("c/0"))
        error, message = attempt.failure()
        assert issubclass(error, ConnectionError)
        assert re.search(places, message)


# ---- each has values of its own ----


def test_a_lost_server_is_named_with_its_keys(
    own: list[RemoteServer], open_store: OpenStore
) -> None:
    store = open_store(address_of(own))
    lost, *others = own
    keys = {server.place: key_on(own, server) for server in own}
    for key in keys.values():
        store.set_sync(key, as_buffer(filled(VALUE, MEDIUM)))
    outs = {place: filled(BLANK, MEDIUM) for place in keys}

    def read() -> None:
        for out in outs.values():
            wipe(out)
        store.get_many_into_sync([(keys[place], out, None) for place, out in outs.items()])

    reading = Repeated(read)
    until_begun(outs[lost.place])
    lost.process.kill()
    for attempt in (
        reading,
        Background(read),
        Background(lambda: store.get_sync(keys[lost.place])),
    ):
        error, message = attempt.failure()
        assert issubclass(error, ConnectionError)
        assert lost.place in message
        assert repr(keys[lost.place]) in message
    for server in others:
        assert store.get_into_sync(keys[server.place], outs[server.place]) == MEDIUM
        assert (outs[server.place] == VALUE).all()
    with pytest.raises(ConnectionError, match=lost.place):
        store.set_sync(keys[lost.place], as_buffer(b"other"))


@any_transport
def test_metadata_survives_and_chunks_are_never_fill_values(
    own: list[RemoteServer], open_store: OpenStore
) -> None:
    address = address_of(own)
    store = open_store(address)
    values = some_values()
    make_arrays(store, values)
    zarr.open_group(store).attrs["title"] = "kept"
    lost = own[1]
    lost.process.kill()
    for each in (store, open_store(address)):
        group = zarr.open_group(each, mode="r")
        assert group.attrs["title"] == "kept"
        for name in LAYOUTS:
            array = group[name]
            assert array.shape == SHAPE
            with pytest.raises(ConnectionError, match=rf"{lost.place}.*'{name}/c/"):
                array[...]
            assert read_chunks(array, values)
        with pytest.raises(ConnectionError, match=lost.place):
            list(group.keys())


def read_chunks(array: zarr.Array, values: np.ndarray) -> bool:
    """Read chunk by chunk: each is what it was, or an error. Tell whether there were both."""
    held = lost = 0
    for i in range(0, SHAPE[0], CHUNKS[0]):
        for j in range(0, SHAPE[1], CHUNKS[1]):
            chunk = slice(i, i + CHUNKS[0]), slice(j, j + CHUNKS[1])
            try:
                found = array[chunk]
            except ConnectionError:
                lost += 1
            else:
                np.testing.assert_array_equal(found, values[chunk])
                held += 1
    return held > 0 and lost > 0


def restart(
    servers: list[RemoteServer], position: int, start_server: StartServer, store: UcxStore
) -> None:
    """Kill a server, start another one at its place, and wait until the store knows."""
    lost = servers[position]
    lost.process.kill()
    servers[position] = start_server(bind=lost.place)
    key = key_on(servers, servers[position])

    def is_refused() -> bool:
        with pytest.raises(ServerLostError) as failure:
            store.get_sync(key)
        return failure.type is ServerRestartedError

    eventually(is_refused)


@any_transport
def test_a_restarted_server_is_refused(
    own: list[RemoteServer],
    open_store: OpenStore,
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = address_of(own)
    store = open_store(address)
    values = some_values()
    make_arrays(store, values)
    pickled = pickle.dumps(store)
    restart(own, 2, start_server, store)
    place = own[2].place

    def refuses(store: UcxStore) -> None:
        group = zarr.open_group(store, mode="r")
        for name in LAYOUTS:
            with pytest.raises(ServerRestartedError, match=rf"{place}.*'{name}/c/"):
                group[name][...]
            assert read_chunks(group[name], values)

    refuses(store)
    refuses(store.with_read_only(True))
    refuses(open_store(address))
    with pickle.loads(pickled) as unpickled:
        refuses(unpickled)


@any_transport
def test_a_restarted_server_is_accepted(
    own: list[RemoteServer], open_store: OpenStore, start_server: StartServer
) -> None:
    address = address_of(own)
    store = open_store(address)
    values = some_values()
    make_arrays(store, values)
    restart(own, 0, start_server, store)
    store.accept_restarted_sync()
    for each in (store, open_store(address), pickle.loads(pickle.dumps(store))):
        for name in LAYOUTS:
            found = zarr.open_array(each, path=name)[...]
            assert set(np.unique(found == values)) == {False, True}
            assert ((found == values) | (found == -1)).all()
    for name in LAYOUTS:
        array = zarr.open_array(store, path=name)
        array[...] = values
        array.attrs["again"] = True
        np.testing.assert_array_equal(array[...], values)
    assert own[0].stats["sets"] > 4


def test_a_directory_of_its_own_has_lost_nothing(
    open_store: OpenStore, start_server: StartServer, tmp_path: Path
) -> None:
    servers = [start_server(tmp_path / str(number)) for number in range(3)]
    store = open_store(address_of(servers))
    values = some_values()
    arrays = make_arrays(store, values)
    servers[0].process.kill()
    start_server(tmp_path / "0", bind=servers[0].place)
    eventually(lambda: read_whole(arrays[0]) is not None)
    for array in arrays:
        np.testing.assert_array_equal(array[...], values)


def read_whole(array: zarr.Array) -> Any:
    try:
        return array[...]
    except ServerLostError:
        return None


# ---- memory ----


@pytest.mark.parametrize("lost", [True, False])
async def test_memory_is_the_callers_again(
    own: list[RemoteServer], open_store: OpenStore, lost: bool
) -> None:
    """After a cancellation, and after a server was lost, while others were still sending."""
    store = open_store(address_of(own))
    keys = [key_on(own, server) for server in own]
    for key in keys:
        await store.set(key, as_buffer(filled(VALUE)))
    outs = [filled(BLANK) for _ in own]
    gone = [weakref.ref(out) for out in outs]

    async def read() -> None:
        while True:
            for out in outs:
                wipe(out)
            await store.get_many_into(
                [(key, out, None) for key, out in zip(keys, outs, strict=True)]
            )

    reading = asyncio.create_task(read())
    while not any(map(partly_filled, outs)):
        assert not reading.done()
        await loop_turns()
    if lost:
        own[0].process.kill()
    else:
        reading.cancel()
    with pytest.raises(ServerLostError if lost else asyncio.CancelledError):
        await asyncio.wait_for(reading, DEADLINE)
    for out in outs:
        out[:] = BLANK
    other = filled(BLANK)
    for key in keys[1:]:
        assert await store.get_into(key, other) == LARGE
        assert (other == VALUE).all()
    assert all((out == BLANK).all() for out in outs)
    del reading, read, out
    outs.clear()
    await loop_turns()  # asyncio itself holds the last task in the step that it woke
    gc.collect()
    assert all(ref() is None for ref in gone)


def test_a_failure_holds_no_memory(own: list[RemoteServer], open_store: OpenStore) -> None:
    store = open_store(address_of(own))
    key, other = key_on(own, own[0]), key_on(own, own[1])
    store.set_sync(other, as_buffer(filled(VALUE, MEDIUM)))
    own[0].process.kill()
    outs = [filled(BLANK, MEDIUM), filled(BLANK, MEDIUM)]
    gone = [weakref.ref(out) for out in outs]

    def read() -> None:
        store.get_many_into_sync([(key, outs[0], None), (other, outs[1], None)])

    gc.disable()  # it must go by itself
    try:
        attempt = Background(read)
        assert issubclass(attempt.failure()[0], ConnectionError)
        outs.clear()
        assert all(ref() is None for ref in gone)
    finally:
        gc.enable()
