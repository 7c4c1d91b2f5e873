"""Arrays and values of a store that a server shows to its clients."""

from typing import Any

import numpy as np
import zarr
from zarr.core.sync import sync

from ucxstore import UcxStore
from ucxstore.client.view import View


def make(store: Any, x: np.ndarray[Any, Any], chunks: Any, **options: Any) -> Any:
    return zarr.create_array(
        store, name="a", data=x, chunks=chunks, overwrite=True, **{"compressors": None} | options
    )


def viewed(store: UcxStore, key: str, *, map_files: bool = False) -> View:
    view = store.view_sync(key, map=True, map_files=map_files)
    assert view is not None
    assert view.mapped
    return view


def waiting(store: UcxStore) -> int:
    """Return the bytes of values without a key that somebody still has."""
    return sync(store.server_stats())["arena_bytes_waiting"]


def held(store: UcxStore) -> int:
    return sync(store.server_stats())["arena_bytes_held"]
