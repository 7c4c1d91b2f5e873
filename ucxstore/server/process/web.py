"""A small HTTP server for metrics and health, which answers some networks alone."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import (
    AF_INET6,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SHUT_RDWR,
    SO_REUSEADDR,
    SOL_SOCKET,
    socket,
)
from typing import Any

from ucxstore.base import process
from ucxstore.base.address import HostPort

type Network = IPv4Network | IPv6Network

# Seconds that a connection may take in all, and how many there may be at once.
_PATIENCE = 10.0
_MOST_AT_ONCE = 32

# Seconds. The thread of a connection that was ended needs some milliseconds to see that.
_LEAVE_SECONDS = 1.0


class Page:
    """An answer.

    Parameters
    ----------
    body : bytes or str
    kind : str
        The media type.
    status : HTTPStatus
    """

    def __init__(
        self,
        body: bytes | str,
        kind: str = "text/plain; charset=utf-8",
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        self.body = body.encode() if isinstance(body, str) else body
        self.kind = kind
        self.status = status


# Makes the answer of a path, given the request's Accept header.
type MakePage = Callable[[str], Page]


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
    """An HTTP server in threads.

    Parameters
    ----------
    address : HostPort
        Where it listens; port 0 takes any free one.
    family : int
        Of the address.
    pages : mapping
        What makes the answers, by path.
    allow : tuple of networks or None
        Who is answered beside this machine; others get 403. ``None`` for everybody.

    Raises
    ------
    OSError
        If the address cannot be used.
    """

    def __init__(
        self,
        address: HostPort,
        family: int,
        pages: Mapping[str, MakePage],
        allow: tuple[Network, ...] | None,
    ) -> None:
        self._http = _Server((address.host, address.port), family, pages, allow)
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(
            target=self._http.serve_forever, name="ucxstore-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections. Nobody waits for the answers of requests under way."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        family: int,
        pages: Mapping[str, MakePage],
        allow: tuple[Network, ...] | None,
    ) -> None:
        self.address_family = family
        self.pages = pages
        self._allow = allow
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._lock = process.lock()
        # Connections, the oldest first: when each has to end, and those whose request is not whole.
        self._ends: dict[socket, float] = {}
        self._asking: dict[socket, None] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if self.address_family == AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
        # Not the base's, which looks the host's name up.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def answers(self, host: str) -> bool:
        """Tell whether an address is answered."""
        return self._allow is None or is_in(host, _OWN) or is_in(host, self._allow)

    # All three names are of the base class.
    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Turn an address away that is not allowed, before it takes one of the places."""
        if self.answers(client_address[0]):
            return True
        with suppress(OSError):  # it may have gone, or send something else first
            request.setblocking(False)
            request.send(_NOT_ALLOWED)
        return False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in a thread of its own; if there are too many, end the oldest one."""
        if not self._room.acquire(blocking=False) and not (
            self._end_oldest() and self._room.acquire(timeout=_LEAVE_SECONDS)
        ):
            self.shutdown_request(request)
            return
        with self._lock:
            self._ends[request] = time.monotonic() + _PATIENCE
            self._asking[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def service_actions(self) -> None:
        """End what takes too long; the base class calls this twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [one for one, end in self._ends.items() if end < now]
        for one in late:
            _end(one)

    def asked(self, request: socket) -> bool:
        """Note that a request is whole; tell whether its connection has not been ended."""
        with self._lock:
            if request not in self._asking:
                return False
            del self._asking[request]
            return True

    def _end_oldest(self) -> bool:
        """End the oldest connection whose request is not whole, if there is one."""
        with self._lock:
            oldest = next(iter(self._asking), None)
            if oldest is None:
                return False
            del self._asking[oldest]
        _end(oldest)
        return True

    def _leave(self, request: socket) -> None:
        with self._lock:
            self._ends.pop(request, None)
            self._asking.pop(request, None)
        self._room.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Say nothing of clients that go."""


def _end(connection: socket) -> None:
    """End a connection, which wakes the thread that reads from it or writes to it."""
    with suppress(OSError):
        connection.shutdown(SHUT_RDWR)


_OWN = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

_REASON = b"this address is not allowed\n"
_NOT_ALLOWED = (
    b"HTTP/1.0 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_REASON), _REASON)
)


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    server: _Server

    def version_string(self) -> str:
        return "ucxstore"

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if not self.server.asked(self.request):
            return
        page = self._page()
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def _page(self) -> Page:
        make = self.server.pages.get(self.path.partition("?")[0])
        if make is None:
            paths = ", ".join(self.server.pages)
            return Page(f"there are: {paths}\n", status=HTTPStatus.NOT_FOUND)
        try:
            return make(self.headers.get("Accept", ""))
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n"
            return Page(text, status=HTTPStatus.INTERNAL_SERVER_ERROR)
