"""The codec pipeline, by which zarr reads into and writes from the user's array without a copy.

zarr imports it in every process that uses any codec pipeline. So what only arrays in our stores
need is imported by the first of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

from zarr.abc.codec import Codec, CodecPipeline, GetResult
from zarr.abc.store import ByteGetter, ByteSetter, Store
from zarr.registry import register_pipeline

from ucxstore.pipeline.access import find_access
from ucxstore.pipeline.selection import pipeline_without_ours, replaced_pipeline
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

if TYPE_CHECKING:
    from ucxstore.pipeline.array_chunks import ArrayChunks
    from ucxstore.pipeline.classify import ChunkKind
    from ucxstore.zarr_compat import AsyncArray


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
    _chunks: "ArrayChunks" = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        from ucxstore.pipeline.array_chunks import ArrayChunks  # not before it is needed

        object.__setattr__(self, "_chunks", ArrayChunks(self.codecs, self.spec, self.fallback))

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


def kind_of(array: "AsyncArray[Any]") -> "ChunkKind":
    """Return how the chunks of an array in a store of ours are stored, whatever its pipeline is."""
    pipeline = array.codec_pipeline
    if not isinstance(pipeline, ZeroCopyCodecPipeline):
        pipeline = ZeroCopyCodecPipeline.from_array_metadata_and_store(array.metadata, array.store)
    return pipeline._chunks.kind


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


# zarr's configuration names it by the package, not by this file.
ZeroCopyCodecPipeline.__module__ = "ucxstore.pipeline"
register_pipeline(ZeroCopyCodecPipeline)
