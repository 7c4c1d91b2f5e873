"""The directory storage and zarr's `LocalStore` share a directory, both ways."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

from ucxstore import UcxStore
from ucxstore.server import Server


@pytest.fixture
def local(directory_root: Path, prefix: str) -> LocalStore:
    return LocalStore(directory_root / prefix)


@pytest.fixture
def served(directory_server: Server, prefix: str) -> UcxStore:
    return UcxStore(f"{directory_server.address}/{prefix}")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("compressors", [None, "auto"])
@pytest.mark.parametrize("turned", [False, True])
def test_what_one_writes_the_other_reads(
    local: LocalStore, served: UcxStore, zarr_format: int, compressors: str | None, turned: bool
) -> None:
    writer, reader = (local, served) if turned else (served, local)
    data = np.random.default_rng(0).random((70, 50))
    array = zarr.create_array(
        writer,
        name="a",
        shape=data.shape,
        chunks=(20, 30),
        dtype=data.dtype,
        compressors=compressors,
        zarr_format=zarr_format,
    )
    array[:] = data
    np.testing.assert_array_equal(zarr.open_array(reader, path="a")[:], data)
    again = zarr.open_array(reader, path="a", mode="r+")
    again[10:30] = 0
    data[10:30] = 0
    np.testing.assert_array_equal(array[:], data)


async def test_both_list_the_same(local: LocalStore, served: UcxStore) -> None:
    zarr.create_array(served, name="g/a", shape=(40,), chunks=(10,), dtype="i4")[:] = 1
    zarr.create_array(local, name="g/b", shape=(40,), chunks=(10,), dtype="i4")[:] = 1
    expected = sorted([key async for key in local.list()])
    assert sorted([key async for key in served.list()]) == expected
    assert len(expected) == 12
    for folder in "", "g", "g/a", "g/a/c":
        names = sorted([name async for name in local.list_dir(folder)])
        assert sorted([name async for name in served.list_dir(folder)]) == names


async def test_a_chunk_that_is_being_written_is_no_key(
    served: UcxStore, directory_root: Path, prefix: str
) -> None:
    from zarr.core.buffer import cpu

    await served.set("a/0", cpu.Buffer.from_bytes(b"whole"))
    assert [path.name for path in (directory_root / prefix / "a").iterdir()] == ["0"]
