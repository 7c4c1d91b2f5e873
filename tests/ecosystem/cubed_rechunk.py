"""A cubed rechunk in a process of its own: importing cubed configures zarr for all that run in it.

``python cubed_rechunk.py EXECUTOR store|url ADDRESS`` exits with 0 if the array is
right, and its intermediates were at ADDRESS.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import cubed
import numpy as np
import zarr
from zarr.core.sync import sync

from tests.values import keys_of
from ucxstore import UcxStore

SHAPE = (300, 300)  # 720 kB of float64


def main(executor: str, kind: str, address: str) -> None:
    wanted = np.random.default_rng(11).random(SHAPE)
    where = {"intermediate_store": UcxStore(address)} if kind == "store" else {"work_dir": address}
    spec = cubed.Spec(**where, allowed_mem="1MB", executor_name=executor)
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        zarr.create_array(source, data=wanted, chunks=(300, 10))
        array = cubed.from_zarr(str(source), spec=spec).rechunk((10, 300))
        cubed.to_zarr(array, str(target))
        written = zarr.open_array(target, mode="r")
        assert written.chunks == (10, 300)
        np.testing.assert_array_equal(written[:], wanted)
    intermediates = UcxStore(address)
    keys = sorted(sync(keys_of(intermediates)))
    chunks = [key for key in keys if "/c/" in key]
    assert len(chunks) > 10, keys


if __name__ == "__main__":
    main(*sys.argv[1:])
