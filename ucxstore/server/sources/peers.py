"""`Peer`: another server of the same source, and what it and this one tell each other."""

import asyncio
from contextlib import suppress
from typing import Protocol

from ucxstore.server.sources.links import Link, Message
from ucxstore.server.sources.names import Names
from ucxstore.server.sources.presence import Card

# Seconds in which a peer must say that it has noted a change, before it is shut out.
ACK_SECONDS = 2.5


class Listener(Protocol):
    """Who is told what a peer changes, and what becomes of it."""

    def changing(self, names: Names) -> None:
        """Ask the source for these from now on: they are being changed elsewhere."""

    def asked(self, names: Names) -> None:
        """End one such asking."""

    def changed(self, names: Names) -> None:
        """Note that a change of these has ended elsewhere, with a known end."""

    def lost(self, peer: "Peer", *, stands_still: bool) -> None:
        """Note that the link of a peer has ended."""


class Peer:
    """Another server of the same source.

    Parameters
    ----------
    card : Card
    listener : Listener
    """

    def __init__(self, card: Card, listener: Listener) -> None:
        self.card = card
        self.gone = asyncio.Event()  # it relies on nothing that it has any more
        self.recovering: asyncio.Task[None] | None = None
        self._listener = listener
        self._link: Link | None = None
        self._dialer = ""  # of the link
        self._serving: asyncio.Task[None] | None = None
        self._synced = asyncio.Event()
        self._heard = 0.0
        # What it changes; and what it has named on a link whose beginning is not over.
        self._changes = Names()
        self._coming: Names | None = None
        # What this one changes, and it has not noted yet.
        self._last = 0
        self._unnoted: dict[int, tuple[Names, asyncio.Future[None]]] = {}
        self._begun, self._ended = Names(), Names()
        self._batch: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def linked(self) -> bool:
        """Whether there is a link."""
        return self._link is not None

    def takes(self, dialer: str) -> bool:
        """Tell whether a link that `dialer` has made is to take the place of the one until now.

        If both have dialled at the same time, both keep the same link.
        """
        return self._link is None or dialer <= self._dialer

    def attach(self, link: Link, dialer: str, mine: Names) -> None:
        """Use a link from now on; tell the peer first all that this server changes, `mine`."""
        if self._link is not None:
            self._link.close()
        self._link, self._dialer = link, dialer
        self._synced.clear()
        if self._coming is not None:
            self._listener.asked(self._coming)
        self._coming = Names()
        self._heard = asyncio.get_running_loop().time()
        for part in mine.parts():
            link.send({"begin": part})
        link.send({"synced": True})
        for number, (names, _) in self._unnoted.items():
            self._send_begin(number, names)
        self._watch()
        self._serving = asyncio.create_task(self._serve(link))

    async def synced(self) -> None:
        """Wait until it is known what the peer changes, or the peer is gone."""
        waits = [asyncio.create_task(one.wait()) for one in (self._synced, self.gone)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def begin(self, names: Names) -> asyncio.Future[None]:
        """Tell it that these change; the result is done when it has noted that, or is gone."""
        loop = asyncio.get_running_loop()
        if self._batch is None:
            self._batch = loop.create_future()
            loop.call_soon(self._flush)
        self._begun.add(names)
        return self._batch

    def end(self, names: Names) -> None:
        """Tell it that these have changed."""
        if not (self._ended or self._batch):
            asyncio.get_running_loop().call_soon(self._flush)
        self._ended.add(names)

    def tick(self, silence: float) -> None:
        """Show that this one lives, and end a link whose other end has been silent for so long."""
        if self._link is not None:
            self._link.send({"here": True})
            if asyncio.get_running_loop().time() - self._heard > silence:
                self.drop(stands_still=True)

    def drop(self, *, stands_still: bool) -> None:
        """End the link."""
        if self._link is not None:
            self._link.close()
            self._link = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._listener.lost(self, stands_still=stands_still)

    def leave(self) -> Names:
        """Take no more note of it, and return what it was changing."""
        self._flush()
        self.gone.set()
        if self._link is not None:
            self._link.send({"bye": True})
            self._link.close()
            self._link = None
        if self._timer is not None:
            self._timer.cancel()
        for _, noted in self._unnoted.values():
            _settle(noted)
        self._unnoted.clear()
        if self._batch is not None:
            _settle(self._batch)
        changes = self._changes
        self._changes = Names()
        if self._coming is not None:
            both = changes.add(self._coming)
            again = Names(self._coming.keys - both.keys, self._coming.prefixes - both.prefixes)
            self._listener.asked(again)
            self._coming = None
        if self.recovering is not None and self.recovering is not asyncio.current_task():
            self.recovering.cancel()
        return changes

    def _flush(self) -> None:
        # Ends first: what ends and begins in one step of the loop has begun anew.
        ended, self._ended = self._ended, Names()
        begun, self._begun = self._begun, Names()
        batch, self._batch = self._batch, None
        if self._link is not None:
            for part in ended.parts():
                self._link.send({"end": part})
        if batch is None:
            return
        if self.gone.is_set():  # it has said so before it was told of these
            _settle(batch)
            return
        self._last += 1
        self._unnoted[self._last] = begun, batch
        self._send_begin(self._last, begun)
        self._watch()

    def _send_begin(self, number: int, names: Names) -> None:
        if self._link is not None:
            parts = list(names.parts())
            for at, part in enumerate(parts, 1):
                self._link.send({"begin": part} | ({"n": number} if at == len(parts) else {}))

    def _watch(self) -> None:
        if self._unnoted and self._link is not None and self._timer is None:
            first = next(iter(self._unnoted))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ACK_SECONDS, self._look, first)

    def _look(self, first: int) -> None:
        """Drop the link if what was told first is still not noted."""
        self._timer = None
        if first in self._unnoted:
            self.drop(stands_still=True)
        else:
            self._watch()

    async def _serve(self, link: Link) -> None:
        with suppress(OSError, EOFError, ValueError):
            while self._link is link:
                message = await link.receive()
                if self._link is not link:
                    return
                self._heard = asyncio.get_running_loop().time()
                self._handle(link, message)
        link.close()
        if self._link is link:
            self.drop(stands_still=False)

    def _handle(self, link: Link, message: Message) -> None:
        match message:
            case {"begin": part}:
                names = Names.parse(part)
                into = self._changes if self._coming is None else self._coming
                self._listener.changing(into.add(names))
                if "n" in message:
                    link.send({"noted": message["n"]})
            case {"end": part}:
                names = Names.parse(part)
                self._listener.asked(self._changes.remove(names))
                self._listener.changed(names)
            case {"noted": int(number)}:
                if number in self._unnoted:
                    _settle(self._unnoted.pop(number)[1])
            case {"synced": True} if self._coming is not None:
                before, self._changes, self._coming = self._changes, self._coming, None
                self._listener.asked(before)
                self._synced.set()
            case {"bye": True}:
                self.gone.set()
                raise EOFError
            case {"here": True}:
                pass
            case _:
                raise ValueError("an unknown message")


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
