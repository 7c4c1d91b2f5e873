"""The codec pipeline, by which zarr reads into and writes from the user's array without a copy."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, cast

from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import ByteGetter, ByteSetter, Store
from zarr.registry import register_pipeline
from zarr.storage import StorePath

from ucxstore.errors import FallbackError
from ucxstore.pipeline.access import ChunkAccess, find_access
from ucxstore.pipeline.batch import Batch, Chunk, Group, Plan
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.classify import ChunkKind, Sharded, classify
from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.direct import DirectRead, start_writes
from ucxstore.pipeline.encode import Encoding
from ucxstore.pipeline.read_plan import plan_read
from ucxstore.pipeline.selection import pipeline_without_ours, replaced_pipeline
from ucxstore.pipeline.shards.read import ShardReading
from ucxstore.pipeline.shards.read_plan import plan_shard_read
from ucxstore.pipeline.shards.write import ShardWriting
from ucxstore.pipeline.shards.write_plan import plan_shard_write
from ucxstore.pipeline.write_plan import plan_write
from ucxstore.zarr_compat import (
    ArrayConfig,
    ArrayMetadata,
    ArraySpec,
    ArrayV3Metadata,
    Buffer,
    ChunkGridMetadata,
    NDBuffer,
    SelectorTuple,
    TBaseDType,
    TBaseScalar,
    V2Codec,
    ZDType,
    default_buffer_prototype,
    evolve_codecs,
)

_PRESENT = GetResult(status="present")

# Raw chunks that are planned before their requests are sent: some 2 ms of work. The bytes of these
# chunks arrive while the next ones are being planned.
_PLANNED_AT_ONCE = 1024


@dataclass(frozen=True)
class ZeroCopyCodecPipeline(CodecPipeline):
    """A codec pipeline for arrays in a `UcxStore`.

    Raw chunks move straight between the user's array and the store, all of a selection in a few
    native calls. If the selection has too many short runs for that, they are fetched whole.
    Encoded chunks are fetched as they are stored and decoded in threads, straight into the user's
    array if their codec can do that. Writes encode in threads, and send what the encoder returns.
    A chunk that is written in part is read and merged first. Inner chunks of shards go the same
    ways, by their shard's index. Everything else is left to the pipeline that zarr would have used.
    Arrays in other stores get that pipeline, too.

    Parameters
    ----------
    codecs : tuple of Codec
        The codecs of the array, evolved.
    fallback : CodecPipeline
        The pipeline that zarr would have used.
    spec : ArraySpec
        The spec of a chunk. Other chunks may have other shapes.
    """

    codecs: tuple[Codec, ...]
    fallback: CodecPipeline
    spec: ArraySpec = field(compare=False)

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        fallback = pipeline_without_ours(array_metadata, store)
        if find_access(store) is None:
            return cast(Self, fallback)
        return cls(_codecs(array_metadata), fallback, _spec(array_metadata))

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """Make the pipeline that zarr would have used: without a store, ours has nothing to do."""
        return cast(Self, replaced_pipeline().from_codecs(codecs))

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        return replace(
            self,
            codecs=evolve_codecs(self.codecs, array_spec),
            fallback=self.fallback.evolve_from_array_spec(array_spec),
            spec=array_spec,
        )

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.codecs)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.codecs, self.fallback, self.spec)

    @cached_property
    def chunk_kind(self) -> ChunkKind:
        """How the array's chunks are stored."""
        return classify(self.codecs, self.spec)

    # ---- reading ----

    async def read(
        self,
        batch_info: Iterable[tuple[ByteGetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> tuple[GetResult, ...]:
        batch, access = _batch_of(batch_info, out, drop_axes)
        if access is None:
            return await self.fallback.read(batch.chunks, out, drop_axes)
        kind = self.chunk_kind
        if isinstance(kind, Chain):
            results = await self._read_chunks(batch, access, kind)
        elif isinstance(kind, Sharded):
            results = await self._read_shards(batch, access, kind)
        else:
            results = await self._read_left(batch, access, _all_left(batch, kind.reason))
        return tuple(results.get(position, _PRESENT) for position in range(len(batch.chunks)))

    async def _read_chunks(
        self, batch: Batch, access: ChunkAccess, chain: Chain
    ) -> dict[int, GetResult]:
        """Read chunks; return results by position. A chunk without one is present."""
        left: Plan[Group] = Plan()
        groups: list[Group] = []
        count = len(batch.chunks)
        at_once = _PLANNED_AT_ONCE if chain.raw else count
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
        plan = plan_shard_read(batch, kind)
        results = await self._read_left(batch, access, plan)
        if plan.groups:
            reading = ShardReading(access, batch)
            await reading.read(plan.groups)
            results |= reading.missing
        return results

    async def _read_left[G](
        self, batch: Batch, access: ChunkAccess, plan: Plan[G]
    ) -> dict[int, GetResult]:
        """Read the chunks that are left to the fallback; return its results by position."""
        left = _chunks_left(batch, access, plan)
        others = await self.fallback.read(left, batch.values, batch.drop_axes) if left else ()
        return dict(zip(plan.left, others, strict=True))

    # ---- writing ----

    async def write(
        self,
        batch_info: Iterable[tuple[ByteSetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        batch, access = _batch_of(batch_info, value, drop_axes)
        kind = self.chunk_kind
        if access is None:
            await self.fallback.write(batch.chunks, value, drop_axes)
        elif isinstance(kind, Chain):
            await self._write_chunks(batch, access, kind)
        elif isinstance(kind, Sharded):
            await self._write_shards(batch, access, kind)
        else:
            left = _chunks_left(batch, access, _all_left(batch, kind.reason))
            await self.fallback.write(left, value, drop_axes)

    async def _write_chunks(self, batch: Batch, access: ChunkAccess, chain: Chain) -> None:
        plan = plan_write(batch, chain)
        left = _chunks_left(batch, access, plan)
        if len(left) == len(batch.chunks):
            await self.fallback.write(left, batch.values, batch.drop_axes)
            return
        access.check_writable()
        async with access.channel.flight() as flight:
            start_writes(access, batch, plan, flight)
            if plan.groups:
                await Encoding(access, batch, chain).write(plan.groups)
            if left:
                await self.fallback.write(left, batch.values, batch.drop_axes)
        flight.results()
        access.counters.add(
            direct=len(plan.empty) + sum(len(boxes.keys) for boxes in plan.boxes),
            bytes_written=sum(sum(boxes.nbytes) for boxes in plan.boxes),
        )

    async def _write_shards(self, batch: Batch, access: ChunkAccess, kind: Sharded) -> None:
        plan = plan_shard_write(batch, kind)
        left = _chunks_left(batch, access, plan)
        access.check_writable()
        if plan.groups:
            await ShardWriting(access, batch).write(plan.groups)
        if left:
            await self.fallback.write(left, batch.values, batch.drop_axes)

    # ---- always done by the fallback ----

    @property
    def supports_partial_decode(self) -> bool:
        return self.fallback.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        return self.fallback.supports_partial_encode

    def validate(
        self,
        *,
        shape: tuple[int, ...],
        dtype: ZDType[TBaseDType, TBaseScalar],
        chunk_grid: ChunkGridMetadata,
    ) -> None:
        self.fallback.validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        return self.fallback.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        return await self.fallback.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        return await self.fallback.encode(chunk_arrays_and_specs)


def _codecs(metadata: ArrayMetadata) -> tuple[Codec, ...]:
    if isinstance(metadata, ArrayV3Metadata):
        return metadata.codecs
    return (V2Codec(filters=metadata.filters, compressor=metadata.compressor),)


def _spec(metadata: ArrayMetadata) -> ArraySpec:
    """Return the spec of a chunk, made as zarr makes it before it evolves codecs."""
    if isinstance(metadata, ArrayV3Metadata):
        shape = getattr(metadata.chunk_grid, "chunk_shape", (1,) * len(metadata.shape))
        dtype, config = metadata.data_type, ArrayConfig.from_dict({})
    else:
        shape = metadata.chunks
        dtype, config = metadata.dtype, ArrayConfig.from_dict({"order": metadata.order})
    return ArraySpec(shape, dtype, metadata.fill_value, config, default_buffer_prototype())


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


# zarr's configuration names it by the package, not by this file.
ZeroCopyCodecPipeline.__module__ = "ucxstore.pipeline"
register_pipeline(ZeroCopyCodecPipeline)
