"""The store: zarr's contract over a connection to a server, asynchronous and synchronous."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from zarr.abc.store import ByteRequest

from ucxstore.base import Start
from ucxstore.client.byte_ranges import NativeRange, bounds, many_to_native, to_native
from ucxstore.client.memory import readable_view, writable_view
from ucxstore.listing import Listing
from ucxstore.zarr_compat import Buffer, BufferPrototype, cpu, default_buffer_prototype

type _Found = tuple[npt.NDArray[np.uint8], int, int]
"""The bytes of the ranges that were asked for, joined; of the whole value, size and version."""

type Into = tuple[str, object, ByteRequest | None]
"""A key, where its value goes, and the part of it that is wanted."""


class UcxStore(Listing):
    """A zarr store whose values are with a server, and travel over UCX.

    It connects when it is first used, in any process, on any thread and event loop. Making one
    selects `ucxstore.ZeroCopyCodecPipeline` for zarr, if zarr's default was configured.

    Parameters
    ----------
    address : str
        ``"ucx://host:port"`` or ``"ucx://host:port/prefix"``; of several servers
        ``"ucx://host:port,host:port/prefix"``.
    read_only : bool
        Refuse to write.
    timeout : float
        Seconds that a request may go without progress.
    connect_timeout : float
        Seconds that connecting may take.
    secret : str, bytes, Secret or None
        What the server must know too. It is neither shown nor pickled.
    ucx : mapping or None
        UCX options without ``UCX_``, such as ``{"TLS": "tcp"}``; the environment's hold for others.
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
        written in part. A chunk that is larger is read or written when no other is. Each thread
        has one decoded chunk beside that, and what its codec needs.

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

    # ---- reading ----

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        found = await self._run(self._get([key], [to_native(byte_range)]))
        return self._take(found[0], prototype)

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Do as `get`, blocking."""
        found = self._run_sync(self._get([key], [to_native(byte_range)]))
        return self._take(found[0], prototype)

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
        found = await self._run(self._get([key for key, _, _ in wanted], ranges))
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
        """Read many ranges of a value in one request, without what lies between them.

        The limits of zarr's own coalescing have no meaning here. See `zarr.abc.store.Store`.
        """
        ranges = many_to_native(byte_ranges)
        if ranges:
            found = await self._run(self._get([key], [ranges]))
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
        found = self._run_sync(self._get([key], [ranges]))
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
        return self._count_into(await self._run(self._get_into(requests)))

    def get_many_into_sync(self, requests: Iterable[Into]) -> list[int | None]:
        """Do as `get_many_into`, blocking."""
        return self._count_into(self._run_sync(self._get_into(requests)))

    # ---- writing ----

    async def set(self, key: str, value: Buffer) -> None:
        await self.set_many([(key, value)])

    def set_sync(self, key: str, value: Buffer) -> None:
        """Do as `set`, blocking."""
        self._run_sync(self._set([(key, value)]))
        self.counters.add(written=len(value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self.add(key, value)

    async def add(self, key: str, value: Buffer) -> bool:
        """Do as `set_if_not_exists`, and tell whether the value was written."""
        (written,) = await self._run(self._set([(key, value)], if_absent=True))
        self.counters.add(written=len(value) if written else 0)
        return bool(written)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await self.set_many(values)

    async def set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        """Write many values in one request."""
        pairs = list(values)
        if pairs:
            await self._run(self._set(pairs))
            self.counters.add(written=sum(len(value) for _, value in pairs))

    # ---- requests: checked, but not yet started ----

    def _get(self, keys: list[str], ranges: list[list[NativeRange]]) -> Start:
        full = [self._full_key(key) for key in keys]
        return lambda to, done: to.get(full, ranges, self.timeout, done)

    def _get_into(self, requests: Iterable[Into]) -> Start:
        wanted = list(requests)
        full = [self._full_key(key) for key, _, _ in wanted]
        ranges = [to_native(byte_range) for _, _, byte_range in wanted]
        memory = [writable_view(out) for _, out, _ in wanted]
        outs, owners = [m.layout for m in memory], [m.owner for m in memory]
        return lambda to, done: to.get_into(full, ranges, outs, owners, self.timeout, done)

    def _set(self, pairs: Sequence[tuple[str, Buffer]], *, if_absent: bool = False) -> Start:
        self._check_writable()
        full = [self._full_key(key) for key, _ in pairs]
        for _, value in pairs:
            if not isinstance(value, Buffer):
                raise TypeError(
                    f"{type(self).__name__}.set(): `value` must be a Buffer instance. "
                    f"Got an instance of {type(value)} instead."
                )
        memory = [readable_view(value.as_numpy_array()) for _, value in pairs]
        values, owners = [m.layout for m in memory], [m.owner for m in memory]
        return lambda to, done: to.set(full, values, owners, if_absent, self.timeout, done)

    # ---- results ----

    def _take(self, found: _Found | None, prototype: BufferPrototype | None) -> Buffer | None:
        """Count and wrap what was received."""
        if found is None:
            return None
        data, *_ = found
        self.counters.add(read=data.size, staged=data.size)
        return _wrap(data, prototype or default_buffer_prototype())

    def _split(
        self,
        key: str,
        ranges: list[NativeRange],
        found: _Found | None,
        prototype: BufferPrototype,
    ) -> list[tuple[int, Buffer | None]]:
        """Take the ranges of one value, which were received together, apart."""
        if found is None:
            raise BaseExceptionGroup(f"cannot read {key!r}", [FileNotFoundError(key)])
        data, size, _ = found
        self.counters.add(read=data.size, staged=data.size)
        parts: list[tuple[int, Buffer | None]] = []
        end = 0
        for index, (start, stop) in enumerate(bounds(ranges, size)):
            begin, end = end, end + stop - start
            parts.append((index, _wrap(data[begin:end], prototype)))
        return parts

    def _count_into(self, written: list[int | None]) -> list[int | None]:
        self.counters.add(read=sum(filter(None, written)))
        return written


def _wrap(data: npt.NDArray[np.uint8], prototype: BufferPrototype) -> Buffer:
    """Wrap bytes, without a copy unless the prototype's buffers are of another memory."""
    return prototype.buffer.from_buffer(cpu.Buffer.from_array_like(data))
