"""The server's directory fails: the client learns why, and the server goes on."""

import asyncio
import gc
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.adversity.conftest import OpenStore, StartServer, Ucx
from tests.adversity.nursery import Nursery
from tests.adversity.servers import RemoteServer, files_under, serve_as_anybody
from tests.adversity.transfers import (
    BLANK,
    LARGE,
    VALUE,
    Background,
    filled,
)
from tests.backdoor import options_of
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import ConnectError, StorageError, UcxStore

# The first is written in one piece; the second comes in many.
SMALL = 20_000
MEDIUM = 1_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "served"


@pytest.fixture
def server(start_server: StartServer, root: Path) -> RemoteServer:
    return start_server(root)


def lives(store: UcxStore) -> None:
    """See that the server still does its work."""
    store.set_sync("lives/small", as_buffer(b"value"))
    store.set_sync("lives/large", as_buffer(filled(VALUE, MEDIUM)))
    out = filled(BLANK, MEDIUM)
    assert store.get_into_sync("lives/large", out) == MEDIUM
    assert (out == VALUE).all()


def refused(store: UcxStore, key: str, size: int, cause: str) -> None:
    """See that a value cannot be written, in either way of doing so, and why."""
    value = as_buffer(filled(9, size))
    for write in (
        lambda: store.set_sync(key, value),
        lambda: asyncio.run(store.set(key, value)),
        lambda: asyncio.run(store.set_if_not_exists(f"{key}-too", value)),
    ):
        error, message = Background(write).failure()
        assert error is StorageError
        assert f"'{key}" in message
        assert cause in message
        assert store.address.removeprefix("ucx://") in message


# ---- no room ----


@pytest.mark.parametrize("size", [SMALL, MEDIUM, LARGE])
def test_no_room(server: RemoteServer, store: UcxStore, root: Path, size: int) -> None:
    """Files may not grow any more; a full disk shows at the same places."""
    lives(store)
    store.set_sync("key", as_buffer(b"old"))
    before = files_under(root)
    descriptors = server.process.descriptors
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (SMALL // 2, hard))
    refused(store, "key", size, os.strerror(27))  # EFBIG, which stands for ENOSPC here
    refused(store, "new/folder/key", size, os.strerror(27))
    found = store.get_sync("key")
    assert found is not None
    assert found.to_bytes() == b"old"
    assert files_under(root) == before
    assert not (root / "new").exists()
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    lives(store)
    # Replaced files are closed a little later.
    eventually(lambda: server.process.descriptors <= descriptors)


async def test_no_room_for_some(server: RemoteServer, store: UcxStore) -> None:
    """The other values are written, or fail for a reason of their own; none is cut short."""
    lives(store)  # shared memory counts as files too, so the connection must be there before
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (SMALL, hard))
    values = {f"{number}": 1000 if number % 2 else MEDIUM for number in range(20)}
    results = await asyncio.gather(
        *(store.set(key, as_buffer(filled(VALUE, size))) for key, size in values.items()),
        return_exceptions=True,
    )
    for (key, size), result in zip(values.items(), results, strict=True):
        if size == MEDIUM:
            assert isinstance(result, StorageError)
            assert not await store.exists(key)
        else:
            assert result is None
            assert await store.getsize(key) == size
    batch = [(f"batch/{key}", as_buffer(filled(VALUE, size))) for key, size in values.items()]
    with pytest.raises(StorageError, match="batch"):
        await store.set_many(batch)
    for key, value in batch:
        if await store.exists(key):
            assert await store.getsize(key) == len(value)
    assert await store.getsize("1") == 1000


@pytest.mark.scales
def test_no_descriptors_for_a_client(
    start_server: StartServer, open_store: OpenStore, full: bool
) -> None:
    """A new client is refused in bounded time, and connected ones go on."""
    server = start_server("memory://")  # which needs no descriptors to read
    store = open_store(server)
    store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    # UCX fails where it runs out half-way: it must not get so far.
    for room in range(1, 46, 4 if full else 11):
        limit = server.process.descriptors + room
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
        attempt = Background(lambda: connect_anew(server, store))
        attempt.join()
        assert attempt.error is None or issubclass(attempt.error[0], ConnectError)
        out = filled(BLANK, MEDIUM)
        assert store.get_into_sync("key", out) == MEDIUM
        gc.collect()
        eventually(lambda: server.sessions == 1)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    connect_anew(server, store)


def connect_anew(server: RemoteServer, store: UcxStore) -> None:
    """Connect as another client than `store`."""
    options = {**dict(options_of(store).ucx.options), "MAX_RNDV_LANES": "1"}
    with UcxStore(server.address, ucx=options, connect_timeout=30) as other:
        assert other.get_sync("key") is not None


def test_no_descriptors(server: RemoteServer, store: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (0, hard))
    refused(store, "other", MEDIUM, os.strerror(24))  # EMFILE
    for read in (
        lambda: store.get_sync("key"),
        lambda: store.get_into_sync("key", filled(BLANK, MEDIUM)),
        lambda: asyncio.run(store.exists("key")),
        lambda: asyncio.run(store.getsize_prefix("")),
        lambda: asyncio.run(store.is_empty("")),
    ):
        error, message = Background(read).failure()
        assert error is StorageError  # and not a missing key, which zarr takes for a fill value
        assert os.strerror(24) in message
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    lives(store)
    found = store.get_sync("key")
    assert found is not None
    assert (found.as_numpy_array() == VALUE).all()


# ---- no permission ----


def test_no_permission(nursery: Nursery, open_store: OpenStore, ucx: Ucx, root: Path) -> None:
    process = nursery.start(serve_as_anybody, str(root), ucx)
    store = open_store(RemoteServer(process))
    store.set_sync("folder/key", as_buffer(filled(VALUE, MEDIUM)))
    store.set_sync("other", as_buffer(filled(VALUE, MEDIUM)))
    folder = root / "folder"
    denied = os.strerror(13)
    folder.chmod(0o555)  # nothing can be added
    refused(store, "folder/key", SMALL, denied)
    refused(store, "folder/key", MEDIUM, denied)
    refused(store, "folder/deeper/key", SMALL, denied)
    error, message = Background(lambda: store.delete_sync("folder/key")).failure()
    assert error is StorageError
    assert "'folder/key'" in message
    assert denied in message
    folder.chmod(0o000)  # nothing can be found
    for read in (
        lambda: store.get_sync("folder/key"),
        lambda: store.get_into_sync("folder/key", filled(BLANK, MEDIUM)),
        lambda: asyncio.run(store.exists("folder/key")),
        lambda: asyncio.run(store.delete_dir("folder")),
    ):
        error, message = Background(read).failure()
        assert error is StorageError
        assert "folder" in message
        assert denied in message
    folder.chmod(0o755)
    (folder / "key").chmod(0o000)
    error, message = Background(lambda: store.get_sync("folder/key")).failure()
    assert error is StorageError
    assert denied in message
    (folder / "key").chmod(0o644)
    found = store.get_sync("folder/key")
    assert found is not None
    assert (found.as_numpy_array() == VALUE).all()
    lives(store)
    process.close()


# ---- what lies in the way, or lies there no more ----


@pytest.mark.parametrize("size", [SMALL, MEDIUM])
def test_a_file_in_the_way(store: UcxStore, size: int) -> None:
    store.set_sync("file", as_buffer(b"value"))
    refused(store, "file/key", size, "is not a directory")
    store.set_sync("folder/key", as_buffer(b"value"))
    error, message = Background(lambda: store.set_sync("folder", as_buffer(bytes(size)))).failure()
    assert error is StorageError
    assert "'folder'" in message
    lives(store)


def test_the_root_is_removed(server: RemoteServer, store: UcxStore, root: Path) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
    shutil.rmtree(root)
    refused(store, "key", SMALL, os.strerror(2))
    refused(store, "key", MEDIUM, os.strerror(2))
    refused(store, "folder/key", MEDIUM, "folder")
    assert server.sessions == 1
    root.mkdir()  # another directory, which this server knows nothing of
    error, _ = Background(lambda: store.set_sync("key", as_buffer(b"value"))).failure()
    assert error is StorageError


def test_what_is_read_of_a_root_that_is_removed(store: UcxStore, root: Path) -> None:
    """A failure is not a missing key: no fill value may stand for it."""
    store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
    shutil.rmtree(root)
    for read in (lambda: store.get_sync("key"), lambda: asyncio.run(store.exists("key"))):
        error, message = Background(read).failure()
        assert error is StorageError
        assert os.strerror(2) in message


def test_the_root_is_removed_while_it_is_read(store: UcxStore, root: Path) -> None:
    """Values that are on their way arrive."""
    for number in range(4):
        store.set_sync(f"{number}", as_buffer(filled(number, LARGE // 4)))
    outs = [filled(BLANK, LARGE // 4) for _ in range(4)]
    reading = Background(
        lambda: store.get_many_into_sync([(f"{n}", out, None) for n, out in enumerate(outs)])
    )
    shutil.rmtree(root)
    reading.mark()
    reading.join()
    if reading.error is None:
        for number, (size, out) in enumerate(zip(reading.result, outs, strict=True)):
            assert (out == number).all() if size is not None else (out == BLANK).all()
    else:
        assert reading.error[0] is StorageError


def test_a_file_is_replaced_while_it_is_read(store: UcxStore, root: Path) -> None:
    """Readers see the old value or the new one, also where somebody else replaces the file."""
    store.set_sync("key", as_buffer(filled(1)))
    other = root / "other"
    for byte in range(2, 6):
        out = filled(BLANK)
        reading = Background(lambda out=out: store.get_into_sync("key", out))
        filled(byte).tofile(other)
        other.rename(root / "key")
        reading.mark()
        reading.join()
        assert reading.result == LARGE
        assert out[0] in {byte - 1, byte}
        assert np.array_equal(out, np.full_like(out, out[0]))
