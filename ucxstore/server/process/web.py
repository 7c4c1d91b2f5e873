"""A small HTTP server for metrics and health, which answers some networks alone."""

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import socket

type Network = IPv4Network | IPv6Network

# Seconds that a connection may take in all, and how many there may be at once.
_PATIENCE = 10.0
_MOST_AT_ONCE = 32

# This machine's own addresses.
_OWN = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True, slots=True)
class WebPage:
    """An answer.

    Parameters
    ----------
    body : bytes or str
    kind : str
        The media type.
    status : HTTPStatus
    """

    body: bytes | str
    kind: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


# Makes the answer of a path, given the request's Accept header.
type MakePage = Callable[[str], WebPage]


def parse_networks(name: str, texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks such as ``10.0.0.0/8``, ``fd00::/8``, or single addresses.

    Parameters
    ----------
    name : str
        Begins the messages.
    texts : iterable of str
        Each may name several, with commas between them.

    Raises
    ------
    ValueError
        If one is no network; the message has it.
    """
    networks: list[Network] = []
    for text in texts:
        for part in text.split(","):
            try:
                networks.append(ip_network(part.strip()))
            except ValueError as error:
                raise ValueError(f"{name}: {part.strip()!r}: {error}") from None
    return tuple(networks)


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Tell whether an address lies in one of the networks, as IPv4 or as IPv6 with that in it."""
    address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in _unmapped(network) for network in networks)


def _unmapped(network: Network) -> Network:
    """Return the IPv4 network that one of IPv4-mapped addresses stands for."""
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


class Web:
    """An HTTP server: a thread that talks to all clients, and threads that make the answers.

    Parameters
    ----------
    listener : socket.socket
        Bound and listening; the server owns it.
    pages : mapping
        What makes the answers, by path. It may block.
    allow : tuple of networks or None
        Who is answered beside this machine; others get 403. ``None`` for everybody.
    """

    def __init__(
        self,
        listener: socket,
        pages: Mapping[str, MakePage],
        allow: tuple[Network, ...] | None,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._pages = pages
        self._allow = allow
        # Connections: those whose request is not whole, the oldest first, and how many others.
        self._asking: dict[StreamWriter, None] = {}
        self._answering = 0
        self._makers = ThreadPoolExecutor(_MOST_AT_ONCE, "ucxstore-http-page")
        self._loop = asyncio.SelectorEventLoop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="ucxstore-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections. Nobody waits for the answers of requests under way."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())
        self._makers.shutdown(wait=False)

    async def _serve(self) -> None:
        # Say nothing of clients that go.
        self._loop.set_exception_handler(lambda *_: None)
        server = await asyncio.start_server(self._talk, sock=self._listener)
        await self._closing.wait()
        server.close()

    async def _talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except OSError:  # it is late, or has gone
            pass
        finally:
            self._asking.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one request; nothing if the connection has to go for others."""
        # Before it takes one of the places.
        if not self._answers(writer):
            page = WebPage("this address is not allowed\n", status=HTTPStatus.FORBIDDEN)
            writer.write(_encode(page, with_body=True))
            return
        if not self._has_room():
            return
        self._asking[writer] = None
        method, path, accept = await _read_request(reader)
        if writer not in self._asking:
            return
        del self._asking[writer]
        self._answering += 1
        try:
            page = await self._page(method, path, accept)
            writer.write(_encode(page, with_body=method != "HEAD"))
            await writer.drain()
        finally:
            self._answering -= 1

    def _answers(self, writer: StreamWriter) -> bool:
        """Tell whether an address is answered."""
        if self._allow is None:
            return True
        address = writer.get_extra_info("peername")  # None if it has gone
        return address is not None and is_in(address[0], (*_OWN, *self._allow))

    def _has_room(self) -> bool:
        """Tell whether there is room for a connection; end the oldest one for it that is asking."""
        if len(self._asking) + self._answering < _MOST_AT_ONCE:
            return True
        oldest = next(iter(self._asking), None)
        if oldest is None:
            return False
        del self._asking[oldest]
        oldest.transport.abort()
        return True

    async def _page(self, method: str, path: str, accept: str) -> WebPage:
        if not path.startswith("/"):
            return WebPage("this is no request\n", status=HTTPStatus.BAD_REQUEST)
        if method not in ("GET", "HEAD"):
            return WebPage("there are: GET, HEAD\n", status=HTTPStatus.NOT_IMPLEMENTED)
        make = self._pages.get(path.partition("?")[0])
        if make is None:
            paths = ", ".join(self._pages)
            return WebPage(f"there are: {paths}\n", status=HTTPStatus.NOT_FOUND)
        try:
            return await self._loop.run_in_executor(self._makers, make, accept)
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n"
            return WebPage(text, status=HTTPStatus.INTERNAL_SERVER_ERROR)


async def _read_request(reader: StreamReader) -> tuple[str, str, str]:
    """Read a request; return its method, its path, which is empty if it is none, and `Accept`."""
    method, path, accept = "", "", ""
    try:
        words = (await reader.readline()).decode("latin-1").split()
        while line := (await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            if name.lower() == "accept":
                accept = value.strip()
        method, path = words[:2]
    except ValueError:  # also of a line that is too long
        pass
    return method, path, accept


def _encode(page: WebPage, *, with_body: bool) -> bytes:
    """Return an answer as it goes over the connection."""
    body = page.body.encode() if isinstance(page.body, str) else page.body
    head = (
        f"HTTP/1.0 {page.status.value} {page.status.phrase}\r\nServer: ucxstore\r\n"
        f"Date: {formatdate(usegmt=True)}\r\nContent-Type: {page.kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
