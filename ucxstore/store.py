"""`UcxStore`: a zarr store whose values are at servers, reached over UCX.

Methods of zarr's `Store` do what zarr documents. Those whose names end with ``_sync`` do the same,
blocking.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from zarr.abc.store import ByteRequest, Store

from ucxstore.address import Address, HostPort
from ucxstore.allocation import Allocation
from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange, bounds, many_to_native, to_native
from ucxstore.client.channel import Channel
from ucxstore.client.connections import Connector, connector_to
from ucxstore.client.identities import Identities, Known
from ucxstore.client.memory import readable_view, writable_view
from ucxstore.client.one_server import OneServer
from ucxstore.client.requests import Found, Request
from ucxstore.client.view import View
from ucxstore.errors import AddressError, ServerRestartedError
from ucxstore.keys import SCRATCH_FOLDER, check_key, check_reserved, is_scratch
from ucxstore.options import (
    DEFAULT_BUFFER_BUDGET,
    DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_TIMEOUT,
    ClientOptions,
    Map,
    UcxValue,
    check_map,
    check_map_files,
    check_nbytes,
    check_timeout,
    parse_size,
)
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.budget import Budget
from ucxstore.pipeline.selection import select_pipeline as select
from ucxstore.pipeline.shards.cache import ShardCache
from ucxstore.scratch import DEFAULT_TIMEOUT as SCRATCH_TIMEOUT
from ucxstore.scratch import Scratch
from ucxstore.secret import Secret
from ucxstore.stats import Counters, ServerStats, StoreStats, parse_server_stats
from ucxstore.viewing import Viewing, run, run_sync
from ucxstore.zarr_compat import (
    AsyncArray,
    Buffer,
    BufferPrototype,
    cpu,
    default_buffer_prototype,
)

type Into = tuple[str, object, ByteRequest | None]
"""A key, where its value goes, and the part of it that is wanted."""


class UcxStore(Store):
    """A zarr store whose values are at one or several servers, and travel over UCX.

    It connects when it is first used, in any process, on any thread and event loop. Making one
    selects `ucxstore.ZeroCopyCodecPipeline` for zarr, if zarr's default was configured.

    Parameters
    ----------
    address : str
        ``"ucx://host:port"`` or ``"ucx://host:port/prefix"``; with several servers
        ``"ucx://host:port,host:port/prefix"``.
    read_only : bool
        Refuse to write.
    timeout : float
        Seconds that a request may go without progress.
    connect_timeout : float
        Seconds that connecting may take; the server's host must answer within 5 of them.
    secret : str, bytes, Secret or None
        What the server must know too. It is neither shown nor pickled.
    ucx : mapping or None
        UCX options without ``UCX_``, such as ``{"TLS": "tcp"}``. The environment sets the others.
    progress : {"blocking", "polling"}
        Whether the progress thread sleeps or polls while nothing happens.
    select_pipeline : bool or None
        ``False`` leaves zarr's pipeline alone; ``True`` selects ours in place of any other.
    strict : bool
        Raise `FallbackError` where a chunk would leave the short path: neither move straight
        between array and store, nor be decoded, encoded or merged here.
    buffer_budget : int
        Bytes that may be in buffers of this store and of its copies by `with_read_only` at once:
        encoded chunks, on the way from the server to a codec or back, and raw chunks that are
        written in part. A chunk that is larger is read or written alone. In addition, each thread
        has one decoded chunk and what its codec needs.
    local : {"auto", "ucx", "off"} or None
        How to reach a server of the same host: over memory that it lets its clients see (unless its
        option ``local`` is off); over UCX's shared memory; or as a server of another host, over
        UCX's other transports. ``None`` is the value of ``UCXSTORE_LOCAL`` in the environment, else
        ``"auto"``. The others are there for comparison.
    map : {"auto", True, False}
        Whether large raw chunks that lie together in what zarr returns are mapped there from the
        server's memory, page by page as they are written to, in place of being copied. The array
        is the caller's own all the same. ``"auto"`` does so with 8 MiB and more of a chunk,
        ``True`` wherever a page can be mapped. See docs/local.md.
    integrity : bool or None
        Whether all that goes over UCX, to a server and back, has checksums (CRC32C), which the
        receiver checks before any call succeeds: see docs/transport.md. ``None``: where it goes
        over TCP, except over loopback.

    Raises
    ------
    AddressError
        If the address is malformed.
    ValueError, TypeError
        If an option is not usable.

    Examples
    --------
    >>> store = UcxStore("ucx://127.0.0.1:7400/run-17")  # doctest: +SKIP
    >>> zarr.open(store=store)  # doctest: +SKIP
    """

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    def __init__(
        self,
        address: str | Address,
        *,
        read_only: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        secret: str | bytes | Secret | None = None,
        ucx: Mapping[str, UcxValue] | None = None,
        progress: str = "blocking",
        select_pipeline: bool | None = None,
        strict: bool = False,
        buffer_budget: int = DEFAULT_BUFFER_BUDGET,
        local: str | None = None,
        map: Map = "auto",
        integrity: bool | None = None,
    ) -> None:
        options = ClientOptions.of(
            timeout=timeout,
            connect_timeout=connect_timeout,
            secret=secret,
            ucx=ucx,
            progress=progress,
            select_pipeline=select_pipeline,
            strict=strict,
            buffer_budget=buffer_budget,
            local=local,
            map=map,
            integrity=integrity,
        )
        parsed = address if isinstance(address, Address) else Address.parse(address)
        identities = Identities(parsed.servers, scratch=is_scratch(parsed.prefix))
        self._set_up(parsed, options, read_only, identities)
        select(select_pipeline)

    def _set_up(
        self, address: Address, options: ClientOptions, read_only: bool, identities: Identities
    ) -> None:
        super().__init__(read_only=read_only)
        self._address = address
        self._options = options
        self._scratch = is_scratch(address.prefix)
        self._channel: Channel | None = None
        self.key_prefix = f"{address.prefix}/" if address.prefix else ""
        self.identities = identities
        self.counters = Counters()
        self.budget = Budget(options.buffer_budget)
        self.shard_indexes = ShardCache()

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

    def __repr__(self) -> str:
        read_only = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}({str(self)!r}{read_only})"

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
        state = self._address, self._options, self.read_only, self.identities.known
        return _unpickle, (type(self), *state)

    def with_read_only(self, read_only: bool = False) -> Self:
        copy = type(self).__new__(type(self))
        copy._set_up(self._address, self._options, read_only, self.identities)
        copy.counters = self.counters
        copy.budget = self.budget
        copy.shard_indexes = self.shard_indexes
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
        if told is None and store._scratch == self._scratch:
            store.identities = self.identities
        return store

    # ---- servers ----

    @property
    def connectors(self) -> dict[HostPort, Connector]:
        """The connector to each of the store's servers, in the order of the address."""
        return {server: connector_to(server, self._options) for server in self.servers}

    @property
    def channel(self) -> Channel:
        """The channel to the store's servers, for any process, thread and event loop."""
        self._is_open = True
        if self._channel is None:
            options, identities = self._options, self.identities
            connectors = self.connectors
            if len(connectors) == 1:
                ((server, connector),) = connectors.items()
                self._channel = OneServer(server, connector, identities, options)
            else:
                from ucxstore.cluster.cluster import Cluster  # not for one server

                self._channel = Cluster(connectors, identities, self.counters, options)
        return self._channel

    @property
    def chunk_access(self) -> ChunkAccess:
        """What the pipeline needs of the store."""
        return ChunkAccess(
            store=self,
            channel=self.channel,
            key_prefix=self.key_prefix,
            strict=self.strict,
            counters=self.counters,
            budget=self.budget,
            shard_indexes=self.shard_indexes,
            check_writable=self._check_writable,
            mapping=self._options.map,
        )

    async def _open(self) -> None:
        if self._is_open:
            raise ValueError("store is already open")
        await self.channel.open()

    async def _ensure_open(self) -> None:
        if not self._is_open:
            await self.channel.open()

    def close(self) -> None:
        """Close the store. A connection that no other store shares is closed too."""
        super().close()
        self._channel = None

    def stats(self) -> StoreStats:
        """Return the counters of this store and of its copies by `with_read_only`.

        Returns
        -------
        StoreStats
            A dictionary.
        """
        channel = self._channel
        if channel is None:
            return self.counters.snapshot([])
        return self.counters.snapshot(channel.lanes, integrity=channel.checked)

    async def server_stats(self) -> ServerStats:
        """Return what the server has counted since it was started, whoever its clients were.

        Raises
        ------
        AddressError
            If the store has several servers: each has counters of its own.
        ProtocolError
            If its answer does not have these counters.
        """
        if len(self.servers) > 1:
            raise AddressError(f"{self}: several servers; ask each by its own address")
        return parse_server_stats(await self.channel.ask(requests.stats()))

    def ping_sync(self) -> None:
        """Send an empty request to the servers, and wait for the answers: one round trip."""
        self.channel.ask_sync(requests.ping())

    def rely_on(self, known: Mapping[HostPort, bytes]) -> None:
        """Rely on these identities of servers, before the store has met any of them.

        Whoever started the servers knows the identities. With them, a process refuses a server with
        another storage even if it connects for the first time. Where all are given, they are the
        set of servers, whatever record the servers keep. Call this before the store is used.
        """
        for server, identity in known.items():
            self.identities.rely_on(server, identity)

    def accept_restarted(self) -> None:
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
        with suppress(ServerRestartedError):
            self.channel.open_sync()
        self.channel.accept_restarted()

    def scratch(self, quota: int | str, timeout: float = SCRATCH_TIMEOUT) -> Scratch[Self]:
        """Make a scratch space at the store's servers, for temporary values.

        It is apart from what the servers serve, in memory that they offer for that: servers whose
        values are in memory offer it within their limit, others as `Server(scratch=...)` says. Its
        name cannot be guessed, and does not depend on this store's prefix. This call blocks until
        all servers have the space.

        Parameters
        ----------
        quota : int or str
            Bytes that values in it may take, such as ``"8GiB"``; a write beyond that raises
            `StorageError`. A value that is replaced counts until the new one is there, and one that
            is read until it has been sent. One server keeps to it exactly. Of several, each takes
            up to twice its share of it, since keys are placed by their hash and not by what is
            free: so with very few, large values one may refuse before the quota is reached, and all
            together can hold up to twice as much.
        timeout : float
            Seconds after which the servers end a space that is not renewed, since this process was
            killed, stopped, or cut off. A thread renews it four times in that time. Reads and
            writes do not renew it.

        Returns
        -------
        Scratch
            A context manager, whose `store` returns stores. Leaving it frees their values. After
            that, they raise `ScratchEndedError`.

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
        >>> with store.scratch("8GiB") as scratch:  # doctest: +SKIP
        ...     zarr.create_array(scratch.store("rechunked"), ...)
        """
        size = parse_size("quota", quota)
        if size < 1:
            raise ValueError(f"quota: {quota!r} is less than a byte")
        return Scratch(self, size, check_timeout("timeout", timeout))

    # ---- reading ----

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        found = await self.channel.ask(self._get([key], [to_native(byte_range)]))
        return self._take(found[0], prototype)

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Do as `get`, blocking."""
        found = self.channel.ask_sync(self._get([key], [to_native(byte_range)]))
        return self._take(found[0], prototype)

    async def get_found(
        self, key: str, byte_range: ByteRequest, version: int | None = None
    ) -> Found | None:
        """Read a part of a value, together with the size and the version of that value.

        Parameters
        ----------
        key : str
        byte_range : ByteRequest
        version : int, optional
            The version that it must have: a value of another one is found without its bytes.

        Returns
        -------
        Found or None
            ``None`` for a missing key.
        """
        return self._count_found(await self.channel.ask(self._find(key, byte_range, version)))

    def get_found_sync(
        self, key: str, byte_range: ByteRequest, version: int | None = None
    ) -> Found | None:
        """Do as `get_found`, blocking."""
        return self._count_found(self.channel.ask_sync(self._find(key, byte_range, version)))

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        wanted = [(key, prototype, byte_range) for key, byte_range in key_ranges]
        return [value async for _, value in self._get_many(wanted)]

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        wanted = list(requests)
        if not wanted:
            return
        ranges = [to_native(byte_range) for _, _, byte_range in wanted]
        found = await self.channel.ask(self._get([key for key, _, _ in wanted], ranges))
        for (key, prototype, _), value in zip(wanted, found, strict=True):
            yield key, self._take(value, prototype)

    async def get_ranges(
        self,
        key: str,
        byte_ranges: Sequence[ByteRequest | None],
        *,
        prototype: BufferPrototype,
        max_concurrency: int = 10,
        max_gap_bytes: int = 1 << 20,
        max_coalesced_bytes: int = 16 << 20,
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        """Read many ranges of a value in one request, without the bytes between them.

        The limits of zarr's own coalescing are ignored. See `zarr.abc.store.Store`.
        """
        ranges = many_to_native(byte_ranges)
        if ranges:
            found = await self.channel.ask(self._get([key], [ranges]))
            yield self._split(key, ranges, found[0], prototype)

    def get_ranges_sync(
        self,
        key: str,
        byte_ranges: Sequence[ByteRequest | None],
        *,
        prototype: BufferPrototype,
        max_gap_bytes: int = 1 << 20,
        max_coalesced_bytes: int = 16 << 20,
    ) -> Sequence[tuple[int, Buffer | None]]:
        """Do as `get_ranges`, blocking, and return its one batch."""
        ranges = many_to_native(byte_ranges)
        if not ranges:
            return []
        found = self.channel.ask_sync(self._get([key], [ranges]))
        return self._split(key, ranges, found[0], prototype)

    async def get_into(
        self, key: str, out: object, byte_range: ByteRequest | None = None
    ) -> int | None:
        """Read a value straight into memory of the caller's.

        Parameters
        ----------
        key : str
        out : array_like
            Anything with a writable buffer or ``__array_interface__``, strided too. The value's
            bytes fill its items in C order.
        byte_range : ByteRequest, optional
            The part of the value that is wanted.

        Returns
        -------
        int or None
            How many bytes were written, all at the start of `out`; ``None`` for a missing key.

        Raises
        ------
        ValueTooLargeError
            If the value, or the part of it, is larger than `out`, which then holds anything.
        TypeError, ValueError
            If `out` is read-only, no memory, on a device, or overlaps itself.
        """
        (written,) = await self.get_many_into([(key, out, byte_range)])
        return written

    def get_into_sync(
        self, key: str, out: object, byte_range: ByteRequest | None = None
    ) -> int | None:
        """Do as `get_into`, blocking."""
        if byte_range is None:
            seen = self.channel.see(self.key_prefix + key, out)
            if seen is not None:
                self.counters.add(bytes_read=seen)
                return seen
        (written,) = self.get_many_into_sync([(key, out, byte_range)])
        return written

    async def get_many_into(self, requests: Iterable[Into]) -> list[int | None]:
        """Read many values straight into memory of the caller's, in one request.

        Parameters
        ----------
        requests : iterable of (str, array_like, ByteRequest or None)
            What `get_into` takes, many times. No two outs may overlap.

        Returns
        -------
        list of int or None
            As `get_into` returns, in the order of `requests`.
        """
        return self._count_into(await self.channel.ask(self._get_into(requests)))

    def get_many_into_sync(self, requests: Iterable[Into]) -> list[int | None]:
        """Do as `get_many_into`, blocking."""
        return self._count_into(self.channel.ask_sync(self._get_into(requests)))

    # ---- reading without a copy ----

    def view(self, key: str, *, map: Map = "auto", map_files: bool = False) -> View | None:
        """Return a value where it lies, as an array of bytes that cannot be written to.

        The value stays as it is for as long as the array is there, also if it is replaced or
        removed, or if its server ends. A view is a context manager: leaving it lets go of the
        memory, unless an array of it was kept. This call blocks until the value is there, as it is
        at once where the server shows it: see `view_async`.

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
        return run_sync(viewing.value(self._full_key(key)), self.channel)

    async def view_async(
        self, key: str, *, map: Map = "auto", map_files: bool = False
    ) -> View | None:
        """Do as `view`, without blocking."""
        viewing = self._viewing(map, map_files)
        return await run(viewing.value(self._full_key(key)), self.channel)

    def view_array(
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
        return run_sync(viewing.part(self._check_array(array), selection), self.channel)

    async def view_array_async(
        self, array: Any, selection: Any = ..., *, map: Map = "auto", map_files: bool = False
    ) -> View:
        """Do as `view_array`, without blocking."""
        viewing = self._viewing(map, map_files)
        return await run(viewing.part(self._check_array(array), selection), self.channel)

    # ---- writing ----

    async def set(self, key: str, value: Buffer) -> None:
        await self.set_many([(key, value)])

    def set_sync(self, key: str, value: Buffer) -> None:
        """Do as `set`, blocking."""
        self.channel.ask_sync(self._set([(key, value)]))
        self.counters.add(bytes_written=len(value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self.add(key, value)

    async def add(self, key: str, value: Buffer) -> bool:
        """Do as `set_if_not_exists`, and return whether the value was written."""
        (written,) = await self.channel.ask(self._set([(key, value)], if_absent=True))
        self.counters.add(bytes_written=len(value) if written else 0)
        return bool(written)

    def add_sync(self, key: str, value: Buffer) -> bool:
        """Do as `add`, blocking."""
        (written,) = self.channel.ask_sync(self._set([(key, value)], if_absent=True))
        self.counters.add(bytes_written=len(value) if written else 0)
        return bool(written)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await self.set_many(values)

    async def set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        """Write many values in one request."""
        pairs = list(values)
        if pairs:
            await self.channel.ask(self._set(pairs))
            self.counters.add(bytes_written=sum(len(value) for _, value in pairs))

    def allocate(self, key: str, nbytes: int) -> Allocation:
        """Return memory for a value, to compute into; its `commit` stores the value.

        So a large value is not copied on its way to a server of the same host that has the option
        ``local``. Every other way takes it, too. This call connects if that is needed, and blocks
        until the memory is there.

        Parameters
        ----------
        key : str
        nbytes : int
            The size of the value.

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
        >>> with store.allocate("frames/c/7", frame.nbytes) as value:  # doctest: +SKIP
        ...     np.multiply(frame, 2, out=value.view(frame.dtype, frame.shape))
        ...     value.commit()
        """
        self._check_writable()
        full = self._full_key(key)
        size = check_nbytes(nbytes)
        if not self.channel.opened:
            self.channel.open_sync()
        memory = self.channel.allocate(full, size)
        if memory is not None:
            return Allocation(self, key, full, memory)
        from ucxstore._native import core  # not before it is needed

        return Allocation(self, key, full, core.allocate(size))

    async def allocate_async(self, key: str, nbytes: int) -> Allocation:
        """Do as `allocate`, without blocking the event loop."""
        return await asyncio.to_thread(self.allocate, key, nbytes)

    async def delete(self, key: str) -> None:
        await self.channel.ask(self._delete([key]))

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Delete many keys, missing ones too, in one request."""
        if keys:
            await self.channel.ask(self._delete(keys))

    def delete_sync(self, key: str) -> None:
        """Do as `delete`, blocking."""
        self.channel.ask_sync(self._delete([key]))

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        folder = _as_folder(prefix)
        if _starts_a_key(folder):
            await self.channel.ask(requests.delete_prefix(self.key_prefix + folder))

    async def clear(self) -> None:
        await self.delete_dir("")

    # ---- requests, checked ----

    def _full_key(self, key: str) -> str:
        """Return the key as the server knows it, checked."""
        full = self.key_prefix + key
        check_key(full)
        if full.startswith(SCRATCH_FOLDER):
            check_reserved(full, in_scratch=self._scratch)
        return full

    def _get(
        self, keys: Sequence[str], ranges: Sequence[Sequence[NativeRange]]
    ) -> Request[list[Found | None]]:
        return requests.get([self._full_key(key) for key in keys], ranges)

    def _find(
        self, key: str, byte_range: ByteRequest, version: int | None
    ) -> Request[list[Found | None]]:
        versions = None if version is None else [version]
        return requests.get([self._full_key(key)], [to_native(byte_range)], versions)

    def _get_into(self, wanted: Iterable[Into]) -> Request[list[int | None]]:
        keys, outs, ranges = [], [], []
        for key, out, byte_range in wanted:
            keys.append(self._full_key(key))
            outs.append(writable_view(out))
            ranges.append(to_native(byte_range))
        return requests.get_into(keys, ranges, outs)

    def _set(
        self, pairs: Sequence[tuple[str, Buffer]], *, if_absent: bool = False
    ) -> Request[list[bool]]:
        self._check_writable()
        full = [self._full_key(key) for key, _ in pairs]
        for _, value in pairs:
            if not isinstance(value, Buffer):
                raise TypeError(
                    f"{type(self).__name__}.set(): `value` must be a Buffer instance. "
                    f"Got an instance of {type(value)} instead."
                )
        values = [readable_view(value.as_numpy_array()) for _, value in pairs]
        return requests.add(full, values) if if_absent else requests.set(full, values)

    def _delete(self, keys: Sequence[str]) -> Request[None]:
        self._check_writable()
        return requests.delete([self._full_key(key) for key in keys])

    def _viewing(self, mapping: Map, map_files: bool) -> Viewing:
        return Viewing(
            self.channel, self.counters, check_map(mapping), files=check_map_files(map_files)
        )

    def _check_array(self, array: object) -> AsyncArray[Any]:
        """Return zarr's asynchronous array, which is at the servers of this store."""
        from ucxstore.pipeline.chunk_view import access_of, async_array_of

        found = async_array_of(array)
        theirs = cast(UcxStore, access_of(found).store)
        if set(theirs.servers) != set(self.servers):
            raise ValueError(f"{found.store_path} is not at the servers of {self}")
        return found

    # ---- answers ----

    def _take(self, found: Found | None, prototype: BufferPrototype | None) -> Buffer | None:
        """Count and wrap a value that was received."""
        if found is None:
            return None
        data, *_ = found
        self.counters.add(bytes_read=data.size, staged_bytes=data.size)
        return _wrap(data, prototype or default_buffer_prototype())

    def _count_found(self, answers: list[Found | None]) -> Found | None:
        """Count the bytes of a part that was found, and return it."""
        (found,) = answers
        if found is not None and found[0] is not None:
            self.counters.add(bytes_read=found[0].size, staged_bytes=found[0].size)
        return found

    def _split(
        self,
        key: str,
        ranges: list[NativeRange],
        found: Found | None,
        prototype: BufferPrototype,
    ) -> list[tuple[int, Buffer | None]]:
        """Split the ranges of one value, which were received together."""
        if found is None:
            raise BaseExceptionGroup(f"cannot read {key!r}", [FileNotFoundError(key)])
        data, size, _ = found
        self.counters.add(bytes_read=data.size, staged_bytes=data.size)
        parts: list[tuple[int, Buffer | None]] = []
        end = 0
        for index, (start, stop) in enumerate(bounds(ranges, size)):
            begin, end = end, end + stop - start
            parts.append((index, _wrap(data[begin:end], prototype)))
        return parts

    def _count_into(self, written: list[int | None]) -> list[int | None]:
        self.counters.add(bytes_read=sum(filter(None, written)))
        return written

    # ---- listings and sizes: last, since `list` is a method from here on ----

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        if _starts_a_key(prefix):
            skip = len(self.key_prefix)
            async for page in self._pages(prefix, delimited=False):
                for key in page:
                    yield key[skip:]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = _as_folder(prefix.rstrip("/"))
        if _starts_a_key(folder):
            async for page in self._pages(folder, delimited=True):
                for name in page:
                    yield name

    async def is_empty(self, prefix: str) -> bool:
        keys, _ = await self._measure(prefix, any=True)
        return keys == 0

    async def measure(self, prefix: str = "") -> tuple[int, int]:
        """Return how many keys are under a prefix, and the bytes of their values."""
        await self.channel.open()
        if self.channel.keeps_copies:
            return await self._measure_each(_as_folder(prefix))
        return await self._measure(prefix, any=False)

    async def getsize_prefix(self, prefix: str) -> int:
        _, size = await self.measure(prefix)
        return size

    async def exists(self, key: str) -> bool:
        (size,) = await self.getsizes([key])
        return size is not None

    async def getsize(self, key: str) -> int:
        (size,) = await self.getsizes([key])
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def getsizes(self, keys: Sequence[str]) -> Sequence[int | None]:
        """Return the sizes of many values, in bytes, in one request; ``None`` for missing keys."""
        full = [self._full_key(key) for key in keys]
        if not full:
            return []
        sizes = await self.channel.ask(requests.stat(full))
        return [int(size) if size >= 0 else None for size in sizes]

    async def _measure(self, prefix: str, *, any: bool) -> tuple[int, int]:
        """Return how many keys are under a prefix, and their bytes; with `any`, of one at most."""
        folder = _as_folder(prefix)
        if not _starts_a_key(folder):
            return 0, 0
        return await self.channel.ask(requests.measure(self.key_prefix + folder, any=any))

    async def _measure_each(self, folder: str) -> tuple[int, int]:
        """Measure key by key, so that copies of one count once."""
        keys = total = 0
        if _starts_a_key(folder):
            async for page in self._pages(folder, delimited=False):
                if page:
                    sizes = await self.channel.ask(requests.stat(page))
                    keys += sum(size >= 0 for size in sizes)
                    total += sum(size for size in sizes if size > 0)
        return keys, total

    async def _pages(self, prefix: str, *, delimited: bool) -> AsyncIterator[Sequence[str]]:
        """Yield the names under a prefix in order, as many at a time as a reply holds."""
        full = self.key_prefix + prefix
        cursor = ""
        while True:
            page = requests.list_page(full, delimited=delimited, cursor=cursor)
            names, cursor = await self.channel.ask(page)
            yield names
            if not cursor:
                return


def _wrap(data: npt.NDArray[np.uint8], prototype: BufferPrototype) -> Buffer:
    """Wrap bytes, without a copy unless the prototype's buffers are of another memory."""
    buffer = cpu.Buffer.from_array_like(data)
    return buffer if prototype.buffer is cpu.Buffer else prototype.buffer.from_buffer(buffer)


def _as_folder(prefix: str) -> str:
    return prefix if not prefix or prefix.endswith("/") else f"{prefix}/"


def _starts_a_key(prefix: str) -> bool:
    """Tell whether any key can start with `prefix`. None starts with "/", which zarr asks for."""
    *folders, _ = prefix.split("/")
    return "\0" not in prefix and not any(part in {"", ".", ".."} for part in folders)


def _unpickle(
    cls: type[UcxStore], address: Address, options: ClientOptions, read_only: bool, known: Known
) -> UcxStore:
    store = cls.__new__(cls)
    identities = Identities(address.servers, known, scratch=is_scratch(address.prefix))
    store._set_up(address, options, read_only, identities)
    select(options.select_pipeline)
    return store
