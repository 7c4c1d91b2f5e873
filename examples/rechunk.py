"""Rechunk an array with Dask: read parts of chunks, or go by way of pieces in scratch space.

``python examples/rechunk.py`` makes an array in chunks of whole maps, a few time steps each. It
rewrites the array in chunks of whole time series. Each new chunk needs values of all maps, which
are more than a task can hold.

The chunks are raw. So each task reads the parts that its new chunk needs, through the servers of
the workers, and nothing else. It takes the memory of one new chunk.

With ``--pieces``, as for encoded chunks, which are decoded whole: a first pass cuts the maps into
pieces. Each piece lies within one chunk of the old array and one of the new. A second pass puts the
pieces together. They are read only once, so they need no disk, and the scratch space frees each
piece when it was read. If a worker is lost, what it held is lost with it, and both passes are done
again. ``--progress`` shows a bar.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from dask.utils import format_bytes
from distributed import Client, LocalCluster

from ucxstore import Scratch
from ucxstore.dask import deploy

SIDE = 500  # of a map: 1 MB
SOURCE_CHUNKS = (20, SIDE, SIDE)


def rechunk(source: zarr.Array, target: zarr.Array) -> None:
    """Copy `source`, of raw chunks, to `target`: each task has one chunk of that in memory."""
    # No two tasks write to the same chunk, so no lock is needed.
    da.from_zarr(source, chunks=target.chunks).store(target, lock=False)


def rechunk_by_pieces(source: zarr.Array, target: zarr.Array, scratch: Scratch) -> None:
    """Copy `source` to `target`: each task of a pass has one chunk in memory, and writes it."""
    pieces = zarr.create_array(
        scratch.store("pieces"),
        shape=source.shape,
        chunks=tuple(map(min, source.chunks, target.chunks)),
        dtype=source.dtype,
        compressors=None,  # no codec is as fast as shared memory
    )
    da.from_zarr(source).store(pieces, lock=False)
    da.from_zarr(pieces, chunks=target.chunks).store(target, lock=False)


def main() -> None:
    """Make a source, rechunk it, print how fast that was, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200, help="maps, of 1 MB each")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pieces", action="store_true", help="go by way of scratch space")
    parser.add_argument("--progress", action="store_true", help="show a bar (needs rich)")
    arguments = parser.parse_args()
    shape = arguments.steps, SIDE, SIDE

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=arguments.workers, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        options = {"shape": shape, "dtype": "f4", "compressors": None}
        source = zarr.create_array(Path(folder, "maps"), chunks=SOURCE_CHUNKS, **options)
        target = zarr.create_array(
            Path(folder, "series"), chunks=(arguments.steps, SIDE // 10, SIDE // 5), **options
        )
        values = da.random.default_rng(1).random(shape, dtype="f4", chunks=SOURCE_CHUNKS)
        values.store(source, lock=False)

        with deploy(client, folder, memory=source.nbytes) as deployed, ExitStack() as stack:
            maps = zarr.open_array(deployed.store("maps"), mode="r")
            planned = source.nbytes * (3 if arguments.pieces else 1)  # to, from and by the servers
            if arguments.progress:
                stack.enter_context(deployed.progress(planned, "rechunk"))
            start = time.perf_counter()
            if arguments.pieces:
                deployed.retry(
                    lambda scratch: rechunk_by_pieces(maps, target, scratch),
                    quota=2 * source.nbytes,
                    read_once=True,
                )
            else:
                rechunk(maps, target)
            seconds = time.perf_counter() - start
        if not np.array_equal(source[...], target[...]):
            sys.exit("the target is not what the source is")
    print(
        f"{format_bytes(source.nbytes)} in chunks of {source.chunks} became chunks of "
        f"{target.chunks} in {seconds:.1f} s; every number is right"
    )


if __name__ == "__main__":
    main()
