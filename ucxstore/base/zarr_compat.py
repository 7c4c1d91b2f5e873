"""The parts of zarr that are not its public interface: no other module imports them.

zarr may move or change them in any release; `make test-zarr-next` runs our tests with the newest.
"""

# All names are for others.
# mypy: implicit-reexport
# ruff: noqa: F401

from zarr.codecs._v2 import V2Codec
from zarr.core.array import AsyncArray, create_codec_pipeline
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import (
    Buffer,
    BufferPrototype,
    NDArrayLike,
    NDBuffer,
    cpu,
    default_buffer_prototype,
    numpy_buffer_prototype,
)
from zarr.core.chunk_grids import ChunkGrid
from zarr.core.chunk_utils import (
    ChunkTransform,
    evolve_codecs,
    fill_value_or_default,
    scatter_chunk,
)
from zarr.core.codec_pipeline import resolve_aa_specs
from zarr.core.dtype import get_data_type_from_json
from zarr.core.dtype.common import HasEndianness
from zarr.core.dtype.npy.structured import Struct
from zarr.core.dtype.wrapper import TBaseDType, TBaseScalar, ZDType
from zarr.core.indexing import (
    BasicIndexer,
    ChunkProjection,
    Indexer,
    IntDimIndexer,
    OrthogonalIndexer,
    SelectorTuple,
    SliceDimIndexer,
    get_indexer,
)
from zarr.core.metadata import ArrayMetadata, ArrayV3Metadata
from zarr.core.metadata.v3 import ChunkGridMetadata
from zarr.core.sync import sync
