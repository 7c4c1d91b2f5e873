"""The thread that carries out the native core's calls to a source."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable

import numpy as np

from ucxstore import logs
from ucxstore._native import core
from ucxstore.server.sources.source import ChangedError, Found, Part, Source
from ucxstore.server.sources.tiered import TieredSource

# Requests to the source at once; with 20 ms of latency that is 3,200 a second.
CONCURRENCY = 64


class Carrier:
    """A thread with its own event loop that takes calls from the core and answers them.

    Parameters
    ----------
    storage : core.CachedSource
        Makes the calls.
    source : Source
        Carries them out. A `TieredSource` is closed at the end of the thread.
    timeout : float
        Seconds that a call may take.
    """

    def __init__(self, storage: core.CachedSource, source: Source, timeout: float) -> None:
        self._storage = storage
        self._source = source
        self._timeout = timeout
        self._tier = source if isinstance(source, TieredSource) else None
        self._slow = logs.slow_request()
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ucxstore-storage", daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the thread."""
        return threading.current_thread() is self._thread

    def stats(self) -> dict[str, int]:
        """Return the counters of the cache."""
        counted = self._storage.stats()
        return counted if self._tier is None else {**counted, **self._tier.stats()}

    def close(self, timeout: float) -> None:
        """Fail all calls and end the thread; wait for its end for up to `timeout` seconds."""
        self._stopping.set()
        self._storage.close("the server is closed")
        self._storage.wake()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            logs.server.exception("the thread for the source has failed")
            self._storage.close(f"the server's thread for the source has failed: {error}")
        finally:
            if self._tier is not None:
                self._tier.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def take() -> None:
            for ticket, *call in self._storage.take():
                task = loop.create_task(self._carry(ticket, *call))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if self._stopping.is_set():
                stopped.set()

        loop.add_reader(self._storage.fileno(), take)
        try:
            await stopped.wait()
        finally:
            loop.remove_reader(self._storage.fileno())

    async def _carry(self, ticket: int, operation: str, *arguments: object) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout) as limit, self._slots:
                await self._carry_out(ticket, operation, arguments)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                why = self._source.explain(TimeoutError(f"no answer within {self._timeout:g} s"))
            else:
                why = self._source.explain(error)
            self._storage.failed(ticket, why)
        self._report_slow(operation, arguments[0], time.monotonic() - begun)

    def _report_slow(self, operation: str, about: object, seconds: float) -> None:
        if 0 < self._slow <= seconds:
            key = about[0] if isinstance(about, list) and about else about
            logs.server.warning(
                "a slow request to the source: %.3g s for %s '%s'",
                seconds,
                operation,
                key,
                extra={"event": "slow_request", "key": key, "seconds": seconds},
            )

    async def _carry_out(self, ticket: int, operation: str, arguments: tuple[object, ...]) -> None:
        source, storage = self._source, self._storage
        match operation, arguments:
            case "get", (str(key), int(begin), int(end), str(if_match)):
                await self._get(ticket, key, Part(begin, end, if_match) if end else None)
            case "head", (str(key),):
                head = await source.head(key)
                if head is None:
                    storage.missing(ticket)
                else:
                    storage.headed(ticket, head.size, head.etag)
            case "put", (str(key), np.ndarray() as value, bool(if_absent)):
                etag = await source.put(key, value, if_absent=if_absent)
                may_be_kept = storage.stored(ticket, etag is not None, etag or "")
                if may_be_kept and self._tier is not None:
                    self._tier.keep(key, None, Found(value, etag or "", value.nbytes))
            case "stat", (list(keys),):
                heads = await _all(map(source.head, keys))
                storage.sized(ticket, [None if head is None else head.size for head in heads])
            case "remove", (list(keys),):
                await source.remove(keys)
                storage.missing(ticket)
            case "remove_prefix", (str(prefix),):
                storage.removed(ticket, await source.remove_prefix(prefix))
            case "measure", (str(prefix), bool(any_key)):
                storage.measured(ticket, *await source.measure(prefix, any_key=any_key))
            case "list", (str(prefix), bool(delimited), str(cursor), int(room)):
                page = await source.list_page(prefix, delimited=delimited, cursor=cursor, room=room)
                storage.listed(ticket, page.names, page.cursor)
            case _:
                raise NotImplementedError(f"unknown call {operation!r}")

    async def _get(self, ticket: int, key: str, part: Part | None) -> None:
        try:
            found = await self._source.get(key, part)
        except ChangedError:
            self._storage.changed(ticket)
            return
        if found is None:
            self._storage.missing(ticket)
            return
        may_be_kept = self._storage.found(ticket, found.buffer, found.etag, found.size)
        if may_be_kept and self._tier is not None:
            self._tier.keep(key, part, found)


async def _all[T](requests: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Wait for all requests, then raise the first failure, so that none is left running."""
    results = await asyncio.gather(*requests, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
