"""`ChannelStore`: zarr's store over any `Channel`.

Methods of zarr's `Store` do what zarr documents. Those whose names end with ``_sync`` do the same,
blocking.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from zarr.abc.store import ByteRequest, Store
from zarr.registry import get_buffer_class

from ucxstore.base.counters import Counters
from ucxstore.base.zarr_compat import Buffer, BufferPrototype, cpu
from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange, bounds, many_to_native, to_native
from ucxstore.client.channel import Channel
from ucxstore.client.keyspace import Into, Keyspace
from ucxstore.client.listing import Listing, refuse
from ucxstore.client.requests import ANY_VERSION, Found


class ChannelStore(Store):
    """Read, write and list the values below a prefix, through a channel that a subclass has.

    Parameters
    ----------
    keyspace : Keyspace
        The keys below the prefix.
    counters : Counters
        Where bytes are counted.
    read_only : bool
        Refuse to write.
    """

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    def __init__(self, keyspace: Keyspace, counters: Counters, *, read_only: bool) -> None:
        super().__init__(read_only=read_only)
        self._keyspace = keyspace
        self._counters = counters

    @property
    @abstractmethod
    def _channel(self) -> Channel:
        """The channel to the store's servers, for any process, thread and event loop."""

    # ---- reading ----

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        value = None if byte_range is not None else self._see(key, prototype)
        if value is not None:
            return value
        found = await self._channel.ask(self._keyspace.get([key], [to_native(byte_range)]))
        return self._noticed(key, self._take(found[0], prototype))

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Do as `get`, blocking."""
        value = None if byte_range is not None else self._see(key, prototype)
        if value is not None:
            return value
        found = self._channel.ask_sync(self._keyspace.get([key], [to_native(byte_range)]))
        return self._noticed(key, self._take(found[0], prototype))

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
        request = self._keyspace.find(key, byte_range, version)
        return self._count_found(await self._channel.ask(request))

    def get_found_sync(
        self, key: str, byte_range: ByteRequest, version: int | None = None
    ) -> Found | None:
        """Do as `get_found`, blocking."""
        request = self._keyspace.find(key, byte_range, version)
        return self._count_found(self._channel.ask_sync(request))

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
        found = await self._channel.ask(self._keyspace.get([key for key, _, _ in wanted], ranges))
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
            found = await self._channel.ask(self._keyspace.get([key], [ranges]))
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
        found = self._channel.ask_sync(self._keyspace.get([key], [ranges]))
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
            seen = self._channel.see(self._keyspace.prefix + key, out)
            if seen is not None:
                self._counters.add(bytes_read=seen)
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
        return self._count_into(await self._channel.ask(self._keyspace.get_into(requests)))

    def get_many_into_sync(self, requests: Iterable[Into]) -> list[int | None]:
        """Do as `get_many_into`, blocking."""
        return self._count_into(self._channel.ask_sync(self._keyspace.get_into(requests)))

    # ---- writing ----

    async def set(self, key: str, value: Buffer) -> None:
        await self.set_many([(key, value)])

    def set_sync(self, key: str, value: Buffer) -> None:
        """Do as `set`, blocking."""
        self._check_writable()
        self._channel.ask_sync(self._keyspace.set([(key, value)]))
        self._counters.add(bytes_written=len(value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self.add(key, value)

    async def add(self, key: str, value: Buffer) -> bool:
        """Do as `set_if_not_exists`, and return whether the value was written."""
        self._check_writable()
        request = self._keyspace.set([(key, value)], if_absent=True)
        (written,) = await self._channel.ask(request)
        self._counters.add(bytes_written=len(value) if written else 0)
        return bool(written)

    def add_sync(self, key: str, value: Buffer) -> bool:
        """Do as `add`, blocking."""
        self._check_writable()
        request = self._keyspace.set([(key, value)], if_absent=True)
        (written,) = self._channel.ask_sync(request)
        self._counters.add(bytes_written=len(value) if written else 0)
        return bool(written)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await self.set_many(values)

    async def set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        """Write many values in one request."""
        pairs = list(values)
        if pairs:
            self._check_writable()
            await self._channel.ask(self._keyspace.set(pairs))
            self._counters.add(bytes_written=sum(len(value) for _, value in pairs))

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Delete many keys, missing ones too, in one request."""
        if keys:
            self._check_writable()
            await self._channel.ask(self._keyspace.delete(keys))

    def delete_sync(self, key: str) -> None:
        """Do as `delete`, blocking."""
        self._check_writable()
        self._channel.ask_sync(self._keyspace.delete([key]))

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        folder = self._keyspace.folder(prefix)
        if folder is not None:
            await self._channel.ask(requests.delete_prefix(folder))

    async def clear(self) -> None:
        await self.delete_dir("")

    # ---- answers ----

    def _see(self, key: str, prototype: BufferPrototype | None) -> Buffer | None:
        """Return a small value that lies in shared memory; ``None`` if a request must tell."""
        seen = self._channel.see_value(self._keyspace.full_key(key))
        if seen is None:
            return None
        data = np.frombuffer(seen, np.uint8)
        return self._noticed(key, self._take((data, data.size, ANY_VERSION), prototype))

    def _take(self, found: Found | None, prototype: BufferPrototype | None) -> Buffer | None:
        """Count and wrap a value that was received."""
        if found is None:
            return None
        data, *_ = found
        self._counters.add(bytes_read=data.size, staged_bytes=data.size)
        return _wrap(data, get_buffer_class() if prototype is None else prototype.buffer)

    def _noticed(self, key: str, value: Buffer | None) -> Buffer | None:
        """Return a value that was read, once a subclass has looked at it."""
        return value

    def _count_found(self, answers: list[Found | None]) -> Found | None:
        """Count the bytes of a part that was found, and return it."""
        (found,) = answers
        if found is not None and found[0] is not None:
            self._counters.add(bytes_read=found[0].size, staged_bytes=found[0].size)
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
        self._counters.add(bytes_read=data.size, staged_bytes=data.size)
        parts: list[tuple[int, Buffer | None]] = []
        end = 0
        for index, (start, stop) in enumerate(bounds(ranges, size)):
            begin, end = end, end + stop - start
            parts.append((index, _wrap(data[begin:end], prototype.buffer)))
        return parts

    def _count_into(self, written: list[int | None]) -> list[int | None]:
        self._counters.add(bytes_read=sum(filter(None, written)))
        return written

    # ---- listings and sizes: last, since `list` is a method from here on ----

    @property
    def _listing(self) -> Listing:
        return Listing(self._channel, self._keyspace, partial(refuse, self))

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for page in self._listing.keys(prefix):
            for key in page:
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        async for page in self._listing.names(prefix.rstrip("/")):
            for name in page:
                yield name

    async def is_empty(self, prefix: str) -> bool:
        return await self._listing.is_empty(prefix)

    async def measure(self, prefix: str = "") -> tuple[int, int]:
        """Return how many keys are under a prefix, and the bytes of their values."""
        return await self._listing.measure(prefix)

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
        return await self._listing.sizes(keys)


def keyspace_of(store: ChannelStore) -> Keyspace:
    """Return the keys below a store's prefix."""
    return store._keyspace


def _wrap(data: npt.NDArray[np.uint8], buffer_class: type[Buffer]) -> Buffer:
    """Wrap bytes, without a copy unless buffers of the class are of another memory."""
    buffer = cpu.Buffer.from_array_like(data)
    return buffer if buffer_class is cpu.Buffer else buffer_class.from_buffer(buffer)
