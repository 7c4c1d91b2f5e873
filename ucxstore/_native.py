"""The native core, with UCX loaded before it. Import it from here, and only when needed.

zarr imports this package in every process that uses any codec pipeline, as it looks for pipelines
by entry points. There, UCX may be missing, and its signal handlers are not wanted.
"""

from ucxstore import _ucx

_ucx.load()

from ucxstore import _core as core  # noqa: E402

__all__ = ["core"]
