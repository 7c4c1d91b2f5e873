"""Access to the chunks of a store, and how the pipeline finds it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from zarr.abc.store import Store
from zarr.storage import FsspecStore

if TYPE_CHECKING:
    from ucxstore.base.counters import Counters
    from ucxstore.base.options import Map
    from ucxstore.client.channel import Channel
    from ucxstore.pipeline.budget import Budget
    from ucxstore.pipeline.indexes.cache import ShardCache


class ChunkAccess(NamedTuple):
    """Access to the chunks of a store.

    Parameters
    ----------
    store : Store
        The store itself, for chunks that are left to zarr.
    channel : Channel
        The way to its servers.
    key_prefix : str
        The prefix of its keys at the servers, with a ``/`` at the end.
    strict : bool
        Whether to raise `FallbackError` instead of leaving a chunk to zarr.
    counters : Counters
        Where chunks and bytes are counted.
    budget : Budget
        Bounds the bytes in buffers.
    shard_indexes : ShardCache
        Keeps indexes between reads.
    check_writable : callable
        Raises as zarr's stores do if the store is read-only.
    mapping : {"auto", True, False}
        Whether values may be mapped into results: see `UcxStore`.
    decoded : bool
        Whether values may be read as the servers decode them.
    recipe : str
        Set where keys are names of decoded values: how they are decoded.
    """

    store: Store
    channel: "Channel"
    key_prefix: str
    strict: bool
    counters: "Counters"
    budget: "Budget"
    shard_indexes: "ShardCache"
    check_writable: Callable[[], None]
    mapping: "Map" = "auto"
    decoded: bool = True
    recipe: str = ""

    def full_keys(self, keys: Iterable[str]) -> list[str]:
        """Return keys as the servers have them."""
        prefix = self.key_prefix
        return [prefix + key for key in keys]


class StoreOfOurs(Protocol):
    """A store that gives access to its chunks."""

    @property
    def _chunk_access(self) -> ChunkAccess: ...


def access_to(store: StoreOfOurs) -> ChunkAccess:
    """Return the access to the chunks of a store of ours."""
    return store._chunk_access


def find_access(store: Store) -> ChunkAccess | None:
    """Return the access to the chunks of `store`, or ``None`` if `store` is not ours.

    For a URL, zarr makes an `FsspecStore` over our file system, which has a store of ours behind
    it: its `chunk_access_at` returns the access.
    """
    access = getattr(store, "_chunk_access", None)
    if access is None and isinstance(store, FsspecStore):
        at = getattr(store.fs, "chunk_access_at", None)
        access = None if at is None else at(store.path, read_only=store.read_only)
    return access if isinstance(access, ChunkAccess) else None
