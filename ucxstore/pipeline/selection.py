"""Select our codec pipeline in zarr's configuration, and find the one that it replaces."""

import importlib
import os

import zarr
from zarr.abc.codec import CodecPipeline
from zarr.abc.store import Store
from zarr.registry import get_pipeline_class

from ucxstore.pipeline.recycling import select_recycling
from ucxstore.zarr_compat import ArrayMetadata, create_codec_pipeline

PIPELINE = "ucxstore.pipeline.ZeroCopyCodecPipeline"
ENVIRONMENT = "UCXSTORE_SELECT_PIPELINE"

_CONFIG = "codec_pipeline.path"
_OFF = frozenset({"0", "false", "no", "off"})

# The pipeline that was configured when ours replaced it, unless that was zarr's default.
_replaced: type[CodecPipeline] | None = None


def select_pipeline(choice: bool | None) -> None:
    """Let zarr use our pipeline, for all arrays that are opened from now on, and recycled memory.

    Parameters
    ----------
    choice : bool or None
        ``None`` selects it if zarr's default is configured and the environment variable
        ``UCXSTORE_SELECT_PIPELINE`` is not 0. ``True`` selects it in place of any other, which then
        gets the chunks that ours does not handle. ``False`` changes nothing.
    """
    global _replaced
    configured = zarr.config.get(_CONFIG)
    if configured == PIPELINE or choice is False:
        return
    if configured != _default_path():
        if choice is None:
            return
        _replaced = get_pipeline_class()
    elif choice is None and os.environ.get(ENVIRONMENT, "").strip().lower() in _OFF:
        return
    else:
        _replaced = None
    zarr.config.set({_CONFIG: PIPELINE})
    select_recycling()


def replaced_pipeline() -> type[CodecPipeline]:
    """Return the class of the pipeline that zarr would use without ours."""
    if _replaced is not None:
        return _replaced
    module, _, name = _default_path().rpartition(".")
    pipeline: type[CodecPipeline] = getattr(importlib.import_module(module), name)
    return pipeline


def pipeline_without_ours(metadata: ArrayMetadata, store: Store) -> CodecPipeline:
    """Return the pipeline that zarr would use for an array without ours."""
    try:
        return replaced_pipeline().from_array_metadata_and_store(
            array_metadata=metadata, store=store
        )
    except NotImplementedError:
        # zarr then calls `from_codecs` of the configured class: ours, which returns the other's.
        return create_codec_pipeline(metadata)


def _default_path() -> str:
    path: str = zarr.config.defaults[0]["codec_pipeline"]["path"]
    return path
