"""Agree with servers on the record of their set: the I/O for `ucxstore.cluster.record`.

Records travel in the handshake: a server sends the one that it has with its welcome, and takes a
new one if it still has the one that the client knows. A new set's record goes to the servers in the
order of their identities. So where two clients are first at the same time, one server decides.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ucxstore.base import logs
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ClusterError, ConnectError, UcxStoreError, without_frames
from ucxstore.client.connections import Connector
from ucxstore.cluster.record import Found, Record, choose, names
from ucxstore.protocol.frames import Welcome

# For each exchange, if connecting has taken all of the time.
_LEAST_SECONDS = 1.0


class Agreement:
    """All servers that an address names, and what they keep.

    Parameters
    ----------
    connectors : mapping
        The connector to each.
    timeout : float
        Seconds for all exchanges.
    """

    def __init__(self, connectors: Mapping[HostPort, Connector], timeout: float) -> None:
        self._connectors = connectors
        self._deadline = time.monotonic() + timeout
        self.welcomes: dict[HostPort, Welcome] = {}
        self.problems: dict[HostPort, UcxStoreError] = {}

    @property
    def found(self) -> Found:
        """The identities of the servers."""
        return {
            server: self.welcomes[server].identity if server in self.welcomes else None
            for server in self._connectors
        }

    def greet(self) -> None:
        """Learn from all servers that can be reached what they are and keep now."""
        with ThreadPoolExecutor(len(self._connectors), "ucxstore-greet") as threads:
            answers = list(threads.map(self._greet, self._connectors))
        self.welcomes, self.problems = {}, {}
        for server, answer in zip(self._connectors, answers, strict=True):
            if isinstance(answer, Welcome):
                self._learn(server, answer)
            else:
                self.problems[server] = answer

    def record(self) -> Record | None:
        """Return the valid record; ``None`` if no server has one.

        Raises
        ------
        ClusterError
            If the servers are of different sets.
        """
        return choose({server: self._record_of(server) for server in self.welcomes})

    def is_complete(self) -> bool:
        """Return whether the servers that were reached all keep one record, of all of them."""
        kept = {welcome.record for welcome in self.welcomes.values()}
        if len(kept) != 1:
            return False
        record = Record.decode(*kept)
        if record is None or len(record.members) != len(self._connectors):
            return False
        return record.identities >= {one.identity for one in self.welcomes.values()}

    def settle(self) -> Record:
        """Return the record; make it if there is none, and see that all members keep it.

        Raises
        ------
        ClusterError
            If the servers are not those of one set.
        ConnectError
            If the set is new, and a server cannot be reached, or does not keep the record.
        """
        record = self.record()
        if record is None:
            record = self._make()
        record.bind(self.found)
        self.spread(record)
        return record

    def spread(self, record: Record) -> None:
        """Let all members that were reached keep a record, in place of an older one.

        Raises
        ------
        ClusterError
            If one of them has become a member of another set.
        """
        for server in self._in_order():
            welcome = self.welcomes[server]
            if welcome.identity in record.identities and welcome.record != record.encode():
                try:
                    self.keep(server, record)
                except UcxStoreError as error:  # others keep it; the next client tries again
                    logs.cluster.warning("%s does not keep the set's record: %s", server, error)
        self.record()

    def keep(self, server: HostPort, record: Record | None) -> Record | None:
        """Let one server keep a record, or none, if it has no other by now.

        Returns
        -------
        Record or None
            The one that it keeps after that.

        Raises
        ------
        ConnectError
            If it cannot be reached, or does not keep it.
        """
        before = self.welcomes[server]
        data = b"" if record is None else record.encode()
        with self._connectors[server].greet(self._left()) as greeting:
            kept = greeting.keep(before.record, data)
        self._learn(server, before._replace(record=kept))
        return self._record_of(server)

    def _make(self) -> Record:
        """Make the record of servers that have none, with the places that keys have had so far."""
        if len(self.welcomes) < len(self._connectors):
            why = "; ".join(map(str, self.problems.values()))
            raise ConnectError(
                f"{names(self.welcomes)}: they keep no record of a set of servers yet, and to make "
                f"one, all servers of the address are needed: {why}"
            )
        record = Record.make({server: one.identity for server, one in self.welcomes.items()})
        first, *others = self._in_order()
        # It may have another client's record by now: that is valid, then.
        record = self.keep(first, record) or record
        for server in others:
            self.keep(server, record)
        return self.record() or record

    def _learn(self, server: HostPort, welcome: Welcome) -> None:
        self.welcomes[server] = welcome
        self._connectors[server].remember(welcome)

    def _in_order(self) -> list[HostPort]:
        return sorted(self.welcomes, key=lambda server: self.welcomes[server].identity)

    def _greet(self, server: HostPort) -> Welcome | UcxStoreError:
        try:
            with self._connectors[server].greet(self._left()) as greeting:
                return greeting.welcome
        except UcxStoreError as error:
            return without_frames(error)

    def _record_of(self, server: HostPort) -> Record | None:
        return Record.decode(self.welcomes[server].record)

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), _LEAST_SECONDS)


def settle(
    connectors: Mapping[HostPort, Connector],
    connected: Mapping[HostPort, Welcome],
    timeout: float,
) -> Record:
    """Return the record of the set of some servers; make it if there is none.

    Parameters
    ----------
    connectors : mapping
        The connectors to all servers.
    connected : mapping
        The welcomes of the connected ones. They may be old.
    timeout : float
        Seconds, if more than these is needed.

    Raises
    ------
    ClusterError
        If the servers are not those of one set.
    ConnectError
        If the set is new, and a server cannot be reached, or does not keep the record.
    """
    agreement = Agreement(connectors, timeout)
    agreement.welcomes = dict(connected)
    if agreement.is_complete():
        record = agreement.record()
        assert record is not None
        return record
    agreement.greet()
    return agreement.settle()


def accept_loss(connectors: Mapping[HostPort, Connector], timeout: float) -> Record:
    """Put the storages that servers have now in the place of lost ones, and return the new record.

    Raises
    ------
    ClusterError
        If the servers are not those of one set.
    ConnectError
        If none can be reached, or one does not keep the record.
    """
    agreement = Agreement(connectors, timeout)
    agreement.greet()
    _check_any(agreement)
    record = agreement.settle()
    if record.bind(agreement.found) and not record.identities >= _identities(agreement):
        _replace(agreement, record.accept(agreement.found))
        record = agreement.record() or record
    return record


def forget(
    connectors: Mapping[HostPort, Connector],
    which: Callable[[Record], int],
    timeout: float,
) -> Record:
    """Take a member out of a set, and return the new record.

    Parameters
    ----------
    connectors : mapping
        The connectors to any servers of the set.
    which : callable
        Returns the index of the member to take out.
    timeout : float
        Seconds.

    Raises
    ------
    ClusterError
        If the servers keep no record, or different ones, or the set has but one member.
    ConnectError
        If none can be reached, or one does not keep the record.
    """
    agreement = Agreement(connectors, timeout)
    agreement.greet()
    _check_any(agreement)
    record = agreement.record()
    if record is None:
        raise ClusterError(f"{names(agreement.welcomes)}: they keep no record of a set of servers")
    if len(record.members) < 2:
        raise ClusterError(f"{record.members[0]} is the only member of its set")
    gone = record.members[index := which(record)]
    _replace(agreement, record.forget(index))
    for server, welcome in list(agreement.welcomes.items()):
        if welcome.identity == gone.identity:
            agreement.keep(server, None)
    return record.forget(index)


def _replace(agreement: Agreement, record: Record) -> None:
    for server, welcome in list(agreement.welcomes.items()):
        if welcome.identity in record.identities:
            kept = agreement.keep(server, record)
            if kept != record:
                raise ClusterError(f"{server}: another client has changed the set at this moment")


def _check_any(agreement: Agreement) -> None:
    for problem in agreement.problems.values():
        if not agreement.welcomes:
            raise problem


def _identities(agreement: Agreement) -> set[bytes]:
    return {welcome.identity for welcome in agreement.welcomes.values()}
