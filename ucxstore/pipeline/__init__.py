"""The codec pipeline: plan what becomes of each chunk, then move, decode or encode it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ucxstore.pipeline.zero_copy import ZeroCopyCodecPipeline

__all__ = ["ZeroCopyCodecPipeline"]


def __getattr__(name: str) -> object:
    if name == "ZeroCopyCodecPipeline":  # it imports the store, which imports this package
        from ucxstore.pipeline.zero_copy import ZeroCopyCodecPipeline

        return ZeroCopyCodecPipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
