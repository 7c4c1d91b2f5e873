"""What tells storages apart, and what is in a directory for that."""

import errno
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore.store
import pytest
import zarr
import zarr.storage
from zarr.core.buffer import cpu
from zarr.core.sync import sync as wait

from ucxstore import StorageError, UcxStore
from ucxstore.base.native import core
from ucxstore.protocol.handshake import digest
from ucxstore.server import Server
from ucxstore.server.identity import (
    ATTRIBUTE,
    CLUSTER_FILE,
    HIDDEN_FILE,
    OLD_FILE,
    Identity,
    identify,
)
from ucxstore.server.options.server_options import ServerOptions

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
    assert os.getxattr(tmp_path, ATTRIBUTE).startswith(f"{first.hex()} ".encode())
    assert list(tmp_path.iterdir()) == []
    assert identity_of(tmp_path, read_only=True) == first
    moved = tmp_path.with_suffix(".moved")
    tmp_path.rename(moved)
    assert identity_of(moved) == first


def test_an_empty_directory_is_another_one_even_with_the_same_inode(tmp_path: Path) -> None:
    first = identity_of(tmp_path)
    os.removexattr(tmp_path, ATTRIBUTE)
    assert identity_of(tmp_path) != first


def test_servers_that_start_at_once_have_one_identity(tmp_path: Path) -> None:
    for attempt in range(20):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        with ThreadPoolExecutor(4) as threads:
            found = set(threads.map(lambda _, at=directory: identity_of(at), range(4)))
        assert len(found) == 1
        assert list(directory.iterdir()) == []


def test_a_directory_with_values_but_without_identity(tmp_path: Path) -> None:
    """Written by another program or version: known by its inode, at first, and then for good."""
    (tmp_path / "zarr.json").write_bytes(b"{}")
    read_only = identity_of(tmp_path, read_only=True)
    assert identity_of(tmp_path, read_only=True) == read_only
    assert os.listxattr(tmp_path) == []
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
    os.setxattr(tmp_path, ATTRIBUTE, text + b" 1 2")
    with pytest.raises(OSError, match=f"{ATTRIBUTE}: it is damaged"):
        Server(tmp_path)


@pytest.fixture(params=["attributes", "none"])
def attributes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system has extended attributes."""
    if request.param == "none":

        def refuse(*_: object) -> bytes:
            raise OSError(errno.ENOTSUP, "no attributes")

        monkeypatch.setattr(os, "getxattr", refuse)
        monkeypatch.setattr(os, "setxattr", refuse)
    return request.param == "attributes"


@pytest.mark.usefixtures("attributes")
@pytest.mark.parametrize("command", ["cp -r", "cp -a"])
def test_a_copy_is_another_one(tmp_path: Path, command: str) -> None:
    one, copy = tmp_path / "one", tmp_path / "copy"
    one.mkdir()
    first = identity_of(one)
    subprocess.run([*command.split(), one, copy], check=True)
    assert identity_of(copy, read_only=True) != first
    second = identity_of(copy)
    assert second != first
    assert identity_of(copy) == second
    assert identity_of(one) == first


def test_what_an_earlier_version_has_left_is_taken_over(tmp_path: Path, attributes: bool) -> None:
    (tmp_path / OLD_FILE).write_text("5" * 32 + "\n")
    assert identity_of(tmp_path, read_only=True).hex() == "5" * 32
    assert identity_of(tmp_path).hex() == "5" * 32
    left = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]
    assert left == ([] if attributes else [HIDDEN_FILE])
    assert identity_of(tmp_path).hex() == "5" * 32
    # The file of another directory that somebody has copied into this one is a value.
    (tmp_path / OLD_FILE).write_text("6" * 32 + "\n")
    assert identity_of(tmp_path).hex() == "5" * 32
    assert (tmp_path / OLD_FILE).exists()


def test_zarr_lists_a_directory_that_is_served(tmp_path: Path) -> None:
    """Without a warning, which would be an error here."""
    with Server(tmp_path) as server, UcxStore(server.address) as store:
        zarr.create_group(store).create_array("a", shape=4, dtype="i4")
        found = zarr.open_group(zarr.storage.LocalStore(tmp_path), mode="r")
        assert [name for name, _ in found.members()] == ["a"]


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
    assert list(tmp_path.iterdir()) == []


# ---- no keys ----


def test_the_record_is_no_key(tmp_path: Path) -> None:
    with Server(tmp_path) as server, UcxStore(server.address) as store:
        (tmp_path / CLUSTER_FILE).write_bytes(b"")
        store.set_sync("c/0", cpu.Buffer.from_bytes(b"value"))

        async def names() -> list[str]:
            return [name async for name in store.list()] + [
                name async for name in store.list_dir("")
            ]

        assert wait(names()) == ["c/0", "c"]
        assert wait(store.measure()) == (1, 5)
        for key in (CLUSTER_FILE, f"c/{CLUSTER_FILE}"):
            assert store.get_sync(key) is None
            assert not wait(store.exists(key))
            with pytest.raises(StorageError, match="file of the server's own"):
                store.set_sync(key, cpu.Buffer.from_bytes(b"value"))
            store.delete_sync(key)
        # A tree that was served by an earlier version has one.
        for key in (OLD_FILE, f"c/{OLD_FILE}"):
            store.set_sync(key, cpu.Buffer.from_bytes(b"value"))
            assert store.get_sync(key) is not None
        wait(store.clear())
        assert wait(names()) == []
        assert (tmp_path / CLUSTER_FILE).exists()
        identity = server.identity
    with Server(tmp_path) as server:
        assert server.identity == identity
