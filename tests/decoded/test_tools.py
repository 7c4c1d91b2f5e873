"""What the tools tell of a server that decodes."""

import re

import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec
from zarr.codecs import numcodecs as wrapped

from tests.cli.command import run
from tests.decoded.conftest import Make
from ucxstore import UcxStore

DATA = np.arange(4000).reshape(40, 100)


@pytest.mark.filterwarnings("ignore")  # zarr's, of codecs that are not in its standard
def test_info_tells_which_arrays_are_decoded(serve: Make) -> None:
    server = serve("memory://")
    store = UcxStore(server)
    zarr.create_group(store)
    zarr.create_array(store, name="a", data=DATA, chunks=(10, 100), compressors=ZstdCodec())
    zarr.create_array(store, name="b", data=DATA, chunks=(10, 100), compressors=None)
    lzma = wrapped.LZMA(format=3, filters=[{"id": 33}])
    zarr.create_array(store, name="c", data=DATA, chunks=(10, 100), compressors=lzma)
    zarr.create_array(store, name="d", data=DATA, chunks=(10, 10), shards=(40, 100))
    lines = run("info", server.address).stdout.splitlines()
    ways = [line.rpartition("; ")[2] for line in lines if "; " in line]
    assert ways == [
        "DECODED, ENCODE",
        "DIRECT",
        "DECODE, ENCODE (LZMA may put out any number of bytes)",
        "DECODED, ENCODE",
    ]


def test_stats_tell_what_was_decoded(serve: Make) -> None:
    server = serve("memory://")
    array = zarr.create_array(UcxStore(server), data=DATA, chunks=(10, 100))
    for _ in range(2):
        np.testing.assert_array_equal(array[:], DATA)
    lines = run("stats", server.address).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("dec ")]
    assert re.search(r"4 chunks decoded, 4 hits, 0 left to clients, .* of 67\.1 MB held", line)
