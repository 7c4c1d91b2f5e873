"""No path of ours makes more copies than rule 1 of docs/architecture.md allows, at either side."""

from pathlib import Path

import pytest

from profiles.case import S3, Case
from profiles.result import CaseResult
from profiles.run import run_all
from profiles.s3 import S3ServerError, s3_server
from profiles.stores import TRANSPORTS
from profiles.stores import select as select_rows
from profiles.workloads import select as select_workloads
from ucxstore.copies.workload import Workload

SIDE = 2000  # 16 MB

MEMORY = ["UcxStore-memory-zero-copy-local", "UcxStore-memory-zero-copy-shared"]

# Extra copies at the client; the server keeps to the stricter one.
ONE_CHUNK = 0.02
MANY_CHUNKS = 0.05

# What zstd's encoder allocates: for its output what it can need at the most, which is a 255th more
# than there is of data that is not compressible; and what it works with, whatever the size.
ZSTD_OUTPUT = 1 + 1 / 255
ZSTD_WORKSPACE = (1400 << 10) / (SIDE * SIDE * 4)

# What clients of one host write goes through memory of this size, which the server maps, too.
UPLOAD = (16 << 20) / (SIDE * SIDE * 4)

# Of a resident set; the interpreter's own memory comes and goes.
RESIDENT = 0.3

# UCX's pools grow by this when they are first used, whatever the size of the array.
POOLS = (512 << 10) / (SIDE * SIDE * 4)


# A client that compares UCX's shared memory has segments of it, whatever the size of the array.
SEGMENTS = (9 << 20) / (SIDE * SIDE * 4)


# The ways of rows that promise one.
PROMISES = {
    "UcxStore, memory, view": ["mapped"],
    "UcxStore, memory, view_array": ["mapped"],
    "UcxStore, memory, mapped": ["mapped"],
    "UcxStore, memory, allocate": ["adopted"],
    "UcxStore, directory, map_files": ["mapped"],
}


def measure(
    stores: list[str], workloads: list[str], folder: Path, s3: S3 | None = None
) -> list[CaseResult]:
    (folder / "arrays").mkdir()
    (folder / "captures").mkdir()
    found: list[CaseResult] = []
    cases = [
        Case(row, workload, folder / "captures", folder, s3)
        for workload in select_workloads(workloads, SIDE)
        for row in select_rows(stores)
        if row.supports(workload)
    ]
    run_all(cases, lambda _, results: found.extend(results), jobs=2)
    assert len(found) >= len(cases)
    for result in found:
        assert not result.error, result
    return found


def extra(result: CaseResult, at: str) -> float:
    """Return the copies of a case, without arenas of Python's own heap.

    It grows by a megabyte whenever it happens to be full, which is much beside so small an array.
    """
    counts = result.counts
    assert counts is not None
    arenas = sum(
        culprit.bytes
        for culprit in counts.culprits
        if culprit.at == at and culprit.native == "_PyMem_ArenaAlloc"
    )
    return (counts.peak_extra if at == "peak" else counts.total) - arenas / result.nbytes


@pytest.mark.parametrize("storage", ["memory", pytest.param("directory", marks=pytest.mark.full)])
def test_raw_chunks_are_not_copied(storage: str, tmp_path: Path) -> None:
    found = measure([f"UcxStore, {storage}"], ["raw-one", "raw-grid"], tmp_path)
    assert {result.side for result in found} == {"client", "server"}
    assert {result.transport for result in found} == set(TRANSPORTS)
    # Besides, four calls for a chunk in memory, and one for a chunk in a file.
    assert len(found) == (40 if storage == "memory" else 34)
    for result in found:
        assert result.counts is not None
        is_strict = result.side == "server" or result.layout == "one"
        allowed = (ONE_CHUNK if is_strict else MANY_CHUNKS) + POOLS
        if result.transport == "shared memory":
            allowed += SEGMENTS
        assert extra(result, "peak") < allowed, result
        assert extra(result, "total") < allowed, result
        if result.transport == "local" and result.side == "server":
            # memray does not see shared memory: whether the server has a value twice.
            uploaded = UPLOAD if result.direction == "write" else 0
            assert result.counts.rss_extra < uploaded + RESIDENT, result
        if result.side == "client":
            promised = {"mapped", "adopted"} & result.ways.keys()
            assert promised == set(PROMISES.get(result.store, ())), result
            assert not result.ways.keys() & {"decode", "encode", "fallback"}, result
            if "mapped" in promised:
                # Not even the pages of the result are there: nobody has looked at it yet.
                assert result.counts.rss_extra < RESIDENT - 1, result


def test_an_object_store_in_between_costs_no_more_than_obstore(tmp_path: Path) -> None:
    """The server sends values from where they lie, and keeps received ones where they arrived."""
    stores = ["UcxStore-S3-hot-zero-copy-shared", "UcxStore-S3-cold-zero-copy-shared"]
    workloads = ["read-raw-one", "write-raw-one"]
    try:
        with s3_server(tmp_path / "s3") as server:
            s3 = S3(server.bucket, server.access(), server.description)
            found = measure([*stores, "ObjectStore-S3-default"], workloads, tmp_path, s3)
    except S3ServerError as error:
        pytest.skip(str(error))
    (alone,) = (
        one for one in found if not one.store.startswith("UcxStore") and one.direction == "read"
    )
    assert extra(alone, "total") == pytest.approx(1, abs=0.05), "and the harness sees what that is"
    ours = [one for one in found if one.store.startswith("UcxStore")]
    assert len(ours) == 6
    for result in ours:
        fetches = result.side == "server" and result.store == "UcxStore, S3, cold"
        for at in ("peak", "total"):
            allowed = extra(alone, at) if fetches else 0
            # The buffers of the network in between take another amount each time.
            allowed += MANY_CHUNKS if fetches else ONE_CHUNK
            assert extra(result, at) < allowed + POOLS, result


def test_compressed_reads_take_the_compressed_bytes(tmp_path: Path) -> None:
    """Where a client sees them at the server, it takes not even those."""
    for result in measure(MEMORY, ["read-zstd-one"], tmp_path):
        assert result.counts is not None
        is_fetched = result.side == "client" and result.transport != "local"
        fetched = result.stored_nbytes / result.nbytes if is_fetched else 0
        assert extra(result, "peak") < fetched + ONE_CHUNK + POOLS, result
        assert extra(result, "total") < fetched + ONE_CHUNK + POOLS, result


def test_compressed_writes_take_the_encoders_output(tmp_path: Path) -> None:
    for result in measure(MEMORY, ["write-zstd-one"], tmp_path):
        assert result.counts is not None
        if result.side == "server":
            assert extra(result, "peak") < ONE_CHUNK + POOLS, result
            continue
        allowed = ZSTD_OUTPUT + ONE_CHUNK + POOLS
        assert extra(result, "peak") < allowed + ZSTD_WORKSPACE, result
        assert extra(result, "total") < allowed, result
        assert "as_numpy_array_wrapper" in result.counts.culprits[0].python  # which calls zstd


def test_the_harness_sees_the_copies_of_others(tmp_path: Path) -> None:
    """If the harness saw no copies at all, the zeros above would prove nothing."""
    for result in measure(["LocalStore-default"], ["read-raw-one", "read-zstd-one"], tmp_path):
        assert result.counts is not None
        stored = result.stored_nbytes / result.nbytes
        expected = 1 if result.codec == "raw" else 1 + stored
        assert extra(result, "peak") == pytest.approx(expected, abs=0.05), result
        assert result.counts.culprits[0].python


def test_workloads_are_what_they_say() -> None:
    workload = Workload("read", "raw", "shard", 5000)
    assert workload.nbytes == 100_000_000
    assert workload.chunk_nbytes == 1_000_000
    assert workload.shard_shape == (5000, 5000)
    assert workload.name == "read-raw-shard"
    assert len(select_workloads([], SIDE)) == 32
    with pytest.raises(ValueError, match="lzma"):
        select_workloads(["lzma"], SIDE)
    with pytest.raises(ValueError, match="tensorstore"):
        select_rows(["tensorstore"])
