"""Exchange notes of incarnations with servers: the I/O for `ucxstore.cluster.notes`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ucxstore.address import HostPort
from ucxstore.client import requests
from ucxstore.client.connections import ServerConnection
from ucxstore.client.incarnations import Incarnations
from ucxstore.client.memory import readable_view
from ucxstore.client.requests import Request
from ucxstore.cluster.member import Member
from ucxstore.cluster.notes import Notes, exchange, folder_of, incarnations_of
from ucxstore.errors import ConnectError, UcxStoreError
from ucxstore.protocol.frames import Welcome


def exchange_notes(members: Sequence[Member], incarnations: Incarnations, timeout: float) -> None:
    """Exchange notes with all connected servers, if one of them is new.

    Parameters
    ----------
    members : sequence of Member
        All servers of the store. New ones may be used after this, unless it fails.
    incarnations : Incarnations
    timeout : float
        Seconds that each answer may take.
    """
    post = _Post(members, incarnations, timeout)
    new = {server for server, to in post.connections.items() if post.folder not in to.noted}
    if not new:
        return
    welcomes = post.welcomes
    if len(welcomes) < len(members) or any(welcome.volatile for welcome in welcomes.values()):
        dialogue = exchange(incarnations, welcomes)
        wanted = next(dialogue, None)
        while wanted is not None:
            post.leave(wanted, if_absent=True)
            try:
                wanted = dialogue.send(post.find(wanted))
            except StopIteration:
                wanted = None
    # A server in use that does not answer may have notes of the new ones that no other has.
    silent = next((error for at, error in post.failed.items() if post.is_used(at)), None)
    for member in members:
        if member.server in new:
            problem = post.failed.get(member.server, silent)
            member.noted(post.connections[member.server], problem)


def overwrite_notes(members: Sequence[Member], incarnations: Incarnations, timeout: float) -> None:
    """Replace the notes at all connected servers by their incarnations of now.

    Raises
    ------
    ConnectError
        If one of them does not acknowledge its notes.
    """
    post = _Post(members, incarnations, timeout)
    now = incarnations_of(post.welcomes)
    post.leave(dict.fromkeys(post.connections, now), if_absent=False)
    for error in post.failed.values():
        raise error


class _Post:
    """Send requests for notes to connected servers, all at once; those that fail are left out.

    Attributes
    ----------
    connections : dict
        To the servers that are connected.
    failed : dict
        The errors of those that did not answer.
    """

    def __init__(
        self, members: Sequence[Member], incarnations: Incarnations, timeout: float
    ) -> None:
        connected = {member.server: member.connection_for_notes() for member in members}
        self.connections: dict[HostPort, ServerConnection] = {
            server: to for server, to in connected.items() if to is not None
        }
        self.failed: dict[HostPort, UcxStoreError] = {}
        self.folder = folder_of(incarnations.servers)
        self._servers = incarnations.servers
        self._timeout = timeout

    @property
    def welcomes(self) -> dict[HostPort, Welcome]:
        """The welcomes of the connected servers."""
        return {server: to.welcome for server, to in self.connections.items()}

    def is_used(self, server: HostPort) -> bool:
        """Tell whether a connection was in use before, and is still alive."""
        to = self.connections[server]
        return self.folder in to.noted and to.native.alive

    def leave(self, notes: Notes, *, if_absent: bool) -> None:
        """Leave each server, a key of `notes`, the notes for it."""
        write = requests.add if if_absent else requests.set

        def leave_some(holder: HostPort) -> Request[Any]:
            values = [readable_view(note) for note in notes[holder].values()]
            return write(self._keys(notes[holder]), values)

        self._ask((holder for holder, some in notes.items() if some), leave_some)

    def find(self, holders: Iterable[HostPort]) -> Notes:
        """Return the notes of the servers that answer."""
        about = {holder: [one for one in self._servers if one != holder] for holder in holders}

        def find_all(holder: HostPort) -> Request[Any]:
            keys = self._keys(about[holder])
            return requests.get(keys, [()] * len(keys))

        return {
            holder: {
                server: found[0].tobytes()
                for server, found in zip(about[holder], values, strict=True)
                if found is not None
            }
            for holder, values in self._ask(about, find_all).items()
        }

    def _keys(self, servers: Iterable[HostPort]) -> list[str]:
        return [f"{self.folder}{server}" for server in servers]

    def _ask(
        self, servers: Iterable[HostPort], request: Callable[[HostPort], Request[Any]]
    ) -> dict[HostPort, Any]:
        asked, answers = {}, {}
        try:
            for server in servers:
                if server not in self.failed:
                    with self._noting(server):
                        to = self.connections[server].native
                        asked[server] = request(server).start(to, self._timeout, None)
            for server, operation in asked.items():
                with self._noting(server):
                    answers[server] = operation.wait()
        except BaseException:  # such as a signal's
            from ucxstore._native import core

            core.Operation.end_unwaited()
            raise
        return answers

    @contextmanager
    def _noting(self, server: HostPort) -> Iterator[None]:
        try:
            yield
        except UcxStoreError as error:
            self.failed[server] = ConnectError(
                f"{server}: cannot exchange notes of the servers' incarnations: {error}"
            )
