"""zarr's own tests of a store, over memory, a directory and an object store."""

from typing import Any

import pytest
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

from tests.backdoor import Backdoor
from ucxstore import UcxStore


class TestUcxStore(StoreTests[UcxStore, cpu.Buffer]):
    store_cls = UcxStore
    buffer_cls = cpu.Buffer

    @pytest.fixture(autouse=True)
    def _past_the_store(self, backdoor: Backdoor, prefix: str) -> None:
        self.backdoor = backdoor
        self.prefix = prefix

    @pytest.fixture
    def store_kwargs(self, address: str) -> dict[str, Any]:
        return {"address": address}

    async def set(self, store: UcxStore, key: str, value: Buffer) -> None:
        self.backdoor.set(f"{self.prefix}/{key}", value.to_bytes())

    async def get(self, store: UcxStore, key: str) -> Buffer:
        value = self.backdoor.get(f"{self.prefix}/{key}")
        assert value is not None
        return cpu.Buffer.from_bytes(value)

    def test_store_repr(self, store: UcxStore) -> None:
        assert repr(store).startswith(f"<UcxStore '{store.address}', connected over ")

    def test_store_supports_writes(self, store: UcxStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: UcxStore) -> None:
        assert store.supports_listing
