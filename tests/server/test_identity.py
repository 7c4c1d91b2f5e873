"""What tells storages apart, and what is in a directory for that."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore.store
import pytest
import zarr.storage
from zarr.core.buffer import cpu
from zarr.core.sync import sync as wait

from ucxstore import StorageError, UcxStore
from ucxstore._native import core
from ucxstore.protocol.handshake import digest
from ucxstore.server import Server
from ucxstore.server.identity import CLUSTER_FILE, IDENTITY_FILE, Identity, identify
from ucxstore.server.options import ServerOptions

OPTIONS = ServerOptions()
READ_ONLY = ServerOptions(read_only=True)


def identity_of(storage: object, **options: object) -> bytes:
    return identify(storage, ServerOptions(**options)).value


def test_memory_is_another_one_at_each_start() -> None:
    found = {identity_of("memory://"), identity_of("memory://"), identity_of(core.MemoryStorage())}
    assert len(found) == 3
    assert all(len(one) == 16 for one in found)


def test_a_directory_keeps_its_identity(tmp_path: Path) -> None:
    first = identity_of(tmp_path)
    for same in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        assert identity_of(same) == first
    assert (tmp_path / IDENTITY_FILE).read_text() == f"{first.hex()}\n"
    assert [file.name for file in tmp_path.iterdir()] == [IDENTITY_FILE]
    assert identity_of(tmp_path, read_only=True) == first


def test_an_empty_directory_is_another_one_even_with_the_same_inode(tmp_path: Path) -> None:
    first = identity_of(tmp_path)
    (tmp_path / IDENTITY_FILE).unlink()
    assert identity_of(tmp_path) != first


def test_servers_that_start_at_once_have_one_identity(tmp_path: Path) -> None:
    for attempt in range(20):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        with ThreadPoolExecutor(4) as threads:
            found = set(threads.map(lambda _, at=directory: identity_of(at), range(4)))
        assert len(found) == 1
        assert [file.name for file in directory.iterdir()] == [IDENTITY_FILE]


def test_a_directory_with_values_but_without_identity(tmp_path: Path) -> None:
    """Written by another program or version: known by its inode, at first, and then for good."""
    (tmp_path / "zarr.json").write_bytes(b"{}")
    read_only = identity_of(tmp_path, read_only=True)
    assert identity_of(tmp_path, read_only=True) == read_only
    assert not (tmp_path / IDENTITY_FILE).exists()
    assert identity_of(tmp_path) == read_only
    moved = tmp_path.with_suffix(".moved")
    tmp_path.rename(moved)
    tmp_path.mkdir()
    assert identity_of(moved) == read_only
    assert identity_of(tmp_path, read_only=True) != read_only


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert identity_of(tmp_path) == identity_of(tmp_path) == identity_of(tmp_path, read_only=True)


@pytest.mark.parametrize("text", [b"", b"zz\n", b"00", b"\xff" * 32])
def test_a_damaged_identity_is_an_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / IDENTITY_FILE).write_bytes(text)
    with pytest.raises(OSError, match=f"{IDENTITY_FILE}: it is damaged"):
        Server(tmp_path)


def test_what_a_source_is_told_by() -> None:
    s3 = "s3://bucket/prefix"
    first = identity_of(s3, storage_options={"endpoint": "http://host:1"})
    assert identity_of(f"{s3}/", storage_options={"endpoint": "http://host:1/"}) == first
    others = {
        identity_of(s3, storage_options={"endpoint": "http://host:2"}),
        identity_of("s3://other/prefix", storage_options={"endpoint": "http://host:1"}),
        identity_of("s3://bucket", storage_options={"endpoint": "http://host:1"}),
        identity_of(s3),
    }
    assert len(others | {first}) == 5
    bucket = obstore.store.S3Store("bucket", region="x", prefix="prefix")
    assert identity_of(bucket) == identity_of(
        obstore.store.S3Store("bucket", region="x", prefix="prefix")
    )
    assert identity_of(bucket) != identity_of(obstore.store.S3Store("other", region="x"))
    one, other = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    assert identity_of(one) == identity_of(one) != identity_of(other)
    memory = obstore.store.MemoryStore()
    assert identity_of(memory) == identity_of(memory) != identity_of(obstore.store.MemoryStore())


def test_files_of_an_object_library(tmp_path: Path) -> None:
    local = zarr.storage.LocalStore(tmp_path)
    assert identity_of(local) == identity_of(zarr.storage.LocalStore(tmp_path))
    assert identity_of(local) != identity_of(zarr.storage.LocalStore(tmp_path / "other"))


# ---- the record ----


def test_a_record_is_replaced_only_where_it_is_the_known_one(tmp_path: Path) -> None:
    for identity in (Identity(b"i" * 16), identify(tmp_path, OPTIONS)):
        assert identity.keep(digest(b"other"), b"one") == b""
        assert identity.keep(digest(b""), b"one") == b"one"
        assert identity.keep(digest(b""), b"two") == b"one"
        assert identity.keep(digest(b"one"), b"two") == b"two"
    assert (tmp_path / CLUSTER_FILE).read_bytes() == b"two"
    assert identify(tmp_path, OPTIONS).record == b"two"
    read_only = identify(tmp_path, READ_ONLY)
    assert read_only.record == b"two"
    assert read_only.keep(digest(b"two"), b"three") == b"three"
    assert (tmp_path / CLUSTER_FILE).read_bytes() == b"two"
    again = identify(tmp_path, OPTIONS)
    assert again.keep(digest(b"two"), b"") == b""
    assert [file.name for file in tmp_path.iterdir()] == [IDENTITY_FILE]


# ---- no keys ----


def test_the_files_are_no_keys(tmp_path: Path) -> None:
    with Server(tmp_path) as server, UcxStore(server.address) as store:
        (tmp_path / CLUSTER_FILE).write_bytes(b"")
        before = (tmp_path / IDENTITY_FILE).read_bytes()
        store.set_sync("c/0", cpu.Buffer.from_bytes(b"value"))

        async def names() -> list[str]:
            return [name async for name in store.list()] + [
                name async for name in store.list_dir("")
            ]

        assert wait(names()) == ["c/0", "c"]
        assert wait(store.measure()) == (1, 5)
        for name in (IDENTITY_FILE, CLUSTER_FILE):
            for key in (name, f"c/{name}"):
                assert store.get_sync(key) is None
                assert not wait(store.exists(key))
                with pytest.raises(StorageError, match="file of the server's own"):
                    store.set_sync(key, cpu.Buffer.from_bytes(b"value"))
                store.delete_sync(key)
        wait(store.clear())
        assert wait(names()) == []
        assert (tmp_path / IDENTITY_FILE).read_bytes() == before
        assert (tmp_path / CLUSTER_FILE).exists()
