"""Files that are written through fsspec: stored whole when they are closed, or not at all."""

import bz2
import contextlib
import gc
import gzip
import io
import lzma
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.filesystem.conftest import root_of
from tests.values import as_buffer
from ucxstore import ConnectError, InvalidKeyError, ReadOnlyServerError
from ucxstore.filesystem import UcxFileSystem
from ucxstore.server import Server


class CrashError(Exception):
    pass


@pytest.fixture
def path(fs_path: str) -> str:
    return f"{fs_path}/value"


# ---- stored ----


@pytest.mark.parametrize("mode", ["wb", "xb", "w+b", "x+b"])
def test_closing_stores_the_value(fs: UcxFileSystem, path: str, mode: str) -> None:
    with fs.open(path, mode) as file:
        assert file.write(b"0123") == 4
        assert not fs.exists(path)
        file.write(b"456789")
    assert file.closed
    assert fs.cat(path) == b"0123456789"
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")


def test_an_explicit_close(fs: UcxFileSystem, path: str) -> None:
    file = fs.open(path, "wb")
    file.write(b"abc")
    file.flush()
    assert not fs.exists(path)
    file.close()
    assert fs.cat(path) == b"abc"


def test_an_empty_value(fs: UcxFileSystem, path: str) -> None:
    fs.pipe(path, b"old")
    fs.open(path, "wb").close()
    assert fs.cat(path) == b""
    assert fs.info(path) == {"name": path, "size": 0, "type": "file"}


def test_it_replaces_a_value_as_a_whole(fs: UcxFileSystem, path: str) -> None:
    fs.pipe(path, b"a long old value")
    with fs.open(path, "wb") as file:
        file.write(b"new")
        assert fs.cat(path) == b"a long old value"
    assert fs.cat(path) == b"new"


def test_seeking_back(fs: UcxFileSystem, path: str) -> None:
    """Writers of TIFF, HDF5 and zip archives do so."""
    with fs.open(path, "wb") as file:
        file.write(b"????body")
        file.seek(0)
        file.write(b"size")
        assert file.tell() == 4
    assert fs.cat(path) == b"sizebody"


def test_a_large_value(fs: UcxFileSystem, path: str) -> None:
    block = bytes(range(256)) * 4096
    with fs.open(path, "wb", block_size=1 << 16) as file:
        for _ in range(20):
            file.write(block)
    assert fs.size(path) == 20 << 20
    assert fs.cat(path) == block * 20


def test_what_is_no_bytes(fs: UcxFileSystem, path: str) -> None:
    with pytest.raises(TypeError, match="bytes-like"), fs.open(path, "wb") as file:
        file.write("text")
    assert not fs.exists(path)


def test_text(fs: UcxFileSystem, path: str) -> None:
    with fs.open(path, "w", encoding="utf-16-le", newline="\r\n") as file:
        file.write("grüße\n")
    assert fs.cat(path) == "grüße\r\n".encode("utf-16-le")
    fs.write_text(path, "zwei\n", encoding="utf-8")
    assert fs.read_text(path, encoding="utf-8") == "zwei\n"


@pytest.mark.parametrize(
    ("compression", "decompress"),
    [
        ("gzip", gzip.decompress),
        ("bz2", bz2.decompress),
        ("xz", lzma.decompress),
        ("zip", lambda data: zipfile.ZipFile(io.BytesIO(data)).read("file")),
    ],
)
def test_compressed(
    fs: UcxFileSystem, path: str, compression: str, decompress: Callable[[bytes], bytes]
) -> None:
    with fs.open(path, "wb", compression=compression) as file:
        file.write(b"hello " * 1000)
    assert decompress(fs.cat(path)) == b"hello " * 1000
    with fs.open(path, "rb", compression=compression) as file:
        assert file.read() == b"hello " * 1000


def test_compressed_text_by_its_name(fs: UcxFileSystem, path: str) -> None:
    with fs.open(f"{path}.gz", "w", compression="infer", encoding="utf-8") as file:
        file.write("grüße")
    assert gzip.decompress(fs.cat(f"{path}.gz")).decode() == "grüße"
    with fs.open(path, "w", compression="infer", encoding="utf-8") as file:
        file.write("plain")
    assert fs.cat(path) == b"plain"


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_fsspecs_open(address: str, compression: str | None) -> None:
    with fsspec.open(f"{address}/a", "w", compression=compression, encoding="utf-8") as file:
        file.write("grüße")
    with fsspec.open(f"{address}/a", "r", compression=compression, encoding="utf-8") as file:
        assert file.read() == "grüße"


def test_while_another_exception_is_handled(fs: UcxFileSystem, path: str) -> None:
    try:
        raise CrashError
    except CrashError:
        with fs.open(path, "wb") as file:
            file.write(b"a")
        later = fs.open(f"{path}2", "w")
        later.write("b")
        later.close()
    assert fs.cat(path) == b"a"
    assert fs.cat(f"{path}2") == b"b"


def test_the_end_of_an_iterator_is_no_failure(fs: UcxFileSystem, path: str) -> None:
    file, pieces = fs.open(path, "wb"), iter([b"a", b"b"])
    while not file.closed:
        try:
            file.write(next(pieces))
        except StopIteration:
            file.close()
    assert fs.cat(path) == b"ab"


# ---- not stored ----


def opened(fs: UcxFileSystem, path: str) -> Any:
    return fs.open(path, "wb")


def opened_as_text(fs: UcxFileSystem, path: str) -> Any:
    return fs.open(path, "w")


def opened_compressed(fs: UcxFileSystem, path: str) -> Any:
    return fs.open(path, "wb", compression="gzip")


def opened_by_fsspec(fs: UcxFileSystem, path: str) -> Any:
    return fsspec.open(fs.unstrip_protocol(path), "w", compression="gzip")


def opened_to_be_closed(fs: UcxFileSystem, path: str) -> Any:
    return contextlib.closing(fs.open(path, "w"))


@pytest.mark.parametrize(
    "enter",
    [opened, opened_as_text, opened_compressed, opened_by_fsspec, opened_to_be_closed],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_block_that_raises_stores_nothing(
    fs: UcxFileSystem, path: str, enter: Callable[[UcxFileSystem, str], Any], there: bool
) -> None:
    if there:
        fs.pipe(path, b"old")
    with pytest.raises(CrashError), enter(fs, path) as file:  # noqa: PT012
        file.write("half" if isinstance(file, io.TextIOBase) else b"half")
        raise CrashError
    assert fs.exists(path) == there
    if there:
        assert fs.cat(path) == b"old"


def test_a_finally_that_closes(fs: UcxFileSystem, path: str) -> None:
    """As pandas has it, around what writes the table."""
    file = fs.open(path, "wb")
    with pytest.raises(CrashError):  # noqa: PT012
        try:
            file.write(b"half")
            raise CrashError
        finally:
            file.close()
    assert not fs.exists(path)


def test_who_closes_a_file_in_a_handler_is_told(fs: UcxFileSystem, path: str) -> None:
    file = fs.open(path, "wb")
    try:
        raise CrashError
    except CrashError:
        with pytest.raises(CrashError) as caught:
            file.close()
    assert f"{path!r} was not stored" in caught.value.__notes__[0]
    assert file.closed
    assert not fs.exists(path)


def test_discarded(fs: UcxFileSystem, path: str) -> None:
    with fs.open(path, "wb") as file:
        file.write(b"a")
        file.discard()
    assert not fs.exists(path)


@pytest.mark.parametrize("enter", [opened, opened_as_text, opened_compressed])
def test_a_file_that_is_never_closed(
    fs: UcxFileSystem, path: str, enter: Callable[[UcxFileSystem, str], Any]
) -> None:
    file = enter(fs, path)
    file.write("half" if isinstance(file, io.TextIOBase) else b"half")
    with pytest.warns(RuntimeWarning, match=rf"'{path}' was not stored: .* never closed"):  # noqa: PT031
        del file
        gc.collect()
    assert not fs.exists(path)


def test_a_server_that_refuses(prefix: str, tmp_path: Path, zarr_config: None) -> None:
    with Server(tmp_path, read_only=True) as server:
        fs, path = fsspec.url_to_fs(f"{server.address}/{prefix}")
        file = fs.open(path, "wb")
        with pytest.raises(ReadOnlyServerError):
            file.close()
        assert file.closed
    with pytest.raises(ConnectionError), fs.open(path, "wb") as file:
        file.write(b"x")


def test_a_key_that_no_server_takes(fs: UcxFileSystem, path: str) -> None:
    with pytest.raises(InvalidKeyError):
        fs.open(f"{path}//a", "wb")


@pytest.mark.parametrize("mode", ["ab", "a", "r+b", "r+", "a+b"])
def test_values_are_not_changed_in_place(fs: UcxFileSystem, path: str, mode: str) -> None:
    fs.pipe(path, b"old")
    with pytest.raises(NotImplementedError, match=f"{path}.*written whole"):
        fs.open(path, mode)
    assert fs.cat(path) == b"old"


def test_exclusive_is_so_at_the_end(fs: UcxFileSystem, path: str) -> None:
    with pytest.raises(FileExistsError), fs.open(path, "xb") as file:  # noqa: PT012
        file.write(b"second")
        fs.pipe(path, b"first")
    assert fs.cat(path) == b"first"


def test_a_file_that_is_written_is_not_pickled(fs: UcxFileSystem, path: str) -> None:
    with fs.open(path, "wb") as file, pytest.raises(TypeError, match=path):
        pickle.dumps(file)


# ---- touch, times ----


def test_touch(fs: UcxFileSystem, path: str) -> None:
    fs.touch(path)
    assert fs.cat(path) == b""
    fs.pipe(path, b"old")
    fs.touch(path)
    assert fs.cat(path) == b""
    fs.touch(f"{path}2", truncate=False)
    assert fs.cat(f"{path}2") == b""
    fs.pipe(path, b"old")
    with pytest.raises(NotImplementedError, match=path):
        fs.touch(path, truncate=False)
    assert fs.cat(path) == b"old"


@pytest.mark.parametrize("ask", ["created", "modified"])
def test_there_are_no_times(fs: UcxFileSystem, path: str, ask: str) -> None:
    with pytest.raises(NotImplementedError, match=path):
        getattr(fs, ask)(path)


# ---- transactions ----


def write_all(fs: UcxFileSystem, path: str, local: Any) -> None:
    with fs.open(f"{path}/open", "wb") as file:
        file.write(b"1")
    with fs.open(f"{path}/text.gz", "w", compression="infer") as file:
        file.write("2")
    fs.pipe(f"{path}/pipe", b"3")
    fs.touch(f"{path}/touch")
    local.write_bytes(b"4")
    fs.put(str(local), f"{path}/put")
    assert fs.find(path) == []


def test_a_transaction_stores_at_its_end(fs: UcxFileSystem, path: str, tmp_path: Any) -> None:
    with fs.transaction:
        write_all(fs, path, tmp_path / "local")
    assert {name.rpartition("/")[2]: fs.cat(name)[:1] for name in fs.find(path)} == {
        "open": b"1",
        "text.gz": b"\x1f",
        "pipe": b"3",
        "touch": b"",
        "put": b"4",
    }
    fs.pipe(f"{path}/pipe", b"5")
    assert fs.cat(f"{path}/pipe") == b"5"


def test_a_transaction_that_raises_stores_nothing(
    fs: UcxFileSystem, path: str, tmp_path: Any
) -> None:
    with pytest.raises(CrashError), fs.transaction:  # noqa: PT012
        write_all(fs, path, tmp_path / "local")
        raise CrashError
    assert fs.find(path) == []
    fs.pipe(path, b"later")
    assert fs.cat(path) == b"later"


def test_what_is_left_out_of_a_transaction(fs: UcxFileSystem, path: str) -> None:
    with fs.transaction:
        with contextlib.suppress(CrashError), fs.open(f"{path}/a", "wb") as file:
            file.write(b"half")
            raise CrashError
        with fs.open(f"{path}/b", "wb") as file:
            file.write(b"b")
    assert fs.find(path) == [f"{path}/b"]


def test_an_open_file_at_the_end_of_a_transaction(fs: UcxFileSystem, path: str) -> None:
    fs.start_transaction()
    file = fs.open(path, "wb")
    file.write(b"more may come")
    with pytest.raises(ValueError, match=f"{path}.*still open"):
        fs.end_transaction()
    assert file.closed
    assert not fs.exists(path)


def test_a_new_value_in_a_transaction(fs: UcxFileSystem, path: str) -> None:
    with pytest.raises(FileExistsError), fs.transaction:  # noqa: PT012
        fs.pipe_file(path, b"second", mode="create")
        assert not fs.exists(path)
        root_of(fs).set_sync(path, as_buffer(b"first"))
    assert fs.cat(path) == b"first"


def test_a_server_that_is_gone(prefix: str, zarr_config: None) -> None:
    with Server("memory://") as server:
        fs, path = fsspec.url_to_fs(f"{server.address}/{prefix}", connect_timeout=1)
    with pytest.raises(ConnectError), fs.open(path, "w") as file:
        file.write("x")
