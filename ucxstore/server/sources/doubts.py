"""`Doubts`: changes that were given up, and which a source may still carry out."""

import asyncio
import hashlib
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ucxstore.server.sources.source import Memory, UnknownEndError

# The conditions of a change: none, so that it succeeds whatever is there; that the key is missing;
# or the entity tag that its value must have.
ANYTHING: Final = ""
MISSING: Final = "create"


@dataclass(frozen=True, slots=True)
class _Doubt:
    condition: str
    ended: asyncio.Future[None]


class Doubts:
    """Changes that were given up, and which the source may still carry out. For one event loop.

    A later change of the same key has to wait for the end of such a change, unless that fails once
    the later one is made: it was sent with a condition. Nobody can tell when a source lets go of a
    request whose connection has ended, so a change is in doubt for a limited time.

    Parameters
    ----------
    lasting : float
        Seconds after which a change that was given up is taken to have ended.
    """

    def __init__(self, lasting: float) -> None:
        self._lasting = lasting
        self._doubts: dict[str, list[_Doubt]] = {}
        self._sent: set[asyncio.Future[Any]] = set()

    async def follow[T](self, keys: Sequence[str], change: Coroutine[object, object, T]) -> T:
        """Carry out a change without a condition. Once it is given up, it goes on by itself.

        So it is in doubt for no longer than until it has ended.
        """
        sent = asyncio.ensure_future(change)
        try:
            return await asyncio.shield(sent)
        except asyncio.CancelledError:
            for key in keys:
                self.add(key, ANYTHING, sent)
            raise
        except UnknownEndError as error:
            if not error.ended:
                for key in keys:
                    self.add(key, ANYTHING)
            raise

    def add(self, key: str, condition: str, sent: "asyncio.Future[Any] | None" = None) -> None:
        """Note that a change of a key was given up.

        Parameters
        ----------
        key : str
        condition : str
            `ANYTHING`, `MISSING`, or an entity tag.
        sent : asyncio.Future, optional
            Its answer, which may still come. It is waited for as long as it is in doubt.
        """
        loop = asyncio.get_running_loop()
        doubt = _Doubt(condition, loop.create_future())
        self._doubts.setdefault(key, []).append(doubt)

        def end() -> None:
            if not doubt.ended.done():
                doubt.ended.set_result(None)
                doubts = self._doubts[key]
                doubts.remove(doubt)
                if not doubts:
                    del self._doubts[key]

        def answered(done: "asyncio.Future[Any]") -> None:
            self._sent.discard(done)
            if not done.cancelled() and done.exception() is None:
                end()

        loop.call_later(self._lasting, end)
        if sent is not None:
            self._sent.add(sent)
            sent.add_done_callback(answered)
            loop.call_later(self._lasting, sent.cancel)

    def of(self, keys: Iterable[str], value: Memory | None) -> set[asyncio.Future[None]]:
        """Return what a change of keys must wait for, since it would not end these changes.

        Parameters
        ----------
        keys : iterable of str
        value : Memory or None
            What they are to have; ``None`` if they are removed.
        """
        if not self._doubts:
            return set()
        return {
            doubt.ended
            for key in keys
            for doubt in self._doubts.get(key, ())
            if _may_hold(doubt.condition, value)
        }

    def close(self) -> None:
        """Wait for no answers any more."""
        for sent in list(self._sent):
            sent.cancel()

    def below(self, prefix: str) -> set[asyncio.Future[None]]:
        """Return what the removal of all keys with a prefix must wait for."""
        return self.of([key for key in self._doubts if key.startswith(prefix)], None)


def _may_hold(condition: str, value: Memory | None) -> bool:
    """Tell whether a condition may hold once a key has a value; ``None`` for none."""
    if condition in (ANYTHING, MISSING) or value is None:
        return condition == ANYTHING or (condition == MISSING and value is None)
    # The entity tags of S3 are hashes of the bytes: an equal value has an equal one.
    return hashlib.md5(value, usedforsecurity=False).hexdigest() in condition
