"""What a server is asked to serve, opened: memory, a directory, or another store behind a cache."""

import os
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ucxstore._native import core
from ucxstore.backings.cache_dir import CacheDirectory
from ucxstore.backings.carrier import Carrier
from ucxstore.backings.options import BackingOptions
from ucxstore.backings.source import Source
from ucxstore.backings.tiered import TieredSource

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from zarr.abc.store import Store

type Local = core.MemoryBacking | core.DirectoryBacking
type Root = str | os.PathLike[str] | Local | ObjectStore | Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

# What obstore opens.
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)

_CHOICE = (
    "'memory://', a directory's path, 'file:///path', a URL of an object store such as "
    "'s3://bucket/prefix', an object store of obstore's, or a store of zarr's"
)


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
    chosen = BackingOptions() if options is None else options
    source = _open_source(root, chosen.timeout)
    tier = None
    if chosen.cache_dir is not None:
        directory = CacheDirectory(chosen.cache_dir, chosen.cache_dir_size)
        tier = TieredSource(source, directory, chosen.freshness, chosen.timeout)
    block_size = chosen.block_size if source.has_parts else 0
    remote = core.RemoteBacking(chosen.cache, block_size, chosen.freshness, chosen.write_budget)
    return remote, Carrier(remote, source if tier is None else tier, chosen.timeout, tier)


def is_shared(root: Root) -> bool:
    """Whether other servers can serve the same values, as far as one can tell by what it is.

    Parameters
    ----------
    root
        As `Server` takes it.
    """
    if isinstance(root, str | bytes | os.PathLike):
        scheme = _SCHEME.match(os.fsdecode(root))
        return scheme is not None and scheme[1].lower() in _OBJECT_STORES
    if "obstore.store" in sys.modules:
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

        return isinstance(root, AzureStore | GCSStore | HTTPStore | S3Store)
    return False


def _open_local(root: Root) -> Local | None:
    if isinstance(root, core.MemoryBacking | core.DirectoryBacking):
        return root
    if not isinstance(root, str | bytes | os.PathLike):
        return None
    text = os.fsdecode(root)
    scheme = _SCHEME.match(text)
    if scheme is None:
        if not text:
            raise ValueError("root: it is empty")
        return core.DirectoryBacking(text)
    if text == "memory://":
        return core.MemoryBacking()
    if scheme[1] == "file":
        url = urlsplit(text)
        if url.netloc in {"", "localhost"} and url.path and not url.query and not url.fragment:
            return core.DirectoryBacking(unquote(url.path))
    if scheme[1].lower() in _OBJECT_STORES:
        return None
    raise ValueError(f"root: {text!r} is none of what can be served: {_CHOICE}")


def _open_source(root: Any, timeout: float) -> Source:
    if isinstance(root, str | bytes | os.PathLike):
        url = os.fsdecode(root)
        try:
            from ucxstore.backings.object_store import ObjectSource, hide_password, open_url
        except ImportError as error:
            raise ValueError(
                f"root: {url.partition('://')[0]}:// needs obstore: pip install 'ucxstore[objects]'"
            ) from error
        return ObjectSource(open_url(url, timeout), hide_password(url))
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
