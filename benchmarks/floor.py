"""zarr's own floor: what its part of a call takes, whatever the store.

The first candidate reads nothing at all: zarr plans the selection, makes the result, and asks a
pipeline that returns at once. The second has the values in this process, in a store without I/O.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from zarr.abc.codec import GetResult
from zarr.core.codec_pipeline import FusedCodecPipeline
from zarr.registry import register_pipeline
from zarr.storage import MemoryStore

from benchmarks.candidates import Read, reading
from benchmarks.data import Stored, Values, put_into_store
from benchmarks.settings import FRESH, FUSED, open_array
from benchmarks.timing import Candidate

FLOOR = "zarr alone, reading nothing"
MEMORY_STORE = "MemoryStore, fused"


class NothingCodecPipeline(FusedCodecPipeline):
    """A pipeline that leaves the result as it is."""

    async def read(self, batch_info: Iterable[Any], *_: Any, **__: Any) -> tuple[GetResult, ...]:
        return tuple(GetResult(status="present") for _ in batch_info)


register_pipeline(NothingCodecPipeline)

_NOTHING = f"{NothingCodecPipeline.__module__}.{NothingCodecPipeline.__qualname__}"


def floors(values: Values, stored: Stored, read: Read) -> Iterator[Candidate]:
    store = MemoryStore()
    put_into_store(store, values, stored, FUSED)
    nothing = open_array(store, _NOTHING)
    yield Candidate(FLOOR, lambda: read(nothing), _NOTHING, FRESH)
    array = open_array(store, FUSED)
    yield reading(MEMORY_STORE, array, read, FUSED, FRESH, read(values))
