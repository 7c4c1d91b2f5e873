"""`UcxStore`: a zarr store whose values are at servers, reached over UCX.

How values are read, written and listed is in `ucxstore.stores.channel_store`. Here is what is
special to servers: addresses, options and identities; memory that is shared with them; scratch
spaces.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, cast

from ucxstore.base import process
from ucxstore.base.address import Address, HostPort
from ucxstore.base.counters import Counters
from ucxstore.base.errors import AddressError, ServerRestartedError
from ucxstore.base.keys import SCRATCH_FOLDER, is_metadata, is_scratch, shorten_space
from ucxstore.base.options import (
    DEFAULT_BUFFER_BUDGET,
    DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_TIMEOUT,
    ClientOptions,
    Map,
    Reachable,
    UcxValue,
    check_map,
    check_map_files,
    check_nbytes,
    check_timeout,
    parse_positive,
    reached_by,
)
from ucxstore.base.secret import Secret
from ucxstore.base.showing import html_block, html_details, html_table
from ucxstore.base.zarr_compat import AsyncArray, Buffer
from ucxstore.client import requests
from ucxstore.client.channel import Channel
from ucxstore.client.connections import Connector
from ucxstore.client.identities import Identities, Known
from ucxstore.client.keyspace import Keyspace
from ucxstore.client.view import View
from ucxstore.cluster.channels import channel_over, connected, connectors_to
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.budget import Budget
from ucxstore.pipeline.indexes.cache import ShardCache
from ucxstore.pipeline.selection import select_pipeline as select
from ucxstore.pipeline.selection import warn_of_other_pipeline
from ucxstore.stores.allocation import Allocation
from ucxstore.stores.channel_store import ChannelStore
from ucxstore.stores.scratch import DEFAULT_TIMEOUT as SCRATCH_TIMEOUT
from ucxstore.stores.scratch import Lease, Scratch, new_name
from ucxstore.stores.viewing import Viewing

if TYPE_CHECKING:
    from ucxstore.base.stats import ServerStats, StoreStats

# Held while a store gets its channel, or is closed. Nothing blocks meanwhile.
_lock = process.lock()


class UcxStore(ChannelStore):
    """A zarr store whose values are at one or several servers, and travel over UCX.

    It connects when it is first used, in any process, on any thread and event loop. Making one
    selects `ucxstore.ZeroCopyCodecPipeline` for zarr, if zarr's default was configured.

    Parameters
    ----------
    address : str, Server or ServerProcess
        ``"ucx://host:port"`` or ``"ucx://host:port/prefix"``; with several servers
        ``"ucx://host:port,host:port/prefix"``. Of a server that this process has started, its
        address, and its secret if none is given here.
    read_only : bool
        Refuse to write.
    timeout : float
        Seconds that a request may go *without progress*. Each segment that arrives, of up to
        16 MiB, renews it: raise it if a segment takes longer. A machine that vanishes from the
        network is noticed after 25 s; with less, `RequestTimeoutError` comes first, and no other
        server is asked.
    connect_timeout : float
        Seconds that connecting may take in all, from the first try. A server that was never met,
        and is not there yet, is tried again until then (docs/requests.md). In each try, its host
        must answer within 5 seconds; the rest is for a server that has much to do.
    secret : str, bytes, Secret or None
        The secret that the server must know too, or a grant. It is neither shown nor pickled.
    encrypt : bool or None
        Whether all that goes over a network is encrypted, by AES-256-GCM. ``None``: where the
        server does so. ``True`` refuses a server that does not, and needs a secret. ``False`` goes
        without, which such a server refuses. Shared memory is not (docs/security.md).
    integrity : bool or None
        Whether it has checksums (CRC32C), which the receiver checks before any call succeeds
        (docs/transport.md). ``None``: over TCP, except over loopback.
    strict : bool
        Raise `FallbackError` where a chunk would leave the short path: neither move straight
        between array and store, nor be decoded, encoded or merged here (docs/ways.md).
    select_pipeline : bool or None
        Whether zarr is to use ucxstore's pipeline: ``None`` if zarr's default is configured,
        ``True`` in place of any other, ``False`` leaves zarr's configuration alone.
    buffer_budget : int or str
        Bytes, such as ``"256MiB"``, that may be in buffers of this store and of its copies by
        `with_read_only` at once: encoded chunks on their way, and raw chunks that are written in
        part. A larger chunk is read or written alone. Each thread has one decoded chunk besides.
    map : {"auto", True, False}
        Whether large raw chunks of a server of the same host are mapped into the result, page by
        page as they are written to, in place of being copied (docs/local.md). The array is the
        caller's own all the same. ``"auto"``: 8 MiB and more of a chunk; ``True``: wherever a page
        can be mapped.
    ucx : mapping or None
        UCX options without ``UCX_``, such as ``{"TLS": "tcp"}``. They override the environment.

    Other Parameters
    ----------------
    local : {"auto", "ucx", "off"} or None
        How to reach a server of the same host: over memory that it lets its clients see (its option
        ``local``), or over UCX, with UCX's shared memory if the server's ``ucx_shared_memory`` lets
        it, or as if it were on another host. ``None``: as ``UCXSTORE_LOCAL`` in the environment
        says, else ``"auto"``.
    network : {"auto", "tcp", "ucx"} or None
        How to reach a server otherwise: over the TCP connection of the handshake, or over UCX, if
        the server's ``network`` offers it. ``"auto"``: UCX if both hosts have RDMA, or `ucx`,
        ``local="ucx"`` or ``UCX_TLS`` ask for it, else TCP, as for all that is encrypted
        (docs/transport.md). ``None``: as ``UCXSTORE_NETWORK`` says, else ``"auto"``.
    progress : {"blocking", "polling"}
        Whether UCX's thread sleeps or polls while nothing happens.

    Raises
    ------
    AddressError
        If the address is malformed.
    ValueError, TypeError
        If an option is not usable, `address` is something else, or a variable of the environment
        begins with ``UCXSTORE_`` and is none of ours.

    Examples
    --------
    >>> store = UcxStore("ucx://127.0.0.1:7400/run-17")  # doctest: +SKIP
    >>> zarr.open(store=store)  # doctest: +SKIP
    """

    def __init__(
        self,
        address: str | Address | Reachable,
        *,
        read_only: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        secret: str | bytes | Secret | None = None,
        encrypt: bool | None = None,
        integrity: bool | None = None,
        strict: bool = False,
        select_pipeline: bool | None = None,
        buffer_budget: int | str = DEFAULT_BUFFER_BUDGET,
        map: Map = "auto",
        ucx: Mapping[str, UcxValue] | None = None,
        local: str | None = None,
        network: str | None = None,
        progress: str = "blocking",
    ) -> None:
        parsed, of_server = _parse(address)
        options = ClientOptions.of(
            timeout=timeout,
            connect_timeout=connect_timeout,
            secret=of_server if secret is None else secret,
            ucx=ucx,
            progress=progress,
            select_pipeline=select_pipeline,
            strict=strict,
            buffer_budget=buffer_budget,
            local=local,
            network=network,
            map=map,
            integrity=integrity,
            encrypt=encrypt,
        )
        identities = Identities(parsed.servers, scratch=is_scratch(parsed.prefix))
        self._set_up(parsed, options, read_only, identities)
        select(select_pipeline)

    def _set_up(
        self, address: Address, options: ClientOptions, read_only: bool, identities: Identities
    ) -> None:
        keyspace = Keyspace(address.prefix, type(self).__name__)
        super().__init__(keyspace, Counters(), read_only=read_only)
        self._address = address
        self._options = options
        self._made: Channel | None = None
        self._closed = False
        self._identities = identities
        self._budget = Budget(options.buffer_budget)
        self._shard_indexes = ShardCache()

    # ---- identity ----

    @property
    def address(self) -> str:
        """The store's address, in its normal form."""
        return str(self._address)

    @property
    def servers(self) -> tuple[HostPort, ...]:
        """The servers that the address names."""
        return self._address.servers

    @property
    def timeout(self) -> float:
        """Seconds that a request may go without progress."""
        return self._options.timeout

    @property
    def secret(self) -> Secret | None:
        """The secret, or the grant, that the store connects with."""
        return self._options.secret

    @property
    def strict(self) -> bool:
        """Whether chunks that would leave the short path raise instead."""
        return self._options.strict

    def __str__(self) -> str:
        return self.address

    @property
    def _shown(self) -> str:
        """The address as reprs and messages have it."""
        return shorten_space(self.address)

    @property
    def closed(self) -> bool:
        """Whether `close` was called, and the store was not used since."""
        return self._closed

    def _state(self) -> tuple[str, list[str]]:
        """Return whether it is connected, and the lanes, as far as that is known here."""
        if self._closed:
            return "closed", []
        lanes = connected(self._connectors.values()).lanes
        return ("connected" if lanes else "not connected"), lanes

    def __repr__(self) -> str:
        state, lanes = self._state()
        over = f" over {', '.join(lanes)}" if lanes else ""
        read_only = ", read_only=True" if self.read_only else ""
        return f"<{type(self).__name__} {self._shown!r}{read_only}, {state}{over}>"

    def _repr_html_(self) -> str:
        state, lanes = self._state()
        rows = [
            ("servers", ", ".join(map(str, self.servers))),
            ("prefix", shorten_space(self._address.prefix) or "-"),
            ("state", state),
            ("lanes", ", ".join(lanes) or "-"),
            ("read-only", "yes" if self.read_only else "no"),
        ]
        counters = html_details("Counters", self.stats().html())
        return html_block(type(self).__name__, self._shown, html_table(rows), counters)

    def __eq__(self, value: object) -> bool:
        return (
            isinstance(value, UcxStore)
            and self._address == value._address
            and self.read_only == value.read_only
        )

    def __hash__(self) -> int:
        return hash((self._address, self.read_only))

    def __reduce__(self) -> tuple[object, ...]:
        # A secret pickles itself without its text. Nothing of this process goes along.
        state = self._address, self._options, self.read_only, self._identities.known
        return _unpickle, (type(self), *state)

    def with_read_only(self, read_only: bool = False) -> Self:
        copy = type(self).__new__(type(self))
        copy._set_up(self._address, self._options, read_only, self._identities)
        copy._counters = self._counters
        copy._budget = self._budget
        copy._shard_indexes = self._shard_indexes
        return copy

    def at(
        self, prefix: str, told: Mapping[HostPort, bytes] | None = None, *, read_only: bool = False
    ) -> Self:
        """Return a store of the same servers and options over another prefix.

        Parameters
        ----------
        prefix : str
        told : mapping, optional
            The identities of servers that it relies on. Without it, both stores rely on the same
            ones, also on those that either meets later.
        read_only : bool
        """
        address = Address(self.servers, prefix)
        known = Known(told or {})
        store = cast(Self, _unpickle(type(self), address, self._options, read_only, known))
        if told is None and store._keyspace.in_scratch == self._keyspace.in_scratch:
            store._identities = self._identities
        return store

    def _noticed(self, key: str, value: Buffer | None) -> Buffer | None:
        if value is not None and is_metadata(key):  # no chunk, which may be on a device
            choice = self._options.select_pipeline
            warn_of_other_pipeline(choice, key, memoryview(value.as_numpy_array()), self._shown)
        return value

    # ---- servers ----

    @property
    def _connectors(self) -> dict[HostPort, Connector]:
        """The connector to each of the store's servers, in the order of the address."""
        return connectors_to(self.servers, self._options)

    @property
    def _channel(self) -> Channel:
        """The channel to the store's servers, for any process, thread and event loop."""
        channel = self._made  # once: another thread may close the store
        return self._make_channel() if channel is None else channel

    def _make_channel(self) -> Channel:
        channel = channel_over(self._connectors, self._identities, self._counters, self._options)
        with _lock:
            if self._made is None:
                self._made = channel
                self._is_open = True
                self._closed = False
            return self._made

    @property
    def _chunk_access(self) -> ChunkAccess:
        """What the pipeline needs of the store."""
        return ChunkAccess(
            store=self,
            channel=self._channel,
            key_prefix=self._keyspace.prefix,
            strict=self.strict,
            counters=self._counters,
            budget=self._budget,
            shard_indexes=self._shard_indexes,
            check_writable=self._check_writable,
            mapping=self._options.map,
        )

    async def _open(self) -> None:
        if self._is_open:
            raise ValueError("store is already open")
        await self._channel.open()

    async def _ensure_open(self) -> None:
        if not self._is_open:
            await self._channel.open()

    def close(self) -> None:
        """Close the store, and its connections, but for those that other stores share.

        It does not block. What is under way raises `StoreClosedError`, in whatever thread or task,
        and is not tried again; whether a write among it was made is not known. A store that is used
        after that connects again. It still refuses a server that has restarted without its values.
        Views, and arrays that values are mapped into, stay as they are. Copies by `with_read_only`,
        `at` or a pickle stay open, and so do scratch spaces.
        """
        super().close()
        with _lock:
            self._closed = True
            self._is_open = False
            made, self._made = self._made, None
        # Outside of the lock: it may be the last to use its connections.
        if made is not None:
            made.close(f"{self._shown}: the store was closed meanwhile")

    async def __aenter__(self) -> Self:
        await self._ensure_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> "StoreStats":
        """Return the counters of this store and of its copies by `with_read_only`.

        Returns
        -------
        StoreStats
            A frozen dataclass that prints as a table. It is a dictionary, too.
        """
        # Also those of a copy alone, such as zarr makes to read.
        now = connected(() if self._closed else self._connectors.values())
        return self._counters.snapshot(now.lanes, integrity=now.checked, encrypted=now.encrypted)

    async def server_stats(self) -> "ServerStats":
        """Return what the server has counted since it was started, whoever its clients were.

        Raises
        ------
        AddressError
            If the store has several servers: each has counters of its own.
        ProtocolError
            If its answer does not have these counters.
        """
        self._check_one_server()
        from ucxstore.base.stats import parse_server_stats

        return parse_server_stats(await self._channel.ask(requests.stats()))

    def server_stats_sync(self) -> "ServerStats":
        """Do as `server_stats`, blocking."""
        self._check_one_server()
        from ucxstore.base.stats import parse_server_stats

        return parse_server_stats(self._channel.ask_sync(requests.stats()))

    def _check_one_server(self) -> None:
        if len(self.servers) > 1:
            raise AddressError(
                f"server_stats needs one server, and {self._shown} has several: use the address "
                "of each"
            )

    async def ping(self) -> None:
        """Send an empty request to the servers, and wait for the answers: one round trip."""
        await self._channel.ask(requests.ping())

    def ping_sync(self) -> None:
        """Do as `ping`, blocking."""
        self._channel.ask_sync(requests.ping())

    def rely_on(self, known: Mapping[HostPort, bytes]) -> None:
        """Rely on these identities of servers, before the store has met any of them.

        Whoever started the servers knows the identities. With them, a process refuses a server with
        another storage even if it connects for the first time. Where all are given, they are the
        set of servers, whatever record the servers keep. Call this before the store is used.
        """
        for server, identity in known.items():
            self._identities.rely_on(server, identity)

    async def accept_restarted(self) -> None:
        """Use servers that have come back with another storage: the old values are lost.

        By default they are refused with `ServerRestartedError`: their keys are missing, and zarr
        would read fill values. After this call they are used. It applies to the servers that can be
        reached now. It applies to this store, its copies by `with_read_only` and its later pickles.
        With several servers, it changes the record that they keep of their set, so it also applies
        to stores that are made later, here or elsewhere. ``ucxstore cluster accept-loss`` does so.

        Raises
        ------
        ConnectError
            If none of the servers can be reached, or one of them does not answer.
        """
        await asyncio.to_thread(self.accept_restarted_sync)

    def accept_restarted_sync(self) -> None:
        """Do as `accept_restarted`, blocking."""
        channel = self._channel
        with suppress(ServerRestartedError):
            channel.open_sync()
        channel.accept_restarted()

    async def scratch(
        self, quota: int | str, timeout: float = SCRATCH_TIMEOUT, *, read_once: bool = False
    ) -> Scratch[Self]:
        """Make a scratch space at the store's servers, for temporary values.

        Servers whose values are in memory offer it within their limit, others by
        `Server(scratch_limit=...)`. Its name cannot be guessed, and does not depend on this store's
        prefix. When this returns, all servers have the space.

        Parameters
        ----------
        quota : int or str
            Bytes that values in it may take, such as ``"8GiB"``; a write beyond that raises
            `StorageError`. One server keeps to it exactly. Of several, each takes up to twice its
            share, since keys are placed by their hash.
        timeout : float
            Seconds after which the servers end a space that this process does not renew: it was
            killed, stopped, or cut off. Reads and writes do not renew it.
        read_once : bool
            Whether a value is freed once all of it has been read. Later reads raise `EvictedError`.

        Returns
        -------
        Scratch
            A context manager, also for ``async with``, whose `store` returns stores. Leaving it
            frees their values. After that, they raise `ScratchEndedError`.

        Raises
        ------
        ValueError, TypeError
            If an option is not usable.
        ConnectError
            If one of the servers cannot be reached.
        StorageError
            If one offers no scratch space.

        Examples
        --------
        >>> with store.scratch_sync("8GiB") as scratch:  # doctest: +SKIP
        ...     zarr.create_array(scratch.store("rechunked"), ...)
        """
        return await asyncio.to_thread(self.scratch_sync, quota, timeout, read_once=read_once)

    def scratch_sync(
        self, quota: int | str, timeout: float = SCRATCH_TIMEOUT, *, read_once: bool = False
    ) -> Scratch[Self]:
        """Do as `scratch`, blocking."""
        size = parse_positive("quota", quota)
        whole = self.at(f"{SCRATCH_FOLDER}{(name := new_name(read_once=read_once))}", {})
        lease = Lease(name, whole._channel, check_timeout("timeout", timeout))
        lease.begin(size, len(self.servers))
        return Scratch(self, size, lease, whole._identities.known.met)

    # ---- reading without a copy ----

    async def view(self, key: str, *, map: Map = "auto", map_files: bool = False) -> View | None:
        """Return a value where it lies, as an array of bytes that cannot be written to.

        The value stays as it is for as long as the array is there, also if it is replaced or
        removed, or if its server ends. A view is a context manager: leaving it lets go of the
        memory, unless an array of it was kept. Where the server shows the value, this takes
        microseconds.

        Parameters
        ----------
        key : str
        map : {"auto", True, False}
            ``True`` raises where the value can only be copied; ``"auto"`` copies it then, ``False``
            always.
        map_files : bool
            Whether a value in a directory may be mapped from its file, too, where this process can
            open that: see Notes. Otherwise, the value can only be copied.

        Returns
        -------
        View or None
            ``None`` for a missing key. Its `mapped` says whether it is the server's memory, or its
            file. That takes a server of this host, and a value in its memory that it shows, or in
            a directory that it lets this process open.

        Raises
        ------
        NotMappedError
            As `map` says.

        Notes
        -----
        Servers replace files, and never write to them: a view has the old file until it goes. But
        nothing keeps others from it. If anybody cuts the file itself, as ``open(path, "w")`` does,
        the kernel ends this process by SIGBUS once it looks at what is not there any more. So it
        does if the disk fails. If anybody writes to the file itself, the view shows that. So use
        `map_files` only where nobody else writes to the directory, or everybody replaces files
        whole. What is not in the page cache is read when it is first looked at, and the thread
        waits for the disk then.
        """
        viewing = self._viewing(map, map_files)
        return await viewing.run(viewing.value(self._keyspace.full_key(key)))

    def view_sync(self, key: str, *, map: Map = "auto", map_files: bool = False) -> View | None:
        """Do as `view`, blocking."""
        viewing = self._viewing(map, map_files)
        return viewing.run_sync(viewing.value(self._keyspace.full_key(key)))

    async def view_array(
        self, array: Any, selection: Any = ..., *, map: Map = "auto", map_files: bool = False
    ) -> View:
        """Return a part of a zarr array where it lies, as an array that cannot be written to.

        It has the array's dtype, and strides where the selection has steps or is a part of the
        chunk. See `view` for how long it stays as it is.

        Parameters
        ----------
        array : zarr.Array or zarr.AsyncArray
            An array at the servers of this store.
        selection : int, slice, ellipsis, or a tuple of them
            Chunks must be stored raw. All of it must lie in one chunk, or in chunks that follow one
            another along the first axis, each of whole pages (of 4 KiB, mostly) of values in C
            order, and at most 1,024 of them: these are mapped one after the other.
        map : {"auto", True, False}
            Where the chunk cannot be seen from here, ``True`` raises, and ``"auto"`` copies.
            ``False`` always copies, any selection of any array.
        map_files : bool
            Whether the chunk may be mapped from its file in a directory, too. Who cuts that file
            then ends this process: see `view`.

        Returns
        -------
        View

        Raises
        ------
        NotMappedError
            If the selection spans several chunks in another way, or chunks are encoded or parts of
            shards; or as `map` says.
        ValueError
            If the array is not at the servers of this store.
        """
        viewing = self._viewing(map, map_files)
        return await viewing.run(viewing.part(self._check_array(array), selection))

    def view_array_sync(
        self, array: Any, selection: Any = ..., *, map: Map = "auto", map_files: bool = False
    ) -> View:
        """Do as `view_array`, blocking."""
        viewing = self._viewing(map, map_files)
        return viewing.run_sync(viewing.part(self._check_array(array), selection))

    # ---- writing without a copy ----

    async def allocate(self, key: str, nbytes: int | str) -> Allocation:
        """Return memory for a value, to compute into; its `commit` stores the value.

        So a large value is not copied on its way to a server of the same host that has the option
        ``local``. Every other way takes it, too.

        Parameters
        ----------
        key : str
        nbytes : int or str
            The size of the value in bytes, such as ``x.nbytes`` or ``"256MiB"``.

        Returns
        -------
        Allocation
            A context manager; leaving it without a commit drops the value.

        Raises
        ------
        ValueError, TypeError
            If `nbytes` is no size, or the store is read-only.
        OutOfMemoryError
            If there is not so much memory.

        Examples
        --------
        >>> with store.allocate_sync("frames/c/7", frame.nbytes) as value:  # doctest: +SKIP
        ...     np.multiply(frame, 2, out=value.view(frame.dtype, frame.shape))
        ...     value.commit_sync()
        """
        return await asyncio.to_thread(self.allocate_sync, key, nbytes)

    def allocate_sync(self, key: str, nbytes: int | str) -> Allocation:
        """Do as `allocate`, blocking."""
        self._check_writable()
        full = self._keyspace.full_key(key)
        size = check_nbytes(nbytes)
        channel = self._channel
        if not channel.opened:
            channel.open_sync()
        memory = channel.allocate(full, size)
        if memory is not None:
            return Allocation(self, key, full, memory)
        from ucxstore.base.native import core  # not before it is needed

        return Allocation(self, key, full, core.allocate(size))

    def _viewing(self, mapping: Map, map_files: bool) -> Viewing:
        checked, files = check_map(mapping), check_map_files(map_files)
        return Viewing(self._channel, self._counters, checked, files=files)

    def _check_array(self, array: object) -> AsyncArray[Any]:
        """Return zarr's asynchronous array, which is at the servers of this store."""
        from ucxstore.pipeline.chunk_view import access_of, async_array_of

        found = async_array_of(array)
        theirs = cast(UcxStore, access_of(found).store)
        if set(theirs.servers) != set(self.servers):
            raise ValueError(
                f"{shorten_space(str(found.store_path))} is not at the servers of {self._shown}"
            )
        return found


def connectors_of(store: UcxStore) -> dict[HostPort, Connector]:
    """Return the connector to each of a store's servers, in the order of its address."""
    return store._connectors


def _parse(address: object) -> tuple[Address, Secret | None]:
    """Return the parsed address, and the secret of a server that was given in its place."""
    secret: Secret | None = None
    if isinstance(address, Reachable):
        address, secret = reached_by(address)
    if isinstance(address, str):
        return Address.parse(address), secret
    if not isinstance(address, Address):
        raise TypeError(
            "address: an address such as 'ucx://127.0.0.1:7400', or a Server, is needed, not "
            f"{address!r}"
        )
    return address, None


def _unpickle(
    cls: type[UcxStore], address: Address, options: ClientOptions, read_only: bool, known: Known
) -> UcxStore:
    store = cls.__new__(cls)
    identities = Identities(address.servers, known, scratch=is_scratch(address.prefix))
    store._set_up(address, options, read_only, identities)
    select(options.select_pipeline)
    return store
