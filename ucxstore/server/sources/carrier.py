"""The thread that carries out the native core's calls to a source."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial

import numpy as np

from ucxstore import logs
from ucxstore._native import core
from ucxstore.server.sources.membership import Membership
from ucxstore.server.sources.order import Order
from ucxstore.server.sources.source import (
    AbandonedError,
    ChangedError,
    Found,
    Moved,
    Part,
    Source,
    UnknownEndError,
)
from ucxstore.server.sources.tasks import Tasks
from ucxstore.server.sources.tiered import TieredSource
from ucxstore.server.sources.turns import Turns

# Requests to the source at once; with 20 ms of latency that is 3,200 a second.
CONCURRENCY = 64

# Calls that change keys: those of a key one after another.
_CHANGES = frozenset({"put", "remove", "remove_prefix"})

# How often a long call says that it moves.
_TELL_SECONDS = 0.1


# What a source is asked about to see whether it answers, and how much longer its thread may take.
_ASKED = "zarr.json"
_ASK_SECONDS = 1.0

# How long its answer holds, whoever asks meanwhile.
_KEPT_SECONDS = 1.0


# Makes sure that all servers see what the source has carried out.
type Confirm = Callable[[], Awaitable[None]]


class Carrier:
    """A thread with its own event loop that takes calls from the core and answers them.

    Parameters
    ----------
    storage : core.CachedSource
        Makes the calls.
    source : Source
        Carries them out. A `TieredSource` is closed at the end of the thread.
    timeout : float
        Seconds that a call may take from when it is sent, or a step of a long one, and for which a
        call waits for its turn while the source answers nothing.
    members : Membership, optional
        The servers that write to the source, of which this is one.
    """

    def __init__(
        self,
        storage: core.CachedSource,
        source: Source,
        timeout: float,
        members: Membership | None = None,
    ) -> None:
        self.members = members
        self._storage = storage
        self._source = source
        self._timeout = timeout
        self._tier = source if isinstance(source, TieredSource) else None
        self._slow = logs.slow_request()
        self._failed = self._timed_out = 0  # requests to the source
        self._reports = logs.Limited()
        self._asking = threading.Lock()
        self._answer = ""  # what was wrong with the source
        self._ask_at = 0.0  # when it is asked again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = Turns(CONCURRENCY, timeout)
        self._order = Order(timeout, self._turns.answered_at)
        self._tasks = Tasks()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ucxstore-storage", daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the thread."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def trouble(self, timeout: float) -> str:
        """Return why the server cannot serve the source now, asking that; "" if it can.

        An answer of the source holds for a second.

        Parameters
        ----------
        timeout : float
            Seconds that the source may take to answer, at the most.
        """
        if self.members is not None and self.members.trouble:
            return self.members.trouble
        if self._loop is None:
            return "the thread for the source starts"
        with self._asking:  # one question at a time
            if time.monotonic() >= self._ask_at:
                self._answer = self._ask_source(self._loop, min(timeout, self._timeout))
                self._ask_at = time.monotonic() + _KEPT_SECONDS
            return self._answer

    def _ask_source(self, loop: asyncio.AbstractEventLoop, patience: float) -> str:
        try:
            asyncio.run_coroutine_threadsafe(self._ask(patience), loop).result(
                patience + _ASK_SECONDS
            )
        except TimeoutError:
            return f"the source did not answer within {patience:g} s"
        except Exception as error:
            return f"the source: {self._source.explain(error)}"
        return ""

    async def _ask(self, patience: float) -> None:
        async with asyncio.timeout(patience):
            await self._source.head(_ASKED)

    def stats(self) -> dict[str, int]:
        """Return the counters of the cache, and of requests to the source that failed."""
        counted = {
            **self._storage.stats(),
            "source_failed": self._failed,
            "source_timeouts": self._timed_out,
        }
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
        loop = self._loop = asyncio.get_running_loop()
        stopped = asyncio.Event()

        def take() -> None:
            for ticket, *call in self._storage.take():
                self._tasks.start(self._carry(ticket, *call))
            if self._stopping.is_set():
                stopped.set()

        if self.members is not None:
            self.members.start()
        loop.add_reader(self._storage.fileno(), take)
        try:
            await stopped.wait()
        finally:
            loop.remove_reader(self._storage.fileno())
            if self.members is not None:
                await self.members.leave()
            self._source.doubts.close()

    async def _carry(self, ticket: int, operation: str, *arguments: object) -> None:
        if operation not in _CHANGES:
            await self._take_turn(ticket, operation, arguments, _nothing)
            return
        doubts = self._source.doubts
        name = arguments[0]
        try:
            if operation == "remove_prefix":
                prefix = str(name)
                wanted = partial(self._storage.moved, ticket)
                async with self._order.of_prefix(prefix, wanted) as waited:
                    waited |= await _ended(doubts.below(prefix))
                    await self._change(ticket, operation, arguments, waited=waited)
                return
            keys = name if isinstance(name, list) else [str(name)]
            value = arguments[1] if operation == "put" else None
            assert value is None or isinstance(value, np.ndarray)
            async with self._order.of_keys(keys) as waited:
                waited |= await _ended(doubts.of(keys, value))
                await self._change(ticket, operation, arguments, waited=waited)
        except TimeoutError as error:
            self._storage.failed(ticket, self._source.explain(error))

    async def _change(
        self,
        ticket: int,
        operation: str,
        arguments: tuple[object, ...],
        *,
        waited: bool,
    ) -> None:
        """Carry out a change, of which the other servers of the source know meanwhile."""
        if waited and not self._storage.moved(ticket):
            self._storage.failed(ticket, "nobody waits for it any more")
            return
        members = self.members
        change = None if members is None else members.change(operation, arguments[0])
        if change is None:
            await self._take_turn(ticket, operation, arguments, _nothing)
            return
        try:
            await change.begin()
        except Exception as error:
            self._storage.failed(ticket, self._source.explain(error))
            return
        try:
            await self._take_turn(ticket, operation, arguments, change.confirm)
        finally:
            change.end()

    async def _take_turn(
        self, ticket: int, operation: str, arguments: tuple[object, ...], confirm: Confirm
    ) -> None:
        try:
            await self._turns.take()
        except TimeoutError as error:
            self._timed_out += 1
            self._report_failed(operation, arguments[0], self._timeout, str(error))
            self._storage.failed(ticket, self._source.explain(error))
            return
        answered = True
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout) as limit:
                moved = self._moved(ticket, limit)
                await self._carry_out(ticket, operation, arguments, moved, confirm)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                answered = False
                self._timed_out += 1
                why = self._source.explain(TimeoutError(f"no answer within {self._timeout:g} s"))
            else:
                why = self._source.explain(error)
            if not isinstance(error, AbandonedError):
                self._report_failed(operation, arguments[0], time.monotonic() - begun, why)
            unknown = not answered or isinstance(error, UnknownEndError)
            self._storage.failed(ticket, why, unknown and operation in _CHANGES)
        finally:
            self._turns.give(answered=answered)
        self._report_slow(operation, arguments[0], time.monotonic() - begun)

    def _report_slow(self, operation: str, about: object, seconds: float) -> None:
        if 0 < self._slow <= seconds:
            key = _key(about)
            logs.server.warning(
                "a slow request to the source: %.3g s for %s '%s'",
                seconds,
                operation,
                key,
                extra={"event": "slow_request", "key": key, "seconds": seconds},
            )

    def _report_failed(self, operation: str, about: object, seconds: float, why: str) -> None:
        self._failed += 1
        held_back = self._reports.admit()
        if held_back is None:
            return
        key = _key(about)
        more = f" (and {held_back} more since the last such line)" if held_back else ""
        logs.server.warning(
            "a request to the source has failed after %.3g s, %s '%s': %s%s",
            seconds,
            operation,
            key,
            why,
            more,
            extra={
                "event": "source_failed",
                "key": key,
                "seconds": seconds,
                "detail": f"{operation}: {why}",
                "count": held_back + 1,
            },
        )

    def _moved(self, ticket: int, limit: asyncio.Timeout) -> Moved:
        """Return what a long call is to call after each step."""
        told = time.monotonic()

        def moved() -> None:
            nonlocal told
            now = time.monotonic()
            if now - told < _TELL_SECONDS:
                return
            told = now
            if not self._storage.moved(ticket):
                raise AbandonedError("nobody waits for it any more")
            limit.reschedule(asyncio.get_running_loop().time() + self._timeout)

        return moved

    async def _carry_out(
        self,
        ticket: int,
        operation: str,
        arguments: tuple[object, ...],
        moved: Moved,
        confirm: Confirm,
    ) -> None:
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
                wanted = partial(self._check_wanted, ticket)
                wanted()
                etag = await source.put(key, value, if_absent=if_absent, wanted=wanted)
                await confirm()
                may_be_kept = storage.stored(ticket, etag is not None, etag or "")
                if may_be_kept and self._tier is not None:
                    self._tier.keep(key, None, Found(value, etag or "", value.nbytes))
            case "stat", (list(keys),):
                heads = await _all(map(source.head, keys))
                storage.sized(ticket, [None if head is None else head.size for head in heads])
            case "remove", (list(keys),):
                await source.remove(keys)
                await confirm()
                storage.missing(ticket)
            case "remove_prefix", (str(prefix),):
                removed = await source.remove_prefix(prefix, moved)
                await confirm()
                storage.removed(ticket, removed)
            case "measure", (str(prefix), bool(any_key)):
                found = await source.measure(prefix, any_key=any_key, moved=moved)
                storage.measured(ticket, *found)
            case "list", (str(prefix), bool(delimited), str(cursor), int(room)):
                page = await source.list_page(
                    prefix, delimited=delimited, cursor=cursor, room=room, moved=moved
                )
                storage.listed(ticket, page.names, page.cursor)
            case _:
                raise NotImplementedError(f"unknown call {operation!r}")

    def _check_wanted(self, ticket: int) -> None:
        if not self._storage.moved(ticket):
            raise AbandonedError("nobody waits for it any more")

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


def _key(about: object) -> object:
    """Return the first key that a call is about."""
    return about[0] if isinstance(about, list) and about else about


async def _ended(doubts: set[asyncio.Future[None]]) -> bool:
    """Wait for changes that were given up; tell whether there were any."""
    if doubts:
        await asyncio.wait(doubts)
    return bool(doubts)


async def _nothing() -> None:
    """Confirm what nobody else need know."""


async def _all[T](requests: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Wait for all requests, then raise the first failure, so that none is left running."""
    results = await asyncio.gather(*requests, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
