"""What a server is asked to serve, opened: memory, a directory, or another store behind a cache."""

import os
import sys
from typing import TYPE_CHECKING, Any

from ucxstore._native import core
from ucxstore.server.sources.cache_dir import CacheDirectory
from ucxstore.server.sources.carrier import Carrier
from ucxstore.server.sources.locations import TEXTS, RootKind, hide_password, parse_root
from ucxstore.server.sources.options import ScratchOptions, StorageOptions
from ucxstore.server.sources.source import Source
from ucxstore.server.sources.tiered import TieredSource

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from zarr.abc.store import Store

type Local = core.MemoryStorage | core.DirectoryStorage
type Root = str | os.PathLike[str] | Local | ObjectStore | Store

_CHOICE = f"{TEXTS}, an object store of obstore's, or a store of zarr's"


def open_root(
    root: Root, options: StorageOptions | None
) -> tuple[Local | core.CachedSource, Carrier | None]:
    """Open what is to be served.

    Parameters
    ----------
    root
        As `Server` takes it.
    options : StorageOptions or None
        ``None`` where the user gave none: only stores behind a cache have any.

    Returns
    -------
    tuple
        The native storage, and the thread behind it where there is one, which the caller closes.

    Raises
    ------
    ValueError, TypeError
        If it can be no root; the message starts with "root", or an option's name.
    OSError
        If a directory cannot be made, or used as the cache's.
    """
    local = _open_local(root)
    if local is not None:
        if options is not None:
            raise ValueError(
                "cache: only a store behind the server is cached; memory and directories are "
                "served from where they are"
            )
        return local, None
    chosen = StorageOptions() if options is None else options
    source = _open_source(root, chosen)
    tier = None
    if chosen.cache_dir is not None:
        directory = CacheDirectory(chosen.cache_dir, chosen.cache_dir_size)
        tier = TieredSource(source, directory, chosen.freshness, chosen.timeout)
    block_size = chosen.block_size if source.has_parts else 0
    remote = core.CachedSource(chosen.cache, block_size, chosen.freshness, chosen.write_budget)
    return remote, Carrier(remote, source if tier is None else tier, chosen.timeout, tier)


def is_shared(root: Root) -> bool:
    """Whether other servers can serve the same values, as far as one can tell by what it is.

    Parameters
    ----------
    root
        As `Server` takes it.
    """
    if isinstance(root, str | bytes | os.PathLike):
        kind, _ = parse_root("root", root)
        return kind is RootKind.OBJECTS
    if "obstore.store" in sys.modules:
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

        return isinstance(root, AzureStore | GCSStore | HTTPStore | S3Store)
    return False


def open_scratch(
    storage: Local | core.CachedSource, options: ScratchOptions | None, *, read_only: bool
) -> core.Spaces | None:
    """Return the scratch spaces of a server; ``None`` where it offers none.

    Parameters
    ----------
    storage
        What is served. Memory has them within its own limit, if nothing else is asked for.
    options : ScratchOptions or None
        ``None`` where the user gave none.
    read_only : bool
        Whether what is served may be changed.
    """
    if options is not None:
        memory = (
            core.MemoryStorage() if options.limit is None else core.MemoryStorage(options.limit)
        )
        return core.Spaces(memory)
    if isinstance(storage, core.MemoryStorage) and not read_only:
        return core.Spaces(storage)
    return None


def _open_local(root: Root) -> Local | None:
    if isinstance(root, core.MemoryStorage | core.DirectoryStorage):
        return root
    if not isinstance(root, str | bytes | os.PathLike):
        return None
    kind, text = parse_root("root", root)
    if kind is RootKind.MEMORY:
        return core.MemoryStorage()
    return core.DirectoryStorage(text) if kind is RootKind.DIRECTORY else None


def _open_source(root: Any, options: StorageOptions) -> Source:
    if isinstance(root, str | bytes | os.PathLike):
        url = os.fsdecode(root)
        try:
            from ucxstore.server.sources.object_store import ObjectSource, open_url
        except ImportError as error:
            raise ValueError(
                f"root: {url.partition('://')[0]}:// needs obstore: pip install 'ucxstore[objects]'"
            ) from error
        store = open_url(url, options.timeout, options.storage_options)
        return ObjectSource(store, hide_password(url))
    if options.storage_options:
        raise ValueError("storage_options: an object store that is open already takes none")
    # Whoever has an object of a library has imported that; nobody else needs to.
    if "zarr.abc.store" in sys.modules:
        from zarr.abc.store import Store

        if isinstance(root, Store):
            from ucxstore.server.sources.zarr_store import ZarrSource

            return ZarrSource(root)
    if "obstore.store" in sys.modules:
        from obstore.store import ObjectStore

        if isinstance(root, ObjectStore):
            from ucxstore.server.sources.object_store import ObjectSource

            return ObjectSource(root, type(root).__name__)
    raise TypeError(f"root: {root!r} is none of what can be served: {_CHOICE}")
