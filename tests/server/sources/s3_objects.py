"""An object store that speaks S3, heeds conditions, and can hold a request back or lose its answer.

A request that is held back is carried out later, also where its client has hung up long ago.
"""

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from obstore.store import HTTPStore, S3Store

from ucxstore.keys import is_reserved

BUCKET = "bucket"


class Answer(Enum):
    """What becomes of the answer to a request that was carried out."""

    SENT = auto()
    LOST = auto()
    """The connection ends without it."""
    FAILED = auto()
    """It is status 500."""


@dataclass
class Rule:
    """What is done with one request."""

    answer: Answer = Answer.SENT
    arrived: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def carry_out(self) -> None:
        """Let a request that was held back go on, and wait until it was carried out."""
        self.goes_on.set()
        assert self.done.wait(10)


class S3Objects:
    """What is stored by key, and how requests are answered.

    Attributes
    ----------
    requests : Counter
        By method and key, but for what servers keep there for one another.
    heeds : bool
        Whether conditions are heeded.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self.heeds = True
        self.lock = threading.Lock()
        self.url = ""
        self._rules: dict[tuple[str, str], list[Rule]] = {}

    def store(self, **retries: object) -> S3Store:
        return S3Store(
            BUCKET,
            endpoint=self.url,
            region="us-east-1",
            access_key_id="a",
            secret_access_key="b",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=5), **retries},  # type: ignore[typeddict-item]
        )

    def plain_store(self) -> HTTPStore:
        """Return the same store without conditions."""
        return HTTPStore.from_url(
            self.url,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        )

    def hold(self, method: str, key: str) -> Rule:
        """Hold the next such request back."""
        return self._add(method, key, Rule())

    def answer(self, method: str, key: str, answer: Answer) -> Rule:
        """Carry the next such request out at once, and answer like this."""
        rule = Rule(answer)
        rule.goes_on.set()
        return self._add(method, key, rule)

    def values(self) -> dict[str, bytes]:
        """Return what clients have stored."""
        return {key: value for key, value in self.objects.items() if not is_reserved(key)}

    def rule_of(self, method: str, key: str) -> Rule | None:
        with self.lock:
            if not is_reserved(key):
                self.requests[method, key] += 1
            rules = self._rules.get((method, key))
            return rules.pop(0) if rules else None

    def _add(self, method: str, key: str, rule: Rule) -> Rule:
        with self.lock:
            self._rules.setdefault((method, key), []).append(rule)
        return rule

    def release_all(self) -> None:
        with self.lock:
            for rules in self._rules.values():
                for rule in rules:
                    rule.goes_on.set()


def tag_of(value: bytes) -> str:
    return f'"{hashlib.md5(value).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: S3Objects

    def do_GET(self) -> None:
        if self._key():
            self._serve(with_body=True)
        else:
            self._list()

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self._key()

        def store() -> tuple[int, str]:
            now = self.state.objects.get(key)
            if self.state.heeds:
                if self.headers.get("If-None-Match") == "*" and now is not None:
                    return 412, ""
                wanted = self.headers.get("If-Match")
                if wanted is not None and now is None:
                    return 404, ""
                if wanted is not None and now is not None and wanted != tag_of(now):
                    return 412, ""
            self.state.objects[key] = body
            return 200, tag_of(body)

        self._change(key, store)

    def do_DELETE(self) -> None:
        key = self._key()

        def remove() -> tuple[int, str]:
            self.state.objects.pop(key, None)
            return 204, ""

        self._change(key, remove)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", body)]

        def remove() -> tuple[int, str]:
            for key in keys:
                self.state.objects.pop(key, None)
            return 200, ""

        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._change(keys[0], remove, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    def _change(self, key, carry_out, body: bytes = b"") -> None:  # type: ignore[no-untyped-def]
        method = "DELETE" if self.command == "POST" else self.command
        rule = self.state.rule_of(method, key) or Rule(goes_on=_set())
        rule.arrived.set()
        rule.goes_on.wait(60)
        with self.state.lock:
            status, tag = carry_out()
        with suppress(OSError):  # its client may have hung up
            if rule.answer is Answer.SENT:
                self._answer(status, body, tag)
            elif rule.answer is Answer.FAILED:
                self._answer(500)
            else:
                self.close_connection = True
        rule.done.set()

    def _serve(self, *, with_body: bool) -> None:
        key = self._key()
        self.state.rule_of(self.command, key)
        with self.state.lock:
            body = self.state.objects.get(key)
        if body is None:
            self._answer(404)
            return
        tag = tag_of(body)
        if self.headers.get("If-None-Match") == tag:
            self._answer(304, tag=tag)
        elif self.headers.get("If-Match", tag) != tag:
            self._answer(412, tag=tag)
        else:
            self._answer(200, body, tag, with_body=with_body)

    def _list(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        prefix = query.get("prefix", [""])[0]
        with self.state.lock:
            found = sorted((k, v) for k, v in self.state.objects.items() if k.startswith(prefix))
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(value)}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(tag_of(value))}</ETag></Contents>"
            for key, value in found
        )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
        self._answer(200, text.encode())

    def _answer(
        self, status: int, body: bytes = b"", tag: str = "", *, with_body: bool = True
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def s3_objects() -> Iterator[S3Objects]:
    state = S3Objects()
    handler = type("BoundHandler", (Handler,), {"state": state})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield state
        finally:
            state.release_all()
            server.shutdown()
            thread.join(10)
