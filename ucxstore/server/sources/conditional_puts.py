"""`ConditionalPuts`: PUTs to an object store that cannot undo later ones."""

import asyncio
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, MemoryStore, ObjectStore, S3Store

from ucxstore.base import logs
from ucxstore.server.sources import object_errors
from ucxstore.server.sources.doubts import MISSING, Doubts
from ucxstore.server.sources.source import AbandonedError, Memory, NotSentError, UnknownEndError

if TYPE_CHECKING:
    from obstore import PutResult, UpdateVersion

# The stores that heed conditions of a PUT.
_HEEDING = (S3Store, GCSStore, AzureStore, MemoryStore)

# Keys whose versions are remembered.
_REMEMBERED = 1 << 16

# What obstore retries by default, and how long it waits in between.
_RETRIES = 10
_RETRY_SECONDS = 180.0
_PAUSE = 0.1
_LONGEST_PAUSE = 15.0

# A store that refuses the version that it names, so often one after another, heeds no conditions.
_MOST_REFUSALS = 3

type _Condition = Literal["create"] | UpdateVersion
"""`MISSING`, or the version that the key must have."""


def heeds_conditions(store: ObjectStore) -> bool:
    """Tell whether a store of this kind heeds the condition of a PUT."""
    return isinstance(store, _HEEDING)


class UnheededError(Exception):
    """The store heeds no conditions after all."""


class ConditionalPuts:
    """PUTs that fail if the key has been changed since they were sent.

    Each is sent with a condition: the key has the version that was seen last, or is missing. So one
    that was given up cannot take the place of a later value, whichever server has written that. A
    key of which nothing was seen is taken to be missing, since most keys are written once. If that
    was wrong, a HEAD tells the version.

    Parameters
    ----------
    store : ObjectStore
        For which `heeds_conditions` is true.
    doubts : Doubts
        Where PUTs are noted that are given up.
    """

    def __init__(self, store: ObjectStore, doubts: Doubts) -> None:
        self._reads = store
        self._writes = _without_retries(store)
        self._doubts = doubts
        self._versions: OrderedDict[str, _Condition] = OrderedDict()
        self._looks_first = False
        retries: Mapping[str, Any] = getattr(store, "retry_config", None) or {}
        self._most = retries.get("max_retries", _RETRIES)
        within = retries.get("retry_timeout", _RETRY_SECONDS)
        self._within = within.total_seconds() if isinstance(within, timedelta) else within

    def saw(self, key: str, meta: "Mapping[str, Any] | PutResult | None") -> None:
        """Remember the version of a key; ``None`` if it is missing or not known."""
        condition = None if meta is None else _condition_of(meta)
        if condition is None:
            self._versions.pop(key, None)
            return
        self._versions[key] = condition
        self._versions.move_to_end(key)
        if len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)

    async def put(self, key: str, value: Memory, wanted: Callable[[], None]) -> "PutResult":
        """Store a value, in the place of any other.

        Parameters
        ----------
        key : str
        value : Memory
        wanted : callable
            Raises if it is not to be sent any more; asked each time before it is.

        Raises
        ------
        UnknownEndError
            If nobody knows whether it is stored.
        UnheededError
            If the store heeds no conditions; nothing was stored then.
        """
        condition = self._versions.pop(key, None)
        if condition is None:
            condition = await self._look(key) if self._looks_first else MISSING
        refusals = 0
        while True:
            try:
                return await self._try(key, value, condition, wanted)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                if object_errors.no_container(error):
                    raise
            self._looks_first |= condition == MISSING
            found = await self._look(key)
            refusals = refusals + 1 if found == condition else 0
            if refusals == _MOST_REFUSALS:
                raise UnheededError
            condition = found

    async def add(self, key: str, value: Memory, wanted: Callable[[], None]) -> "PutResult | None":
        """Store a value if the key is missing; ``None`` if it is not. It raises as `put` does."""
        try:
            return await self._try(key, value, MISSING, wanted, adds=True)
        except AlreadyExistsError:
            return None

    async def _try(
        self,
        key: str,
        value: Memory,
        condition: _Condition,
        wanted: Callable[[], None],
        *,
        adds: bool = False,
    ) -> "PutResult":
        """Send it until the store answers: a PUT whose answer was lost may have succeeded.

        With `adds`, an equal value may be somebody else's, who was first.
        """
        may_be_stored = may_go_on = False
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._within
        try:
            for attempt in itertools.count(1):
                try:
                    wanted()
                    return await self._send(key, value, condition)
                except (AbandonedError, NotSentError) as error:
                    if may_be_stored:
                        raise UnknownEndError(str(error), ended=not may_go_on) from error
                    raise
                except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                    if not may_be_stored:
                        raise
                    found = None if adds else await self._own(key, value)
                    if found is None:
                        raise UnknownEndError(str(error), ended=not may_go_on) from error
                    return found
                except BaseError as error:
                    if object_errors.may_have_succeeded(error):
                        may_be_stored = True
                        may_go_on |= not object_errors.has_ended(error)
                    pause = random.uniform(0.25, 0.5) * min(_PAUSE * 2**attempt, _LONGEST_PAUSE)
                    again = object_errors.may_pass(error) and attempt <= self._most
                    if not again or loop.time() + pause > give_up:
                        if may_be_stored:
                            raise UnknownEndError(str(error), ended=not may_go_on) from error
                        raise
                await asyncio.sleep(pause)
            raise AssertionError("unreachable")
        finally:
            if may_go_on:
                self._doubts.add([key], _tag_of(condition))

    async def _send(self, key: str, value: Memory, condition: _Condition) -> "PutResult":
        """Send it once."""
        sent = asyncio.ensure_future(
            obstore.put_async(self._writes, key, value, mode=condition, use_multipart=False)
        )
        try:
            result = await asyncio.shield(sent)
        except asyncio.CancelledError:
            self._doubts.add([key], _tag_of(condition), sent)
            raise
        except NotImplementedError as error:
            raise UnheededError from error
        except BaseError as error:
            if object_errors.is_unsupported(error):
                raise UnheededError from error
            raise
        self.saw(key, result)
        return result

    async def _look(self, key: str) -> _Condition:
        """Return the version of a key as a condition."""
        try:
            meta = await obstore.head_async(self._reads, key)
        except FileNotFoundError:
            self._looks_first = False
            return MISSING
        condition = _condition_of(meta)
        if condition is None:
            raise UnheededError
        return condition

    async def _own(self, key: str, value: Memory) -> "PutResult | None":
        """Return what a PUT of this value would have, if the key has the same bytes."""
        try:
            found = await obstore.get_async(self._reads, key)
            if found.meta["size"] != value.nbytes:
                return None
            if memoryview(await found.bytes_async()) != memoryview(value):
                return None
        except (FileNotFoundError, BaseError):
            return None
        self.saw(key, found.meta)
        return {"e_tag": found.meta["e_tag"], "version": found.meta["version"]}


def _tag_of(condition: _Condition) -> str:
    return condition if isinstance(condition, str) else condition["e_tag"] or ""


def _condition_of(meta: "Mapping[str, Any] | PutResult") -> "UpdateVersion | None":
    tag, version = meta["e_tag"], meta["version"]
    if not tag:
        return None
    return {"e_tag": tag, "version": version} if version else {"e_tag": tag}


def _without_retries(store: ObjectStore) -> ObjectStore:
    """Return the same store without retries of its own, since it does not tell of them."""
    if not isinstance(store, S3Store | GCSStore | AzureStore):
        return store
    kind: Any = type(store)  # each with a configuration of its own
    try:
        return kind(  # type: ignore[no-any-return]
            prefix=store.prefix,
            config=store.config,
            client_options=store.client_options,
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            credential_provider=store.credential_provider,
        )
    except Exception as error:
        logs.server.warning("writes to the object store keep its own retries: %s", error)
        return store
