"""The codec pipeline, by which zarr reads into and writes from the user's array without a copy.

zarr imports this module in every process that looks for codec pipelines, whatever stores it uses.
So it imports what zarr has imported already, and nothing else: the rest is imported by the first
array that gets the pipeline. The package classifies chunks, plans reads and writes, and carries the
plans out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

from zarr.abc.codec import CodecPipeline
from zarr.registry import register_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zarr.abc.codec import Codec, GetResult
    from zarr.abc.store import ByteGetter, ByteSetter, Store

    from ucxstore.base.zarr_compat import (
        ArrayMetadata,
        ArraySpec,
        AsyncArray,
        Buffer,
        ChunkGridMetadata,
        NDBuffer,
        SelectorTuple,
        TBaseDType,
        TBaseScalar,
        ZDType,
    )
    from ucxstore.codecs.classify import ChunkKind
    from ucxstore.pipeline.array_chunks import ArrayChunks

__all__ = ["ZeroCopyCodecPipeline"]


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
    _chunks: ArrayChunks = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        from ucxstore.pipeline.array_chunks import ArrayChunks

        object.__setattr__(self, "_chunks", ArrayChunks(self.codecs, self.spec, self.fallback))

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        from ucxstore.pipeline.access import find_access
        from ucxstore.pipeline.selection import pipeline_without_ours

        fallback = pipeline_without_ours(array_metadata, store)
        if find_access(store) is None:
            return cast(Self, fallback)
        from ucxstore.pipeline.array_chunks import codecs_of, spec_of

        return cls(codecs_of(array_metadata), fallback, spec_of(array_metadata))

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """Make the pipeline that zarr would have used: without a store, ours has nothing to do."""
        from ucxstore.pipeline.selection import replaced_pipeline

        return cast(Self, replaced_pipeline().from_codecs(codecs))

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        from ucxstore.base.zarr_compat import evolve_codecs

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

    async def read(
        self,
        batch_info: Iterable[tuple[ByteGetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> tuple[GetResult, ...]:
        return await self._chunks.read(batch_info, out, drop_axes)

    async def write(
        self,
        batch_info: Iterable[tuple[ByteSetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        await self._chunks.write(batch_info, value, drop_axes)

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


def kind_of(array: AsyncArray[Any]) -> ChunkKind:
    """Return how the chunks of an array in a store of ours are stored, whatever its pipeline is."""
    pipeline = array.codec_pipeline
    if not isinstance(pipeline, ZeroCopyCodecPipeline):
        pipeline = ZeroCopyCodecPipeline.from_array_metadata_and_store(array.metadata, array.store)
    return pipeline._chunks.kind


register_pipeline(ZeroCopyCodecPipeline)
