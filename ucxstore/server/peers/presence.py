"""`Presence`: what a server of a source tells the others of itself."""

import json
from dataclasses import asdict, dataclass

from ucxstore.base.errors import ProtocolError
from ucxstore.base.foreign import Fields

_MAX_PRESENCE_BYTES = 64 * 1024
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """What a server tells others of itself, in its presence and as a link begins.

    Parameters
    ----------
    server : str
        Tells servers apart: of each start another one.
    epoch : int
        Counts how often it has joined the others.
    asks : bool
        Whether it never relies on its lease, since its user has chosen a freshness.
    addresses : tuple of str
        The hosts by which it may be reached, best first.
    port : int
    process : tuple
        Host, namespace, number and start of its process, by which others of that host see its end.
    """

    server: str
    epoch: int
    asks: bool = False
    addresses: tuple[str, ...] = ()
    port: int = 0
    process: tuple[str, str, int, int] = ("", "", 0, 0)

    @property
    def name(self) -> str:
        """The name under which it is kept: one membership of one server."""
        return f"{self.server}-{self.epoch}"

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def parse(data: bytes) -> "Presence | None":
        """Read what `encode` has written; ``None`` for anything else, such as "fenced"."""
        try:
            fields = Fields.read(data, "a presence", _MAX_PRESENCE_BYTES)
            port = fields.integer("port")
            match fields.plain_list("process", 4):
                case [str(host), str(namespace), int(number), int(start)] if port <= _MAX_PORT:
                    return Presence(
                        server=fields.text("server"),
                        epoch=fields.integer("epoch"),
                        asks=fields.flag("asks"),
                        addresses=tuple(fields.texts("addresses")),
                        port=port,
                        process=(host, namespace, number, start),
                    )
        except ProtocolError:
            pass
        return None
