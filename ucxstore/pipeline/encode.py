"""Chunks that are written by codecs or in part: encoded while earlier ones are being sent."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ucxstore.client.loops import LoopQueue, Pending
from ucxstore.client.memory import describe
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.encode_plan import Group
from ucxstore.pipeline.fill import FillTest
from ucxstore.pipeline.jobs import Jobs
from ucxstore.pipeline.merge import merged
from ucxstore.pipeline.plan import Item
from ucxstore.pipeline.stored import Stored
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import NDBuffer

if TYPE_CHECKING:
    from ucxstore._core import Connection


class Encoding:
    """A write from one array.

    Parameters
    ----------
    store : UcxStore
    items : sequence
        zarr's batch.
    value : NDBuffer
        What is written: plain memory.
    stored : Stored
        How the array's chunks are stored.
    drop_axes : tuple of int
        As zarr gives them.
    """

    def __init__(
        self,
        store: UcxStore,
        items: Sequence[Item],
        value: NDBuffer,
        stored: Stored,
        drop_axes: tuple[int, ...],
    ) -> None:
        self._store = store
        self._items = items
        self._value = value
        self._stored = stored
        self._drop_axes = drop_axes
        _, spec, *_ = items[0]
        self._fill = None if spec.config.write_empty_chunks else FillTest(spec)
        self._jobs = Jobs(store.budget)
        self._received = self._sent = 0

    async def write(self, connection: "Connection", queue: LoopQueue, groups: list[Group]) -> None:
        """Write all groups.

        When this returns or raises, cancelled too, neither UCX nor a thread reads the array any
        more. Which chunks were written if it raises is not said.
        """
        await self._jobs.run(groups, partial(self._write, connection, queue))
        self._store.counters.add(
            encode=sum(len(group.keys) for group in groups),
            read=self._received,
            staged=self._received,
            written=self._sent,
        )

    async def _write(
        self, connection: "Connection", queue: LoopQueue, group: Group, claim: Claim
    ) -> None:
        sources: list[Bytes | None] = [None] * len(group.keys)
        if group.is_part:
            existing = await self._stored.read(connection, queue, self._store, group)
            self._received += existing.nbytes
            if existing.again:
                claim.release()  # before another one is waited for
                for single in existing.again:
                    with await self._store.budget.claim(single.limit) as its_claim:
                        await self._write(connection, queue, single, its_claim)
                return
            sources = existing.sources
        values = await self._jobs.in_thread(self._make_all, group.positions, sources)
        claim.resize(sum(value.size for value in values if value is not None))
        await self._send(connection, queue, group.keys, values)

    async def _send(
        self,
        connection: "Connection",
        queue: LoopQueue,
        keys: list[str],
        values: list[Bytes | None],
    ) -> None:
        """Store values, each from where it lies, and delete the keys that have none."""
        store = self._store
        full = [store.key_prefix + key for key in keys]
        empty = [key for key, value in zip(full, values, strict=True) if value is None]
        held = [(key, v) for key, v in zip(full, values, strict=True) if v is not None]
        async with Pending(queue) as pending:
            if held:
                pending.add(
                    connection.set(
                        [key for key, _ in held],
                        [describe(value) for _, value in held],
                        [value for _, value in held],
                        False,
                        store.timeout,
                        queue.native,
                    )
                )
            if empty:
                pending.add(connection.delete(empty, store.timeout, queue.native))
        pending.results()
        self._sent += sum(value.size for _, value in held)

    # ---- in threads ----

    def _make_all(self, positions: list[int], sources: list[Bytes | None]) -> list[Bytes | None]:
        """Make what is to be stored of one chunk after another; ``None``: nothing."""
        made: list[Bytes | None] = []
        for index, position in enumerate(positions):
            if self._jobs.stopping:
                break
            item = self._items[position]
            source, sources[index] = sources[index], None  # so that its memory is free again
            try:
                made.append(self._make(item, source))
            except Exception as error:
                path, *_ = item
                error.add_note(f"while writing {path}")
                raise
        return made

    def _make(self, item: Item, source: Bytes | None) -> Bytes | None:
        _, spec, *_ = item
        existing = None if source is None else self._stored.load(source, spec)
        chunk = merged(self._value, item, self._drop_axes, existing)
        return None if self._is_empty(chunk) else self._stored.encode(chunk, spec)

    def _is_empty(self, chunk: NDBuffer) -> bool:
        """Tell whether zarr would delete the chunk rather than store it."""
        array, fill = chunk.as_numpy_array(), self._fill
        if fill is None or fill.rules_out(array, [0] * array.ndim):
            return False
        return fill.holds(array)
