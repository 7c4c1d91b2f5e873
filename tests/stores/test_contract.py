"""zarr's own tests of a store, over memory, a directory and an object store."""

import pytest
from zarr.core.buffer import Buffer, cpu

from tests.backdoor import Backdoor
from tests.stores.contract import UcxStoreTests
from ucxstore import UcxStore


class TestUcxStore(UcxStoreTests):
    @pytest.fixture(autouse=True)
    def _past_the_store(self, backdoor: Backdoor, prefix: str) -> None:
        self.backdoor = backdoor
        self.prefix = prefix

    async def set(self, store: UcxStore, key: str, value: Buffer) -> None:
        self.backdoor.set(f"{self.prefix}/{key}", value.to_bytes())

    async def get(self, store: UcxStore, key: str) -> Buffer:
        value = self.backdoor.get(f"{self.prefix}/{key}")
        assert value is not None
        return cpu.Buffer.from_bytes(value)
