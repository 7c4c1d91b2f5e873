"""What the object stores of these tests have in common: objects over HTTP, with entity tags."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from obstore.store import HTTPStore


class Objects:
    """What is stored; requests lead to it while it is served: see `serving`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.url = ""

    def http_store(self) -> HTTPStore:
        """Return the store without conditions, which tries nothing twice."""
        return HTTPStore.from_url(
            self.url,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        )

    def release(self) -> None:
        """Let all requests go on that are held back."""
        raise NotImplementedError


class ObjectHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits for the headers' acknowledgment, for 40 ms

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def refuses(self, tag: str) -> bool:
        """Answer, and return ``True``, if a condition of the request does not hold for a tag."""
        if self.headers.get("If-None-Match") == tag:
            self.answer(304, tag=tag)
        elif self.headers.get("If-Match", tag) != tag:
            self.answer(412, tag=tag)
        else:
            return False
        return True

    def answer(
        self,
        status: int,
        body: bytes = b"",
        *,
        tag: str = "",
        span: str = "",
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if tag:
            self.send_header("ETag", tag)
        if span:
            self.send_header("Content-Range", span)
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.send_body(body)

    def send_body(self, body: bytes) -> None:
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def tag_of(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def serving[O: Objects](state: O, handler: type[ObjectHandler]) -> Iterator[O]:
    """Serve objects; the handler finds them in its attribute ``state``."""
    bound = type("BoundHandler", (handler,), {"state": state})
    with _Server(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}/"
        try:
            yield state
        finally:
            state.release()
            server.shutdown()
            thread.join(10)
