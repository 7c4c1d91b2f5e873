"""What a store is and how it gets to its server: address, options, identity, connection."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, cast

from zarr.abc.store import Store

from ucxstore.address import Address, HostPort
from ucxstore.client.channel import Channel, Starter
from ucxstore.client.loops import LoopQueue, current_queue
from ucxstore.client.requests import Request
from ucxstore.client.runtime import Link, link_to
from ucxstore.cluster.alone import Alone
from ucxstore.cluster.cluster import Cluster
from ucxstore.cluster.incarnations import Incarnations, Known
from ucxstore.cluster.member import Member
from ucxstore.cluster.members import Members
from ucxstore.errors import ServerRestartedError
from ucxstore.keys import RESERVED, check_key, check_reserved, is_scratch
from ucxstore.options import (
    DEFAULT_BUFFER_BUDGET,
    DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_TIMEOUT,
    ClientOptions,
    UcxValue,
)
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.budget import Budget
from ucxstore.pipeline.selection import select_pipeline as select
from ucxstore.pipeline.shards.cache import ShardCache
from ucxstore.secret import Secret
from ucxstore.stats import Counters, StoreStats

if TYPE_CHECKING:
    from ucxstore._core import Completions, Connection, Operation

type Start = Callable[["Connection", "Completions | None"], "Operation"]
"""Starts a request, whose completion is waited for (``None``) or goes to an event loop."""


class StoreBase(Store):
    """The part of `ucxstore.UcxStore` that sends no requests."""

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
    ) -> None:
        options = ClientOptions.of(
            timeout=timeout,
            connect_timeout=connect_timeout,
            secret=secret,
            ucx=ucx,
            progress=progress,
            buffer_budget=buffer_budget,
        )
        parsed = address if isinstance(address, Address) else Address.parse(address)
        incarnations = Incarnations(parsed.servers, scratch=is_scratch(parsed.prefix))
        self._set_up(parsed, options, read_only, strict, select_pipeline, incarnations)
        select(select_pipeline)

    def _set_up(
        self,
        address: Address,
        options: ClientOptions,
        read_only: bool,
        strict: bool,
        select_choice: bool | None,
        incarnations: Incarnations,
    ) -> None:
        super().__init__(read_only=read_only)
        self._address = address
        self._options = options
        self.timeout = options.timeout
        self.connect_timeout = options.connect_timeout
        self._strict = strict
        self._select_pipeline = select_choice
        self._incarnations = incarnations
        self.counters = Counters()
        self.budget = Budget(options.buffer_budget)
        self.shard_indexes = ShardCache()
        self.key_prefix = f"{address.prefix}/" if address.prefix else ""
        self._scratch = is_scratch(address.prefix)
        self._link: Alone | Cluster | None = None

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
    def strict(self) -> bool:
        """Whether chunks that would leave the short path raise instead."""
        return self._strict

    def __str__(self) -> str:
        return str(self._address)

    def __repr__(self) -> str:
        read_only = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}({str(self)!r}{read_only})"

    def __eq__(self, value: object) -> bool:
        return (
            isinstance(value, StoreBase)
            and self._address == value._address
            and self.read_only == value.read_only
        )

    def __hash__(self) -> int:
        return hash((self._address, self.read_only))

    def __reduce__(self) -> tuple[object, ...]:
        # A secret pickles itself without its text. Nothing of this process goes along.
        state = (self._address, self._options, self.read_only, self._strict)
        known = self._incarnations.known
        return _unpickle, (type(self), *state, self._select_pipeline, known)

    def with_read_only(self, read_only: bool = False) -> Self:
        copy = type(self).__new__(type(self))
        choices = self._strict, self._select_pipeline
        copy._set_up(self._address, self._options, read_only, *choices, self._incarnations)
        copy.counters = self.counters
        copy.budget = self.budget
        copy.shard_indexes = self.shard_indexes
        return copy

    def stats(self) -> StoreStats:
        """Return the counters of this store and of its copies by `with_read_only`.

        Returns
        -------
        StoreStats
            A dictionary; the pipeline's chunks are counted by the way that each went.
        """
        return self.counters.snapshot([] if self._link is None else self._link.lanes)

    def rely_on(self, known: Mapping[HostPort, bytes]) -> None:
        """Take the incarnations of servers as known, before any of them was met.

        Whoever started the servers knows them. Then also a process that first connects after one of
        them has restarted refuses it. Call it before the store is used.
        """
        for server, incarnation in known.items():
            self._incarnations.rely_on(server, incarnation)

    def accept_restarted(self) -> None:
        """Go on with servers that have restarted without the values that they held in memory.

        One that comes back so is refused with `ServerRestartedError`, since what it has lost would
        be missing, and read as fill values. From now on it is. This concerns this store, its copies
        by `with_read_only`, its later pickles, and stores of the same several servers that are made
        from now on, here or where none of them was met. It concerns servers that can be reached.

        Raises
        ------
        ConnectError
            If none of the servers can be reached, or one of them does not answer.
        """
        link = self._own_link()
        with suppress(ServerRestartedError):
            link.connect_sync(self.connect_timeout)
        link.accept_restarted()

    def links(self) -> dict[HostPort, Link]:
        """Return the ways to its servers, shared by whoever uses them."""
        return {server: self._link_to(server) for server in self.servers}

    def at(
        self, prefix: str, told: Mapping[HostPort, bytes] | None = None, *, read_only: bool = False
    ) -> Self:
        """Return a store of the same servers and options over another prefix.

        Parameters
        ----------
        prefix : str
        told : mapping, optional
            The incarnations of servers that it relies on. Without it, the two stores rely on the
            same ones, also where one of them is the first to meet a server.
        read_only : bool
        """
        address = Address(self._address.servers, prefix)
        state = address, self._options, read_only, self._strict, self._select_pipeline
        store = cast(Self, _unpickle(type(self), *state, Known(told or {})))
        if told is None and store._scratch == self._scratch:
            store._incarnations = self._incarnations
        return store

    # ---- connection ----

    async def _open(self) -> None:
        if self._is_open:
            raise ValueError("store is already open")
        await self.session()

    async def _ensure_open(self) -> None:
        if not self._is_open:
            await self.session()

    def close(self) -> None:
        """Close the store. A connection that no other store shares is closed too."""
        super().close()
        self._link = None

    async def session(self) -> "tuple[Connection, LoopQueue]":
        """Return the connection, in any process, and the running event loop's queue.

        Of several servers it is a `Cluster`, which takes the same requests.
        """
        link = self._own_link()
        connection = link.current() or await link.connect(self._options.connect_timeout)
        return cast("Connection", connection), current_queue()

    async def _run(self, start: Start) -> Any:
        """Start a request and return its result."""
        connection, queue = await self.session()
        return await queue.complete(start(connection, queue.native))

    def _run_sync(self, start: Start) -> Any:
        """Do as `_run`, blocking."""
        connection = self._own_link().connect_sync(self._options.connect_timeout)
        try:
            return start(cast("Connection", connection), None).wait()
        except BaseException:
            # An interrupt may have come between the start and the wait: see it complete, too.
            from ucxstore._native import core

            core.Operation.end_unwaited()
            raise

    async def _keeps_copies(self) -> bool:
        """Tell whether several servers each keep what says what arrays and groups are."""
        await self.session()
        return isinstance(self._link, Cluster) and not self._link.shared

    @property
    def channel(self) -> Channel:
        """The way to the store's servers."""
        return _ChannelOver(self._own_link(), self._options)

    @property
    def chunk_access(self) -> ChunkAccess:
        """What the pipeline needs of the store."""
        return ChunkAccess(
            store=self,
            channel=self.channel,
            key_prefix=self.key_prefix,
            strict=self._strict,
            counters=self.counters,
            budget=self.budget,
            shard_indexes=self.shard_indexes,
            check_writable=self._check_writable,
        )

    def _own_link(self) -> Alone | Cluster:
        self._is_open = True
        if self._link is None:
            first, *others = self._address.servers
            alone = Alone(first, self._link_to(first), self._incarnations)
            self._link = self._cluster() if others else alone
        return self._link

    def _link_to(self, server: HostPort) -> Link:
        link = link_to(server, self._options.ucx, self._options.secret)
        if self._options.secret is not None:
            self._options.secret.keep(link)
        return link

    def _cluster(self) -> Cluster:
        members = [
            Member(server, link, self._incarnations, self.counters, scratch=self._scratch)
            for server, link in self.links().items()
        ]
        return Cluster(Members(members, self._incarnations, self._options.connect_timeout))

    # ---- checks ----

    def check_writable(self) -> None:
        """Raise as zarr's stores do if the store was opened to read only."""
        self._check_writable()

    def _full_key(self, key: str) -> str:
        """Return the key as the server knows it, checked."""
        full = self.key_prefix + key
        check_key(full)
        if full.startswith(RESERVED):
            check_reserved(full, in_scratch=self._scratch)
        return full


def _unpickle(
    cls: type[StoreBase],
    address: Address,
    options: ClientOptions,
    read_only: bool,
    strict: bool,
    select_choice: bool | None,
    known: Known,
) -> StoreBase:
    store = cls.__new__(cls)
    incarnations = Incarnations(address.servers, known, scratch=is_scratch(address.prefix))
    store._set_up(address, options, read_only, strict, select_choice, incarnations)
    select(select_choice)
    return store


class _ChannelOver(Channel):
    """A channel over what there was before channels."""

    def __init__(self, way: Alone | Cluster, options: ClientOptions) -> None:
        super().__init__(options.timeout, options.connect_timeout)
        self._way = way
        self._connection: Any = None

    @property
    def opened(self) -> bool:
        current = self._way.current()
        if current is not None:
            self._connection = current
        return current is not None

    def open_sync(self) -> None:
        self._connection = self._way.connect_sync(self.connect_timeout)

    def begin(self, request: Request[Any], queue: LoopQueue | None) -> "Operation":
        completions = None if queue is None else queue.native
        return request.start(self._connection, self.timeout, completions)

    @property
    def starter(self) -> Starter | None:
        if isinstance(self._way, Cluster):
            return None
        return lambda request, done: request.start(self._connection, self.timeout, done)

    @property
    def lanes(self) -> list[str]:
        return self._way.lanes

    def accept_restarted(self) -> None:
        self._way.accept_restarted()
