"""Servers of a deployment that decode: chunks once for all tasks, whatever is served."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client
from zarr.codecs import ZstdCodec

from profiles.s3 import S3ServerError, s3_server
from tests.dask.conftest import SECONDS
from tests.dask.test_shared_cache import options_of
from ucxstore.dask import deploy

SHAPE, CHUNKS = (400, 300), (100, 100)
COUNT = 4 * 3


def total(z: zarr.Array) -> int:
    """Add up all of the array, in one task."""
    return int(np.asarray(z[...]).sum())


@pytest.fixture(params=["memory", "directory", "bucket"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What `deploy` is told of the storage."""
    match request.param:
        case "memory":
            yield {"storage": "memory://"}
        case "directory":
            yield {"storage": tmp_path}
        case _:
            try:
                with s3_server(tmp_path) as s3:
                    yield {"storage": f"s3://{s3.bucket}/x", "storage_options": options_of(s3)}
            except S3ServerError as error:
                pytest.skip(str(error))


@pytest.mark.parametrize("per", ["worker", "host"])
def test_each_chunk_is_decoded_once(
    per: Literal["worker", "host"], served: dict[str, Any], client: Client
) -> None:
    values = np.cumsum(np.random.default_rng(0).integers(-3, 4, SHAPE), axis=0)
    with deploy(client, **served, per=per, memory="64MiB", decoded="64MiB") as deployed:
        z = zarr.create_array(
            deployed.store("run"),
            shape=SHAPE,
            chunks=CHUNKS,
            dtype=values.dtype,
            compressors=ZstdCodec(),
        )
        da.from_array(values, chunks=CHUNKS).store(z, lock=False)
        before = deployed.stats()
        for _ in range(3):
            for worker in client.nthreads():
                task = client.submit(total, z, workers=[worker], pure=False)
                assert task.result(SECONDS) == values.sum()
            assert (da.from_zarr(z) == values).all().compute()
        after = deployed.stats()
        assert after["decoded"] - before["decoded"] == 9 * COUNT  # read by tasks
        assert after["decode"] == before["decode"]
        if per == "host":
            stats = deployed.store().server_stats_sync()  # of all workers
            assert (stats["decoded"], stats["decodes_failed"]) == (COUNT, 0)
            assert 0 < stats["decoded_bytes"] <= stats["decoded_limit"] == 64 << 20
