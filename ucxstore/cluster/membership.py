"""`Membership`: connect to all servers of a store, and check that they belong together."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from ucxstore.base import logs
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ClusterError, ConnectError, ServerLostError, UcxStoreError
from ucxstore.client.identities import Identities
from ucxstore.client.patience import Patience
from ucxstore.cluster import agreement
from ucxstore.cluster.member import Member
from ucxstore.cluster.placement import Placement
from ucxstore.cluster.record import Record
from ucxstore.protocol.frames import Welcome


class Seats(NamedTuple):
    """The servers of a store, and where keys are placed on them.

    Parameters
    ----------
    members : tuple of Member
        In the order of `placement`.
    placement : Placement
    """

    members: tuple[Member, ...]
    placement: Placement

    def member_of(self, key: str) -> Member:
        """Return the server of a key."""
        (index,) = self.placement.servers_of([key])
        return self.members[index]

    def down(self) -> frozenset[int]:
        """Return the indices of those that are not there; those that rest are."""
        return frozenset(i for i, member in enumerate(self.members) if member.is_away)


class Membership:
    """All servers of a store.

    A store that was told the identities of all servers connects to each of them when it first has a
    request for it. Another one has to meet all servers once, to learn which belong together.
    After that, a connection that nobody uses is closed, and the member *rests* until it is wanted
    again.

    Parameters
    ----------
    members : sequence of Member
        In the order of the address.
    identities : Identities
        Which identities the store relies on.
    connect_timeout : float
        Seconds for an attempt in the background.

    Attributes
    ----------
    seats : Seats
        As the servers' record has them, once that is known.
    shared : bool
        Whether they all serve the same values. Known once one of them is connected.
    """

    def __init__(
        self,
        members: Sequence[Member],
        identities: Identities,
        connect_timeout: float,
    ) -> None:
        self.members = tuple(members)
        self.seats = Seats(self.members, Placement([str(member.server) for member in members]))
        self.shared = False
        self._connectors = {member.server: member.connector for member in members}
        self._identities = identities
        self._connect_timeout = connect_timeout
        self._names: list[str] = []
        self._settled = False
        self._record: bytes | None = None  # as the set's servers keep it, if they are one

    def is_ready(self) -> bool:
        """Return whether all are there that can be; try others again in the background."""
        if not self._settled:
            return False
        away = [member for member in self.members if member.is_away]
        # No request waits for one that has failed, or that others stand in for.
        known = [member for member in away if member.has_failed or (self.shared and member.was_met)]
        if len(away) == len(self.members) or len(known) < len(away):
            return False
        for member in away:
            member.retry(self._connect_timeout, self._settle_again)
        return True

    def connect(self, timeout: float) -> None:
        """Connect at the same time to all that are new, or have been lost since.

        The first time, servers that are not there yet are waited for where the store cannot do
        without them. If it knows all of them, it connects to none.

        Parameters
        ----------
        timeout : float
            Seconds.

        Raises
        ------
        ConnectError
            If none can be reached, or the set is new and one of them cannot.
        ClusterError
            If they are not servers of one store.
        """
        if not (self._settled or self._identities.need_record):
            self._settle({}, timeout)
            return
        patience = Patience(timeout)
        while True:
            with self._kept_open():
                self._connect_once(patience.left())
                welcomes = self._welcomes()
                try:
                    if welcomes:
                        self._settle(welcomes, patience.left())
                    elif not any(member.is_resting for member in self.members):
                        self._raise_why()
                    return
                except (ConnectError, ServerLostError) as error:
                    if isinstance(error, ClusterError) or not self._may_come(welcomes):
                        raise
                    if not patience.wait(error, patience.deadline):
                        raise

    @contextmanager
    def _kept_open(self) -> Iterator[None]:
        """Close no connection as idle: what it has told is to be looked at."""
        with ExitStack() as stack:
            for connector in self._connectors.values():
                stack.enter_context(connector.kept_open())
            yield

    def _connect_once(self, timeout: float) -> None:
        away = [member for member in self.members if self._is_wanted(member)]
        untried = [member for member in away if not member.has_failed]
        needs_all = not self._settled or len(away) == len(self.members)
        _connect_all(away if needs_all else untried, timeout)

    def _is_wanted(self, member: Member) -> bool:
        return member.is_away if self._settled else not member.is_connected

    def rouse(self, member: Member, timeout: float) -> None:
        """Connect to a member that rests, blocking; what goes wrong, its requests tell.

        Parameters
        ----------
        member : Member
        timeout : float
            Seconds.
        """
        member.try_to_connect(timeout)
        welcome = member.welcome
        if welcome is not None and self._record not in (None, welcome.record):
            self._settle_again()  # somebody has changed the set meanwhile

    def _may_come(self, welcomes: Mapping[HostPort, Welcome]) -> bool:
        """Return whether all that is wrong is that some servers were never there yet.

        Or that all have ended their sessions, as they do when another client makes the record.
        """
        away = [member for member in self.members if not member.is_connected]
        return (
            not self._settled
            and bool(away)
            and all(member.may_come or (member.was_lost and not welcomes) for member in away)
        )

    def _raise_why(self) -> None:
        """Raise why none is connected: rather what no later try will change."""
        lasting = (member for member in self.members if not member.may_come)
        next(lasting, self.members[0]).connection()

    def accept_restarted(self) -> None:
        """Rely on all that are connected as they are now, here and in later processes.

        Raises
        ------
        ConnectError
            If one of them does not keep the new record.
        ClusterError
            If they are not servers of one store.
        """
        with self._kept_open():
            resting = [member for member in self.members if member.is_resting]
            _connect_all(resting, self._connect_timeout)
            self._accept()

    def _accept(self) -> None:
        welcomes = self._welcomes()
        if not welcomes:
            self._raise_why()
        if self.shared:
            self._place(_identity_of_all(welcomes))
        elif self._identities.need_record:
            record = agreement.accept_loss(self._connectors, self._connect_timeout)
            self._connect_anew(welcomes)
            self._bind(record, welcomes)
        for member in self.members:
            member.accept()

    def _welcomes(self) -> dict[HostPort, Welcome]:
        found = {member.server: member.welcome for member in self.members}
        return {server: welcome for server, welcome in found.items() if welcome is not None}

    def _settle(self, welcomes: Mapping[HostPort, Welcome], timeout: float) -> None:
        """Find out which servers belong together, and how keys are placed on them."""
        self.shared = self._find_out_whether_shared(welcomes)
        if self.shared:
            if not self._settled:
                known = self._identities.all_known
                # Copies of the store know it from before: who has another one now is passed over.
                self._place(next(iter(known)) if len(known) == 1 else _identity_of_all(welcomes))
        elif self._identities.need_record:
            record = agreement.settle(self._connectors, welcomes, timeout)
            self._connect_anew(welcomes)
            self._bind(record, welcomes)
        else:
            self._place(None)
        self._settled = True

    def _find_out_whether_shared(self, welcomes: Mapping[HostPort, Welcome]) -> bool:
        if self._identities.scratch:
            return False
        return _is_shared(welcomes) if welcomes else self._identities.are_shared

    def _connect_anew(self, welcomes: Mapping[HostPort, Welcome]) -> None:
        """Connect to those that have got a record, and with it ended sessions begun before."""
        for member in self.members:
            if member.server in welcomes and not member.is_connected:
                member.try_to_connect(self._connect_timeout)

    def _settle_again(self) -> None:
        """Do so when another server has come; what is wrong then, its requests tell."""
        try:
            self._settle(self._welcomes(), self._connect_timeout)
        except UcxStoreError as error:
            logs.cluster.warning("a server has come that does not fit: %s", error)

    def _place(self, expected: bytes | None) -> None:
        for member in self.members:
            member.place(expected)

    def _bind(self, record: Record, welcomes: Mapping[HostPort, Welcome]) -> None:
        """Put each server at the place in the record that has its identity."""
        by_server = {member.server: member for member in self.members}
        found = {
            server: welcomes[server].identity if server in welcomes else None
            for server in by_server
        }
        bound = [by_server[server] for server in record.bind(found)]
        for member, place in zip(bound, record.members, strict=True):
            member.place(place.identity)
        names = [place.name for place in record.members]
        placement = self.seats.placement if names == self._names else Placement(names)
        self._names, self.seats = names, Seats(tuple(bound), placement)
        self._record = record.encode()


def _connect_all(members: Sequence[Member], timeout: float) -> None:
    """Connect to members at the same time; what goes wrong, their requests tell."""
    if members:
        with ThreadPoolExecutor(len(members), "ucxstore-connect") as threads:
            list(threads.map(lambda member: member.try_to_connect(timeout), members))


def _is_shared(welcomes: Mapping[HostPort, Welcome]) -> bool:
    """Tell whether servers share their values with one another.

    Raises
    ------
    ClusterError
        If only some do.
    """
    kinds = {welcome.shared: server for server, welcome in welcomes.items()}
    if len(kinds) > 1:
        raise ClusterError(
            f"{kinds[True]} shares its values with other servers, {kinds[False]} "
            "has values of its own: one store cannot have both (see `Server(shared=...)`)"
        )
    return True in kinds


def _identity_of_all(welcomes: Mapping[HostPort, Welcome]) -> bytes:
    """Return the identity of the storage that all servers share.

    Raises
    ------
    ClusterError
        If they do not.
    """
    storages = {welcome.identity: server for server, welcome in welcomes.items()}
    if len(storages) > 1:
        found = ", ".join(f"{server} ({one.hex()})" for one, server in storages.items())
        raise ClusterError(
            f"these servers are to share their values, but have different storages: {found} (is a "
            "directory not mounted, or is the source named differently?)"
        )
    return next(iter(storages))
