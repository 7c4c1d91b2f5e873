"""The Python functions that docs/walks.md names are called in a read; a profiler watches."""

import re
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import GzipCodec, ZstdCodec

from tests.conftest import address_of
from ucxstore import Server, UcxStore

pytestmark = pytest.mark.usefixtures("two_threads")

ROOT = Path(__file__).parents[1]
WALKS = (ROOT / "docs/walks.md").read_text()
BEGIN, RAW, ZSTD = re.split(r"^## .*$", WALKS, flags=re.MULTILINE)


def told(walk: str) -> set[str]:
    """Return the Python functions that a walk names."""
    return set(re.findall(r"`(ucxstore/[\w./]+\.py:[\w.]+)`", walk))


@contextmanager
def watched() -> Iterator[set[str]]:
    """Gather the functions of ours that any thread calls."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and "/ucxstore/" in code.co_filename:
            path = "ucxstore/" + code.co_filename.rpartition("/ucxstore/")[2]
            called.add(f"{path}:{code.co_qualname}")

    threading.setprofile_all_threads(note)
    try:
        yield called
    finally:
        threading.setprofile_all_threads(None)
        sys.setprofile(None)


def written(store: UcxStore, values: np.ndarray[Any, Any], **options: Any) -> str:
    """Write an array, and return its name; nothing of it is left open here."""
    name = uuid.uuid4().hex
    z = zarr.create_array(store, name=name, shape=values.shape, dtype=values.dtype, **options)
    z[...] = values
    return name


def read(store: UcxStore, name: str, selection: Any, values: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(zarr.open_array(store, path=name)[selection], values[selection])


def test_a_raw_chunk_goes_as_the_walk_tells() -> None:
    values = np.arange(400 * 300, dtype="f4").reshape(400, 300)
    with Server("memory://") as alone, Server("memory://") as one, Server("memory://") as other:
        addresses = [alone.address, address_of([one, other], "both")]

        def write() -> list[tuple[str, str, str]]:
            names = []
            for address in addresses:
                store = UcxStore(address)
                raw = written(store, values, chunks=(100, 100), compressors=None)
                shards = written(
                    store, values, chunks=(50, 50), shards=(100, 100), compressors=None
                )
                names.append((address, raw, shards))
            return names

        names = write()
        with watched() as called:
            for address, raw, shards in names:
                store = UcxStore(address)
                read(store, raw, ..., values)
                read(store, raw, (slice(None, None, 50), slice(None, 1)), values)
                read(store, shards, ..., values)
    assert told(BEGIN) | told(RAW) <= called


def test_a_zstd_chunk_goes_as_the_walk_tells() -> None:
    values = np.random.default_rng(0).integers(0, 100, (4096, 1024), dtype="i4")
    with Server("memory://") as server:
        store = UcxStore(server.address)
        names = [
            written(store, values, chunks=(512, 1024), compressors=ZstdCodec()),
            written(store, values, chunks=(512, 512), compressors=ZstdCodec(checksum=True)),
            written(store, values, chunks=(512, 512), compressors=GzipCodec()),
        ]
        with watched() as called:
            for name in names:
                read(store, name, ..., values)
                read(store, name, (slice(1, 2), slice(None)), values)
    assert told(ZSTD) <= called
