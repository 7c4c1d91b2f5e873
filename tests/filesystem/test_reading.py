"""Files that are read through fsspec, in parts: all of one version of the value."""

import io
import pickle
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.filesystem.conftest import root_of
from tests.values import as_buffer
from ucxstore import ServerLostError, StorageError
from ucxstore.filesystem import UcxFileSystem
from ucxstore.server import Server

VALUE = np.random.default_rng(5).bytes(3 << 20)


@pytest.fixture
def path(fs: UcxFileSystem, fs_path: str) -> str:
    fs.pipe(f"{fs_path}/value", VALUE)
    return f"{fs_path}/value"


@pytest.mark.parametrize("cache", ["readahead", "none", "bytes", "blockcache", "all", "first"])
def test_reads_and_seeks_as_a_local_file_does(fs: UcxFileSystem, path: str, cache: str) -> None:
    wanted = io.BytesIO(VALUE)
    with fs.open(path, "rb", block_size=200_000, cache_type=cache) as file:
        assert file.size == len(VALUE)
        assert file.readable()
        assert not file.writable()
        for whence, offset, count in [
            (0, 0, 10),
            (1, 5, 100_000),
            (2, -7, 100),
            (0, 65_530, 20),
            (0, len(VALUE) + 5, 3),
            (0, 1_000_000, 1_500_000),
            (0, 3, -1),
        ]:
            assert file.seek(offset, whence) == wanted.seek(offset, whence)
            assert file.read(count) == wanted.read(count)
        file.seek(17)
        into = bytearray(33)
        assert file.readinto(into) == 33
        assert into == VALUE[17:50]


def test_lines(fs: UcxFileSystem, fs_path: str) -> None:
    lines = [f"line {number}\n" for number in range(20_000)]
    fs.write_text(f"{fs_path}/lines", "".join(lines))
    with fs.open(f"{fs_path}/lines", "r") as file:
        assert list(file) == lines
    assert fs.head(f"{fs_path}/lines", 6) == b"line 0"
    assert fs.tail(f"{fs_path}/lines", 6) == b"19999\n"
    assert fs.read_block(f"{fs_path}/lines", 8, 10, b"\n") == b"line 2\n"


def test_a_small_value_takes_one_request(address: str, zarr_config: None) -> None:
    fs, path = fsspec.url_to_fs(f"{address}/small")
    fs.pipe(path, b"small")
    asked: list[object] = []
    root: Any = root_of(fs)
    ask = root.get_found_sync
    root.get_found_sync = lambda *some: asked.append(some) or ask(*some)
    with fs.open(path) as file:
        assert file.read() == b"small"
    assert len(asked) == 1


def test_a_missing_value(fs: UcxFileSystem, fs_path: str) -> None:
    for mode in ("r", "rb"):
        with pytest.raises(FileNotFoundError, match=fs_path):
            fs.open(f"{fs_path}/nothing", mode)


@pytest.mark.parametrize("replace", ["same size", "shorter", "removed"])
def test_a_value_that_is_replaced_is_not_mixed(fs: UcxFileSystem, path: str, replace: str) -> None:
    with fs.open(path, cache_type="none") as file:
        assert file.read(1000) == VALUE[:1000]
        if replace == "removed":
            fs.rm(path)
        else:
            fs.pipe(path, bytes(len(VALUE) if replace == "same size" else 1 << 20))
        file.seek(500_000)
        with pytest.raises(StorageError, match=f"{path}.*replaced or removed"):
            file.read(1000)


def test_pickled_in_the_middle(fs: UcxFileSystem, path: str) -> None:
    with fs.open(path, "rb", block_size=100_000) as file:
        file.seek(200_000)
        pickled = pickle.dumps(file)
        with pickle.loads(pickled) as again:
            assert again == file
            assert again.read(10) == VALUE[200_000:200_010]
    fs.pipe(path, bytes(len(VALUE)))
    with pytest.raises(StorageError, match=path):
        pickle.loads(pickled)


def test_what_tells_values_apart(fs: UcxFileSystem, path: str) -> None:
    before = fs.ukey(path), fs.checksum(path)
    assert before == (fs.ukey(path), fs.checksum(path))
    with fs.open(path) as first:
        fs.pipe(path, bytes(len(VALUE)))
        with fs.open(path) as second:
            assert first != second
    assert fs.ukey(path) != before[0]
    assert fs.checksum(path) != before[1]
    assert fs.ukey(path.rpartition("/")[0])
    with pytest.raises(FileNotFoundError):
        fs.ukey(f"{path}2")


def test_a_slice_from_the_end_is_of_one_value(
    fs: UcxFileSystem, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fs.cat_file(path, -20, -10) == VALUE[-20:-10]
    assert fs.cat_file(path, 5, -10) == VALUE[5:-10]
    assert fs.cat_file(path, -10, 5) == b""
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{path}2", -20, -10)
    find = root_of(fs).get_found
    asked: list[Any] = []

    async def replace_after_the_first(*some: Any) -> Any:
        found = await find(*some)
        if not asked:
            await root_of(fs).set(path, as_buffer(b"0123456789" * 10))
        asked.append(some)
        return found

    monkeypatch.setattr(root_of(fs), "get_found", replace_after_the_first)
    with pytest.raises(StorageError, match="replaced"):
        fs.cat_file(path, 10, -10)
    assert fs.cat_file(path, 10, -80) == b"0123456789"


def test_get_does_not_mix_values(
    fs: UcxFileSystem, fs_path: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ucxstore.filesystem import file_system

    monkeypatch.setattr(file_system, "PIECE_BYTES", 1 << 20)
    fs.pipe(f"{fs_path}/a", VALUE)
    fs.get(f"{fs_path}/a", str(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == VALUE

    class Replacing(fsspec.Callback):
        def relative_update(self, inc: int = 1) -> None:
            root_of(fs).set_sync(f"{fs_path}/a", as_buffer(bytes(len(VALUE))))

    with pytest.raises(StorageError, match="replaced"):
        fs.get_file(f"{fs_path}/a", str(tmp_path / "b"), callback=Replacing())


def test_a_lost_server_is_not_an_empty_folder(prefix: str, zarr_config: None) -> None:
    """fsspec's own walk, find, isdir and isfile take any failure for a missing path."""
    with Server("memory://") as server:
        fs, path = fsspec.url_to_fs(f"{server.address}/{prefix}", connect_timeout=1)
        fs.pipe(f"{path}/a", b"a")
    for ask in (
        lambda: list(fs.walk(path)),
        lambda: fs.find(path, detail=True),
        lambda: fs.find(path, maxdepth=1),
        lambda: fs.glob(f"{path}/*"),
        lambda: fs.du(path),
        lambda: fs.isdir(path),
        lambda: fs.isfile(path),
        lambda: fs.exists(path),
    ):
        with pytest.raises((ConnectionError, ServerLostError)):
            ask()
