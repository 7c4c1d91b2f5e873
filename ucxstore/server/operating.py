"""Answer what operators ask of a server: its sessions and their end, its cache, its log's level."""

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

from ucxstore.base import logs
from ucxstore.base.errors import ProtocolError, StorageError
from ucxstore.base.foreign import Fields
from ucxstore.base.keys import find_problem
from ucxstore.base.showing import one_line, printable
from ucxstore.server.tier_records import RecordError, TierRecords, answer_tier

if TYPE_CHECKING:
    from ucxstore.server.source_thread.carrier import Carrier

# By the names that operators give them.
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_MAX_BYTES = 4096  # as the core's


class OperatedSessions(Protocol):
    """The part of the native server that operators use."""

    def sessions_json(self, after: int) -> bytes:
        """Return the clients of sessions with larger numbers, as JSON."""

    def kick(self, session: int | None, origin: str, but: int) -> int:
        """End a session, or all of an origin, but not session `but`; return how many."""


class RefusedError(Exception):
    """The server does not do what an operator asks."""


class Operating:
    """Answer requests of operators. The core has checked that those who ask may do so.

    Parameters
    ----------
    sessions : OperatedSessions
    carrier : Carrier or None
        What is behind the cache; ``None`` for a server without one.
    records : TierRecords or None
        What the servers behind this one keep; ``None`` where nothing may be changed.
    """

    def __init__(
        self,
        sessions: OperatedSessions,
        carrier: "Carrier | None",
        records: TierRecords | None = None,
    ) -> None:
        self._sessions = sessions
        self._carrier = carrier
        self._records = records

    def __call__(self, request: bytes, session: int, peer: str) -> bytes:
        """Answer a request.

        Parameters
        ----------
        request : bytes
            JSON, from outside.
        session : int
            The session of the operator.
        peer : str
            The operator's name.

        Returns
        -------
        bytes
            JSON; ``{"refused": TEXT}`` if it is not done.
        """
        try:
            found = Fields.read(request, "a request of an operator", _MAX_BYTES)
            what = found.text("do")
            changes = what in ("kick", "flush") or "level" in found.plain
            _log(
                logging.WARNING if changes else logging.DEBUG,
                peer,
                f"asks for {json.dumps(found.plain)}",
            )
            answer = self._answer(what, found, session)
            return answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        except (ProtocolError, RecordError, RefusedError, StorageError, TimeoutError) as error:
            why = one_line(error)
        except Exception as error:
            logs.server.exception("a request of an operator has failed")
            why = f"the server has failed: {error}"
        _log(logging.WARNING, peer, f"is refused: {why}")
        return json.dumps({"refused": why}).encode()

    def _answer(self, what: str, found: Fields, session: int) -> bytes | dict[str, Any]:
        match what:
            case "sessions":
                _check(found, "after")
                return self._sessions.sessions_json(found.integer("after"))
            case "kick":
                return {"ended": self._kick(found, session)}
            case "flush":
                _check(found, "name")
                return self._flush(found.text("name"))
            case "log-level":
                return _change_level(found)
            case "tier":
                _check(found, "folder", "how", "name", "text", "after")
                return answer_tier(self._records, found)
        raise RefusedError(f"there is no {what!r}: sessions, kick, flush, log-level, tier")

    def _kick(self, found: Fields, own: int) -> int:
        if "origin" in found.plain:
            _check(found, "origin")
            return self._sessions.kick(None, found.text("origin"), own)
        _check(found, "session")
        session = found.integer("session")
        if session == own:
            raise RefusedError(f"session {session} is the one that asks")
        return self._sessions.kick(session, "", own)

    def _flush(self, name: str) -> dict[str, Any]:
        if self._carrier is None:
            raise RefusedError("the server has no cache: it serves memory, or a directory")
        if name and (problem := find_problem(name)):
            raise RefusedError(f"{name!r}: {problem}")
        return self._carrier.flush(name)._asdict()


def _change_level(found: Fields) -> dict[str, Any]:
    """Change the level of the server's log, if a new one is given; return both."""
    before = logging.getLevelName(logs.server.getEffectiveLevel()).lower()
    if "level" not in found.plain:
        _check(found)
        return {"level": before, "before": before}
    _check(found, "level")
    level = found.text("level")
    if level not in LEVELS:
        raise RefusedError(f"there is no level {level!r}: {', '.join(LEVELS)}")
    old = logs.server.level
    logs.server.setLevel(LEVELS[level])
    taken = logs.level_of(logs.server) <= LEVELS[level]
    if not taken:
        logs.server.setLevel(old)
    logs.refresh()
    if not taken:
        raise RefusedError(f"nothing in the server's process takes what is logged at {level}")
    return {"level": level, "before": before}


def _check(found: Fields, *names: str) -> None:
    """Refuse fields that a request does not have, so that none is ignored."""
    others = found.plain.keys() - {"do", *names}
    if others:
        raise RefusedError(f"unknown fields: {', '.join(sorted(map(repr, others)))}")


def _log(level: int, peer: str, what: str) -> None:
    logs.server.log(
        level,
        "%s, as an operator, %s",
        peer,
        printable(what),
        extra={"event": "operated", "peer": peer, "detail": what},
    )
