"""A file that is cut, or that the disk does not give back, is an error of its key alone."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from zarr.core.sync import sync

from tests.durability.recording import Recorded, preload
from tests.values import as_buffer
from ucxstore import StorageError, UcxStore

FAULTS = Path(__file__).with_name("faults.c")
BAD = 5_000_001  # bytes


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preload(FAULTS, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "faults"


@pytest.fixture(params=["atomic", "fsync"])
def server(
    request: pytest.FixtureRequest, library: Path, faults: Path, tmp_path: Path
) -> Iterator[Recorded]:
    with Recorded(
        tmp_path / "root", request.param, library, tmp_path, FAULTS=str(faults)
    ) as server:
        yield server


@pytest.mark.parametrize(
    "ucx",
    [{"TLS": "tcp"}, pytest.param({"TLS": "sm,self"}, marks=pytest.mark.full), {}],
    ids=["tcp", "sm", "any"],
)
def test_files_that_are_cut_while_they_are_read(
    ucx: dict[str, str], library: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    good = np.random.default_rng(1).integers(0, 256, 30_000_000, np.uint8)
    with (
        Recorded(root, "none", library, tmp_path) as server,
        UcxStore(server.address, local="ucx", ucx=ucx, timeout=20) as store,
    ):
        (root / "good").write_bytes(good)
        (root / "bad").write_bytes(good)
        stop = threading.Event()

        def cut() -> None:
            while not stop.is_set():
                os.truncate(root / "bad", 1_000_000)
                with (root / "bad").open("r+b") as file:
                    file.write(good)

        cutter = threading.Thread(target=cut)
        cutter.start()
        out = np.empty_like(good)
        refused: list[str] = []
        try:
            for _ in range(40):
                try:
                    store.get_into_sync("bad", out)
                except StorageError as error:
                    refused.append(str(error))
                assert store.get_into_sync("good", out) == good.size
                assert (out == good).all()
        finally:
            stop.set()
            cutter.join()
        assert server.lives
        assert refused
        assert all("'bad'" in text and "cut short" in text for text in refused)
        assert sync(store.server_stats())["sessions_lost"] == 0


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("server", ["atomic"], indirect=True)
def test_a_file_that_cannot_be_read(code: int, server: Recorded, faults: Path) -> None:
    with UcxStore(server.address, local="ucx") as store:
        store.set_sync("good", as_buffer(b"x" * 3_000_000))
        store.set_sync("bad", as_buffer(b"x" * BAD))
        faults.write_text(f"pread {code} {BAD} 0\n")
        for _ in range(3):
            with pytest.raises(StorageError, match=f"'bad' .*{os.strerror(code)}"):
                store.get_sync("bad")
            value = store.get_sync("good")
            assert value is not None
            assert len(value) == 3_000_000
        faults.unlink()
        value = store.get_sync("bad")
        assert value is not None
        assert len(value) == BAD


# In the first fragment, in between, and in the last bytes, which are held back until then.
@pytest.mark.parametrize("bad", [0, 3_000_000, BAD - 1])
@pytest.mark.parametrize("ucx", [{"TLS": "tcp"}, {"TLS": "sm,self"}], ids=["tcp", "sm"])
@pytest.mark.parametrize("server", ["atomic"], indirect=True)
def test_a_part_of_a_file_that_cannot_be_read(
    ucx: dict[str, str], bad: int, server: Recorded, faults: Path
) -> None:
    whole = np.random.default_rng(2).integers(0, 256, BAD, np.uint8)
    good = whole[1:]
    out = np.empty_like(whole)
    with UcxStore(server.address, local="ucx", ucx=ucx, timeout=20) as store:
        store.set_sync("bad", as_buffer(whole))
        store.set_sync("good", as_buffer(good))
        faults.write_text(f"pread {errno.EIO} {BAD} {bad}\n")
        for _ in range(3):
            with pytest.raises(StorageError, match=f"'bad' .*{os.strerror(errno.EIO)}"):
                store.get_into_sync("bad", out)
            assert store.get_into_sync("good", out[1:]) == good.size
            assert (out[1:] == good).all()
        faults.unlink()
        assert store.get_into_sync("bad", out) == BAD
        assert (out == whole).all()
        assert sync(store.server_stats())["sessions_lost"] == 0


def test_a_value_that_is_not_flushed_is_not_stored(server: Recorded, faults: Path) -> None:
    with UcxStore(server.address) as store:
        store.set_sync("k", as_buffer(b"old"))
        faults.write_text(f"fdatasync {errno.EIO} {BAD} 0\n")
        for _ in range(2):  # the kernel tells of it once
            with pytest.raises(StorageError, match=f"'k' .*{os.strerror(errno.EIO)}"):
                store.set_sync("k", as_buffer(b"x" * BAD))
            value = store.get_sync("k")
            assert value is not None
            assert value.to_bytes() == b"old"
        store.set_sync("other", as_buffer(b"x" * 1000))
        faults.unlink()
        store.set_sync("k", as_buffer(b"x" * BAD))


@pytest.mark.parametrize("server", ["fsync"], indirect=True)
def test_a_directory_that_is_not_flushed_is_never_forgotten(server: Recorded, faults: Path) -> None:
    with UcxStore(server.address) as store:
        store.set_sync("d/before", as_buffer(b"x"))
        faults.write_text(f"fsync {errno.EIO} 0 0\n")
        with pytest.raises(StorageError, match=f"'d/k' .*{os.strerror(errno.EIO)}"):
            store.set_sync("d/k", as_buffer(b"x"))
        faults.unlink()
        with pytest.raises(StorageError, match="because the disk has failed"):
            store.set_sync("d/other", as_buffer(b"x"))
        with pytest.raises(StorageError, match="because the disk has failed"):
            store.delete_sync("d/before")
        value = store.get_sync("d/before")
        assert value is None or value.to_bytes() == b"x"
        assert server.lives
