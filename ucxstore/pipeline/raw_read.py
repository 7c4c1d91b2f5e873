"""A read of raw chunks: straight into the user's array, or by way of memory of ours."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zarr.abc.codec import GetResult

from ucxstore.client.loops import LoopQueue, Pending
from ucxstore.client.memory import describe
from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.decode_plan import plan_decode
from ucxstore.pipeline.plan import BoxBatch, Item
from ucxstore.pipeline.read_plan import PartBatch, RawPlan
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import NDBuffer, scatter_chunk

if TYPE_CHECKING:
    from ucxstore._core import Connection, Operation

# What `Connection.read_parts` is asked, and what it says, of a key.
_ANY_VERSION = 0
_MISSING = 1


class RawRead:
    """What a plan says of raw chunks, carried out.

    Parameters
    ----------
    store : UcxStore
    items : sequence
        zarr's batch.
    out : NDBuffer
        Where the selection goes: plain memory, which does not overlap itself.
    drop_axes : tuple of int
        As zarr gives them.
    plan : RawPlan
        What is in its `fallback` is not read here.
    """

    def __init__(
        self,
        store: UcxStore,
        items: Sequence[Item],
        out: NDBuffer,
        drop_axes: tuple[int, ...],
        plan: RawPlan,
    ) -> None:
        self._store = store
        self._items = items
        self._out = out
        self._drop_axes = drop_axes
        self._plan = plan
        self._missing: dict[int, GetResult] = {}

    def start(self, connection: "Connection", queue: LoopQueue, pending: Pending) -> None:
        """Start what goes straight into the array."""
        for batch in self._plan.direct:
            pending.add(self._start_boxes(connection, queue, batch))
        if self._plan.parts.keys:
            pending.add(self._start_parts(connection, queue, self._plan.parts))

    async def stage(self, connection: "Connection", queue: LoopQueue) -> None:
        """Read what is fetched whole; see `Decoding.read`."""
        chain = self._plan.chain
        if chain is None:
            return
        positions = self._plan.whole
        items = [self._items[position] for position in positions]
        _, groups = plan_decode(items, self._out.as_ndarray_like(), chain, self._store)
        decoding = Decoding(self._store, items, self._out, chain, self._drop_axes)
        await decoding.read(connection, queue, groups)
        for index, result in decoding.missing.items():
            self._missing[positions[index]] = result

    def finish(self, results: Iterator[Any]) -> dict[int, GetResult]:
        """Fill in what is missing, and count, once all has been read.

        Parameters
        ----------
        results : iterator
            Of the operations that `start` has started, and others after them.

        Returns
        -------
        dict
            What is said of chunks that the store does not hold, by where they stand in the batch.
        """
        plan = self._plan
        for batch in plan.direct:
            self._finish(batch, next(results))
        if plan.parts.keys:
            missing = [n for n, outcome in enumerate(next(results)) if outcome == _MISSING]
            self._finish(plan.parts, missing)
        return self._missing

    def _finish(self, batch: BoxBatch | PartBatch, missing: list[int]) -> None:
        for index in missing:
            position = batch.positions[index]
            _, spec, _, out_selection, _ = self._items[position]
            self._missing[position] = scatter_chunk(
                None,
                self._out,
                chunk_spec=spec,
                out_selection=out_selection,
                drop_axes=self._drop_axes,
            )
        self._store.counters.add(
            direct=len(batch.keys),
            read=sum(batch.nbytes) - sum(batch.nbytes[index] for index in missing),
        )

    def _start_boxes(
        self, connection: "Connection", queue: LoopQueue, batch: BoxBatch
    ) -> "Operation":
        return connection.read_boxes(
            [self._store.key_prefix + key for key in batch.keys],
            batch.boxes,
            batch.layout,
            batch.chunk_shape,
            self._out.as_ndarray_like(),
            self._store.timeout,
            queue.native,
        )

    def _start_parts(
        self, connection: "Connection", queue: LoopQueue, batch: PartBatch
    ) -> "Operation":
        array = self._out.as_numpy_array()
        address, *_ = describe(array)
        return connection.read_parts(
            [self._store.key_prefix + key for key in batch.keys],
            batch.sources,
            batch.targets,
            address,
            batch.sizes,
            [_ANY_VERSION] * len(batch.keys),
            array,
            self._store.timeout,
            queue.native,
        )
