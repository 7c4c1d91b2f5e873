"""The codec pipeline: classify chunks, plan reads and writes, and carry the plans out."""

from ucxstore.pipeline.zero_copy import ZeroCopyCodecPipeline

__all__ = ["ZeroCopyCodecPipeline"]
