"""Select our codec pipeline in zarr's configuration, and find the one that it replaces."""

import importlib
import os
import warnings

import zarr
from zarr.abc.codec import CodecPipeline
from zarr.abc.store import Store
from zarr.registry import get_pipeline_class

from ucxstore.base.keys import is_metadata
from ucxstore.base.zarr_compat import ArrayMetadata, create_codec_pipeline
from ucxstore.pipeline.recycling import select_recycling

PIPELINE = "ucxstore.pipeline.ZeroCopyCodecPipeline"
ENVIRONMENT = "UCXSTORE_SELECT_PIPELINE"

_CONFIG = "codec_pipeline.path"
_OFF = frozenset({"0", "false", "no", "off"})

# What only the metadata of an array has: zarr makes the pipeline right after it. Attributes, which
# may have any text, and groups have names of their own in the old format.
_NOT_OF_ARRAYS = (".zattrs", ".zgroup")
_MARKS = (b'"array"', b'"chunks"')
_MOST_SEARCHED = 1 << 20  # bytes of consolidated metadata: an array comes before that

# The pipelines that were warned of.
_warned: set[str] = set()

# The pipeline that was configured when ours replaced it, unless that was zarr's default.
_replaced: type[CodecPipeline] | None = None


class PipelineWarning(UserWarning):
    """Arrays of a `UcxStore` are read by another pipeline than ours, which was not asked for."""


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
    elif choice is None and _is_off():
        return
    else:
        _replaced = None
    zarr.config.set({_CONFIG: PIPELINE})
    select_recycling()


def other_pipeline(choice: bool | None = None) -> str | None:
    """Return the pipeline that a store's arrays would be read by, by its name; ``None`` for ours.

    Parameters
    ----------
    choice : bool or None
        The store's `select_pipeline`.
    """
    configured: str = zarr.config.get(_CONFIG)
    if configured == PIPELINE or choice:
        return None
    is_selected = choice is None and configured == _default_path() and not _is_off()
    return None if is_selected else configured


def advise_on_pipeline() -> str | None:
    """Say what to change where arrays of a new `UcxStore` would be read by another pipeline.

    Returns
    -------
    str or None
        One line; ``None`` if they are read by ours.
    """
    other = other_pipeline()
    if other is None:
        return None
    if other == _default_path():
        return f"{ENVIRONMENT} is off, so zarr reads our arrays by {other}, with copies: unset it"
    return (
        f"zarr is configured to read all arrays by {other}, which copies: make the store with "
        f"select_pipeline=True, or set zarr's {_CONFIG} to {PIPELINE}"
    )


def warn_of_other_pipeline(choice: bool | None, key: str, value: memoryview, store: str) -> None:
    """Warn once if what was read is an array's metadata, and another pipeline will read the array.

    A library may have selected one around its own I/O (AnnData does), or zarr's configuration was
    changed after the store was made.

    Parameters
    ----------
    choice : bool or None
        The store's `select_pipeline`; if that is ``False``, nobody wants ours.
    key : str
    value : memoryview
        What was read from `key`.
    store : str
        Its address, for the message.
    """
    if choice is False or not is_metadata(key) or key.endswith(_NOT_OF_ARRAYS):
        return
    configured: str = zarr.config.get(_CONFIG)
    if configured == PIPELINE or configured in _warned or (choice is None and _is_off()):
        return
    start = bytes(value[:_MOST_SEARCHED])
    if not any(mark in start for mark in _MARKS):
        return
    _warned.add(configured)
    warnings.warn(
        f"zarr reads arrays of {store} by {configured}, not by ucxstore's pipeline, and copies "
        f"more. Set {_CONFIG} to {PIPELINE}, or make the store with select_pipeline=True first; "
        "select_pipeline=False silences this",
        PipelineWarning,
        stacklevel=2,
    )


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


def _is_off() -> bool:
    return os.environ.get(ENVIRONMENT, "").strip().lower() in _OFF


def _default_path() -> str:
    path: str = zarr.config.defaults[0]["codec_pipeline"]["path"]
    return path
