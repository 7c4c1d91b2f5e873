"""A source whose reads and writes wait until they may go on."""

import threading

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore

from tests.eventually import eventually_async


class SlowStore(MemoryStore):
    """In memory. It notes each read and write as it begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.gets: list[str] = []
        self.sets: list[str] = []

    async def get(  # type: ignore[override]
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        found = await super().get(key, prototype, byte_range)
        self.gets.append(key)
        await self._wait()
        return found

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        self.sets.append(key)
        await self._wait()
        await super().set(key, value, byte_range)

    async def _wait(self) -> None:
        await eventually_async(self.goes_on.is_set)
