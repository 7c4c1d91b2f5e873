"""Workers behind one shared cache in front of S3: each object is asked for once by all of them."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client
from distributed.security import Security
from obstore.store import S3Store
from zarr.storage import ObjectStore

from profiles.s3 import S3Server, S3ServerError, s3_server
from profiles.s3_log import S3Request, read_log
from tests.dask.conftest import SECONDS, cluster_of, hosts_of
from tests.eventually import eventually
from ucxstore import StorageError
from ucxstore.dask import deploy, locality
from ucxstore.dask.plugin import METRIC

MIB = 1 << 20
ROWS = 128


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as server:
            if server.log is None:
                pytest.skip(f"there is no log of the S3 server {server.description}")
            yield server
    except S3ServerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def four() -> Iterator[Client]:
    with cluster_of(4) as client:
        yield client


def options_of(s3: S3Server) -> dict[str, str]:
    return {
        "endpoint": s3.endpoint,
        "region": s3.region,
        "access_key_id": s3.access_key,
        "secret_access_key": s3.secret_key,
    }


def put_array(s3: S3Server, prefix: str, rows: int, **options: object) -> tuple[zarr.Array, int]:
    """Write an array straight into the bucket; return it, and the bytes of its objects.

    Every chunk holds other values, of which zstd leaves about two thirds.
    """
    client_options = {"allow_http": True}
    bucket = S3Store(s3.bucket, prefix=prefix, **options_of(s3), client_options=client_options)
    array = zarr.create_array(
        ObjectStore(bucket), shape=(rows, 4096), dtype="f4", fill_value=-1, **options
    )
    step = (array.shards or array.chunks)[0]
    for begin in range(0, rows, step):
        array[begin : begin + step] = np.concatenate(
            [block_of(row, ROWS) for row in range(begin, begin + step, ROWS)]
        )
    return array, sum(entry["size"] for page in bucket.list() for entry in page)


def block_of(row: int, rows: int) -> np.ndarray:
    values = np.random.default_rng(row).integers(0, 1 << 16, (rows, 4096))
    return values.astype("f4") / 64


def is_right(block: np.ndarray, block_info: dict) -> np.ndarray:
    (begin, end), (left, right) = block_info[0]["array-location"]
    values = [block_of(row, ROWS) for row in range(begin, end, ROWS)]
    return np.array([[np.array_equal(block, np.concatenate(values)[:, left:right])]])


def read_and_check(x: da.Array) -> None:
    """Compare all of the array with what was written, in the tasks that read it."""
    right = x.map_blocks(is_right, chunks=(1, 1), dtype=bool, meta=np.empty((0, 0), bool))  # type: ignore[call-arg]
    assert right.all().compute(optimize_graph=False)


def chunk_keys(array: zarr.Array) -> list[str]:
    shape = array.shards or array.chunks
    counts = [size // step for size, step in zip(array.shape, shape, strict=True)]
    return [array.metadata.encode_chunk_key(each) for each in np.ndindex(*counts)]


def is_moto(s3: S3Server) -> bool:
    """Tell whether it is the one that takes any secret, and sends in ways that are not counted."""
    return s3.description.startswith("moto")


def sent_bytes(s3: S3Server) -> int:
    """Return what the S3 server has written, by the kernel: replies with headers, and its log."""
    lines = Path(f"/proc/{s3.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@pytest.mark.scales
@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_three_passes_cost_one(s3: S3Server, four: Client, full: bool, layout: str) -> None:
    """What is asked for, metadata too, and what is sent, replies with their headers."""
    rows = 65536 if full else 2048
    shape = {"chunks": (128, 2048)}
    if layout == "shards":  # large, so that they are fetched and kept in blocks
        shape["shards"] = (1024, 4096)
    prefix = f"passes/{layout}"
    array, stored = put_array(s3, prefix, rows, **shape)
    url = f"s3://{s3.bucket}/{prefix}"
    asked_before, sent_before = len(read_log(s3)), sent_bytes(s3)
    with deploy(four, url, memory="1GiB", storage_options=options_of(s3)) as deployed:
        for _ in range(3):
            # Of a known format, or zarr looks for the other's metadata, too.
            array = zarr.open_array(deployed.store(strict=True), mode="r", zarr_format=3)
            read_and_check(da.from_zarr(array, chunks=array.shards or (512, 4096)))
    asked = Counter(read_log(s3)[asked_before:])
    sent = sent_bytes(s3) - sent_before
    kinds = Counter(request.operation for request in asked.elements())
    print(f"{dict(kinds)}, {sent} bytes sent of {stored} stored")
    if is_moto(s3):
        assert sent < stored  # if not, they are counted after all, and this may go
    else:
        assert stored < sent <= 1.05 * stored
    objects = {f"{prefix}/zarr.json", *(f"{prefix}/{key}" for key in chunk_keys(array))}
    if layout == "chunks":
        assert asked == {S3Request("GetObject", key): 1 for key in objects}
    else:
        # The number of bytes shows that no block has come twice.
        assert {request.key for request in asked} == objects
        assert asked[S3Request("GetObject", f"{prefix}/zarr.json")] == 1
        assert {n for request, n in asked.items() if request.operation == "HeadObject"} == {1}


def whole_is_right(array: zarr.Array) -> bool:
    """Compare all of the array with what was written, in one task."""
    values = [block_of(row, ROWS) for row in range(0, array.shape[0], ROWS)]
    return bool(np.array_equal(array[...], np.concatenate(values)))


def test_each_host_fetches_once(s3: S3Server) -> None:
    """With a server a host, tasks use that of their own: whoever reads, two hosts ask twice."""
    array, _ = put_array(s3, "hosts", 512, chunks=(128, 2048))
    url = f"s3://{s3.bucket}/hosts"
    with (
        hosts_of("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2") as client,
        deploy(client, url, memory="1GiB", per="host", storage_options=options_of(s3)) as deployed,
    ):
        near = zarr.open_array(deployed.store(), mode="r", zarr_format=3)
        before = len(read_log(s3))
        for _ in range(2):
            for worker in client.nthreads():
                task = client.submit(whole_is_right, near, workers=[worker], pure=False)
                assert task.result(SECONDS)
        asked = Counter(read_log(s3)[before:])
        gets = {key: n for key, n in asked.items() if key.operation == "GetObject"}
        keys = {f"hosts/{key}" for key in chunk_keys(array)}
        assert {key.key: n for key, n in gets.items() if key.key in keys} == dict.fromkeys(keys, 2)


def test_the_cache_is_bounded_shown_and_lost_with_no_data(s3: S3Server) -> None:
    put_array(s3, "frail", 1024, chunks=(128, 2048))  # 11 MB
    with (
        cluster_of(2) as client,
        deploy(
            client, f"s3://{s3.bucket}/frail", memory="2MiB", storage_options=options_of(s3)
        ) as deployed,
    ):
        array = zarr.open_array(deployed.store(strict=True), mode="r", zarr_format=3)
        x = da.from_zarr(array, chunks=(256, 4096))
        read_and_check(x)

        def held() -> list[int]:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            return [worker["metrics"].get(METRIC, -1) for worker in workers]

        eventually(lambda: all(MIB < each <= 2 * MIB for each in held()))
        lost = min(deployed.addresses)
        os.kill(client.run(os.getpid, workers=[lost])[lost], signal.SIGKILL)
        read_and_check(locality(x, client))
        eventually(lambda: len(deployed.addresses) == 2, SECONDS, 0.05)
        client.cluster.adapt(minimum=1, maximum=3, interval="100ms", wait_count=1)
        eventually(lambda: len(deployed.addresses) == 1, SECONDS, 0.05)
        anew = zarr.open_array(deployed.store(strict=True), mode="r", zarr_format=3)
        read_and_check(da.from_zarr(anew, chunks=(256, 4096)))


def test_a_cluster_with_tls(s3: S3Server) -> None:
    put_array(s3, "tls", 256, chunks=(128, 2048))
    security = Security.temporary()
    with cluster_of(1, security=security) as client:
        url = f"s3://{s3.bucket}/tls"
        with deploy(client, url, memory="16MiB", storage_options=options_of(s3)) as deployed:
            assert [worker[:6] for worker in deployed.addresses] == ["tls://"]
            array = zarr.open_array(deployed.store(strict=True), mode="r", zarr_format=3)
            read_and_check(da.from_zarr(array))
            assert s3.secret_key not in repr(deployed)


def test_what_the_object_store_says(s3: S3Server) -> None:
    if is_moto(s3):
        pytest.skip("moto's server takes any secret")
    put_array(s3, "denied", 256, chunks=(128, 2048))
    with cluster_of(1) as client:
        url = f"s3://{s3.bucket}/denied"
        wrong = {**options_of(s3), "secret_access_key": "not-the-secret"}
        with pytest.raises(StorageError, match=r"^storage: .*permission denied") as refused:
            deploy(client, url, memory="16MiB", storage_options=wrong)
        assert "not-the-secret" not in str(refused.value)
        with (
            deploy(client, url, memory="16MiB", storage_options=wrong, check=False) as deployed,
            pytest.raises(StorageError, match=r"permission denied") as caught,
        ):
            deployed.store().get_sync("zarr.json")
        assert "not-the-secret" not in str(caught.value)
