"""An array is rewritten in other chunks by way of the workers' memory, as rechunker does it."""

from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client

from tests.dask.conftest import bytes_held_in, cluster_of
from tests.eventually import eventually
from ucxstore.dask import deploy

WORKERS = 2
OPTIONS = {"compressors": None, "fill_value": 7}
CHUNKS_IN_WORK = 4  # of a task: what zarr has read, its result, and one of each on its way out
PYTHON = 32 << 20  # what Dask and zarr allocate meanwhile


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client whose workers recycle no memory, so that what they use can be counted."""
    monkeypatch.setenv("UCXSTORE_RECYCLE_BYTES", "0")
    with cluster_of(WORKERS) as client:
        yield client


@pytest.mark.scales
def test_rechunk(client: Client, full: bool, tmp_path: Path) -> None:
    shape = (2000, 500, 500) if full else (200, 400, 400)
    source_chunks = (shape[0] // 50, *shape[1:])
    target_chunks = (shape[0], shape[1] // 10, shape[2] // 5)
    chunks = tuple(map(min, source_chunks, target_chunks))
    values = np.arange(np.prod(shape), dtype="u4").reshape(shape)
    source = zarr.create_array(tmp_path / "source", data=values, chunks=source_chunks, **OPTIONS)
    target = zarr.create_array(
        tmp_path / "target", shape=shape, dtype="u4", chunks=target_chunks, **OPTIONS
    )

    limit = values.nbytes * 3 // 4  # half of them each, were they placed evenly
    with (
        deploy(client, memory=limit) as deployed,
        deployed.scratch(quota=2 * values.nbytes, strict=True) as scratch,
    ):
        store = scratch.store()
        between = zarr.create_array(
            store, name="a", shape=shape, dtype="u4", chunks=chunks, **OPTIONS
        )
        client.run(
            warm_up, zarr.create_array(store, name="w", shape=9, dtype="u4", chunks=1, **OPTIONS)
        )
        client.run(forget_peak)
        before = client.run(memory)

        da.from_zarr(source).store(between, lock=False)
        held = client.run(bytes_held_in)
        assert len(held) == WORKERS
        assert max(held.values()) <= limit
        assert values.nbytes < sum(held.values()) < values.nbytes + 100_000
        da.from_zarr(between, chunks=target_chunks).store(target, lock=False)
        assert client.run(bytes_held_in) == held

        work = CHUNKS_IN_WORK * values.nbytes // 50 + PYTHON
        for worker, (_, peak) in client.run(memory).items():
            assert peak <= before[worker][0] + held[worker] + work
        for region in target._iter_chunk_regions():
            assert np.array_equal(target[region], values[region])

    def freed() -> bool:
        return all(
            now <= before[worker][0] + work for worker, (now, _) in client.run(memory).items()
        )

    assert client.run(bytes_held_in) == dict.fromkeys(held, 0)
    eventually(freed)


# ---- what runs in the workers ----


def warm_up(array: zarr.Array) -> None:
    """Import, connect, and start threads."""
    array[...] = 1
    assert da.from_zarr(array).sum().compute(scheduler="synchronous") == array.size


def memory() -> tuple[int, int]:
    """Return the memory of the process, now and at its peak, without the files it has mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    peak, anonymous, shared, files = (
        int(found[name].split()[0]) << 10 for name in ("VmHWM", "RssAnon", "RssShmem", "RssFile")
    )
    return anonymous + shared, peak - files


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
