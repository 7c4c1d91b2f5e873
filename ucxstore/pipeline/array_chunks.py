"""`ArrayChunks`: read and write chunks of an array, each the way that fits it."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.codecs import ShardingCodec
from zarr.storage import StorePath

from ucxstore.base import meter
from ucxstore.base.errors import FallbackError
from ucxstore.base.undecoded import UndecodedError
from ucxstore.base.zarr_compat import (
    ArrayConfig,
    ArrayMetadata,
    ArraySpec,
    ArrayV3Metadata,
    NDBuffer,
    V2Codec,
    default_buffer_prototype,
)
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import ChunkKind, LeftToZarr, Sharded, classify
from ucxstore.pipeline.access import ChunkAccess, find_access
from ucxstore.pipeline.batch import Batch, Chunk, Group, Plan
from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.decoded import Recipes, are_decoded, decoded_access, decoded_shards_access
from ucxstore.pipeline.direct import DirectRead, start_writes
from ucxstore.pipeline.encode import Encoding
from ucxstore.pipeline.read_plan import plan_read
from ucxstore.pipeline.write_plan import plan_write

if TYPE_CHECKING:
    from ucxstore.pipeline.shards.read import ShardReading
    from ucxstore.pipeline.shards.read_plan import KnownSelections

_PRESENT = GetResult(status="present")

# Raw chunks that are planned before their requests are sent: some 2 ms of work. The bytes of these
# chunks arrive while the next ones are being planned.
PLANNED_AT_ONCE = 1024


class ArrayChunks:
    """Read and write the chunks of an array.

    Parameters
    ----------
    codecs : tuple of Codec
        The codecs of the array, evolved.
    spec : ArraySpec
        The spec of a chunk. Other chunks may have other shapes.
    fallback : CodecPipeline
        Moves the chunks that are left to zarr.
    """

    def __init__(self, codecs: tuple[Codec, ...], spec: ArraySpec, fallback: CodecPipeline) -> None:
        # Not by the first read or write, whose memory somebody may count.
        if any(isinstance(codec, ShardingCodec) for codec in codecs):
            _import_shards()
        self._codecs = codecs
        self._spec = spec
        self._fallback = fallback

    @cached_property
    def kind(self) -> ChunkKind:
        """How the chunks are stored."""
        return classify(self._codecs, self._spec)

    @cached_property
    def _known_selections(self) -> "KnownSelections":
        from ucxstore.pipeline.shards.read_plan import KnownSelections

        return KnownSelections()

    async def read(
        self, batch_info: Iterable[Chunk], out: NDBuffer, drop_axes: tuple[int, ...]
    ) -> tuple[GetResult, ...]:
        """Read chunks, as zarr's pipelines do."""
        if not meter.active:
            return await self._read(batch_info, out, drop_axes)
        parts = await meter.in_parts(lambda some: self._read(some, out, drop_axes), batch_info)
        return tuple(result for part in parts for result in part)

    async def _read(
        self, batch_info: Iterable[Chunk], out: NDBuffer, drop_axes: tuple[int, ...]
    ) -> tuple[GetResult, ...]:
        batch, access = _batch_of(batch_info, out, drop_axes)
        if access is None:
            return await self._fallback.read(batch.chunks, out, drop_axes)
        kind = self.kind
        if isinstance(kind, Chain):
            results = await self._read_chunks(batch, access, kind)
        elif isinstance(kind, Sharded):
            results = await self._read_shards(batch, access, kind)
        else:
            results = await self._read_left(batch, access, _all_left(batch, kind.reason))
        return tuple(results.get(position, _PRESENT) for position in range(len(batch.chunks)))

    @cached_property
    def _recipes(self) -> Recipes:
        kind = self.kind
        assert not isinstance(kind, LeftToZarr)
        return Recipes(kind.inner if isinstance(kind, Sharded) else kind)

    @cached_property
    def _known_decoded(self) -> "KnownSelections":
        from ucxstore.pipeline.shards.read_plan import KnownSelections

        return KnownSelections()

    async def _read_chunks(
        self, batch: Batch, access: ChunkAccess, chain: Chain
    ) -> dict[int, GetResult]:
        """Read chunks; return results by position. A chunk without one is present."""
        if not chain.raw and await are_decoded(access, batch):
            recipe = self._recipes.of_all(batch)
            if recipe is not None:
                # It may be refused for any reason. Then all of it is read as it is stored.
                with suppress(UndecodedError):
                    decoded = decoded_access(access, recipe)
                    return await self._read_stored(batch, decoded, recipe.chain)
        return await self._read_stored(batch, access, chain)

    async def _read_stored(
        self, batch: Batch, access: ChunkAccess, chain: Chain
    ) -> dict[int, GetResult]:
        left: Plan[Group] = Plan()
        groups: list[Group] = []
        count = len(batch.chunks)
        at_once = PLANNED_AT_ONCE if chain.raw else count
        async with access.channel.flight() as flight:
            direct = DirectRead(access, batch, flight)
            # Each part of the plan is started before the next part is planned.
            for start in range(0, count, at_once):
                plan = plan_read(batch, chain, range(start, min(start + at_once, count)))
                left.leave(plan.left, plan.reason)
                direct.start(plan)
                groups += plan.groups
            results = await self._read_left(batch, access, left)
            if groups:
                decoding = Decoding(access, batch, chain)
                await decoding.read(groups)
                results |= decoding.missing
        return results | direct.finish()

    async def _read_shards(
        self, batch: Batch, access: ChunkAccess, kind: Sharded
    ) -> dict[int, GetResult]:
        from ucxstore.pipeline.shards.one_chunk import read_one_chunk
        from ucxstore.pipeline.shards.read import ShardReading

        if not kind.inner.raw and await are_decoded(access, batch):
            recipe = self._recipes.of(kind.codec._get_chunk_spec(batch.chunks[0][1]))
            if recipe is not None:
                decoded = kind._replace(inner=recipe.chain, recipe=recipe)
                reading = ShardReading(access, batch, decoded_shards_access(access, recipe))
                with suppress(UndecodedError):
                    return await self._read_inner(reading, decoded, self._known_decoded)
        if await read_one_chunk(access, batch, self._known_selections):
            return {}
        return await self._read_inner(ShardReading(access, batch), kind, self._known_selections)

    async def _read_inner(
        self, reading: "ShardReading", kind: Sharded, known: "KnownSelections"
    ) -> dict[int, GetResult]:
        from ucxstore.pipeline.shards.read_plan import plan_shard_read

        plan = plan_shard_read(reading.batch, kind, known)
        results = await self._read_left(reading.batch, reading.access, plan)
        if plan.groups:
            await reading.read(plan.groups)
            results |= reading.missing
        return results

    async def _read_left[G](
        self, batch: Batch, access: ChunkAccess, plan: Plan[G]
    ) -> dict[int, GetResult]:
        """Read the chunks that are left to the fallback; return its results by position."""
        left = _chunks_left(batch, access, plan)
        others = await self._fallback.read(left, batch.values, batch.drop_axes) if left else ()
        return dict(zip(plan.left, others, strict=True))

    async def write(
        self, batch_info: Iterable[Chunk], value: NDBuffer, drop_axes: tuple[int, ...]
    ) -> None:
        """Write chunks, as zarr's pipelines do."""
        if not meter.active:
            await self._write(batch_info, value, drop_axes)
        else:
            await meter.in_parts(lambda some: self._write(some, value, drop_axes), batch_info)

    async def _write(
        self, batch_info: Iterable[Chunk], value: NDBuffer, drop_axes: tuple[int, ...]
    ) -> None:
        batch, access = _batch_of(batch_info, value, drop_axes)
        kind = self.kind
        if access is None:
            await self._fallback.write(batch.chunks, value, drop_axes)
        elif isinstance(kind, Chain):
            await self._write_chunks(batch, access, kind)
        elif isinstance(kind, Sharded):
            await self._write_shards(batch, access, kind)
        else:
            left = _chunks_left(batch, access, _all_left(batch, kind.reason))
            await self._fallback.write(left, value, drop_axes)

    async def _write_chunks(self, batch: Batch, access: ChunkAccess, chain: Chain) -> None:
        plan = plan_write(batch, chain)
        left = _chunks_left(batch, access, plan)
        if len(left) == len(batch.chunks):
            await self._fallback.write(left, batch.values, batch.drop_axes)
            return
        access.check_writable()
        async with access.channel.flight() as flight:
            start_writes(access, batch, plan, flight)
            if plan.groups:
                await Encoding(access, batch, chain).write(plan.groups)
            if left:
                await self._fallback.write(left, batch.values, batch.drop_axes)
        flight.results()
        access.counters.add(
            direct=len(plan.empty) + sum(len(boxes.keys) for boxes in plan.boxes),
            bytes_written=sum(sum(boxes.nbytes) for boxes in plan.boxes),
        )

    async def _write_shards(self, batch: Batch, access: ChunkAccess, kind: Sharded) -> None:
        from ucxstore.pipeline.shards.write import ShardWriting
        from ucxstore.pipeline.shards.write_plan import plan_shard_write

        plan = plan_shard_write(batch, kind)
        left = _chunks_left(batch, access, plan)
        access.check_writable()
        if plan.groups:
            await ShardWriting(access, batch).write(plan.groups)
        if left:
            await self._fallback.write(left, batch.values, batch.drop_axes)


def codecs_of(metadata: ArrayMetadata) -> tuple[Codec, ...]:
    """Return the codecs of an array, as zarr has them before it evolves them."""
    if isinstance(metadata, ArrayV3Metadata):
        return metadata.codecs
    return (V2Codec(filters=metadata.filters, compressor=metadata.compressor),)


def spec_of(metadata: ArrayMetadata) -> ArraySpec:
    """Return the spec of a chunk, made as zarr makes it before it evolves codecs."""
    if isinstance(metadata, ArrayV3Metadata):
        shape = getattr(metadata.chunk_grid, "chunk_shape", (1,) * len(metadata.shape))
        dtype, config = metadata.data_type, ArrayConfig.from_dict({})
    else:
        shape = metadata.chunks
        dtype, config = metadata.dtype, ArrayConfig.from_dict({"order": metadata.order})
    return ArraySpec(shape, dtype, metadata.fill_value, config, default_buffer_prototype())


def _import_shards() -> None:
    """Import what moves shards; other arrays do without."""
    for name in ("one_chunk", "read", "read_plan", "write", "write_plan"):
        import_module(f"ucxstore.pipeline.shards.{name}")


def _batch_of(
    batch_info: Iterable[Chunk], values: NDBuffer, drop_axes: tuple[int, ...]
) -> tuple[Batch, ChunkAccess | None]:
    """Return a batch whose paths are in our store, and access to that; ``None`` without one."""
    chunks = list(batch_info)
    path = chunks[0][0] if chunks else None
    given = path.store if type(path) is StorePath else None
    access = None if given is None else find_access(given)
    if access is None:
        return Batch(chunks, values, drop_axes), None
    if access.store is not given:
        chunks = [
            (StorePath(access.store, path.path) if path.store is given else path, *rest)
            for path, *rest in chunks
        ]
    return Batch(chunks, values, drop_axes, access.store), access


def _all_left(batch: Batch, reason: str) -> Plan[Group]:
    return Plan[Group]().leave(range(len(batch.chunks)), reason)


def _chunks_left[G](batch: Batch, access: ChunkAccess, plan: Plan[G]) -> list[Chunk]:
    """Return the chunks that go to the fallback, and count them; raise if the store is strict."""
    left = [batch.chunks[position] for position in plan.left]
    if left and access.strict:
        raise FallbackError(
            f"the store is strict, but {left[0][0]} would be left to zarr's own pipeline: "
            f"{plan.reason} ({len(left)} of {len(batch.chunks)} chunks)"
        )
    access.counters.add(fallback=len(left))
    return left
