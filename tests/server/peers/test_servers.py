"""Servers of one source that lose one another, or their source, while keys change."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.backdoor import believes
from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.server.sources.s3_objects import S3Objects
from tests.server.sources.test_cache import get, put
from tests.stopping import stop
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError, UnknownOutcomeError
from ucxstore.server import Server

type Connect = Callable[..., UcxStore]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda server, **options: stack.enter_context(UcxStore(server.address, **options))


def presence_of(objects: HttpObjects, epoch: int, but: frozenset[str] = frozenset()) -> list[str]:
    """Return the names of presences in an epoch."""
    return [
        name
        for name in objects.presences
        if "/servers/" in name and name.endswith(f"-{epoch}") and name not in but
    ]


@pytest.mark.parametrize("how", ["ends", "is shut out"])
def test_nothing_is_sent_that_the_others_were_not_told_of(
    how: str, objects: HttpObjects, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    """The other one stands still, and has the old value."""
    objects.objects["k"] = b"old"
    with Server.spawn(objects.store()) as other:
        others = frozenset(presence_of(objects, 1))
        reader = connect(other)
        assert get(reader, "k") == get(reader, "k") == b"old"
        with Server(objects.store()) as server:
            writer = connect(server, timeout=60)
            (mine,) = presence_of(objects, 1, others)
            stop(other.pid)
            try:
                writing: Future[None] = pool.submit(put, writer, "k", b"new")
                eventually(lambda: server.stats()["writing_bytes"] > 0)
                if how == "ends":
                    server.close()
                else:
                    objects.presences[mine] = b'{"fenced": true}'
                    eventually(lambda: presence_of(objects, 2), 30)
                assert objects.requests["PUT", "k"] == 0
            finally:
                os.kill(other.pid, signal.SIGCONT)
            if how == "ends":
                with pytest.raises(StorageError):
                    writing.result(60)
                assert objects.objects["k"] == b"old"
            else:
                writing.result(60)
                assert get(reader, "k") == b"new"


def test_a_change_that_was_made_is_not_told_as_one_that_was_not(
    objects: HttpObjects, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    """The presence cannot be looked at when the source has answered: that is tried again."""
    with Server(objects.store()) as server:
        store = connect(server, timeout=60)
        put(store, "k", b"old")
        assert get(store, "k") == b"old"
        read = objects.requests["GET", "k"]
        objects.gate.clear()
        writing: Future[None] = pool.submit(put, store, "k", b"new")
        eventually(lambda: objects.requests["PUT", "k"] == 2)
        objects.presence_status = 403

        def asks() -> bool:  # its lease is over
            return not believes(server, "other")

        eventually(asks)
        objects.gate.set()
        eventually(lambda: objects.objects["k"] == b"new")
        with pytest.raises(TimeoutError):
            writing.result(1.0)
        objects.presence_status = 0
        writing.result(60)
        assert get(store, "k") == b"new"
        assert objects.requests["GET", "k"] <= read + 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_late_put_is_seen_after_a_restart_of_all(
    how: signal.Signals, bucket: S3Objects, connect: Connect
) -> None:
    bucket.objects["k"] = b"0"
    with Server.spawn(bucket.store(), source_timeout=1.0) as first:
        store = connect(first, timeout=20)
        assert get(store, "k") == b"0"
        late = bucket.hold("PUT", "k")
        with pytest.raises(UnknownOutcomeError, match="'k'"):
            put(store, "k", b"1")
        os.kill(first.pid, how)
        eventually(lambda: ended(first.pid))
    with Server(bucket.store(), source_timeout=10.0) as second:
        store = connect(second)
        assert get(store, "k") == get(store, "k") == b"0"
        late.carry_out()
        assert get(store, "k") == b"1"
        put(store, "k", b"2")
        put(store, "other", b"2")
        assert get(store, "k") == b"2"


def ended(pid: int) -> bool:
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


@pytest.mark.parametrize("what", ["write", "removal", "removal of a prefix"])
def test_caches_come_back_after_changes_that_were_refused(
    what: str, objects: HttpObjects, connect: Connect
) -> None:
    objects.objects["a/k"] = b"old"

    def refused(store: UcxStore) -> None:
        objects.status["a/k"] = 403
        change: Callable[[], object] = {
            "write": lambda: put(store, "a/k", b"new"),
            "removal": lambda: asyncio.run(store.delete("a/k")),
            "removal of a prefix": lambda: asyncio.run(store.delete_dir("a")),
        }[what]
        with pytest.raises(StorageError) as caught:
            change()
        assert not isinstance(caught.value, UnknownOutcomeError)
        del objects.status["a/k"]

    with Server(objects.store()) as first, Server(objects.store()) as second:
        stores: list[Any] = [connect(first), connect(second)]
        refused(stores[0])
        for store in stores:

            def is_cached(store: UcxStore = store) -> bool:
                assert get(store, "a/k") == b"old"
                asked = sum(objects.requests.values())
                assert get(store, "a/k") == b"old"
                return sum(objects.requests.values()) == asked

            eventually(is_cached, 20)
