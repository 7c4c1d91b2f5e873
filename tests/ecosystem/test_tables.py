"""pandas, pyarrow and Dask: what they write to a URL, or through fsspec, is there."""

import pickle
from typing import Any

import dask
import dask.bag
import fsspec
import pandas
import pytest

pytestmark = pytest.mark.usefixtures("zarr_config")


class CrashError(Exception):
    pass


class Unprintable:
    def __str__(self) -> str:
        raise CrashError


@pytest.fixture
def table() -> Any:
    return pandas.DataFrame(
        {"number": range(5000), "group": ["a", "b"] * 2500, "text": [f"ü{i}" for i in range(5000)]}
    )


# ---- pandas ----


@pytest.mark.parametrize("compression", [None, "gzip", "zip", "xz"])
def test_csv(address: str, table: Any, compression: str | None) -> None:
    table.to_csv(f"{address}/t", index=False, compression=compression)
    found = pandas.read_csv(f"{address}/t", compression=compression)
    pandas.testing.assert_frame_equal(found, table)


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_other_formats(address: str, table: Any, kind: str) -> None:
    getattr(table, f"to_{kind}")(f"{address}/t.gz")
    found = getattr(pandas, f"read_{kind}")(f"{address}/t.gz")
    pandas.testing.assert_frame_equal(found, table, check_dtype=False)


@pytest.mark.parametrize("there", [False, True])
def test_a_table_that_cannot_be_written(address: str, table: Any, there: bool) -> None:
    fs, path = fsspec.url_to_fs(f"{address}/t")
    if there:
        table.to_csv(f"{address}/t")
    before = fs.cat(path) if there else None
    bad = pandas.DataFrame({"x": [*table["text"], Unprintable()]})
    with pytest.raises(CrashError):
        bad.to_csv(f"{address}/t", chunksize=1000)
    assert fs.exists(path) == there
    if there:
        assert fs.cat(path) == before


def test_options(address: str, table: Any) -> None:
    table.to_csv(f"{address}/t", storage_options={"timeout": 7.0})
    with pytest.raises(TypeError, match="dance"):
        table.to_csv(f"{address}/u", storage_options={"dance": 1})


@pytest.mark.parametrize("partitioned", [False, True])
def test_pandas_parquet(address: str, table: Any, partitioned: bool) -> None:
    pytest.importorskip("pyarrow")
    table.to_parquet(f"{address}/t", partition_cols=["group"] if partitioned else None)
    found = pandas.read_parquet(f"{address}/t").sort_values("number", ignore_index=True)
    found["group"] = found["group"].astype(table["group"].dtype)
    pandas.testing.assert_frame_equal(found[list(table)], table)
    column = pandas.read_parquet(f"{address}/t", columns=["number"])["number"]
    assert sorted(column) == list(range(5000))


# ---- pyarrow ----


def test_pyarrow_parquet(address: str, table: Any) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    fs, path = fsspec.url_to_fs(f"{address}/t")
    wanted = arrow.Table.from_pandas(table)
    parquet.write_table(wanted, path, filesystem=fs, row_group_size=1000)
    assert parquet.read_table(path, filesystem=fs).equals(wanted)
    with fs.open(path, "rb") as file:
        assert parquet.ParquetFile(file).read_row_group(3).equals(wanted.slice(3000, 1000))


def test_a_parquet_file_that_is_not_finished(address: str, table: Any) -> None:
    """Its writer ends it properly, so that it would look like a whole one."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    fs, path = fsspec.url_to_fs(f"{address}/t")
    half = arrow.Table.from_pandas(table)
    writing = parquet.ParquetWriter(path, half.schema, filesystem=fs)
    with pytest.raises(CrashError), writing as writer:  # noqa: PT012
        writer.write_table(half)
        raise CrashError
    assert not fs.exists(path)


def test_pyarrow_dataset(address: str, table: Any) -> None:
    arrow, dataset = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.dataset")
    fs, path = fsspec.url_to_fs(f"{address}/t")
    wanted = arrow.Table.from_pandas(table)
    options = {"format": "parquet", "partitioning": ["group"], "filesystem": fs}
    for behaviour in ("error", "delete_matching"):
        dataset.write_dataset(wanted, path, existing_data_behavior=behaviour, **options)
    with pytest.raises(arrow.ArrowInvalid, match="not empty"):
        dataset.write_dataset(wanted, path, existing_data_behavior="error", **options)
    found = dataset.dataset(path, **options).to_table().sort_by("number")
    assert found.column("text").equals(wanted.column("text"))


def test_what_pyarrow_asks_of_a_file_system(address: str) -> None:
    arrow_fs = pytest.importorskip("pyarrow.fs")
    fs, path = fsspec.url_to_fs(address)
    arrow = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(fs))
    with arrow.open_output_stream(f"{path}/a/b") as file:
        file.write(b"b")
    arrow.copy_file(f"{path}/a/b", f"{path}/a/c")
    arrow.move(f"{path}/a", f"{path}/d")
    kinds = {
        info.path: info.type
        for info in arrow.get_file_info(arrow_fs.FileSelector(path, recursive=True))
    }
    file, folder = arrow_fs.FileType.File, arrow_fs.FileType.Directory
    assert kinds == {f"{path}/d": folder, f"{path}/d/b": file, f"{path}/d/c": file}
    arrow.delete_file(f"{path}/d/c")
    with pytest.raises(FileNotFoundError):
        arrow.delete_file(f"{path}/d/c")
    arrow.delete_dir(f"{path}/d")
    assert arrow.get_file_info(path).type == arrow_fs.FileType.NotFound
    with pytest.raises(NotImplementedError):
        arrow.open_append_stream(f"{path}/e")


# ---- Dask ----


def test_text_files_of_a_bag(address: str) -> None:
    lines = [f"line {number}" for number in range(100)]
    bag = dask.bag.from_sequence(lines, npartitions=4)
    with dask.config.set(scheduler="threads"):
        bag.map(str.upper).to_textfiles(f"{address}/*.txt.gz")
        found = dask.bag.read_text(f"{address}/*.txt.gz").compute()
    fs, path = fsspec.url_to_fs(address)
    assert fs.find(path) == [f"{path}/{number}.txt.gz" for number in range(4)]
    assert [line.strip() for line in found] == [line.upper() for line in lines]


def test_what_dask_sends_to_its_workers(address: str) -> None:
    """Files to be opened there: they are pickled with the file system."""
    files = pickle.loads(pickle.dumps(fsspec.open_files(f"{address}/*.txt", "w", num=3)))
    for number, opening in enumerate(files):
        with opening as file:
            file.write(str(number))
    fs, path = fsspec.url_to_fs(address)
    assert fs.cat(f"{path}/*") == {f"{path}/{n}.txt": str(n).encode() for n in range(3)}


def test_a_partition_that_fails(address: str) -> None:
    def crash(number: int) -> str:
        if number == 30:
            raise CrashError
        return str(number)

    bag = dask.bag.from_sequence(range(40), npartitions=4).map(crash)
    with pytest.raises(CrashError), dask.config.set(scheduler="synchronous"):
        bag.to_textfiles(f"{address}/*.txt")
    fs, path = fsspec.url_to_fs(address)
    assert f"{path}/3.txt" not in fs.find(path)
    assert all(fs.cat(name).count(b"\n") == 9 for name in fs.find(path))


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")
def test_tables_of_dask(address: str, table: Any) -> None:
    pytest.importorskip("pyarrow")
    frames = pytest.importorskip("dask.dataframe")
    frame = frames.from_pandas(table, npartitions=3)
    frame.to_parquet(f"{address}/t")
    found = frames.read_parquet(f"{address}/t").compute()
    pandas.testing.assert_frame_equal(found, table, check_dtype=False)
    frame.to_csv(f"{address}/csv/*.csv", index=False)
    found = frames.read_csv(f"{address}/csv/*.csv").compute().reset_index(drop=True)
    pandas.testing.assert_frame_equal(found, table, check_dtype=False)
