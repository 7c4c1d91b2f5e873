"""The codec pipeline: plan what becomes of each chunk, then move, decode or encode it."""

from ucxstore.pipeline.zero_copy import ZeroCopyCodecPipeline

__all__ = ["ZeroCopyCodecPipeline"]
