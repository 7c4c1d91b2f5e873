"""Servers of one object store serve the same values, and say so."""

from pathlib import Path
from typing import Any

import pytest
import zarr
from obstore.store import HTTPStore
from obstore.store import MemoryStore as Objects

from tests.conftest import address_of
from tests.server.sources.http_objects import HttpObjects
from ucxstore import UcxStore
from ucxstore.base.errors import ClusterError
from ucxstore.server import Server
from ucxstore.server.opening.opening import is_shared


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://bucket/prefix", True),
        ("GS://bucket", True),
        ("az://container/prefix", True),
        ("https://host/", True),
        (HTTPStore.from_url("https://host/"), True),
        ("memory://", False),
        ("file:///data", False),
        ("data", False),
        (Path("data"), False),
        (Objects(), False),
        (zarr.storage.MemoryStore(), False),
    ],
)
def test_what_other_servers_can_serve_too(location: Any, expected: bool) -> None:
    assert is_shared(location) is expected


@pytest.mark.parametrize("shared", [None, False])
def test_they_stand_in_for_each_other_unless_told_otherwise(
    objects: HttpObjects, shared: bool | None
) -> None:
    objects.objects.update({f"k/{number}": b"v" for number in range(20)})

    def read_all(store: UcxStore) -> None:
        for key in objects.objects:
            assert store.get_sync(key) is not None

    servers = [
        Server(objects.url, shared=shared),
        Server.spawn(objects.url, shared=shared),
    ]
    with servers[0], servers[1], UcxStore(address_of(servers)) as store:  # type: ignore[attr-defined]
        if shared is None:
            read_all(store)
            servers[1].close()  # type: ignore[attr-defined]
            read_all(store)
        else:
            with pytest.raises(ClusterError, match="have the same storage"):
                read_all(store)
