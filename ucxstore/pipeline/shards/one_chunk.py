"""Read a box of one raw inner chunk, planned before, by an index that is known.

Loops over inner chunks do so again and again. What all other reads of shards need takes twice as
long as this.
"""

from ucxstore.client.memory import Memory, describe, may_receive
from ucxstore.client.requests import ANY_SIZE, READ, read_parts
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch
from ucxstore.pipeline.geometry.runs import shifted
from ucxstore.pipeline.shards.read_plan import KnownSelections, selection_key
from ucxstore.pipeline.shards.shard import view_of


async def read_one_chunk(access: ChunkAccess, batch: Batch, known: KnownSelections) -> bool:
    """Read a batch if it is such a box, and tell whether it was. Otherwise nothing has happened."""
    if len(batch.chunks) != 1 or not batch.is_host:
        return False
    path, spec, chunk_selection, out_selection, _ = batch.chunks[0]
    array = batch.array
    if path.store is not batch.store or not may_receive(array):
        return False
    wanted = known.get(selection_key(batch, spec, chunk_selection, out_selection))
    if wanted is None or wanted.only is None:
        return False
    view, only = view_of(array, out_selection), wanted.only
    index = access.shard_indexes.get(path.path, only.form)
    if view.shape != wanted.shape or index is None or not index.sound:
        return False
    start = int(index.offsets[only.number])
    if start < 0:
        return False
    request = read_parts(
        [access.key_prefix + path.path],
        [shifted(only.move.source, start)],
        [only.move.target],
        Memory(describe(view), array),
        [ANY_SIZE],
        [index.version],
    )
    (status,) = await access.channel.ask(request)
    if status != READ:  # replaced or deleted: the index is out of date
        access.shard_indexes.drop([path.path])
        return False
    access.counters.add(direct=1, bytes_read=only.move.nbytes)
    return True
