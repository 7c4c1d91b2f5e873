"""The servers of a store that has several: connected at once, and agreed on what they are."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ucxstore.client.incarnations import Incarnations
from ucxstore.cluster.exchange import exchange_notes, overwrite_notes
from ucxstore.cluster.member import Member
from ucxstore.cluster.placement import Placement
from ucxstore.errors import ConnectError

# For the notes, where connecting has taken all of the time.
_LEAST_SECONDS = 1.0


class Membership:
    """All servers of a store.

    Parameters
    ----------
    members : sequence of Member
        In the order of the address.
    incarnations : Incarnations
        Which incarnations of servers the store relies on.
    connect_timeout : float
        Seconds that an attempt may take for which no request waits.

    Attributes
    ----------
    shared : bool
        Whether they all serve the same values; known once one of them is connected.
    """

    def __init__(
        self, members: Sequence[Member], incarnations: Incarnations, connect_timeout: float
    ) -> None:
        self.members = tuple(members)
        self.placement = Placement([str(member.server) for member in members])
        self.shared = False
        self._incarnations = incarnations
        self._connect_timeout = connect_timeout

    def is_ready(self) -> bool:
        """Tell whether all are connected that can be; others are tried again meanwhile.

        Raises
        ------
        ConnectError
            If they are not servers of one store.
        """
        away = [member for member in self.members if not member.is_connected]
        # Nobody needs to wait for one that others stand in for.
        known = [member for member in away if member.has_failed or (self.shared and member.was_met)]
        if len(away) == len(self.members) or len(known) < len(away):
            return False
        self._meet()
        for member in away:
            member.retry(self._connect_timeout, lambda: self._exchange(self._connect_timeout))
        return True

    def connect(self, timeout: float) -> None:
        """Connect to all that were not tried yet, or have been lost since, at the same time.

        Parameters
        ----------
        timeout : float
            Seconds.

        Raises
        ------
        ConnectError
            If none can be reached, or if they are not servers of one store.
        """
        deadline = time.monotonic() + timeout
        away = [member for member in self.members if not member.is_connected]
        untried = [member for member in away if not member.has_failed]
        tried = untried if len(away) < len(self.members) else away
        if tried:
            with ThreadPoolExecutor(len(tried)) as threads:
                list(threads.map(lambda member: member.connect(timeout), tried))
        self._exchange(max(deadline - time.monotonic(), _LEAST_SECONDS))
        if not any(member.is_connected for member in self.members):
            self.members[0].connection()  # which says why
        self._meet()

    def down(self) -> frozenset[int]:
        """Return the indices of those that are not connected."""
        return frozenset(i for i, member in enumerate(self.members) if not member.is_connected)

    def accept_restarted(self) -> None:
        """Rely on all that are connected as they are now, here and in processes yet to come.

        Raises
        ------
        ConnectError
            If one of them cannot be told that.
        """
        overwrite_notes(self.members, self._incarnations, self._connect_timeout)
        for member in self.members:
            member.accept_restarted()

    def _exchange(self, timeout: float) -> None:
        if self._incarnations.need_notes:
            exchange_notes(self.members, self._incarnations, timeout)

    def _meet(self) -> None:
        """Find out what they are: also those that nobody has asked for anything yet."""
        told = {member.meet(): member for member in self.members}
        if True in told and False in told:
            raise ConnectError(
                f"{told[True].server} serves what other servers serve too, {told[False].server} "
                "values of its own: one store cannot have both (see `Server(shared=...)`)"
            )
        if told.keys() != {None}:
            self.shared = True in told
