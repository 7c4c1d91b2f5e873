"""The exchange of `ucxstore.cluster.notes` with those servers of a store that are connected."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ucxstore.address import HostPort
from ucxstore.client.memory import describe
from ucxstore.client.runtime import Session
from ucxstore.cluster.incarnations import Incarnations
from ucxstore.cluster.member import Member
from ucxstore.cluster.notes import Notes, exchange, folder_of, incarnations_of
from ucxstore.errors import ConnectError, UcxStoreError

if TYPE_CHECKING:
    from ucxstore._core import Operation


def exchange_notes(members: Sequence[Member], incarnations: Incarnations, timeout: float) -> None:
    """Exchange notes with all servers that are connected, if that was not done with one of them.

    Parameters
    ----------
    members : sequence of Member
        All servers of the store. New ones are told whether they may be used now.
    incarnations : Incarnations
    timeout : float
        Seconds that each answer may take.
    """
    letters = _Letters(members, incarnations, timeout)
    new = {place for place, one in letters.sessions.items() if letters.folder not in one.noted}
    if not new:
        return
    welcomes = {place: session.welcome for place, session in letters.sessions.items()}
    if len(welcomes) < len(members) or any(welcome.volatile for welcome in welcomes.values()):
        dialogue = exchange(incarnations, welcomes)
        wanted = next(dialogue, None)
        while wanted is not None:
            letters.leave(wanted, if_absent=True)
            try:
                wanted = dialogue.send(letters.find(wanted))
            except StopIteration:
                wanted = None
    # One that is in use, and stands still, may know of the new ones what nobody else does.
    silent = next((error for at, error in letters.failed.items() if letters.is_used(at)), None)
    for member in members:
        if member.place in new:
            problem = letters.failed.get(member.place, silent)
            member.noted(letters.sessions[member.place], problem)


def overwrite_notes(members: Sequence[Member], incarnations: Incarnations, timeout: float) -> None:
    """Note with all servers that are connected what these are now, whatever was noted before.

    Raises
    ------
    ConnectError
        If one of them does not say that it has taken the notes.
    """
    letters = _Letters(members, incarnations, timeout)
    now = incarnations_of({at: session.welcome for at, session in letters.sessions.items()})
    letters.leave(dict.fromkeys(letters.sessions, now), if_absent=False)
    for error in letters.failed.values():
        raise error


class _Letters:
    """Requests about notes, to all that are connected at once; who fails is not asked again.

    Attributes
    ----------
    sessions : dict
    failed : dict
        What has become of those that did not answer.
    """

    def __init__(
        self, members: Sequence[Member], incarnations: Incarnations, timeout: float
    ) -> None:
        connected = {member.place: member.session_to_note() for member in members}
        self.sessions: dict[HostPort, Session] = {
            place: session for place, session in connected.items() if session is not None
        }
        self.failed: dict[HostPort, UcxStoreError] = {}
        self.folder = folder_of(incarnations.servers)
        self._servers = incarnations.servers
        self._timeout = timeout

    def is_used(self, place: HostPort) -> bool:
        """Tell whether a connection was in use before, and is still there."""
        session = self.sessions[place]
        return self.folder in session.noted and session.connection.alive

    def leave(self, notes: Notes, *, if_absent: bool) -> None:
        """Leave notes with the servers that have them for keys."""

        def start(place: HostPort) -> "Operation":
            keys = self._keys(notes[place])
            values = [np.frombuffer(start, "u1") for start in notes[place].values()]
            layouts = [describe(value) for value in values]
            to = self.sessions[place].connection
            return to.set(keys, layouts, values, if_absent, self._timeout)

        self._ask((place for place, some in notes.items() if some), start)

    def find(self, places: Iterable[HostPort]) -> Notes:
        """Return the notes that servers have, of those that answer."""
        about = {place: [one for one in self._servers if one != place] for place in places}

        def start(place: HostPort) -> "Operation":
            keys = self._keys(about[place])
            return self.sessions[place].connection.get(keys, [()] * len(keys), self._timeout)

        return {
            place: {
                server: found[0].tobytes()
                for server, found in zip(about[place], values, strict=True)
                if found is not None
            }
            for place, values in self._ask(about, start).items()
        }

    def _keys(self, servers: Iterable[HostPort]) -> list[str]:
        return [f"{self.folder}{server}" for server in servers]

    def _ask(
        self, places: Iterable[HostPort], start: "Callable[[HostPort], Operation]"
    ) -> Mapping[HostPort, Any]:
        asked, answers = {}, {}
        try:
            for place in places:
                if place not in self.failed:
                    with self._noting(place):
                        asked[place] = start(place)
            for place, operation in asked.items():
                with self._noting(place):
                    answers[place] = operation.wait()
        except BaseException:  # such as a signal's
            from ucxstore._native import core

            core.Operation.end_unwaited()
            raise
        return answers

    @contextmanager
    def _noting(self, place: HostPort) -> Iterator[None]:
        try:
            yield
        except UcxStoreError as error:
            self.failed[place] = ConnectError(
                f"{place}: cannot exchange notes of how servers were started: {error}"
            )
