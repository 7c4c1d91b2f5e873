"""Fixtures for all tests of the pipeline."""

import gzip
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from zarr.core.sync import sync

from ucxstore import UcxStore
from ucxstore.server import Server


@pytest.fixture(autouse=True, scope="session")
def gzip_at_the_same_time() -> Iterator[None]:
    """Stop gzip's clock: it stores the time, so equal bytes would be encoded differently."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip, "time", SimpleNamespace(time=lambda: 0))
        yield


@pytest.fixture(scope="module")
def keeper(memory_server: Server) -> Iterator[UcxStore]:
    """Keep the connection between examples."""
    with UcxStore(memory_server.address) as store:
        sync(store.exists("key"))
        yield store
