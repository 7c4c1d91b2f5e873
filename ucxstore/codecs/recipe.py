"""Recipes: how a server is to decode the chunks of an array, as the array's reader tells it.

A recipe is JSON: what zarr's metadata says of a chunk and its codecs. So a server needs to know
nothing of arrays, and what it decodes by a recipe is what the reader would have decoded itself.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import numcodecs
import numpy as np
from zarr.abc.codec import Codec
from zarr.codecs import BytesCodec
from zarr.registry import get_codec_class

from ucxstore.base.foreign import Fields
from ucxstore.base.keys import DECODED_FOLDER
from ucxstore.base.showing import one_line
from ucxstore.base.zarr_compat import (
    ArrayConfig,
    ArraySpec,
    V2Codec,
    default_buffer_prototype,
    evolve_codecs,
    get_data_type_from_json,
)
from ucxstore.codecs.bounded import Bounded, bounded_of, is_filter
from ucxstore.codecs.buffers import allocate, chunk_in, chunk_nbytes
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import classify
from ucxstore.codecs.compressors import Bytes

# Of a text, which goes with each request: the native core's MAX_RECIPE_BYTES is the same.
MAX_RECIPE_BYTES = 4096

_DIGEST_CHARS = 32  # half of SHA-256, in hexadecimal
_MOST_NBYTES = 1 << 46  # as the core's kMaxValueBytes


class Recipe(NamedTuple):
    """A recipe, as readers use it.

    Parameters
    ----------
    text : str
        JSON.
    chain : Chain
        How a decoded chunk lies in memory: raw.
    """

    text: str
    chain: Chain

    @property
    def folder(self) -> str:
        """The folder of the names of chunks that are decoded by it."""
        return f"{DECODED_FOLDER}{digest_of(self.text)}/"


def digest_of(text: str) -> str:
    """Return the digest by which a recipe is named."""
    return sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


def fault_of(chain: Chain, spec: ArraySpec) -> str:
    """Return why a server does not decode chunks of this chain; empty if it does.

    What it decodes is from outside. So it calls no codec that could put out any number of bytes, as
    a small value may unfold to very many, and none that executes what it reads, as pickles do.
    """
    compressors: list[object] = list(chain.outer)
    filters: list[object] = list(chain.arrays)
    if type(chain.serializer) is V2Codec:
        filters += chain.serializer.filters or ()
        if chain.serializer.compressor is not None:
            compressors.append(chain.serializer.compressor)
    for codec in compressors:
        if bounded_of(codec) is None:
            return f"{type(codec).__name__} may put out any number of bytes"
    for codec in filters:
        if not is_filter(codec):
            return f"{type(codec).__name__} is no filter that a server applies"
    nbytes = chunk_nbytes(spec)
    if not 0 < max(nbytes, chain.values_nbytes(spec)) < _MOST_NBYTES:
        return f"its chunks have {nbytes} bytes"
    return ""


def recipe_of(chain: Chain, spec: ArraySpec) -> Recipe | None:
    """Return the recipe of encoded chunks; ``None`` if no server decodes them.

    Parameters
    ----------
    chain : Chain
    spec : ArraySpec
        The spec of a chunk.
    """
    if chain.raw or fault_of(chain, spec):
        return None
    old = type(chain.codecs[-1]) is V2Codec
    zarr_format: Literal[2, 3] = 2 if old else 3
    data_type: Any = spec.dtype.to_json(zarr_format=zarr_format)
    # In format 3, metadata does not tell the byte order of values in memory.
    dtype = get_data_type_from_json(data_type, zarr_format=zarr_format).to_native_dtype()
    found: dict[str, Any] = {
        "zarr_format": zarr_format,
        "shape": spec.shape,
        "data_type": data_type,
        "dtype": dtype.str,
        "fill_value": None
        if spec.fill_value is None
        else spec.dtype.to_json_scalar(spec.fill_value, zarr_format=zarr_format),
        "order": spec.order,
    }
    if old:
        codec: Any = chain.codecs[-1]
        found["filters"] = [each.get_config() for each in codec.filters or ()]
        found["compressor"] = codec.compressor and codec.compressor.get_config()
    else:
        found["codecs"] = [codec.to_dict() for codec in chain.codecs]
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), default=_plain)
    if len(text.encode()) > MAX_RECIPE_BYTES:
        return None
    return Recipe(text, _decoded(chain, dtype))


def _plain(value: Any) -> Any:
    """Return what JSON has in place of numpy's scalars, and of enumerations."""
    return value.item() if isinstance(value, np.generic) else value.value


def _decoded(chain: Chain, dtype: np.dtype[Any]) -> Chain:
    """Return the chain of chunks that lie as a server decodes them."""
    serializer: Any = BytesCodec()
    if type(chain.serializer) is V2Codec:
        serializer = V2Codec(filters=None, compressor=None)
    return Chain(
        codecs=(serializer,),
        arrays=(),
        serializer=serializer,
        outer=(),
        compressor=None,
        whole=(serializer,),
        dtype=dtype,
        straight=True,
        raw=True,
    )


# ---- at the server ----


@dataclass(frozen=True, slots=True)
class Prepared:
    """A recipe, as a server uses it. Its methods may be called by many threads at once.

    Parameters
    ----------
    digest : str
    nbytes : int
        Bytes of a decoded chunk.
    chain : Chain
        The codecs.
    spec : ArraySpec
    outer : tuple of callable
        Decoders of the bytes, in the order of decoding, each with a bound on what it puts out.
    """

    digest: str
    nbytes: int
    chain: Chain
    spec: ArraySpec
    outer: tuple[Bounded, ...]

    def decode(self, stored: Bytes, out: Bytes) -> str:
        """Decode a stored chunk into memory; return why that has failed, or an empty text."""
        try:
            self._decode(stored, out)
        except Exception as error:  # whatever a codec raises
            return one_line(error) or type(error).__name__
        return ""

    def _decode(self, stored: Bytes, out: Bytes) -> None:
        chain, spec = self.chain, self.spec
        most = chain.limit(spec, self.nbytes)
        for decode in self.outer:
            stored = decode(stored, spec, most)
        target = chunk_in(out, spec, spec.dtype.to_native_dtype(), chain.order(spec))
        array = target.as_numpy_array()
        if chain.compressor is not None:
            nbytes = chain.values_nbytes(spec)
            if not chain.compressor.holds(stored, nbytes):
                raise ValueError(f"its header announces another size than {nbytes} bytes")
            straight = chain.straight and chain.dtype == array.dtype
            values = out if straight else allocate(nbytes)
            chain.decompress(spec.prototype.buffer.from_array_like(stored), values)
            if straight:
                return
        else:
            values = stored
        found = chain.finish(values, spec).as_numpy_array()
        if found.shape != array.shape:
            raise ValueError(f"a chunk of shape {found.shape}, not {array.shape}")
        np.copyto(array, found, casting="equiv")


def prepare(text: str) -> Prepared | str:
    """Read a recipe that comes from outside; return why it cannot be decoded by, if it cannot."""
    try:
        return _prepare(text)
    except Exception as error:  # whatever zarr raises for metadata that is none
        return one_line(error) or type(error).__name__


def _prepare(text: str) -> Prepared | str:
    found = Fields.read(text.encode(), "a recipe", MAX_RECIPE_BYTES).plain
    zarr_format: Literal[2, 3] = 2 if found["zarr_format"] == 2 else 3
    dtype = get_data_type_from_json(found["data_type"], zarr_format=zarr_format)
    if dtype.to_native_dtype().str != found["dtype"]:
        return f"values of {found['dtype']} lie in another byte order here"
    fill = found["fill_value"]
    if fill is not None:
        fill = dtype.from_json_scalar(fill, zarr_format=zarr_format)
    shape = tuple(map(int, found["shape"]))
    if min(shape, default=1) < 1:
        return f"chunks of shape {shape}"
    config = ArrayConfig.from_dict({"order": found["order"]})
    spec = ArraySpec(shape, dtype, fill, config, default_buffer_prototype())
    codecs: Sequence[Codec]
    if zarr_format == 2:
        filters = tuple(numcodecs.get_codec(each) for each in found["filters"])
        compressor = found["compressor"] and numcodecs.get_codec(found["compressor"])
        codecs = [V2Codec(filters=filters or None, compressor=compressor)]
    else:
        codecs = [get_codec_class(each["name"]).from_dict(each) for each in found["codecs"]]
    chain = classify(evolve_codecs(codecs, spec), spec)
    if not isinstance(chain, Chain):
        return "its codecs or its dtype are not known here"
    fault = fault_of(chain, spec)
    if fault:
        return fault
    nbytes = chunk_nbytes(spec)
    chain, outer = _with_bounds(chain)
    return Prepared(digest_of(text), nbytes, chain, spec, outer)


def _with_bounds(chain: Chain) -> tuple[Chain, tuple[Bounded, ...]]:
    """Return the chain without codecs that could put out any number of bytes, and these."""
    outer = [bounded_of(codec) for codec in reversed(chain.outer)]
    serializer = chain.serializer
    if type(serializer) is V2Codec and serializer.compressor is not None:
        outer.append(bounded_of(serializer.compressor))
        serializer = replace(serializer, compressor=None)
    return replace(chain, outer=(), serializer=serializer), tuple(
        each for each in outer if each is not None
    )
