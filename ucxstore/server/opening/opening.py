"""Open the storage of a server: memory, a directory, or a source behind a cache."""

import math
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from ucxstore.base.address import Address
from ucxstore.base.native import core
from ucxstore.server.locations import LOCATIONS, LocationKind, hide_password, parse_location
from ucxstore.server.opening.directories import check_directory
from ucxstore.server.opening.memory import open_memory
from ucxstore.server.options.available import default_memory
from ucxstore.server.options.server_options import (
    DEFAULT_BLOCK_SIZE,
    DEFAULT_CACHE,
    DEFAULT_DURABILITY,
    DEFAULT_SOURCE_TIMEOUT,
    DEFAULT_WRITE_BUDGET,
    ServerOptions,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from zarr.abc.store import Store

    from ucxstore.server.identity import Identity
    from ucxstore.server.source_thread.carrier import Carrier
    from ucxstore.server.sources.source import Source
    from ucxstore.server.sources.upstream import UpstreamSource

type NativeStorage = core.MemoryStorage | core.DirectoryStorage
type Storage = str | os.PathLike[str] | NativeStorage | ObjectStore | Store

# Ends the text of a refusal.
_MORE_MEMORY = "; delete values, or start the server with more (--memory, Server(memory=...))"

_CHOICE = f"{LOCATIONS}; or an object store of obstore's, or a store of zarr's"


def _nothing() -> None:
    """Leave a storage that others need not wait for."""


class Opened(NamedTuple):
    """The storage of a server.

    Parameters
    ----------
    storage : core.MemoryStorage, core.DirectoryStorage or core.CachedSource
    carrier : Carrier or None
        For a source, the thread behind it, which the caller closes.
    leave : callable
        Leaves the storage to other servers, once nothing is served any more.
    identity : Identity or None
        The identity of values at other servers; ``None`` where the location tells.
    """

    storage: "NativeStorage | core.CachedSource"
    carrier: "Carrier | None" = None
    leave: Callable[[], None] = _nothing
    identity: "Identity | None" = None


def open_storage(storage: Storage, options: ServerOptions) -> Opened:
    """Open the storage of a server.

    Parameters
    ----------
    storage
        As `Server` takes it.
    options : ServerOptions

    Raises
    ------
    ValueError, TypeError
        If it cannot be served; the message starts with "storage", or an option's name.
    OSError
        If a directory is missing, or cannot be made or used.
    StorageError
        If an object store does not answer as it should.
    """
    kind = _kind_of(storage)
    is_memory, is_directory = kind is LocationKind.MEMORY, kind is LocationKind.DIRECTORY
    if options.read_only and is_memory and options.scratch_limit is None:
        raise ValueError(
            "read_only: the memory of a new server is empty, and would stay so; serve a directory "
            "or an object store, or offer scratch space in it (--scratch-limit 8GiB)"
        )
    if options.memory is not None and not is_memory:
        raise ValueError("memory: only memory:// has this limit")
    if options.when_full is not None and not is_memory:
        raise ValueError("when_full: only memory:// has this option")
    if options.durability is not None and not is_directory:
        raise ValueError("durability: only a directory that the server opens has it")
    if options.create and not is_directory:
        raise ValueError("create: only a directory can be made")
    is_native = isinstance(storage, core.MemoryStorage | core.DirectoryStorage)
    if is_native or is_memory or is_directory:
        options.refuse_source_options()
        return _open_native(storage, options)
    return _open_cached(storage, options)


def _open_cached(storage: Any, options: ServerOptions) -> Opened:
    # Not for memory and directories, whose servers start in half the time without these.
    from ucxstore.server.source_thread.carrier import Carrier
    from ucxstore.server.source_thread.peer_driver import PeerDriver
    from ucxstore.server.sources.cache_dir import CacheDirectory
    from ucxstore.server.sources.checking import check_source
    from ucxstore.server.sources.tiered import DiskTier

    timeout = _or(options.source_timeout, DEFAULT_SOURCE_TIMEOUT)
    freshness = None if options.freshness == math.inf else options.freshness
    source = _open_source(storage, options, timeout)
    if options.check:
        check_source(source, timeout)
    elif _kind_of(storage) is LocationKind.SERVERS:
        raise ValueError("check: a source at other servers is always asked, as it has an identity")
    with ExitStack() as on_failure:
        disk = None
        if options.cache_dir is not None:
            directory = CacheDirectory(options.cache_dir, options.cache_dir_size or 0)
            on_failure.callback(directory.close)
            disk = DiskTier(source, directory, freshness, timeout)
        cached = core.CachedSource(
            _or(options.cache, DEFAULT_CACHE),
            _or(options.block_size, DEFAULT_BLOCK_SIZE) if source.has_parts else 0,
            freshness,
            _or(options.write_budget, DEFAULT_WRITE_BUDGET),
            visible=options.local,
        )
        members = PeerDriver(
            source,
            cached,
            disk,
            shared=not options.read_only and _may_be_written_elsewhere(storage),
            asks=options.freshness is not None,
            patience=timeout,
            refuses=_refuses(storage),
        )
        carrier = Carrier(cached, source, timeout, members, disk)
        on_failure.pop_all()  # the carrier closes it
    return Opened(cached, carrier, identity=_identity_of(source))


def _identity_of(source: "Source") -> "Identity | None":
    """Return the identity of what other servers have; ``None`` for any other source."""
    from ucxstore.server.identity import identify_behind

    if "ucxstore.server.sources.upstream" in sys.modules:
        from ucxstore.server.sources.upstream import UpstreamSource

        if isinstance(source, UpstreamSource):
            return identify_behind(source.identities, source.prefix)
    return None


def is_shared(storage: Storage) -> bool:
    """Tell whether other servers can serve the same values, judged by the kind of storage.

    Parameters
    ----------
    storage
        As `Server` takes it.
    """
    kind = _kind_of(storage)
    if kind is not None:
        return kind in (LocationKind.OBJECTS, LocationKind.SERVERS)
    if "obstore.store" in sys.modules:
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

        return isinstance(storage, AzureStore | GCSStore | HTTPStore | S3Store)
    return False


def open_scratch(
    storage: NativeStorage | core.CachedSource, options: ServerOptions
) -> core.Spaces | None:
    """Return the scratch spaces of a server; ``None`` if it offers none.

    Parameters
    ----------
    storage
        The storage that is served. Memory holds them within its own limit; beside others they have
        memory of their own.
    options : ServerOptions
    """
    if isinstance(storage, core.MemoryStorage):
        if options.read_only and options.scratch_limit is None:
            return None
        return core.Spaces(storage, visible=options.local, limit=options.scratch_limit)
    if options.scratch_limit is None:
        return None
    return core.Spaces(core.MemoryStorage(options.scratch_limit), visible=options.local)


def open_decoded(options: ServerOptions) -> core.DecodedValues | None:
    """Return where a server keeps what it decodes for its readers; ``None`` if it does not."""
    if options.decoded is None:
        return None
    # It takes zarr, which other servers do without: they start in half the time.
    from ucxstore.codecs.recipe import prepare

    threads = len(os.sched_getaffinity(0))
    return core.DecodedValues(prepare, options.decoded, threads, visible=options.local)


def _or[T](value: T | None, default: T) -> T:
    return default if value is None else value


def _kind_of(storage: Storage) -> LocationKind | None:
    """Return the kind of a location; ``None`` for an object that is open already."""
    if isinstance(storage, str | bytes | os.PathLike):
        return parse_location("storage", storage)[0]
    return None


def _open_native(storage: Any, options: ServerOptions) -> Opened:
    if isinstance(storage, core.MemoryStorage | core.DirectoryStorage):
        return Opened(storage)
    kind, text = parse_location("storage", storage)
    if kind is LocationKind.MEMORY:
        limit = default_memory() if options.memory is None else options.memory
        memory, leave = open_memory(limit, options, _MORE_MEMORY)
        return Opened(memory, leave=leave)
    if not options.create:
        check_directory(text)
    writers = "none" if options.read_only else "several" if options.shared else "alone"
    directory = core.DirectoryStorage(text, _or(options.durability, DEFAULT_DURABILITY), writers)
    return Opened(directory, leave=directory.leave)


def _may_be_written_elsewhere(storage: Any) -> bool:
    """Tell whether a source that is written to can have other servers that do so, too."""
    if "icechunk" in sys.modules:
        from icechunk import IcechunkStore

        if isinstance(storage, IcechunkStore):
            return False  # what a session has written is its own until it is committed
    if "zarr.abc.store" in sys.modules:
        from zarr.abc.store import Store

        if isinstance(storage, Store):
            shares = (
                storage.supports_writes and storage.supports_deletes and storage.supports_listing
            )
            # zarr's name of what is in the memory of this process.
            return shares and not storage.read_only and not str(storage).startswith("memory:")
    return True


def _refuses(storage: Any) -> Callable[[BaseException], bool]:
    """Return what tells whether no server can ever find others in this source.

    So it is of plain HTTP, without the listings of WebDAV. Other stores list what they have.
    """
    plain = isinstance(storage, str) and storage.lower().startswith(("http:", "https:"))
    if "obstore.store" in sys.modules:
        from obstore.store import HTTPStore

        plain |= isinstance(storage, HTTPStore)
    if not plain:
        return lambda _: False
    from ucxstore.server.sources import object_errors

    return object_errors.refuses


def _open_servers(address: str, options: ServerOptions, timeout: float) -> "UpstreamSource":
    from ucxstore.server.sources.upstream import UpstreamSource
    from ucxstore.server.sources.upstream_options import refuse_itself, upstream_options

    servers = Address.parse(address)
    refuse_itself(servers, options.bind)
    return UpstreamSource(servers, upstream_options(options, timeout))


def _open_source(storage: Any, options: ServerOptions, timeout: float) -> "Source":
    if isinstance(storage, str | bytes | os.PathLike):
        kind, url = parse_location("storage", storage)
        if kind is LocationKind.SERVERS:
            return _open_servers(url, options, timeout)
        try:
            from ucxstore.server.sources.object_store import ObjectSource, open_url
        except ImportError as error:
            raise ValueError(
                f"storage: {url.partition('://')[0]}:// needs obstore: "
                "pip install 'ucxstore[objects]'"
            ) from error
        store = open_url(url, timeout, options.storage_options or {})
        return ObjectSource(store, hide_password(url), timeout)
    if options.storage_options:
        raise ValueError("storage_options: an object store that is open already takes none")
    # If it is a library's object, the library is imported already. Do not import it otherwise.
    if "zarr.abc.store" in sys.modules:
        from zarr.abc.store import Store

        if isinstance(storage, Store):
            from ucxstore.server.sources.zarr_store import ZarrSource

            return ZarrSource(storage, timeout)
    if "obstore.store" in sys.modules:
        from obstore.store import ObjectStore

        if isinstance(storage, ObjectStore):
            from ucxstore.server.sources.object_store import ObjectSource

            return ObjectSource(storage, type(storage).__name__, timeout)
    raise TypeError(f"storage: {storage!r} cannot be served; it must be {_CHOICE}")
