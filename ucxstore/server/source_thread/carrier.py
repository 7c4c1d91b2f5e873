"""The thread that carries out the native core's calls to a source."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ucxstore.base import logs, process
from ucxstore.base.errors import StorageError
from ucxstore.base.native import core
from ucxstore.server.peers.events import Done, NotSent, Outcome, Refused, Unknown
from ucxstore.server.peers.names import Names
from ucxstore.server.source_thread.peer_driver import ClientChange, PeerDriver
from ucxstore.server.source_thread.source_loop import SourceLoop
from ucxstore.server.source_thread.tasks import Tasks
from ucxstore.server.source_thread.turns import Turns, Whose
from ucxstore.server.sources.source import (
    AbandonedError,
    ChangedError,
    FoundValue,
    Memory,
    Moved,
    NotSentError,
    Part,
    Source,
    UnknownEndError,
)
from ucxstore.server.sources.tiered import DiskTier

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

# Seconds that the thread may take until it has flushed the cache.
_FLUSH_SECONDS = 10.0


class Flushed(NamedTuple):
    """What a flush has done.

    Parameters
    ----------
    freed : int
        Bytes of the cache that are free now.
    read : int
        Bytes of values that are no longer in the cache, and that clients of this host still read.
    disk_freed : int
        Bytes of the cache directory that are free now, or will be in a moment.
    """

    freed: int
    read: int
    disk_freed: int


class _Call(NamedTuple):
    """A call of the core, and the session that it is for."""

    ticket: int
    whose: Whose
    operation: str
    arguments: tuple[Any, ...]

    @property
    def key(self) -> object:
        """The first key that it is about."""
        about = self.arguments[0]
        return about[0] if isinstance(about, list) and about else about


class Carrier:
    """A thread with its own event loop that takes calls from the core and answers them.

    Parameters
    ----------
    storage : core.CachedSource
        Makes the calls.
    source : Source
        Carries them out.
    timeout : float
        Seconds that a call may take from when it is sent, or a step of a long one, and for which a
        call waits for its turn while the source answers nothing.
    members : PeerDriver
        Says when changes may be sent, and how they have ended.
    tier : DiskTier or None
        Where values are kept on disk. It is closed at the end of the thread.
    """

    def __init__(
        self,
        storage: core.CachedSource,
        source: Source,
        timeout: float,
        members: PeerDriver,
        tier: DiskTier | None = None,
    ) -> None:
        self.members = members
        self._storage = storage
        self._source = source
        self._timeout = timeout
        self._tier = tier
        self._values: Source | DiskTier = tier or source
        self._slow = logs.slow_request()
        self._failed = core.Counter()  # requests to the source
        self._timed_out = core.Counter()
        self._reports = logs.RateLimit()
        self._asking = process.lock()
        self._answer = ""  # what was wrong with the source
        self._ask_at = 0.0  # when it is asked again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = Turns(CONCURRENCY, timeout)
        self._removals: dict[int, ClientChange] = {}  # of prefixes, by their tickets
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
        if self.members.trouble:
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
            asked = asyncio.wait_for(self._source.head(_ASKED), patience)
            asyncio.run_coroutine_threadsafe(asked, loop).result(patience + _ASK_SECONDS)
        except TimeoutError:
            return f"the source did not answer within {patience:g} s"
        except Exception as error:
            return f"the source: {self._source.explain(error)}"
        return ""

    @property
    def counted(self) -> dict[str, core.Counter | core.DiskCache]:
        """The counters of requests to the source, and of the cache directory, by their names."""
        of_disk = {} if self._tier is None else self._tier.counted
        return {"source_failed": self._failed, "source_timeouts": self._timed_out, **of_disk}

    def flush(self, name: str) -> Flushed:
        """Drop a key, and all below it, from the cache and from the cache directory.

        What is on its way from the source now is not kept, either.

        Parameters
        ----------
        name : str
            Without a slash at its end; "" for everything.

        Raises
        ------
        TimeoutError
            If the thread does not answer in time.
        """
        if self._loop is None:
            raise TimeoutError("the thread for the source starts")
        return asyncio.run_coroutine_threadsafe(self._flush(name), self._loop).result(
            _FLUSH_SECONDS
        )

    def ask(self, what: Callable[[Source], Coroutine[object, object, Any]]) -> Any:
        """Have the thread ask the source, and wait for the answer.

        Parameters
        ----------
        what : callable
            Makes the request, given the source.

        Raises
        ------
        TimeoutError
            If the source does not answer within its time.
        StorageError
            If it answers with a failure.
        """
        if self._loop is None:
            raise TimeoutError("the thread for the source starts")
        asked = asyncio.wait_for(what(self._source), self._timeout)
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result(self._timeout + _ASK_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"the source did not answer within {self._timeout:g} s") from None
        except Exception as error:
            raise StorageError(f"the source: {self._source.explain(error)}") from error

    async def _flush(self, name: str) -> Flushed:
        """Drop both at once: nothing gets from one to the other in between."""
        disk_freed = 0 if self._tier is None else self._tier.forget_below(name)
        freed, read = self._storage.flush(name)
        return Flushed(freed, read, disk_freed)

    def close(self, timeout: float) -> None:
        """Fail all calls and end the thread; wait for its end for up to `timeout` seconds."""
        self._stopping.set()
        self._storage.close("the server is closed")
        self._storage.wake()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve(), loop_factory=SourceLoop)
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
            for ticket, whose, (operation, *arguments) in self._storage.take():
                call = _Call(ticket, whose, operation, tuple(arguments))
                self._tasks.start(self._carry(call))
            if self._stopping.is_set():
                stopped.set()

        self.members.start()
        loop.add_reader(self._storage.fileno(), take)
        try:
            await stopped.wait()
        finally:
            loop.remove_reader(self._storage.fileno())
            await self.members.leave()
            self._source.doubts.close()

    async def _carry(self, call: _Call) -> None:
        if call.operation in _CHANGES:
            await self._change(call)
            return
        try:
            await self._turns.take(call.whose)
        except TimeoutError as error:
            self._report_no_turn(call, error)
            self._storage.failed(call.ticket, self._source.explain(error))
            return
        answered = True
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout) as limit:
                self._check_awaited(call)  # it may have waited for long
                await self._carry_out(call, self._moved(call, limit))
        except Exception as error:
            answered, why = self._explained(call, error, limit, begun)
            self._storage.failed(call.ticket, why)
        finally:
            self._give_turn(call, begun, answered=answered)
        self._report(call, time.monotonic() - begun)

    def _give_turn(self, call: _Call, begun: float, *, answered: bool) -> None:
        self._turns.give(call.whose, time.monotonic() - begun, answered=answered)
        if answered:
            self.members.heard()

    async def _change(self, call: _Call) -> None:
        """Carry out a change, when and if the membership lets it be sent."""
        ticket = call.ticket
        names, value = _changed_by(call)
        if not names:
            self._storage.missing(ticket)
            return
        answer: Callable[[bool], object] | None = None

        def reply(outcome: Outcome, keep: bool) -> None:
            if isinstance(outcome, Unknown):
                self._storage.failed(ticket, outcome.why, True)
            elif answer is not None:
                answer(keep)
            else:  # its request is not under way, or never was
                assert isinstance(outcome, Refused), "what was made has an answer"
                self._storage.failed(ticket, outcome.why)

        # Nobody waits for removals of prefixes, unless they were given up.
        for other, removal in list(self._removals.items()):
            if not self._storage.moved(other):
                removal.give_up()
        change = self.members.change(names, value, reply)
        if names.prefixes:
            self._removals[ticket] = change
        try:
            while await change.is_due():
                try:
                    await self._turns.take(call.whose)
                except TimeoutError as error:
                    self._report_no_turn(call, error)
                    change.give_up(str(error), late=True)
                    continue
                answered = False
                begun = time.monotonic()
                try:
                    if not self._storage.moved(ticket):
                        change.give_up()
                        continue
                    if not change.goes():
                        continue
                    answered, outcome, answer = await self._make(call, names, change)
                    change.end(outcome)
                finally:
                    self._give_turn(call, begun, answered=answered)
                self._report(call, time.monotonic() - begun)
        finally:
            self._removals.pop(ticket, None)

    async def _make(
        self, call: _Call, names: Names, change: ClientChange
    ) -> tuple[bool, Outcome, Callable[[bool], object] | None]:
        """Send the request of a change.

        Returns
        -------
        tuple
            Whether the source has answered, how the change has ended, and what tells the client
            so; ``None`` for one that was not sent, as that is not its end.
        """
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout) as limit:
                moved = self._moved(call, limit, change)
                return True, *await self._carry_out_change(call, moved, change)
        except NotSentError:
            return False, NotSent(partly=bool(names.prefixes)), None
        except Exception as error:
            answered, why = self._explained(call, error, limit, begun)
            unknown = not answered or isinstance(error, UnknownEndError)
            several = bool(names.prefixes) or len(names) > 1
            outcome = Unknown(why) if unknown else Refused(why, partly=several)
            return answered, outcome, lambda _: self._storage.failed(call.ticket, why, unknown)
        finally:
            if self._tier is not None:
                self._tier.forget_names(names)  # also after a failure: it may have been made

    def _explained(
        self, call: _Call, error: Exception, limit: asyncio.Timeout, begun: float
    ) -> tuple[bool, str]:
        """Return whether the source has answered, and why a request has failed; report that."""
        answered = not (isinstance(error, TimeoutError) and limit.expired())
        if not answered:
            self._timed_out.add()
            error = TimeoutError(f"no answer within {self._timeout:g} s")
        why = self._source.explain(error)
        if not isinstance(error, AbandonedError):
            self._report_failed(call, time.monotonic() - begun, why)
        return answered, why

    def _report_no_turn(self, call: _Call, error: TimeoutError) -> None:
        self._timed_out.add()
        self._report_failed(call, self._timeout, str(error))

    def _report(self, call: _Call, seconds: float) -> None:
        is_slow = 0 < self._slow <= seconds
        level = logging.WARNING if is_slow else logging.DEBUG
        if logs.server.isEnabledFor(level):
            logs.server.log(
                level,
                "a %srequest to the source: %.3g s for %s '%s'",
                "slow " if is_slow else "",
                seconds,
                call.operation,
                call.key,
                extra={
                    "event": "slow_request" if is_slow else "source_request",
                    "key": call.key,
                    "seconds": seconds,
                    "detail": call.operation,
                },
            )

    def _report_failed(self, call: _Call, seconds: float, why: str) -> None:
        self._failed.add()
        held_back = self._reports.admit()
        if held_back is None:
            return
        more = f" (and {held_back} more since the last such line)" if held_back else ""
        logs.server.warning(
            "a request to the source has failed after %.3g s, %s '%s': %s%s",
            seconds,
            call.operation,
            call.key,
            why,
            more,
            extra={
                "event": "source_failed",
                "key": call.key,
                "seconds": seconds,
                "detail": f"{call.operation}: {why}",
                "count": held_back + 1,
            },
        )

    def _check_awaited(self, call: _Call) -> None:
        if not self._storage.moved(call.ticket):
            raise AbandonedError("nobody waits for it any more")

    def _moved(
        self, call: _Call, limit: asyncio.Timeout, change: ClientChange | None = None
    ) -> Moved:
        """Return what a long call is to call after each step."""
        told = time.monotonic()

        def moved() -> None:
            nonlocal told
            if change is not None and not change.may_go_on():
                raise NotSentError
            now = time.monotonic()
            if now - told < _TELL_SECONDS:
                return
            told = now
            self._check_awaited(call)
            limit.reschedule(asyncio.get_running_loop().time() + self._timeout)

        return moved

    async def _carry_out(self, call: _Call, moved: Moved) -> None:
        source, storage, ticket = self._source, self._storage, call.ticket
        match call.operation, call.arguments:
            case "get", (str(key), int(begin), int(end), str(if_match)):
                await self._get(ticket, key, Part(begin, end, if_match) if end else None)
            case "head", (str(key),):
                head = await source.head(key)
                if head is None:
                    storage.missing(ticket)
                else:
                    storage.headed(ticket, head.size, head.etag)
            case "stat", (list(keys),):
                heads = await _all(map(source.head, keys))
                storage.sized(ticket, [None if head is None else head.size for head in heads])
            case "measure", (str(prefix), bool(any_key)):
                found = await source.measure(prefix, any_key=any_key, moved=moved)
                storage.measured(ticket, *found)
            case "list", (str(prefix), bool(delimited), str(cursor), int(room)):
                page = await source.list_page(
                    prefix, delimited=delimited, cursor=cursor, room=room, moved=moved
                )
                storage.listed(ticket, page.names, page.cursor)
            case _:
                raise NotImplementedError(f"unknown call {call.operation!r}")

    async def _carry_out_change(
        self, call: _Call, moved: Moved, change: ClientChange
    ) -> tuple[Outcome, Callable[[bool], object]]:
        """Let the source make a change; return how it has ended, and what tells the client so."""
        source, storage, ticket = self._source, self._storage, call.ticket
        match call.operation, call.arguments:
            case "put", (str(key), np.ndarray() as value, bool(if_absent)):
                wanted = partial(self._check_wanted, call, change)
                etag = await source.put(key, value, if_absent=if_absent, wanted=wanted)
                if etag is None:
                    return Refused(), lambda _: storage.stored(ticket, False, "", False)
                return Done(), partial(self._stored, ticket, key, value, etag)
            case "remove", (list(keys),):
                await source.remove(keys)
                return Done(), lambda _: storage.missing(ticket)
            case "remove_prefix", (str(prefix),):
                removed = await source.remove_prefix(prefix, moved)
                return Done(), lambda _: storage.removed(ticket, removed)
        raise NotImplementedError(f"unknown call {call.operation!r}")

    def _stored(self, ticket: int, key: str, value: Memory, etag: str, keep: bool) -> None:
        may_be_kept = self._storage.stored(ticket, True, etag, keep)
        if may_be_kept and self._tier is not None:
            self._tier.keep(key, None, FoundValue(value, etag, value.nbytes))

    def _check_wanted(self, call: _Call, change: ClientChange) -> None:
        self._check_awaited(call)
        if not change.may_go_on():
            raise NotSentError

    async def _get(self, ticket: int, key: str, part: Part | None) -> None:
        try:
            found = await self._values.get(key, part)
        except ChangedError:
            self._storage.changed(ticket)
            return
        if found is None:
            self._storage.missing(ticket)
            return
        may_be_kept = self._storage.found(ticket, found.buffer, found.etag, found.size)
        if may_be_kept and self._tier is not None:
            self._tier.keep(key, part, found)


def _changed_by(call: _Call) -> tuple[Names, object]:
    """Return what a call changes, and the value that it is to have; ``None`` for none."""
    match call.operation, call.arguments:
        case "put", (str(key), value, _):
            return Names(frozenset({key})), value
        case "remove", (list(keys),):
            return Names(frozenset(keys)), None
        case "remove_prefix", (str(prefix),):
            return Names(prefixes=frozenset({prefix})), None
    raise NotImplementedError(f"unknown call {call.operation!r}")


async def _all[T](requests: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Wait for all requests, then raise the first failure, so that none is left running."""
    results = await asyncio.gather(*requests, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
