"""Write an array to a server, read it back, and print which way it went."""

import sys

import numpy as np
import zarr

from ucxstore import Secret, UcxStore


def main(address: str) -> None:
    """Write to and read from the server at `address`; its secret is in the environment."""
    with UcxStore(f"{address}/example", secret=Secret.find()) as store:
        values = np.arange(1 << 20, dtype="f4").reshape(1024, 1024)
        array = zarr.create_array(
            store, shape=values.shape, chunks=(256, 256), dtype="f4", overwrite=True
        )
        array[:] = values
        if not np.array_equal(array[:], values):
            raise SystemExit("what was read differs from what was written")
        print(f"{values.nbytes} bytes written and read: {store.stats()['lanes']}")


if __name__ == "__main__":
    main(sys.argv[1])
