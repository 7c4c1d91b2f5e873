"""The tests of tests/server/sources/test_zarr_stores.py, over the local plane."""

from tests.eventually import eventually
from tests.server.sources.test_cache import get
from tests.server.sources.test_zarr_stores import *  # noqa: F403
from tests.server.sources.test_zarr_stores import Passing
from ucxstore import UcxStore
from ucxstore.server import Server


def test_values_are_sent_as_they_are_and_released() -> None:  # type: ignore[no-redef]
    """Instead, they are released as soon as they lie where clients see them."""
    behind = Passing()

    with Server(behind, cache=250_000) as server, UcxStore(server.address) as store:
        for key in "abcdefgh":
            assert get(store, key) == b"\7" * 100_000
        eventually(lambda: behind.alive() == 0)
        assert len(behind.made) == 8
        assert server.stats()["cached_bytes"] > 100_000
