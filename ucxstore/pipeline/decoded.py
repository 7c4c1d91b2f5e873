"""Read encoded chunks as the servers decode them: then they are raw to this process.

A server may refuse to, for any reason. Then they are read as they are stored, and decoded here.
"""

from ucxstore.base.keys import MAX_KEY_BYTES, is_scratch
from ucxstore.base.zarr_compat import ArraySpec
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.recipe import Recipe, recipe_of
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch

# The most bytes before a key, in the name of a decoded chunk.
_NAME_BYTES = 100


class Recipes:
    """The recipes of an array, by the shape of its chunks. Any thread may ask.

    Parameters
    ----------
    chain : Chain
        The codecs of chunks, or of inner chunks.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._known: dict[tuple[int, ...], Recipe | None] = {}

    def of_all(self, batch: Batch) -> Recipe | None:
        """Return the recipe of all chunks of a batch, as `of` does; ``None`` if there are more."""
        spec = batch.chunks[0][1]
        alike = all(chunk[1].shape == spec.shape for chunk in batch.chunks)
        return self.of(spec) if alike else None

    def of(self, spec: ArraySpec) -> Recipe | None:
        """Return the recipe of chunks with this spec; ``None`` if no server decodes them."""
        if spec.shape not in self._known:
            self._known[spec.shape] = recipe_of(self._chain, spec)
        return self._known[spec.shape]


def decoded_access(access: ChunkAccess, recipe: Recipe) -> ChunkAccess:
    """Return the access to chunks as servers decode them."""
    return access._replace(key_prefix=f"{recipe.folder}all/{access.key_prefix}", recipe=recipe.text)


def decoded_shards_access(access: ChunkAccess, recipe: Recipe) -> ChunkAccess:
    """Return the access to inner chunks as servers decode them, by `Gathering.shards`."""
    return access._replace(key_prefix=recipe.folder, recipe=recipe.text)


async def are_decoded(access: ChunkAccess, batch: Batch) -> bool:
    """Tell whether the servers may decode the chunks of a batch."""
    if not access.decoded or is_scratch(access.key_prefix) or not batch.is_host:
        return False
    if not access.channel.opened:
        await access.channel.open()
    if not access.channel.decodes:
        return False
    room = MAX_KEY_BYTES - _NAME_BYTES - len(access.key_prefix.encode())
    return all(len(path.path.encode()) <= room for path, *_ in batch.chunks)
