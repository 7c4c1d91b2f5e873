"""What all of `UcxStore` keep of zarr's own tests of a store."""

from typing import Any

import pytest
from zarr.core.buffer import cpu
from zarr.testing.store import StoreTests

from ucxstore import UcxStore


class UcxStoreTests(StoreTests[UcxStore, cpu.Buffer]):
    """The tests of a store at ``address``; those of a kind say how to go past the store."""

    store_cls = UcxStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, address: str) -> dict[str, Any]:
        return {"address": address}

    def test_store_repr(self, store: UcxStore) -> None:
        assert repr(store).startswith(f"<UcxStore '{store.address}', connected over ")

    def test_store_supports_writes(self, store: UcxStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: UcxStore) -> None:
        assert store.supports_listing
