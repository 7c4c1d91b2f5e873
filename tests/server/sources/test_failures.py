"""A failure at an object store reaches the client with its cause and the key."""

import asyncio
import socket
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
import zarr
from obstore.store import HTTPStore
from zarr.core.buffer import default_buffer_prototype

from tests.server.sources.http_objects import HttpObjects
from tests.server.sources.test_cache import fill, get, put
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError, UnknownOutcomeError
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, "the credentials are not accepted"),
        (403, "permission denied"),
        (429, "throttled"),
        (500, "status 500"),
        (503, "throttled"),
    ],
)
def test_a_status_is_told(objects: HttpObjects, status: int, text: str) -> None:
    objects.objects["a/k"] = b"v"
    objects.status["a/k"] = status
    with Server(objects.store()) as server, UcxStore(server.address) as store:
        calls = (
            lambda: get(store, "a/k"),
            lambda: put(store, "a/k", b"w"),
            lambda: asyncio.run(store.getsize("a/k")),
        )
        for call in calls:
            with pytest.raises(StorageError, match=rf"'a/k' .*: {text}") as raised:
                call()
            unknown = isinstance(raised.value, UnknownOutcomeError)
            assert unknown == (call is calls[1] and status >= 500)
        del objects.status["a/k"]
        assert get(store, "a/k") == b"v"


def test_no_answer_in_time(objects: HttpObjects) -> None:
    objects.objects["k"] = b"v"
    objects.gate.clear()
    with (
        Server(objects.store(), source_timeout=0.3, check=False) as server,
        UcxStore(server.address) as store,
    ):
        with pytest.raises(StorageError, match=r"'k' .*no answer within 0.3 s"):
            get(store, "k")
        objects.gate.set()
        assert get(store, "k") == b"v"


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = HTTPStore.from_url(
        f"http://127.0.0.1:{port}/",
        client_options={"allow_http": True},
        retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=1)},
    )
    with pytest.raises(StorageError, match=r"^storage: .*connection refused.*--no-check"):
        Server(store)
    with (
        Server(store, check=False) as server,
        UcxStore(server.address) as ours,
        pytest.raises(StorageError, match=r"'k' .*connection refused"),
    ):
        get(ours, "k")


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_an_http_server_without_listings_has_answered(objects: HttpObjects, status: int) -> None:
    objects.objects["k"] = b"v"
    objects.presence_status = status
    with Server(objects.store(), read_only=True) as server, UcxStore(server.address) as store:
        assert get(store, "k") == b"v"


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_no_answer_at_the_start(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        location = {"http": endpoint, "s3": "s3://bucket"}[scheme]
        options = {"s3": {"endpoint": endpoint, "region": "r", "skip_signature": "true"}}
        start = partial(
            Server,
            location,
            source_timeout=0.3,
            storage_options=options.get(scheme),
            read_only=True,
        )
        with pytest.raises(StorageError, match=rf"^storage: {location}: .*no answer within 0.3 s"):
            start()
        start(check=False).close()


def test_what_is_no_object_store_is_not_asked() -> None:
    with pytest.raises(ValueError, match=r"^check: only an object store"):
        Server("memory://", check=False)


def test_no_failure_becomes_fill_values(objects: HttpObjects) -> None:
    values = fill(objects)
    objects.status["c/3/4"] = 503
    with Server(objects.store()) as server, UcxStore(server.address) as store:
        array = zarr.open_array(store, mode="r")
        with pytest.raises(StorageError, match=r"'c/3/4' .*throttled"):
            array[:]
        objects.status.clear()
        np.testing.assert_array_equal(array[:], values)


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("memory://", {"cache": "1MB"}, "cache: only an object store"),
        ("ftp://host/", {}, "storage: 'ftp://host/' cannot be served"),
        ("s3:///", {}, "storage: 's3:///' cannot be opened"),
    ],
)
def test_a_bad_option_is_named(location: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Server(location, **options)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^storage: "):
        Server(object())


def test_a_password_in_a_url_is_not_shown() -> None:
    with Server("http://user:pass@word@127.0.0.1:1/", check=False) as server:
        assert repr(server).startswith("<Server 'http://127.0.0.1:1/' at ")
    with pytest.raises(ValueError, match=r"^storage: 'ftp://host/' cannot be served"):
        Server("ftp://user:pass@word@host/")
