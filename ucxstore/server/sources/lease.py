"""`Lease`: for how long a server may rely on what it has: state alone, no I/O."""

from collections.abc import Callable

from ucxstore.server.sources.presence import Card, boot_seconds

# For so long a server relies on what it has, from the start of its last look at its presence.
LEASE_SECONDS = 6.0
RENEW_SECONDS = LEASE_SECONDS / 3

# Who shuts another one out waits for so long: its clock may be slower than this one.
FENCE_SECONDS = LEASE_SECONDS * 1.05 + 0.5


class Lease:
    """The lease of a server, and the membership under which it has it.

    Parameters
    ----------
    believe_until : callable
        Takes until when the caches are believed; 0 for no longer.
    asks : bool
        Whether a freshness that was chosen decides what is believed, and no lease.

    Attributes
    ----------
    card : Card or None
        The server's own, while it is a member, or joins.
    is_member : bool
    yields : bool
        Whether it relies on no lease for a while, as it cannot reach another server. It applies
        from the next membership on.
    """

    def __init__(self, believe_until: Callable[[float], None], *, asks: bool) -> None:
        self.card: Card | None = None
        self.is_member = False
        self.yields = False
        self._believe_until = believe_until
        self._asks = asks
        self._set_end(0.0)

    @property
    def is_relied_on(self) -> bool:
        """Whether the server believes its caches while the lease holds."""
        return not (self._asks or self.yields)

    def covers(self, card: Card | None) -> bool:
        """Tell whether the membership of a card is still the one, and its lease holds."""
        return card is self.card and boot_seconds() < self._until

    def join(self, card: Card) -> None:
        """Begin a membership; the lease is still to come."""
        self.card = card

    def begin(self, looked_at: float) -> None:
        """Begin the lease, from when the presence was looked at."""
        self.is_member = True
        self._set_end(looked_at + LEASE_SECONDS)

    def renew(self, card: Card, looked_at: float) -> None:
        """Renew it, if the membership of the card that was looked at is still the one."""
        if self.card is card and self.is_member:
            self._set_end(looked_at + LEASE_SECONDS)

    def end(self) -> Card | None:
        """Rely on nothing until the next joining; return the card until now."""
        self._set_end(0.0)
        self.is_member = False
        card, self.card = self.card, None
        return card

    def _set_end(self, until: float) -> None:
        self._until = until
        if not self._asks:
            self._believe_until(0.0 if self.yields else until)
