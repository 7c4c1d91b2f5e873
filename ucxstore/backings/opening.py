"""What a server is asked to serve, opened: memory, a directory, or another store behind a cache."""

import os
import sys
from typing import TYPE_CHECKING, Any

from ucxstore._native import core
from ucxstore.backings.carrier import Carrier
from ucxstore.backings.options import BackingOptions
from ucxstore.backings.roots import TEXTS, RootKind, hide_password, parse_root
from ucxstore.backings.source import Source

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from zarr.abc.store import Store

type Local = core.MemoryBacking | core.DirectoryBacking
type Root = str | os.PathLike[str] | Local | ObjectStore | Store

_CHOICE = f"{TEXTS}, an object store of obstore's, or a store of zarr's"


def open_root(
    root: Root, options: BackingOptions | None
) -> tuple[Local | core.RemoteBacking, Carrier | None]:
    """Open what is to be served.

    Parameters
    ----------
    root
        As `Server` takes it.
    options : BackingOptions or None
        ``None`` where the user gave none: only stores behind a cache have any.

    Returns
    -------
    tuple
        The native backing, and the thread behind it where there is one, which the caller closes.

    Raises
    ------
    ValueError, TypeError
        If it can be no root; the message starts with "root", or an option's name.
    OSError
        If a directory cannot be made.
    """
    local = _open_local(root)
    if local is not None:
        if options is not None:
            raise ValueError(
                "cache: only a store behind the server is cached; memory and directories are "
                "served from where they are"
            )
        return local, None
    chosen = BackingOptions() if options is None else options
    source = _open_source(root, chosen)
    block_size = chosen.block_size if source.has_parts else 0
    remote = core.RemoteBacking(chosen.cache, block_size, chosen.freshness)
    return remote, Carrier(remote, source, chosen.timeout)


def _open_local(root: Root) -> Local | None:
    if isinstance(root, core.MemoryBacking | core.DirectoryBacking):
        return root
    if not isinstance(root, str | bytes | os.PathLike):
        return None
    kind, text = parse_root("root", root)
    if kind is RootKind.MEMORY:
        return core.MemoryBacking()
    return core.DirectoryBacking(text) if kind is RootKind.DIRECTORY else None


def _open_source(root: Any, options: BackingOptions) -> Source:
    if isinstance(root, str | bytes | os.PathLike):
        url = os.fsdecode(root)
        try:
            from ucxstore.backings.object_store import ObjectSource, open_url
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
            from ucxstore.backings.zarr_store import ZarrSource

            return ZarrSource(root)
    if "obstore.store" in sys.modules:
        from obstore.store import ObjectStore

        if isinstance(root, ObjectStore):
            from ucxstore.backings.object_store import ObjectSource

            return ObjectSource(root, type(root).__name__)
    raise TypeError(f"root: {root!r} is none of what can be served: {_CHOICE}")
