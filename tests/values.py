"""Values of a store as bytes, and its keys."""

import numpy as np
import numpy.typing as npt
from zarr.abc.store import Store
from zarr.core.buffer import cpu

from ucxstore import UcxStore


def as_buffer(value: bytes | npt.NDArray[np.uint8]) -> cpu.Buffer:
    """Wrap bytes as zarr's stores take them, without a copy."""
    return cpu.Buffer.from_array_like(np.frombuffer(value, "u1"))


def write(store: UcxStore, key: str, value: bytes = b"value") -> None:
    store.set_sync(key, as_buffer(value))


def read(store: UcxStore, key: str) -> bytes | None:
    value = store.get_sync(key)
    return None if value is None else value.to_bytes()


async def keys_of(store: Store, prefix: str = "") -> list[str]:
    return [key async for key in (store.list_prefix(prefix) if prefix else store.list())]


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)
