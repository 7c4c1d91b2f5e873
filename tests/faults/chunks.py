"""Chunks of one array, for clients whose servers decode: each tells which operation wrote it.

Clients do not read the array's metadata, which is lost with a server of memory.
"""

import random
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import zarr
from numcodecs.zstd import Zstd
from zarr.codecs import ZstdCodec
from zarr.core.array import AsyncArray
from zarr.storage import MemoryStore, StorePath

from tests.faults.values import MISSING, read_part
from ucxstore import UcxStore

# Bytes of all decoded chunks of a server, and the items of one: a server can keep a few.
LIMIT = 2 << 20
ITEMS = 40_000

_NAME = "chunks"
_MOST = 1 << 40  # chunks
_NOISE = np.random.default_rng(0).integers(0, 1 << 20, ITEMS, "u8") << 40
_ZSTD = Zstd(level=1)


def encode(number: int) -> npt.NDArray[np.uint8]:
    """Return the stored chunk that an operation writes: noise, and its number in each item."""
    return np.frombuffer(_ZSTD.encode(_NOISE ^ np.uint64(number)), "u1")


class Chunks:
    """The array as a store has it.

    Parameters
    ----------
    store : UcxStore
    """

    def __init__(self, store: UcxStore) -> None:
        array = zarr.create_array(
            MemoryStore(),
            shape=(_MOST * ITEMS,),
            chunks=(ITEMS,),
            dtype="<u8",
            fill_value=0,
            compressors=ZstdCodec(level=1),
        )
        self._array = zarr.Array(AsyncArray(array.metadata, StorePath(store, _NAME)))

    @staticmethod
    def key_of(name: str) -> str:
        """Return the key of a chunk: another one for each name."""
        return f"{_NAME}/c/{int.from_bytes(blake2b(name.encode(), digest_size=5).digest())}"

    def read(self, key: str, chance: random.Random) -> int:
        """Return the number of the operation that wrote a chunk, or a part of it."""
        at = int(key.rpartition("/")[2]) * ITEMS
        begin, end = sorted(chance.sample(range(0, ITEMS + 1, 8), 2))
        begin, end = (begin, end) if chance.random() < 0.4 else (0, ITEMS)
        found = self._array[at + begin : at + end]
        assert isinstance(found, np.ndarray)
        return read_part((found ^ _NOISE[begin:end]).view("u1")) if found.any() else MISSING
