"""`SetRecord`: let clients keep the record of a server's set, and learn of it."""

import asyncio

from ucxstore.protocol.handshake import Keep
from ucxstore.server.accepting.sessions import NewSessions
from ucxstore.server.identity import Identity

# Seconds that clients may take to finish what they have begun, and connect anew.
_RENEW_SECONDS = 5.0


class SetRecord:
    """The record of the set that a server is in, kept by one client at a time.

    A client without a record takes this server for all that its store has. Once there is a record,
    no such client may go on, or it would take chunks of the others for missing. So each connects
    anew, and learns of the set, before anybody is told that the record is kept.

    Parameters
    ----------
    identity : Identity
        Has the record.
    sessions : NewSessions
    """

    def __init__(self, identity: Identity, sessions: NewSessions) -> None:
        self._identity = identity
        self._sessions = sessions
        self._renewed: asyncio.Future[bytes] | None = None  # once a client has sent a record

    async def settled(self) -> bytes:
        """Return the record, once none is being kept."""
        while self._renewed is not None and not self._renewed.done():
            await asyncio.wait([self._renewed])
        return self._identity.record

    async def keep(self, asked: Keep) -> bytes:
        """Keep a record, if it follows the one until now; return the one that is kept."""
        await self.settled()
        identity, native = self._identity, self._sessions.native

        def keep() -> bytes:
            before = identity.record
            kept = identity.keep(asked.digest, asked.record)
            if kept and not before:
                native.renew_sessions(_RENEW_SECONDS)
            return kept

        # It goes on if the client that has asked for it is given up.
        self._renewed = asyncio.get_running_loop().run_in_executor(None, keep)
        return await asyncio.shield(self._renewed)

    def was_told(self, record: bytes) -> bool:
        """Whether a client that was sent this knows of the set, if there is one by now."""
        return bool(record) or not self._identity.record
