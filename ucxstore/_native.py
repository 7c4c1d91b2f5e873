"""The native core. Import it from here, and only when it is needed.

zarr imports this package in every process that uses any codec pipeline, as it looks for pipelines
by entry points. Such a process need not load the core. The core loads UCX when it makes its first
client or server.
"""

from ucxstore import _core as core

__all__ = ["core"]
