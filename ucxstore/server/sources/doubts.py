"""`Doubts`: changes that were given up, and which a source may still carry out."""

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ucxstore.server.peers.events import Doubted, Landed
from ucxstore.server.peers.names import Names
from ucxstore.server.sources.source import Memory, UnknownEndError

# The conditions of a change: none, so that it succeeds whatever is there; that the key is missing;
# or the entity tag that its value must have.
ANYTHING: Final = ""
MISSING: Final = "create"


class Doubts:
    """Tells of changes that were given up, and which the source may still carry out.

    Nobody can tell when a source lets go of a request whose connection has ended, so its answer is
    waited for for a limited time.

    Parameters
    ----------
    lasting : float
        Seconds.

    Attributes
    ----------
    lasting : float
    tell : callable
        Who is told of them.
    """

    def __init__(self, lasting: float) -> None:
        self.tell: Callable[[Doubted | Landed], None] = lambda _: None
        self.lasting = lasting
        self._numbers = itertools.count(1)
        self._sent: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def follow[T](self, keys: Sequence[str], change: Coroutine[object, object, T]) -> T:
        """Carry out a change without a condition. Once it is given up, it goes on by itself.

        So it is in doubt for no longer than until it has ended.
        """
        sent = asyncio.ensure_future(change)
        try:
            return await asyncio.shield(sent)
        except asyncio.CancelledError:
            self.add(keys, ANYTHING, sent)
            raise
        except UnknownEndError as error:
            if not error.ended:
                self.add(keys, ANYTHING)
            raise

    def add(
        self, keys: Sequence[str], condition: str, sent: "asyncio.Future[Any] | None" = None
    ) -> None:
        """Note that a change of keys was given up.

        Parameters
        ----------
        keys : sequence of str
        condition : str
            `ANYTHING`, `MISSING`, or an entity tag.
        sent : asyncio.Future, optional
            Its answer, which may still come.
        """
        number = next(self._numbers)
        self.tell(Doubted(number, Names(frozenset(keys)), condition))

        def answered(done: "asyncio.Future[Any]") -> None:
            self._sent.discard(done)
            if not done.cancelled() and done.exception() is None:
                self.tell(Landed(number))

        if sent is not None:
            self._sent.add(sent)
            sent.add_done_callback(answered)
            if self._closed:
                sent.cancel()
            else:
                asyncio.get_running_loop().call_later(self.lasting, sent.cancel)

    def close(self) -> None:
        """Wait for no answers any more, not even of what is given up later."""
        self._closed = True
        for sent in list(self._sent):
            sent.cancel()


def may_hold(condition: str, value: Memory | None) -> bool:
    """Tell whether a condition may hold once a key has a value; ``None`` for none."""
    if condition in (ANYTHING, MISSING) or value is None:
        return condition == ANYTHING or (condition == MISSING and value is None)
    # The entity tags of S3 are hashes of the bytes: an equal value has an equal one.
    return hashlib.md5(value, usedforsecurity=False).hexdigest() in condition
