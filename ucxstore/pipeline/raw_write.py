"""A write of raw chunks: straight from the user's array."""

from typing import TYPE_CHECKING

from ucxstore.client.loops import LoopQueue, Pending
from ucxstore.pipeline.plan import Plan
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import NDBuffer

if TYPE_CHECKING:
    from ucxstore._core import Connection


def start_writes(
    connection: "Connection",
    queue: LoopQueue,
    pending: Pending,
    plan: Plan,
    store: UcxStore,
    value: NDBuffer,
) -> None:
    """Start what a plan sends straight from `value`, and delete what is empty in it."""
    for batch in plan.direct:
        pending.add(
            connection.write_boxes(
                [store.key_prefix + key for key in batch.keys],
                batch.boxes,
                batch.layout,
                batch.chunk_shape,
                value.as_ndarray_like(),
                store.timeout,
                queue.native,
            )
        )
    if plan.empty:
        keys = [store.key_prefix + key for key in plan.empty]
        pending.add(connection.delete(keys, store.timeout, queue.native))
