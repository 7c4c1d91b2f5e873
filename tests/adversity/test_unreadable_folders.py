"""Folders of the served directory that its server's user may not open, such as ``lost+found``."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import zarr

from tests.adversity.conftest import Ucx, any_transport
from tests.adversity.locked import LOCKED, SIZES, lock, locked_tree, write
from tests.adversity.nursery import Nursery
from tests.adversity.servers import RemoteServer, files_under, serve_as_anybody
from tests.backdoor import options_of
from tests.cli.command import run, run_process
from ucxstore import StorageError, UcxStore, UnreadableFolderError
from ucxstore.stores.values import Values

pytestmark = any_transport


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return locked_tree(tmp_path / "served")


@pytest.fixture
def server(nursery: Nursery, ucx: Ucx, root: Path) -> Iterator[RemoteServer]:
    process = nursery.start(serve_as_anybody, str(root), ucx)
    yield RemoteServer(process)
    process.close()


async def listed(names: AsyncIterator[str]) -> tuple[list[str], list[str]]:
    """Return all names, and which of the locked folders the failure after them names."""
    found = []
    try:
        async for name in names:
            found.append(name)  # noqa: PERF401 (what came before the failure counts)
    except UnreadableFolderError as error:
        return found, [folder for folder in LOCKED if f"'{folder}'" in str(error)]
    return found, []


async def test_a_listing_goes_on(store: UcxStore) -> None:
    everything = sorted(SIZES)
    assert await listed(store.list()) == (everything, LOCKED)
    assert await listed(store.list_prefix("")) == (everything, LOCKED)
    assert await listed(store.list_prefix("lost")) == (["lost"], ["lost+found"])
    assert await listed(store.list_prefix("a/")) == (["a/b/c/0", "a/b/zarr.json"], LOCKED[:1])
    assert await listed(store.list_prefix("zz/")) == (["zz/c/1"], [])
    assert await listed(store.list_prefix("lost+found/k")) == ([], ["lost+found"])
    with pytest.raises(UnreadableFolderError, match=store.address):
        [key async for key in store.list()]


async def test_the_names_in_a_folder(store: UcxStore) -> None:
    """The folder itself can be seen, and so nothing is missing."""
    found, missing = await listed(store.list_dir(""))
    assert (sorted(found), missing) == (["a", "b", "lost", "lost+found", "zz", "~"], [])
    found, missing = await listed(store.list_dir("a/b"))
    assert (sorted(found), missing) == (["c", "locked", "zarr.json"], [])
    assert await listed(store.list_dir("lost+found")) == ([], ["lost+found"])


async def test_sizes(store: UcxStore) -> None:
    assert await store.getsize_prefix("zz") == 9
    for prefix in ("", "a", "lost+found"):
        with pytest.raises(UnreadableFolderError, match=r"'a/b/locked'|'lost.found'"):
            await store.getsize_prefix(prefix)
    assert not await store.is_empty("")  # whatever is in the others
    with pytest.raises(UnreadableFolderError, match=r"'lost\+found'"):
        await store.is_empty("lost+found")
    assert not await store.exists("lost+found")  # a folder is no key
    assert await store.get("lost+found") is None
    for key in ("lost+found/key", "lost+found/other"):
        with pytest.raises(StorageError, match=key.replace("+", r"\+")):
            await store.exists(key)


async def test_a_folder_is_deleted_but_for_what_is_locked(store: UcxStore, root: Path) -> None:
    with pytest.raises(StorageError, match="'a/b/locked', whose keys stay: Permission denied"):
        await store.delete_dir("a")
    assert files_under(root / "a") == {"b/locked/key"}


def test_no_group_passes_for_absent(store: UcxStore, root: Path) -> None:
    """Neither zarr's members nor its consolidated metadata are without one that can't be read."""
    group = zarr.create_group(store, path="group")
    group.create_group("seen")
    group.create_group("hidden").create_array("x", shape=(1,), dtype="u1")
    lock(root / "group/hidden")
    with pytest.raises(StorageError, match=r"group/hidden/zarr\.json"):
        list(group.members(max_depth=None))
    with pytest.raises(StorageError, match=r"group/hidden/zarr\.json"):
        zarr.consolidate_metadata(store, path="group")
    assert list(group["seen"].members()) == []


def test_more_than_a_page_of_them(server: RemoteServer, store: UcxStore, root: Path) -> None:
    """Each is told once, beside each key, and what a listing raises stays short."""
    locked, keys = [], []
    for number in range(2000):
        locked.append(f"many/{number:04}-{'x' * 200}")
        keys.append(f"many/{number:04}-y")
        write(root / keys[-1], 1)
        (root / locked[-1]).mkdir()
        lock(root / locked[-1])
    with Values(f"{server.address}/many", options_of(store)) as many:

        async def everything() -> list[str]:
            pages = many.keys()
            return [f"many/{name}" async for page in pages for name in page]

        assert asyncio.run(everything()) == keys
        assert sorted(many.unreadable) == locked
        many.unreadable.clear()
        assert asyncio.run(many.measure()) == (2000, 2000)
        assert many.unreadable  # as many as a reply holds
    error, message = failure(store)
    assert error is UnreadableFolderError
    assert "and 1995 more" in message
    assert len(message) < 2000


def failure(store: UcxStore) -> tuple[type[BaseException], str]:
    with pytest.raises(StorageError) as raised:
        asyncio.run(listed_or_raise(store))
    return type(raised.value), str(raised.value)


async def listed_or_raise(store: UcxStore) -> None:
    async for _ in store.list_prefix("many/"):
        pass


# ---- the tools ----


def told(command: str, folders: list[str]) -> str:
    return "".join(
        f"ucxstore {command}: {folder}: the server's user may not open this folder\n"
        for folder in folders
    )


def test_ls(server: RemoteServer) -> None:
    done = run("ls", server.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["a/", "b", "lost", "lost+found/", "zz/", "~/"]
    done = run("ls", "-R", server.address)
    assert (done.returncode, done.stderr) == (1, told("ls", LOCKED))
    assert done.stdout.split() == sorted(SIZES)
    done = run("ls", f"{server.address}/lost+found")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told("ls", ["lost+found"]))


def test_du(server: RemoteServer) -> None:
    done = run("du", server.address)
    assert (done.returncode, done.stderr) == (1, told("du", LOCKED))
    assert done.stdout == f"{sum(SIZES.values())}\t{len(SIZES)}\t{server.address}\n"
    assert run("du", f"{server.address}/zz").returncode == 0


def test_cp(server: RemoteServer, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    done = run_process("cp", server.address, copied)
    assert (done.returncode, done.stderr) == (1, told("cp", LOCKED))
    assert done.stdout.startswith(f"copied {len(SIZES)} values, ")
    assert files_under(copied) == set(SIZES)
    done = run_process("cp", f"{server.address}/lost+found", tmp_path / "nothing")
    assert (done.returncode, done.stderr) == (1, told("cp", ["lost+found"]))
    assert not (tmp_path / "nothing").exists()


def test_rm(server: RemoteServer, root: Path) -> None:
    done = run("rm", "-r", "--dry-run", f"{server.address}/a")
    assert (done.returncode, done.stderr) == (1, told("rm", LOCKED[:1]))
    done = run("rm", "-r", f"{server.address}/a")
    assert done.returncode == 1
    assert "'a/b/locked', whose keys stay" in done.stderr
    assert files_under(root / "a") == {"b/locked/key"}
