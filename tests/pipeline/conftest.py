"""Fixtures for all tests of the pipeline."""

import gzip
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import zarr
from zarr.core.sync import sync

from tests.pipeline.arrays import NOISE, RAW
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


@pytest.fixture(scope="module", params=[None, "64MiB"], ids=["stored", "decoded"])
def reader(request: pytest.FixtureRequest) -> Iterator[UcxStore]:
    """Keep the connection between examples; to a server that decodes, too."""
    with Server("memory://", decoded=request.param) as server, UcxStore(server.address) as store:
        store.ping_sync()
        yield store


@pytest.fixture
def array(ucx_store: UcxStore) -> zarr.Array:
    """A raw array of 16 chunks."""
    array = zarr.create_array(ucx_store, **RAW)
    array[:] = NOISE
    return array
