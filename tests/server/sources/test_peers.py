"""What a server tells a peer that goes meanwhile."""

import asyncio

import pytest

from ucxstore.server.sources.names import Names
from ucxstore.server.sources.peers import Peer
from ucxstore.server.sources.presence import Card

CARD = Card(server="other", epoch=1, asks=False, addresses=("h",), port=1, process=("", "", 0, 0))


class Nobody:
    """A listener to whom nothing matters."""

    def changing(self, names: Names) -> None: ...

    def asked(self, names: Names) -> None: ...

    def changed(self, names: Names) -> None: ...

    def lost(self, peer: Peer, *, stands_still: bool) -> None: ...


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_peer_that_goes_is_not_waited_for(is_told: bool) -> None:
    """Also where it says so before it was told of a change."""
    peer = Peer(CARD, Nobody())
    noted = peer.begin(Names({"k"}))
    peer.gone.set()
    if is_told:
        await asyncio.sleep(0)
    assert not peer.leave()
    await asyncio.wait_for(noted, 5)
