"""Read and write raw chunks straight between the user's array and the store."""

from zarr.abc.codec import GetResult

from ucxstore.client.channel import Flight
from ucxstore.client.memory import Memory, describe
from ucxstore.client.requests import MISSING, delete, read_boxes, write_boxes
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch, BoxBatch, Group, Plan, RunBatch
from ucxstore.pipeline.recycling import take_fresh_memory


class DirectRead:
    """A read of raw chunks straight into one array.

    Parameters
    ----------
    access, batch
        The array of the batch is plain memory, which does not overlap itself.
    flight : Flight
        Used for nothing else, so that all of its results belong to this read.
    """

    def __init__(self, access: ChunkAccess, batch: Batch, flight: Flight) -> None:
        self._access = access
        self._batch = batch
        self._flight = flight
        self._started: list[BoxBatch | RunBatch] = []
        self._result = None if access.mapping is False else take_fresh_memory(batch.values)
        if self._result is not None and access.mapping is True:
            self._result.be_eager()

    def start(self, plan: Plan[Group]) -> None:
        """Start the requests for the boxes and runs of a plan."""
        array, full_keys = self._batch.array, self._access.full_keys
        for boxes in plan.boxes:
            out = Memory(boxes.layout, array)
            keys = full_keys(boxes.keys)
            shape, recipe = boxes.chunk_shape, self._access.recipe
            self._flight.start(read_boxes(keys, boxes.boxes, out, shape, self._result, recipe))
            self._started.append(boxes)
        if plan.runs.keys:
            out = Memory(describe(array), array)
            self._flight.start(plan.runs.request(self._access, out))
            self._started.append(plan.runs)

    def finish(self) -> dict[int, GetResult]:
        """Fill in missing chunks, and count all of them, once the flight has ended.

        Returns
        -------
        dict
            The results of missing chunks, by their positions in the batch.
        """
        results: dict[int, GetResult] = {}
        direct = read = 0
        for moved, answer in zip(self._started, self._flight.results(), strict=True):
            missing = answer
            if isinstance(moved, RunBatch):
                missing = [index for index, status in enumerate(answer) if status == MISSING]
            for index in missing:
                position = moved.positions[index]
                results[position] = self._batch.scatter(None, position, self._batch.values)
            direct += len(moved.keys)
            read += sum(moved.nbytes) - sum(moved.nbytes[index] for index in missing)
        mapped = 0 if self._result is None else self._result.mapped
        if direct and self._access.recipe:
            self._access.counters.add(decoded=direct - mapped, mapped=mapped, bytes_read=read)
        elif direct:
            self._access.counters.add(direct=direct - mapped, mapped=mapped, bytes_read=read)
        return results


def start_writes(access: ChunkAccess, batch: Batch, plan: Plan[Group], flight: Flight) -> None:
    """Start to send the boxes of a plan from the array, and to delete its empty chunks."""
    for boxes in plan.boxes:
        value = Memory(boxes.layout, batch.array)
        keys = access.full_keys(boxes.keys)
        flight.start(write_boxes(keys, boxes.boxes, value, boxes.chunk_shape))
    if plan.empty:
        flight.start(delete(access.full_keys(plan.empty)))
