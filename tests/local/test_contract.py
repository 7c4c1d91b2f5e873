"""zarr's own tests of a store, over the local plane."""

import pytest

from tests.store.test_contract import TestUcxStore

__all__ = ["TestUcxStore"]


@pytest.fixture(params=["memory", "directory", "object"])
def storage(request: pytest.FixtureRequest) -> str:
    return request.param
