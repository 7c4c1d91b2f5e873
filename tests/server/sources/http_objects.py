"""An HTTP server with objects, which counts what it is asked for, and fails as it is told to."""

# ruff: noqa: N802 (HTTP names the methods)

import threading
from collections import Counter
from contextlib import AbstractContextManager
from urllib.parse import quote, unquote

from obstore.store import HTTPStore

from tests.server.sources.object_server import ObjectHandler, Objects, serving, tag_of
from ucxstore.base.keys import RESERVED_FOLDER


class HttpObjects(Objects):
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
        super().__init__()
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

    def store(self) -> HTTPStore:
        return self.http_store()

    def release(self) -> None:
        self.gate.set()

    def of(self, path: str) -> dict[str, bytes]:
        return self.presences if path.startswith(RESERVED_FOLDER) else self.objects

    def all(self) -> list[tuple[str, bytes]]:
        return [*self.objects.items(), *self.presences.items()]

    def asked(self, method: str) -> int:
        return sum(count for (one, _), count in self.requests.items() if one == method)


class Handler(ObjectHandler):
    state: HttpObjects

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def do_PUT(self) -> None:
        body = self.body()
        if self._begin():
            self.state.of(self._path())[self._path()] = body
            self.answer(201, tag=self._tag_of(body))

    def do_PROPFIND(self) -> None:
        """List all under a path, as WebDAV does: how obstore lists over HTTP."""
        self.body()
        if not self.state.has_listings:
            self.answer(405)
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
            self.answer(207, text.encode())

    def do_DELETE(self) -> None:
        if self._begin():
            found = self.state.of(self._path()).pop(self._path(), None)
            self.answer(404 if found is None else 204)

    def _path(self) -> str:
        return unquote(self.path).lstrip("/")

    def _tag_of(self, body: bytes) -> str:
        return tag_of(body) if self.state.has_etags else ""

    def _begin(self) -> bool:
        path = self._path()
        if path.startswith(RESERVED_FOLDER.rstrip("/")):
            if self.state.presence_status:
                self.answer(self.state.presence_status)
            return not self.state.presence_status
        self.state.requests[self.command, path] += 1
        self.state.gate.wait(30)
        status = self.state.status.get(path)
        if status is not None:
            self.answer(status)
        return status is None

    def _serve(self, *, with_body: bool) -> None:
        if not self._begin():
            return
        body = self.state.of(self._path()).get(self._path())
        if body is None:
            self.answer(404)
            return
        tag = self._tag_of(body)
        if self.refuses(tag):
            return
        wanted = self.headers.get("Range")
        if wanted is None or not self.state.has_ranges:
            self.answer(200, body, tag=tag, with_body=with_body)
            return
        self.state.ranges.append((self._path(), wanted))
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last) + 1, len(body))
        if begin >= len(body):
            self.answer(416, tag=tag)
            return
        self.answer(206, body[begin:end], tag=tag, span=f"bytes {begin}-{end - 1}/{len(body)}")

    def send_body(self, body: bytes) -> None:
        super().send_body(body)
        if not self._path().startswith(RESERVED_FOLDER[:-1]):
            self.state.sent += len(body)


def http_objects() -> AbstractContextManager[HttpObjects]:
    return serving(HttpObjects(), Handler)
