"""`Membership`: connect to all servers of a store, and check that they belong together."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ucxstore.client.incarnations import Incarnations
from ucxstore.cluster.exchange import exchange_notes, overwrite_notes
from ucxstore.cluster.member import Member
from ucxstore.cluster.placement import Placement
from ucxstore.errors import ConnectError

# For the exchange of notes, if connecting has taken all of the time.
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
        Seconds for an attempt in the background.

    Attributes
    ----------
    shared : bool
        Whether they all serve the same values. Known once one of them is connected.
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
        """Return whether all are connected that can be; try others again in the background.

        Raises
        ------
        ConnectError
            If they are not servers of one store.
        """
        away = [member for member in self.members if not member.is_connected]
        # No request waits for one that has failed, or that others stand in for.
        known = [member for member in away if member.has_failed or (self.shared and member.was_met)]
        if len(away) == len(self.members) or len(known) < len(away):
            return False
        self._meet()
        for member in away:
            member.retry(self._connect_timeout, lambda: self._exchange(self._connect_timeout))
        return True

    def connect(self, timeout: float) -> None:
        """Connect at the same time to all that are new, or have been lost since.

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
            self.members[0].connection()  # raises why
        self._meet()

    def down(self) -> frozenset[int]:
        """Return the indices of those that are not connected."""
        return frozenset(i for i, member in enumerate(self.members) if not member.is_connected)

    def accept_restarted(self) -> None:
        """Rely on all that are connected as they are now, here and in later processes.

        Raises
        ------
        ConnectError
            If one of them does not take a note of it.
        """
        overwrite_notes(self.members, self._incarnations, self._connect_timeout)
        for member in self.members:
            member.accept_restarted()

    def _exchange(self, timeout: float) -> None:
        if self._incarnations.need_notes:
            exchange_notes(self.members, self._incarnations, timeout)

    def _meet(self) -> None:
        """Remember the incarnations of all members, and find out whether they share values."""
        kinds = {member.meet(): member for member in self.members}
        if True in kinds and False in kinds:
            raise ConnectError(
                f"{kinds[True].server} shares its values with other servers, {kinds[False].server} "
                "has values of its own: one store cannot have both (see `Server(shared=...)`)"
            )
        if kinds.keys() != {None}:
            self.shared = True in kinds
