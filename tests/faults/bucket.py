"""A bucket that fails: an S3 server, and a proxy in front of it that follows orders.

``python -m tests.faults.bucket FOLDER HOST:PORT`` prints how to reach it, and then reads orders
from its standard input, one a line:

``pass``        hand on everything
``refuse``      accept nobody, and cut who is there
``cut SHARE``   cut this share of the connections, each after some bytes of either direction
``delay SECONDS``   hold up to so long what comes in either direction
``late SECONDS``   hold up to so long what clients send, also if they have gone meanwhile
``deny SHARE``   answer this share of the requests that they are not allowed
"""

import asyncio
import json
import random
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from profiles.s3 import s3_server
from tests.eventually import nothing_happens_async

_PIECE = 64 << 10

_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
_DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class Proxy:
    """Hands on connections to a server.

    Parameters
    ----------
    port : int
        The server's.
    """

    port: int
    order: str = "pass"
    amount: float = 0.0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def obey(self, line: str) -> None:
        """Follow an order from now on."""
        self.order, _, amount = line.partition(" ")
        self.amount = float(amount or 0)
        if self.order == "refuse":
            for writer in self._open:
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on one connection."""
        if self.order == "refuse":
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        ways = [
            self._hand_on(reader, back, writer, asks=True),
            self._hand_on(there, writer, back, asks=False),
        ]
        await asyncio.gather(*ways)
        self._open -= {writer, back}

    async def _hand_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        opposite: asyncio.StreamWriter,
        *,
        asks: bool,
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                if asks and self._denies(piece):
                    opposite.write(_DENIED)
                    with suppress(OSError):
                        await asyncio.wait_for(opposite.drain(), 1)
                    break
                if self.order == "delay" or (self.order == "late" and asks):
                    await nothing_happens_async(random.uniform(0, self.amount))
                if self.order == "cut" and random.random() < self.amount:
                    writer.write(piece[: random.randrange(len(piece))])
                    with suppress(OSError):
                        await asyncio.wait_for(writer.drain(), 1)
                    break
                writer.write(piece)
                await writer.drain()
            else:
                writer.close()
                return
        for end in (writer, opposite):
            end.transport.abort()

    def _denies(self, piece: bytes) -> bool:
        return self.order == "deny" and piece.startswith(_METHODS) and random.random() < self.amount


async def _follow(proxy: Proxy, bind: str) -> None:
    host, _, port = bind.partition(":")
    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(proxy.serve, host, int(port)):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            proxy.obey(line.strip())


def main() -> None:
    """Run the server and the proxy."""
    folder, bind = Path(sys.argv[1]), sys.argv[2]
    with s3_server(folder) as server:
        environment = server.environment() | {"AWS_ENDPOINT_URL": f"http://{bind}"}
        ready = {"location": f"s3://{server.bucket}/run", "environment": environment}
        (folder / "ready.tmp").write_text(json.dumps(ready))
        (folder / "ready.tmp").rename(folder / "ready.json")
        print("ready", flush=True)
        port = int(server.endpoint.rpartition(":")[2])
        asyncio.run(_follow(Proxy(port), bind))


if __name__ == "__main__":
    main()
