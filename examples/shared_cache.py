"""A shared cache in front of S3: Dask reads an array again and again, S3 serves it once.

``python -m examples.shared_cache`` writes 64 MB to an S3 server that it starts itself (the
versitygw that ``make s3`` builds, else moto's). Four workers compute three results from them. Then
it prints how many requests the S3 server had. ``--bucket my-bucket/prefix`` uses the S3 that the
environment describes (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``...), and replaces what is there.

Run it in the repository, after ``make build``: the package ``profiles`` there starts the server.
"""

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from distributed import Client, LocalCluster
from obstore.store import from_url
from zarr.storage import ObjectStore

from profiles.s3 import S3Server, s3_server
from profiles.s3_log import read_log
from ucxstore.dask import deploy, locality

CHUNK = 512


def write(url: str, side: int) -> None:
    """Write an array straight to S3: each value is the number of its chunk's row."""
    array = zarr.create_array(
        ObjectStore(from_url(url)),
        shape=(side, side),
        chunks=(CHUNK, CHUNK),
        dtype="f4",
        fill_value=-1,  # chunks of nothing else are not stored
        overwrite=True,
    )
    rows = np.arange(side, dtype="f4") // CHUNK
    array[...] = np.broadcast_to(rows[:, np.newaxis], (side, side))


def compute(client: Client, url: str, side: int) -> None:
    """Compute three results; each reads the whole array."""
    with deploy(client, url, memory="256MiB") as deployed:
        array = zarr.open_array(deployed.store(), mode="r", zarr_format=3)
        x = locality(da.from_zarr(array), client)
        last = (side - 1) // CHUNK
        for name, result, expected in [
            ("largest", x.max(), last),
            ("smallest", x.min(), 0),
            ("sum", x.sum(dtype="f8"), sum(row // CHUNK for row in range(side)) * side),
        ]:
            start = time.perf_counter()
            found = result.compute()
            if found != expected:
                raise SystemExit(f"{name}: {found} is not {expected}")
            print(f"{name}: {found:g} in {time.perf_counter() - start:.2f} s")


def main() -> None:
    """Write, compute, and print how many requests S3 had."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--bucket", help="name/prefix in the S3 that the environment describes")
    parser.add_argument("--side", type=int, default=4096, help="of the square array")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        server: S3Server | None = None
        if arguments.bucket is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(s3_server(folder))
            os.environ.update(server.environment())  # which the workers inherit
        url = f"s3://{arguments.bucket or f'{server.bucket}/example'}"
        write(url, arguments.side)
        asked = 0 if server is None or server.log is None else len(read_log(server))
        cluster = stack.enter_context(LocalCluster(n_workers=4, dashboard_address=":0"))
        client = stack.enter_context(Client(cluster))
        compute(client, url, arguments.side)
        if server is not None and server.log is not None:
            requests = read_log(server)[asked:]
            objects = {request.key for request in requests}
            print(f"S3 ({server.description}) saw {len(requests)} requests", end=" ")
            print(f"for {len(objects)} objects, which were read three times")


if __name__ == "__main__":
    main()
