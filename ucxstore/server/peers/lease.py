"""`CacheLease`: until when this server believes its cache."""

from ucxstore.server.peers import times
from ucxstore.server.peers.events import Believe, ReadPresence
from ucxstore.server.peers.state import State


class CacheLease:
    """Until when this server believes its cache: for a time after each look at its presence."""

    def __init__(self, state: State) -> None:
        self.state = state

    def hold_until(self, until: float) -> None:
        """Believe the cache until then, unless a freshness or the peers forbid it."""
        state = self.state
        state.lease_until = until
        if state.shared and not state.asks:
            state.out.append(Believe(0.0 if state.yields else until))

    def look(self) -> None:
        """Look at the own presence, if no look is under way."""
        state = self.state
        is_under_way = any(one.why == "renew" for one in state.requests.values())
        if state.presence is None or is_under_way or state.now < state.look_after:
            return
        state.look_at = state.now + times.RENEW_SECONDS
        state.request(ReadPresence(state.presence.name), "renew")
