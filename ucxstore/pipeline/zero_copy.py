"""The codec pipeline that lets zarr read into, and write from, the user's array without a copy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import ByteGetter, ByteSetter, Store
from zarr.registry import register_pipeline
from zarr.storage import StorePath

from ucxstore.client.loops import Pending
from ucxstore.errors import FallbackError
from ucxstore.pipeline.behind import store_behind
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.decode_plan import plan_decode
from ucxstore.pipeline.encode import Encoding
from ucxstore.pipeline.encode_plan import plan_encode
from ucxstore.pipeline.plan import NOT_RAW, Item, Plan, plan_write
from ucxstore.pipeline.raw import raw_chunks
from ucxstore.pipeline.raw_read import RawRead
from ucxstore.pipeline.raw_write import start_writes
from ucxstore.pipeline.read_plan import plan_raw
from ucxstore.pipeline.selection import pipeline_without_ours, replaced_pipeline
from ucxstore.pipeline.shards.index import is_sharded
from ucxstore.pipeline.shards.plan import plan_shards
from ucxstore.pipeline.shards.read import ShardReading
from ucxstore.pipeline.shards.write import ShardWriting
from ucxstore.pipeline.shards.write_plan import plan_shard_writes
from ucxstore.pipeline.stored import stored_by
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import (
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
    evolve_codecs,
)

_PRESENT = GetResult(status="present")

# Raw chunks that are planned before the first of them is asked for: some 2 ms of work, in which a
# large batch would otherwise wait as long as its bytes take to come.
_PLANNED_AT_ONCE = 1024


@dataclass(frozen=True)
class ZeroCopyCodecPipeline(CodecPipeline):
    """A codec pipeline for arrays in a `UcxStore`.

    Raw chunks move straight between the user's array and the store, all of a selection in a few
    native calls; where a selection is of too many small pieces for that, they are fetched whole.
    Encoded chunks are fetched as they are stored, and decoded in threads, straight into the user's
    array where their codec can; or encoded in threads, and sent from there. What is written in part
    is merged here with what is stored. Inner chunks of shards go the same ways, where their shard's
    index says that they are. Everything else is left to the pipeline that zarr would have used,
    which is also what arrays in other stores get.

    Parameters
    ----------
    codecs : tuple of Codec
        The array's, evolved.
    fallback : CodecPipeline
        The pipeline that zarr would have used.
    """

    codecs: tuple[Codec, ...]
    fallback: CodecPipeline

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        fallback = pipeline_without_ours(array_metadata, store)
        if store_behind(store) is None:
            return cast(Self, fallback)
        return cls(_codecs(array_metadata), fallback)

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """Make the pipeline that zarr would have used: without a store, ours has nothing to do."""
        return cast(Self, replaced_pipeline().from_codecs(codecs))

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        return replace(
            self,
            codecs=evolve_codecs(self.codecs, array_spec),
            fallback=self.fallback.evolve_from_array_spec(array_spec),
        )

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.codecs)

    # ---- chunks ----

    async def read(
        self,
        batch_info: Iterable[tuple[ByteGetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> tuple[GetResult, ...]:
        items, store = _ours(batch_info)
        if store is None:
            return await self.fallback.read(items, out, drop_axes)
        if is_sharded(self.codecs):
            return await self._read_shards(items, out, drop_axes, store)
        chain = Chain.of(self.codecs, items[0][1])
        if chain is not None:
            return await self._read_encoded(items, out, drop_axes, chain, store)
        return await self._read_raw(items, out, drop_axes, store)

    async def _read_raw(
        self, items: Sequence[Item], out: NDBuffer, drop_axes: tuple[int, ...], store: UcxStore
    ) -> tuple[GetResult, ...]:
        connection, queue = await store.session()
        array = out.as_ndarray_like()
        left = Plan()
        readings: list[tuple[int, RawRead]] = []
        async with Pending(queue) as pending:
            # What is planned is on its way while the rest is being planned.
            for start in range(0, len(items), _PLANNED_AT_ONCE):
                some = items[start : start + _PLANNED_AT_ONCE]
                plan = plan_raw(some, array, self.codecs, store, drop_axes)
                for position in plan.fallback:
                    left.leave(start + position, plan.reason)
                reading = RawRead(store, some, out, drop_axes, plan)
                reading.start(connection, queue, pending)
                readings.append((start, reading))
            results = await self._read_left(items, out, drop_axes, left, store)
            for _, reading in readings:
                await reading.stage(connection, queue)
        outcomes = iter(pending.results())
        for start, reading in readings:
            for position, result in reading.finish(outcomes).items():
                results[start + position] = result
        return tuple(results.get(position, _PRESENT) for position in range(len(items)))

    async def _read_encoded(
        self,
        items: Sequence[Item],
        out: NDBuffer,
        drop_axes: tuple[int, ...],
        chain: Chain,
        store: UcxStore,
    ) -> tuple[GetResult, ...]:
        plan, groups = plan_decode(items, out.as_ndarray_like(), chain, store)
        results = await self._read_left(items, out, drop_axes, plan, store)
        if groups:
            connection, queue = await store.session()
            decoding = Decoding(store, items, out, chain, drop_axes)
            await decoding.read(connection, queue, groups)
            results |= decoding.missing
        return tuple(results.get(position, _PRESENT) for position in range(len(items)))

    async def _read_shards(
        self, items: Sequence[Item], out: NDBuffer, drop_axes: tuple[int, ...], store: UcxStore
    ) -> tuple[GetResult, ...]:
        plan, shards = plan_shards(items, out.as_ndarray_like(), self.codecs, store, drop_axes)
        results = await self._read_left(items, out, drop_axes, plan, store)
        if shards:
            reading = ShardReading(store, out, drop_axes)
            await reading.read(shards)
            results |= reading.missing
        return tuple(results.get(position, _PRESENT) for position in range(len(items)))

    async def _read_left(
        self,
        items: Sequence[Item],
        out: NDBuffer,
        drop_axes: tuple[int, ...],
        plan: Plan,
        store: UcxStore,
    ) -> dict[int, GetResult]:
        """Read what is left to the other pipeline; return its results by position."""
        left = _what_is_left(items, plan, store)
        others = await self.fallback.read(left, out, drop_axes) if left else ()
        return dict(zip(plan.fallback, others, strict=True))

    async def write(
        self,
        batch_info: Iterable[tuple[ByteSetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        items, store = _ours(batch_info)
        if store is None:
            await self.fallback.write(items, value, drop_axes)
            return
        if is_sharded(self.codecs):
            await self._write_shards(items, value, drop_axes, store)
            return
        array = value.as_ndarray_like()
        chain, raw = Chain.of(self.codecs, items[0][1]), raw_chunks(self.codecs, items[0][1])
        if raw is None or drop_axes:
            plan = Plan.of_none(items, NOT_RAW)
        else:
            plan = plan_write(items, array, self.codecs, store)
        groups = plan_encode(items, plan, array, chain, raw, store)
        left = _what_is_left(items, plan, store)
        if len(left) == len(items):
            await self.fallback.write(left, value, drop_axes)
            return

        store.check_writable()
        connection, queue = await store.session()
        async with Pending(queue) as pending:
            start_writes(connection, queue, pending, plan, store, value)
            if groups:
                stored = stored_by(self.codecs, chain, raw)
                encoding = Encoding(store, items, value, stored, drop_axes)
                await encoding.write(connection, queue, groups)
            if left:
                await self.fallback.write(left, value, drop_axes)
        pending.results()
        store.counters.add(
            direct=len(plan.empty) + sum(len(batch.keys) for batch in plan.direct),
            written=sum(sum(batch.nbytes) for batch in plan.direct),
        )

    async def _write_shards(
        self, items: Sequence[Item], value: NDBuffer, drop_axes: tuple[int, ...], store: UcxStore
    ) -> None:
        plan, groups = plan_shard_writes(items, value.as_ndarray_like(), self.codecs, store)
        left = _what_is_left(items, plan, store)
        store.check_writable()
        if groups:
            await ShardWriting(store, value).write(groups)
        if left:
            await self.fallback.write(left, value, drop_axes)

    # ---- what is the other pipeline's anyway ----

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


def _ours(batch: Iterable[Item]) -> tuple[list[Item], UcxStore | None]:
    """Return a batch as one of the store that it belongs to, and that store, if it is ours."""
    items = list(batch)
    path = items[0][0] if items else None
    given = path.store if type(path) is StorePath else None
    store = None if given is None else store_behind(given)
    if store is None or store is given:
        return items, store
    paths = [StorePath(store, path.path) if path.store is given else path for path, *_ in items]
    return [(path, *rest) for path, (_, *rest) in zip(paths, items, strict=True)], store


def _what_is_left(items: Sequence[Item], plan: Plan, store: UcxStore) -> list[Item]:
    """Return what goes to the other pipeline, and count it; strict stores allow nothing."""
    left = [items[position] for position in plan.fallback]
    if left and store.strict:
        raise FallbackError(
            f"{left[0][0]} cannot be moved straight: {plan.reason}; "
            f"{len(left)} of {len(items)} chunks (the store is strict)"
        )
    store.counters.add(fallback=len(left))
    return left


# Where users configure it: the package's name, not this file's.
ZeroCopyCodecPipeline.__module__ = "ucxstore.pipeline"
register_pipeline(ZeroCopyCodecPipeline)
