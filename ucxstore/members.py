"""The servers of a store that has several: connected at once, and agreed on what they are."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ucxstore.errors import ConnectError
from ucxstore.member import Member
from ucxstore.placement import Placement


class Members:
    """All servers of a store.

    Parameters
    ----------
    members : sequence of Member
        In the order of the address.
    retry_timeout : float
        Seconds that an attempt may take for which nobody waits.

    Attributes
    ----------
    shared : bool
        Whether they all serve the same values; known once one of them is connected.
    """

    def __init__(self, members: Sequence[Member], retry_timeout: float) -> None:
        self.all = tuple(members)
        self.placement = Placement([str(member.place) for member in members])
        self.shared = False
        self._retry_timeout = retry_timeout

    def ready(self) -> bool:
        """Tell whether all are connected that can be; others are tried again meanwhile.

        Raises
        ------
        ConnectError
            If they are not servers of one store.
        """
        away = [member for member in self.all if not member.is_connected]
        # Nobody needs to wait for one that others stand in for.
        known = [member for member in away if member.has_failed or (self.shared and member.was_met)]
        if len(away) == len(self.all) or len(known) < len(away):
            return False
        self._meet()
        for member in away:
            member.retry(self._retry_timeout)
        return True

    def connect(self, timeout: float) -> None:
        """Connect to all that were not tried yet, or have been lost since, at the same time.

        Raises
        ------
        ConnectError
            If none can be reached, or if they are not servers of one store.
        """
        away = [member for member in self.all if not member.is_connected]
        untried = [member for member in away if not member.has_failed]
        tried = untried if len(away) < len(self.all) else away
        if tried:
            with ThreadPoolExecutor(len(tried)) as threads:
                list(threads.map(lambda member: member.connect(timeout), tried))
        if not any(member.is_connected for member in self.all):
            self.all[0].connection()  # which says why
        self._meet()

    def down(self) -> frozenset[int]:
        """Return the indices of those that are not connected."""
        return frozenset(i for i, member in enumerate(self.all) if not member.is_connected)

    def _meet(self) -> None:
        """Take note of who is there: also of those that nobody has asked for anything yet."""
        told = {member.meet(): member for member in self.all}
        if True in told and False in told:
            raise ConnectError(
                f"{told[True].place} serves what other servers serve too, {told[False].place} "
                "values of its own: one store cannot have both (see `Server(shared=...)`)"
            )
        if told.keys() != {None}:
            self.shared = True in told
