"""Which `UcxStore` is behind a store of zarr's: for a URL, zarr makes one over a file system."""

from typing import Protocol, runtime_checkable

from zarr.abc.store import Store
from zarr.storage import FsspecStore

from ucxstore.store import UcxStore


@runtime_checkable
class UcxStores(Protocol):
    """What `ucxstore.filesystem` is to us, without importing fsspec, which may be missing."""

    def ucx_store_at(self, path: str, *, read_only: bool) -> UcxStore:
        """Return the store of what is under `path`, the same one each time."""


def store_behind(store: Store) -> UcxStore | None:
    """Return the `UcxStore` that holds the values of `store`, or ``None`` where none does."""
    if isinstance(store, UcxStore):
        return store
    if isinstance(store, FsspecStore) and isinstance(store.fs, UcxStores):
        return store.fs.ucx_store_at(store.path, read_only=store.read_only)
    return None
