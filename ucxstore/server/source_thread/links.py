"""`Link`: messages between two servers of one source, on a TCP connection of their own.

It begins with the handshake of clients, in which PEER takes the place of ATTACH: both sides know
the secret, and a grant does not do. Then each message is its length (u32) and JSON, which is sealed
where servers encrypt.
"""

import asyncio
import json
import socket
import struct

from ucxstore.base.errors import ProtocolError
from ucxstore.base.foreign import Fields
from ucxstore.base.native import core
from ucxstore.protocol.driver import carry_out
from ucxstore.protocol.handshake import ClientHandshake, Steps
from ucxstore.protocol.session_keys import SessionKeys
from ucxstore.protocol.sockets import tune
from ucxstore.server.peers.messages import Message, decode, encode
from ucxstore.server.peers.presence import Presence
from ucxstore.server.source_thread.presence import this_process

_LENGTH = struct.Struct("<I")

# Of a message, and of what a peer that reads nothing may leave waiting.
MAX_MESSAGE = 8 << 20
_SEAL_BYTES = 24  # the number of a sealed message, and its tag
_MAX_WAITING = 64 << 20


class Link:
    """A connection to another server, after the handshake.

    Parameters
    ----------
    reader : asyncio.StreamReader
    writer : asyncio.StreamWriter
    keys : SessionKeys or None
        By which messages are encrypted.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        keys: SessionKeys | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._sealed = None if keys is None else core.SealedStream(*keys)

    @staticmethod
    async def of(sock: socket.socket, keys: SessionKeys | None = None) -> "Link":
        """Make the link of a socket whose handshake is done."""
        return Link(*await asyncio.open_connection(sock=sock), keys)

    @staticmethod
    async def dial(presence: Presence, secret: bytes, *, encrypt: bool = False) -> "Link":
        """Connect to the server of a presence, at the first of its addresses that does.

        Raises
        ------
        OSError, UcxStoreError
            If none does, or the server there refuses it. `UcxStoreError` of the last one.
        """
        hosts = list(presence.addresses)
        if presence.process[0] == this_process()[0] and presence.process[0]:
            hosts.append("127.0.0.1")  # a server of this host that listens everywhere
        problem: Exception = ConnectionError("it has no address")
        for host in hosts:
            try:
                reader, writer = await asyncio.open_connection(host, presence.port)
            except OSError as error:
                problem = error
                continue
            try:
                tune(writer.get_extra_info("socket"))
                wanted = True if encrypt else None
                handshake = ClientHandshake(secret, f"{host}:{presence.port}", wanted)
                await _run(handshake.greet(), reader, writer)
                keys = None
                if handshake.encrypts:
                    keys = await _run(handshake.agree(core.Agreement()), reader, writer)
                await _run(handshake.peer(), reader, writer)
                return Link(reader, writer, keys)
            except Exception as error:
                problem = error
                writer.close()
            except BaseException:
                writer.close()
                raise
        raise problem

    def send(self, message: Message) -> None:
        """Send a message, without waiting. One to a peer that is gone is dropped."""
        for part in encode(message):
            data = json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()
            if self._sealed is not None:
                data = self._sealed.seal(data)
            self._writer.write(_LENGTH.pack(len(data)) + data)
        if self._writer.transport.get_write_buffer_size() > _MAX_WAITING:
            self.close()

    async def receive(self) -> Message:
        """Receive a message.

        Raises
        ------
        OSError, EOFError, ValueError
            If the connection has ended, or what comes is no message, or not the other side's.
        """
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if length > MAX_MESSAGE + _SEAL_BYTES:
            raise ValueError(f"a message of {length} bytes")
        data = await self._reader.readexactly(length)
        try:
            if self._sealed is not None:
                data = self._sealed.open(data)
            fields = Fields.read(data, "a message of another server", MAX_MESSAGE)
            return decode(dict(fields.plain))
        except ProtocolError as error:
            raise ValueError(str(error)) from error

    def close(self) -> None:
        """End the connection, once what was sent has gone; at both sides if need be at once."""
        if self._writer.transport.get_write_buffer_size() > _MAX_WAITING:
            self._writer.transport.abort()
        self._writer.close()


async def _run[T](steps: Steps[T], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> T:
    """Send and receive what the handshake yields, and return its result."""

    async def send(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    return await carry_out(steps, send, reader.read)
