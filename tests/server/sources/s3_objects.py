"""An object store that speaks S3, heeds conditions, and can hold a request back or lose its answer.

A request that is held back is carried out later, also where its client has hung up long ago.
"""

# ruff: noqa: N802 (HTTP names the methods)

import re
import threading
from collections import Counter
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from obstore.store import S3Store

from tests.server.sources.object_server import ObjectHandler, Objects, serving, tag_of
from ucxstore.base.keys import is_reserved

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


class S3Objects(Objects):
    """What is stored by key, and how requests are answered.

    Attributes
    ----------
    requests : Counter
        By method and key, but for what servers keep there for one another.
    heeds : bool
        Whether conditions are heeded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.heeds = True
        self.lock = threading.Lock()
        self._rules: dict[tuple[str, str], list[Rule]] = {}

    def store(self, **retries: object) -> S3Store:
        return S3Store(
            BUCKET,
            endpoint=self.url.rstrip("/"),
            region="us-east-1",
            access_key_id="a",
            secret_access_key="b",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=5), **retries},
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

    def release(self) -> None:
        with self.lock:
            for rules in self._rules.values():
                for rule in rules:
                    rule.goes_on.set()


class Handler(ObjectHandler):
    state: S3Objects

    def do_GET(self) -> None:
        if self._key():
            self._serve(with_body=True)
        else:
            self._list()

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def do_PUT(self) -> None:
        body = self.body()
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
        body = self.body().decode()
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
                self.answer(status, body, tag=tag)
            elif rule.answer is Answer.FAILED:
                self.answer(500)
            else:
                self.close_connection = True
        rule.done.set()

    def _serve(self, *, with_body: bool) -> None:
        key = self._key()
        self.state.rule_of(self.command, key)
        with self.state.lock:
            body = self.state.objects.get(key)
        if body is None:
            self.answer(404)
            return
        tag = tag_of(body)
        if not self.refuses(tag):
            self.answer(200, body, tag=tag, with_body=with_body)

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
        self.answer(200, text.encode())


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def s3_objects() -> AbstractContextManager[S3Objects]:
    return serving(S3Objects(), Handler)
