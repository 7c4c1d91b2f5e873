"""Listing, copying, moving and removing through fsspec, beyond what fsspec's own tests ask for."""

from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
import pytest
from zarr.storage import FsspecStore

from tests.conftest import address_of
from ucxstore import AddressError
from ucxstore.base.zarr_compat import cpu
from ucxstore.filesystem import UcxFileSystem
from ucxstore.server import Server


@pytest.fixture
def tree(fs: UcxFileSystem, fs_path: str) -> str:
    """A folder with a, b/c, b/d/e."""
    fs.pipe({f"{fs_path}/{name}": name.encode() for name in ("a", "b/c", "b/d/e")})
    return fs_path


def below(fs: UcxFileSystem, folder: str) -> dict[str, bytes]:
    return {name.removeprefix(f"{folder}/"): fs.cat(name) for name in fs.find(folder)}


# ---- listings ----


def test_find(fs: UcxFileSystem, tree: str) -> None:
    names = [f"{tree}/{name}" for name in ("a", "b", "b/c", "b/d", "b/d/e")]
    assert fs.find(tree) == [names[0], names[2], names[4]]
    assert fs.find(tree, withdirs=True) == [tree, *names]
    detailed = fs.find(tree, withdirs=True, detail=True)
    assert list(detailed) == [tree, *names]
    assert detailed == {name: fs.info(name) for name in [tree, *names]}
    assert fs.find(tree, maxdepth=1) == [names[0]]
    assert fs.find(tree, maxdepth=2, withdirs=True) == [tree, *names[:4]]
    assert fs.find(f"{tree}/a", withdirs=True, detail=True) == {names[0]: fs.info(names[0])}
    assert fs.find(f"{tree}/nothing", withdirs=True, detail=True) == {}


def test_glob_and_walk_and_du(fs: UcxFileSystem, tree: str) -> None:
    assert fs.glob(f"{tree}/*") == [f"{tree}/a", f"{tree}/b"]
    assert fs.glob(f"{tree}/**/e") == [f"{tree}/b/d/e"]
    assert fs.glob(f"{tree}/b/?") == [f"{tree}/b/c", f"{tree}/b/d"]
    assert list(fs.walk(tree)) == [
        (tree, ["b"], ["a"]),
        (f"{tree}/b", ["d"], ["c"]),
        (f"{tree}/b/d", [], ["e"]),
    ]
    assert list(fs.walk(tree, topdown=False))[-1] == (tree, ["b"], ["a"])
    assert fs.du(tree) == 9
    assert fs.du(f"{tree}/a") == 1
    assert fs.du(tree, total=False) == {
        f"{tree}/a": 1,
        f"{tree}/b/c": 3,
        f"{tree}/b/d/e": 5,
    }
    assert fs.du(tree, maxdepth=2) == 4
    assert fs.du(f"{tree}/nothing") == 0
    assert list(fs.walk(f"{tree}/nothing")) == [(f"{tree}/nothing", [], [])]
    with pytest.raises(FileNotFoundError):
        list(fs.walk(f"{tree}/nothing", on_error="raise"))


def test_kinds(fs: UcxFileSystem, tree: str) -> None:
    assert [fs.isfile(f"{tree}/{name}") for name in ("a", "b", "c")] == [True, False, False]
    assert [fs.isdir(f"{tree}/{name}") for name in ("a", "b", "c")] == [False, True, False]
    assert fs.isdir("")
    assert fs.sizes([f"{tree}/a", f"{tree}/b/c"]) == [1, 3]


def test_path_objects(fs: UcxFileSystem, tree: str) -> None:
    with fs.open(PurePosixPath(tree, "p"), "wb") as file:
        file.write(b"p")
    assert fs.cat_file(PurePosixPath(tree, "p")) == b"p"


def test_urls_of_other_servers(fs: UcxFileSystem, tree: str) -> None:
    with Server("memory://") as other:
        away = f"{other.address}/x"
        for use in (
            lambda: fs.cat_file(away),
            lambda: fs.pipe(away, b"x"),
            lambda: fs.open(away, "wb"),
            lambda: fs.cp(f"{tree}/a", away),
            lambda: fs.rm(away),
            lambda: fs.find(away),
        ):
            with pytest.raises(AddressError, match="not at the servers of"):
                use()
        assert fsspec.url_to_fs(other.address)[0].find("") == []
    assert fs.cat_file(fs.unstrip_protocol(f"{tree}/a")) == b"a"


# ---- removals ----


def test_rm(fs: UcxFileSystem, tree: str) -> None:
    fs.rm(f"{tree}/a")
    assert set(below(fs, tree)) == {"b/c", "b/d/e"}
    fs.rm(f"{tree}/b/d", recursive=True)
    assert set(below(fs, tree)) == {"b/c"}
    fs.rm([f"{tree}/b/c"])
    assert not fs.exists(tree)


def test_rm_by_pattern(fs: UcxFileSystem, tree: str) -> None:
    fs.pipe({f"{tree}/x{number}": b"" for number in range(3)})
    fs.rm(f"{tree}/x*")
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e"}
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{tree}/x*")
    fs.rm(f"{tree}/b/*", recursive=True)
    assert set(below(fs, tree)) == {"a"}


def test_rm_takes_a_name_for_itself_first(fs: UcxFileSystem, tree: str) -> None:
    fs.pipe({f"{tree}/x*": b"", f"{tree}/xy": b"", f"{tree}/z[1]/a": b"", f"{tree}/z1/a": b""})
    fs.rm(f"{tree}/x*")
    fs.rm(f"{tree}/z[1]", recursive=True)
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e", "xy", "z1/a"}


@pytest.mark.parametrize("recursive", [False, True])
def test_rm_of_what_is_not_there_removes_nothing(
    fs: UcxFileSystem, tree: str, recursive: bool
) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        fs.rm([f"{tree}/a", f"{tree}/nothing"], recursive=recursive)
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e"}
    with pytest.raises(FileNotFoundError):
        fs.rm_file(f"{tree}/nothing")


def test_rm_of_a_folder_is_recursive_or_refused(fs: UcxFileSystem, tree: str) -> None:
    for paths in ([f"{tree}/a", f"{tree}/b"], f"{tree}/*", tree):
        with pytest.raises(IsADirectoryError, match="recursive=True"):
            fs.rm(paths)
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e"}
    fs.rm(tree, recursive=True, maxdepth=2)
    assert set(below(fs, tree)) == {"b/d/e"}


def test_rmdir(fs: UcxFileSystem, tree: str) -> None:
    with pytest.raises(OSError, match=r"not empty.*b"):
        fs.rmdir(f"{tree}/b")
    fs.mkdir(f"{tree}/new")
    fs.rmdir(f"{tree}/new")
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e"}


async def test_zarr_removes_as_before(address: str, zarr_config: None) -> None:
    """Missing keys and folders are none of its errors, and its keys are no patterns."""
    store = FsspecStore.from_url(address)
    for name in ("x*/c", "xy/c", "y[1]", "y1"):
        await store.set(name, cpu.Buffer.from_bytes(b"1"))
    for missing in ("x*/d", "z*"):
        await store.delete(missing)
        await store.delete_dir(missing)
    await store.delete_dir("x*")
    await store.delete("y[1]")
    assert sorted([key async for key in store.list()]) == ["xy/c", "y1"]
    await store.set("a/b/c", cpu.Buffer.from_bytes(b"1"))
    await store.clear()
    assert [key async for key in store.list()] == []


# ---- copies ----


@pytest.mark.parametrize("act", ["cp", "mv"])
def test_a_file(fs: UcxFileSystem, tree: str, act: str) -> None:
    getattr(fs, act)(f"{tree}/b/c", f"{tree}/new")
    getattr(fs, act)(f"{tree}/b/d/e", f"{tree}/folder/")
    left = {} if act == "mv" else {"b/c": b"b/c", "b/d/e": b"b/d/e"}
    assert below(fs, tree) == {"a": b"a", "new": b"b/c", "folder/e": b"b/d/e", **left}


@pytest.mark.parametrize("act", ["cp", "mv"])
def test_a_folder(fs: UcxFileSystem, tree: str, act: str) -> None:
    getattr(fs, act)(f"{tree}/b", f"{tree}/new", recursive=True)
    left = {} if act == "mv" else {"b/c": b"b/c", "b/d/e": b"b/d/e"}
    assert below(fs, tree) == {"a": b"a", "new/c": b"b/c", "new/d/e": b"b/d/e", **left}


@pytest.mark.parametrize("act", ["cp", "mv"])
def test_into_a_folder_that_is_there(fs: UcxFileSystem, tree: str, act: str) -> None:
    getattr(fs, act)(f"{tree}/a", f"{tree}/b")
    left = {} if act == "mv" else {"a": b"a"}
    assert below(fs, tree) == {"b/a": b"a", "b/c": b"b/c", "b/d/e": b"b/d/e", **left}


@pytest.mark.parametrize("act", ["cp", "mv"])
def test_what_is_not_there(fs: UcxFileSystem, tree: str, act: str) -> None:
    for recursive in (False, True):
        with pytest.raises(FileNotFoundError, match="nothing"):
            getattr(fs, act)(f"{tree}/nothing", f"{tree}/new", recursive=recursive)
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e"}


def test_moving_a_folder_is_recursive_or_refused(fs: UcxFileSystem, tree: str) -> None:
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        fs.mv(f"{tree}/b", f"{tree}/new")
    assert set(below(fs, tree)) == {"a", "b/c", "b/d/e"}


def test_moving_a_file_onto_itself_keeps_it(fs: UcxFileSystem, tree: str) -> None:
    fs.mv(f"{tree}/a", f"{tree}/a")
    fs.mv(f"{tree}/a", f"{tree}/")
    fs.mv(f"{tree}/b", tree, recursive=True)
    assert below(fs, tree) == {"a": b"a", "b/c": b"b/c", "b/d/e": b"b/d/e"}


def test_moving_a_folder_into_itself(fs: UcxFileSystem, tree: str) -> None:
    fs.mv(f"{tree}/b", f"{tree}/b/new", recursive=True)
    assert below(fs, tree) == {"a": b"a", "b/new/c": b"b/c", "b/new/d/e": b"b/d/e"}


@pytest.mark.parametrize("act", ["cp", "mv"])
def test_what_depends_on_the_order(fs: UcxFileSystem, tree: str, act: str) -> None:
    fs.pipe({f"{tree}/s/x": b"1", f"{tree}/s/s/x": b"2", f"{tree}/t/x": b"3"})
    before = below(fs, tree)
    with pytest.raises(ValueError, match="written twice"):
        getattr(fs, act)([f"{tree}/s/x", f"{tree}/t/x"], f"{tree}/new/")
    with pytest.raises(ValueError, match="read and written"):
        getattr(fs, act)([f"{tree}/s/x", f"{tree}/t/x"], [f"{tree}/t/x", f"{tree}/u"])
    with pytest.raises(ValueError, match="read and written"):
        getattr(fs, act)(f"{tree}/s/", f"{tree}/s/s", recursive=True)
    assert below(fs, tree) == before


def test_a_move_leaves_what_it_did_not_copy(fs: UcxFileSystem, tree: str) -> None:
    fs.pipe(f"{tree}/b/f", b"f")
    fs.mv(f"{tree}/b", f"{tree}/new", recursive=True, maxdepth=1)
    assert below(fs, tree) == {"a": b"a", "new/c": b"b/c", "new/f": b"f", "b/d/e": b"b/d/e"}


# ---- local files ----


def test_put_and_get_a_tree(fs: UcxFileSystem, fs_path: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    values = {"a": b"", "b/c": b"c" * 10_000_000, "b/d/e": b"e"}
    for name, value in values.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(value)
    callback = fsspec.Callback()
    fs.put(str(source), fs_path, recursive=True, callback=callback)
    assert callback.value == callback.size == 3
    assert below(fs, fs_path) == values
    fs.get(fs_path, str(tmp_path / "back"), recursive=True)
    back = [path for path in (tmp_path / "back").rglob("*") if path.is_file()]
    found = {path.relative_to(tmp_path / "back").as_posix(): path.read_bytes() for path in back}
    assert found == values


def test_progress(fs: UcxFileSystem, fs_path: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(20_000_000))
    for move, there in ((fs.put_file, "a"), (fs.get_file, "b")):
        callback = fsspec.Callback()
        ends = (tmp_path / there, f"{fs_path}/a")
        move(*(ends if move is fs.put_file else ends[::-1]), callback=callback)
        assert callback.value == callback.size == 20_000_000


def test_put_of_a_new_file(fs: UcxFileSystem, fs_path: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    fs.put_file(tmp_path / "a", f"{fs_path}/a", mode="create")
    (tmp_path / "a").write_bytes(b"2")
    with pytest.raises(FileExistsError):
        fs.put_file(tmp_path / "a", f"{fs_path}/a", mode="create")
    assert fs.cat(f"{fs_path}/a") == b"1"


def test_a_get_that_fails_leaves_the_local_file(
    fs: UcxFileSystem, tree: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        fs.get(f"{tree}/nothing", str(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"old"


def test_get_into_an_open_file(fs: UcxFileSystem, tree: str, tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        fs.get_file(f"{tree}/b/c", file)
        assert not file.closed
    assert (tmp_path / "a").read_bytes() == b"b/c"


def test_several_servers(three_servers: list[Server], prefix: str, zarr_config: None) -> None:
    fs, path = fsspec.url_to_fs(address_of(three_servers, prefix))
    values = {f"{path}/{number}": str(number).encode() for number in range(20)}
    with fs.transaction:
        fs.pipe(values)
    fs.mv(path, f"{path}-new", recursive=True)
    assert not fs.exists(path)
    for name, value in values.items():
        with fs.open(name.replace(path, f"{path}-new"), "rb") as file:
            assert file.read() == value
    assert fs.du(f"{path}-new") == sum(map(len, values.values()))
    fs.rm(f"{path}-new", recursive=True)
    assert fs.find(f"{path}-new") == []


def test_asynchronously(address: str, zarr_config: None) -> None:
    import asyncio

    async def use() -> Any:
        fs, path = fsspec.url_to_fs(address, asynchronous=True)
        await fs._pipe({f"{path}/a": b"1", f"{path}/b": b"2"})
        await fs._copy(f"{path}/a", f"{path}/c")
        await fs._mv(f"{path}/b", f"{path}/d")
        with pytest.raises(FileNotFoundError):
            await fs._rm(f"{path}/nothing")
        await fs._rm(f"{path}/a")
        with fs.open(f"{path}/e", "wb") as file:  # blocks the loop, as a local file does
            file.write(b"5")
        return await fs._cat(f"{path}/*")

    found = asyncio.run(use())
    assert sorted(found.values()) == [b"1", b"2", b"5"]


async def test_files_are_not_opened_asynchronously(fs: UcxFileSystem, tree: str) -> None:
    with pytest.raises(NotImplementedError, match="_cat_file"):
        await fs.open_async(f"{tree}/a")


def test_a_mapping(fs: UcxFileSystem, tree: str) -> None:
    mapping = fs.get_mapper(tree)
    mapping["b/f"] = b"f"
    assert dict(mapping) == {"a": b"a", "b/c": b"b/c", "b/d/e": b"b/d/e", "b/f": b"f"}
    del mapping["a"]
    with pytest.raises(KeyError):
        del mapping["a"]
    mapping.clear()
    assert not fs.exists(tree)


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
def test_a_cache_of_local_files(fs: UcxFileSystem, tree: str, cache: str, tmp_path: Path) -> None:
    url = f"{cache}::{fs.unstrip_protocol(tree)}/a"
    options: Any = {cache: {"cache_storage": str(tmp_path), "check_files": True}}
    if cache == "simplecache":
        del options[cache]["check_files"]
    with fsspec.open(url, **options) as file:
        assert file.read() == b"a"
    if cache == "simplecache":
        with fsspec.open(url, "wb", **options) as file:
            file.write(b"new")
        assert fs.cat(f"{tree}/a") == b"new"
    else:
        fs.pipe(f"{tree}/a", b"z")
        with fsspec.open(url, **options) as file:
            assert file.read() == b"z"
