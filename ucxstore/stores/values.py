"""`Values`: the values below an address, as bytes; without zarr, which takes long to import."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Self

from ucxstore.base.address import Address, HostPort
from ucxstore.base.counters import Counters
from ucxstore.base.errors import AddressError
from ucxstore.base.options import ClientOptions
from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.identities import Identities
from ucxstore.client.keyspace import Keyspace
from ucxstore.client.listing import Listing
from ucxstore.cluster.channels import channel_over, connected, connectors_to

if TYPE_CHECKING:
    from ucxstore.base.foreign import Fields
    from ucxstore.base.stats import ServerStats

_MAX_ANSWER_BYTES = 1 << 20  # far more than a page of sessions


class Values:
    """List, measure, read and delete the values below an address.

    It connects when it is first used, and shares its connections with the stores of this process.

    Parameters
    ----------
    address : str or Address
        As of a `UcxStore`.
    options : ClientOptions

    Attributes
    ----------
    unreadable : list of str
        The folders that a server's user may not open, as far as they were listed or measured: what
        is in there is missing.
    """

    def __init__(self, address: str | Address, options: ClientOptions) -> None:
        self._address = address if isinstance(address, Address) else Address.parse(address)
        self._keyspace = Keyspace(self._address.prefix, type(self).__name__)
        servers, scratch = self._address.servers, self._keyspace.in_scratch
        self._connectors = connectors_to(servers, options)
        identities = Identities(servers, scratch=scratch)
        self._channel = channel_over(self._connectors, identities, Counters(), options)
        self.unreadable: list[str] = []
        self._listing = Listing(self._channel, self._keyspace, self.unreadable.extend)

    @property
    def servers(self) -> tuple[HostPort, ...]:
        """The servers that the address names."""
        return self._address.servers

    @property
    def prefix(self) -> str:
        """The prefix of all keys, without a slash at its end; empty for none."""
        return self._address.prefix

    @property
    def lanes(self) -> list[str]:
        """The transports of the open connections, each once."""
        return connected(self._connectors.values()).lanes

    def __str__(self) -> str:
        return str(self._address)

    # ---- listing ----

    def names(self) -> AsyncIterator[Sequence[str]]:
        """Yield the names of keys and folders directly below the prefix, page by page."""
        return self._listing.names("")

    def keys(self) -> AsyncIterator[Sequence[str]]:
        """Yield all keys below the prefix in order, without it, page by page."""
        return self._listing.keys("")

    async def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Return the sizes of values by one request; ``None`` for missing keys."""
        return await self._listing.sizes(keys)

    async def measure(self) -> tuple[int, int]:
        """Return how many values are below the prefix, and their bytes."""
        return await self._listing.measure("")

    # ---- values ----

    async def read(self, key: str, part: NativeRange | None = None) -> memoryview | None:
        """Return a value, or a part of it; ``None`` for a missing key."""
        ranges = [] if part is None else [part]
        (found,) = await self._channel.ask(self._keyspace.get([key], [ranges]))
        return None if found is None else memoryview(found[0])

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete keys, missing ones too, in one request."""
        await self._channel.ask(self._keyspace.delete(keys))

    async def delete_all(self) -> None:
        """Delete all keys below the prefix."""
        folder = self._keyspace.folder("")
        assert folder is not None
        await self._channel.ask(requests.delete_prefix(folder))

    # ---- servers ----

    def open_sync(self) -> None:
        """Connect, blocking."""
        self._channel.open_sync()

    async def ping(self) -> None:
        """Send an empty request to each server, and wait for the answers: one round trip."""
        await self._channel.ask(requests.ping())

    async def server_stats(self) -> "ServerStats":
        """Return what the server has counted; of several, each must be asked by itself."""
        if len(self.servers) > 1:
            raise AddressError(
                f"server_stats needs one server, and {self} has several: use the address of each"
            )
        from ucxstore.base.stats import parse_server_stats

        return parse_server_stats(await self._channel.ask(requests.stats()))

    async def operate(self, **what: object) -> "Fields":
        """Ask the server to do something for its operator.

        Parameters
        ----------
        **what : object
            The request, as docs/wire.md has it.

        Returns
        -------
        Fields
            The answer; with ``refused`` and why, if it has not been done.

        Raises
        ------
        GrantError
            If the server does not take this client for an operator.
        AddressError
            If the address names several servers.
        """
        if len(self.servers) > 1:
            raise AddressError(f"{self}: several servers; ask each by its own address")
        from ucxstore.base.foreign import Fields

        answer = await self._channel.ask(requests.operate(json.dumps(what)))
        return Fields.read(answer, "an answer to an operator", _MAX_ANSWER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the connections, which are closed with the last who uses them."""
        del self._listing, self._channel
