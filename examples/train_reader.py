"""Read random samples as training loaders do: many forked processes, one server.

``python examples/train_reader.py [ucx://host:port/prefix]`` writes 200 MB of samples, each a chunk.
Then worker processes read batches of them in random order, and check every batch. Without an
address it starts a server of its own, which shows its values to processes of its host.
"""

import argparse
import multiprocessing
import sys
import time
from contextlib import ExitStack
from multiprocessing.queues import SimpleQueue

import numpy as np
import zarr

from ucxstore import Server, UcxStore

# 1 MiB each, like an image or a patch of a volume.
SAMPLE = (512, 512)
SAMPLES = 200
BATCH = 16


def write(store: UcxStore, samples: int) -> zarr.Array:
    """Write samples that all differ, each a raw chunk."""
    array = zarr.create_array(
        store,
        name="samples",
        shape=(samples, *SAMPLE),
        chunks=(1, *SAMPLE),
        dtype="f4",
        compressors=None,
        overwrite=True,
    )
    for start in range(0, samples, BATCH):
        stop = min(start + BATCH, samples)
        numbers = np.arange(start, stop, dtype="f4").reshape(-1, 1, 1)
        array[start:stop] = np.broadcast_to(numbers, (stop - start, *SAMPLE))
    return array


def read(array: zarr.Array, seed: int, batches: int, results: "SimpleQueue[int]") -> None:
    """Read batches of random samples, in a forked process: the store connects anew by itself."""
    random = np.random.default_rng(seed)
    nbytes = 0
    for _ in range(batches):
        chosen = np.sort(random.choice(array.shape[0], BATCH, replace=False))
        batch = array.oindex[chosen]
        if not (batch == chosen.astype("f4").reshape(-1, 1, 1)).all():
            sys.exit(f"reader {seed}: a batch is not what was written")
        nbytes += batch.nbytes
    results.put(nbytes)


def main() -> None:
    """Write, fork, read, and print how fast that was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("address", nargs="?", help="ucx://host:port/prefix")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--batches", type=int, default=50, help="for each reader")
    arguments = parser.parse_args()
    if arguments.samples < BATCH:
        parser.error(f"a batch has {BATCH} samples")

    fork = multiprocessing.get_context("fork")
    with ExitStack() as stack:
        address = arguments.address
        if address is None:
            address = stack.enter_context(Server.spawn("memory://", local=True)).address
        array = write(UcxStore(address), arguments.samples)
        results = fork.SimpleQueue()
        readers = [
            fork.Process(target=read, args=(array, seed, arguments.batches, results), daemon=True)
            for seed in range(arguments.readers)
        ]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        seconds = time.perf_counter() - start
        if any(reader.exitcode for reader in readers):
            sys.exit(f"of {len(readers)} readers some have failed")
        nbytes = sum(results.get() for _ in readers)
    print(
        f"{len(readers)} processes read {nbytes / 1e9:.1f} GB in {seconds:.1f} s, "
        f"{nbytes / seconds / 1e9:.1f} GB/s together; every sample was right"
    )


if __name__ == "__main__":
    main()
