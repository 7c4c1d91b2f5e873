"""An HTTP server with objects, which counts what it is asked for, and fails as it is told to."""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

from obstore.store import HTTPStore

from ucxstore.keys import RESERVED_FOLDER


class HttpObjects:
    """What is stored by path, and how requests are answered.

    Attributes
    ----------
    requests : Counter
        By method and path.
    gate : threading.Event
        Requests wait for it before they are answered.
    status : dict
        By path, the error to answer with.
    has_ranges : bool
        Whether a range is answered with it, and not with all there is.
    has_etags : bool
        Whether answers have entity tags.
    has_listings : bool
        Whether what is there is listed.
    presences : dict
        By path, what servers keep for themselves. Requests for it are not counted, nor delayed.
    presence_status : int
        The error to answer those with; 0 for none.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.presences: dict[str, bytes] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self.ranges: list[tuple[str, str]] = []
        self.sent = 0
        self.status: dict[str, int] = {}
        self.has_ranges = True
        self.has_etags = True
        self.has_listings = True
        self.presence_status = 0
        self.gate = threading.Event()
        self.gate.set()
        self.url = ""

    def store(self) -> HTTPStore:
        return HTTPStore.from_url(
            self.url,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        )

    def of(self, path: str) -> dict[str, bytes]:
        return self.presences if path.startswith(RESERVED_FOLDER) else self.objects

    def all(self) -> list[tuple[str, bytes]]:
        return [*self.objects.items(), *self.presences.items()]

    def asked(self, method: str) -> int:
        return sum(count for (one, _), count in self.requests.items() if one == method)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HttpObjects

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._begin():
            self.state.of(self._path())[self._path()] = body
            self._answer(201, etag=self._etag_of(body))

    def do_PROPFIND(self) -> None:
        """List all under a path, as WebDAV does: how obstore lists over HTTP."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.state.has_listings:
            self._answer(405)
        elif self._begin():
            under = self._path()
            found = {path: body for path, body in self.state.all() if path.startswith(under)}
            entries = "".join(
                f"<D:response><D:href>/{quote(path)}</D:href><D:propstat><D:prop>"
                "<D:getlastmodified>Thu, 01 Jan 2026 00:00:00 GMT</D:getlastmodified>"
                f"<D:getcontentlength>{len(body)}</D:getcontentlength>"
                "<D:resourcetype></D:resourcetype></D:prop>"
                "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
                for path, body in found.items()
            )
            text = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{entries}</D:multistatus>'
            self._answer(207, text.encode())

    def do_DELETE(self) -> None:
        if self._begin():
            found = self.state.of(self._path()).pop(self._path(), None)
            self._answer(404 if found is None else 204)

    def _path(self) -> str:
        return unquote(self.path).lstrip("/")

    def _etag_of(self, body: bytes) -> str:
        return etag_of(body) if self.state.has_etags else ""

    def _begin(self) -> bool:
        path = self._path()
        if path.startswith(RESERVED_FOLDER.rstrip("/")):
            if self.state.presence_status:
                self._answer(self.state.presence_status)
            return not self.state.presence_status
        self.state.requests[self.command, path] += 1
        self.state.gate.wait(30)
        status = self.state.status.get(path)
        if status is not None:
            self._answer(status)
        return status is None

    def _serve(self, *, with_body: bool) -> None:
        if not self._begin():
            return
        body = self.state.of(self._path()).get(self._path())
        if body is None:
            self._answer(404)
            return
        etag = self._etag_of(body)
        if self.headers.get("If-None-Match") == etag:
            self._answer(304, etag=etag)
            return
        if self.headers.get("If-Match", etag) != etag:
            self._answer(412, etag=etag)
            return
        wanted = self.headers.get("Range")
        if wanted is None or not self.state.has_ranges:
            self._answer(200, body, etag=etag, with_body=with_body)
            return
        self.state.ranges.append((self._path(), wanted))
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last) + 1, len(body))
        if begin >= len(body):
            self._answer(416, etag=etag)
            return
        self._answer(206, body[begin:end], etag=etag, span=f"bytes {begin}-{end - 1}/{len(body)}")

    def _answer(
        self,
        status: int,
        body: bytes = b"",
        *,
        etag: str = "",
        span: str = "",
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if etag:
            self.send_header("ETag", etag)
        if span:
            self.send_header("Content-Range", span)
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(body)
            self.state.sent += 0 if self._path().startswith(RESERVED_FOLDER[:-1]) else len(body)

    def log_message(self, *arguments: object) -> None:
        pass


def etag_of(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def http_objects() -> Iterator[HttpObjects]:
    state = HttpObjects()
    handler = type("BoundHandler", (Handler,), {"state": state})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}/"
        try:
            yield state
        finally:
            state.gate.set()
            server.shutdown()
            thread.join(10)
