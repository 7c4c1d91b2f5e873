"""`ChunkAccess`: what the pipeline needs of a store, and how it finds that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from zarr.abc.store import Store
from zarr.storage import FsspecStore

from ucxstore.client.channel import Channel
from ucxstore.pipeline.budget import Budget
from ucxstore.pipeline.shards.cache import ShardCache
from ucxstore.stats import Counters


@dataclass(frozen=True, slots=True)
class ChunkAccess:
    """Access to the chunks of a store.

    Parameters
    ----------
    store : Store
        The store itself, for chunks that are left to zarr.
    channel : Channel
        The way to its servers.
    key_prefix : str
        What stands before its keys at the servers, with a ``/`` at its end.
    strict : bool
        Whether no chunk may leave the short path.
    counters : Counters
        Where chunks and bytes are counted.
    budget : Budget
        Bounds the bytes in buffers.
    shard_indexes : ShardCache
        Keeps indexes between reads.
    check_writable : callable
        Raises as zarr's stores do if the store was opened to read only.
    """

    store: Store
    channel: Channel
    key_prefix: str
    strict: bool
    counters: Counters
    budget: Budget
    shard_indexes: ShardCache
    check_writable: Callable[[], None]

    def full_keys(self, keys: Iterable[str]) -> list[str]:
        """Return keys as the servers have them."""
        prefix = self.key_prefix
        return [prefix + key for key in keys]


@runtime_checkable
class OffersChunks(Protocol):
    """A store of ours, as `ucxstore.store` has it."""

    @property
    def chunk_access(self) -> ChunkAccess:
        """The access to its chunks."""


@runtime_checkable
class OffersChunksByPath(Protocol):
    """A file system of ours, as `ucxstore.filesystem` has it."""

    def chunk_access_at(self, path: str, *, read_only: bool) -> ChunkAccess:
        """Return the access to what is under `path`, of the same store each time."""


def find_access(store: Store) -> ChunkAccess | None:
    """Return the access to the chunks of `store`, or ``None`` where that is not ours.

    zarr makes a store over a file system of a URL; the values are with a store of ours behind it.
    """
    if isinstance(store, OffersChunks):
        return store.chunk_access
    if isinstance(store, FsspecStore) and isinstance(store.fs, OffersChunksByPath):
        return store.fs.chunk_access_at(store.path, read_only=store.read_only)
    return None
