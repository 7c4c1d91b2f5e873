"""The native core. Import it from here, and only when it is needed.

zarr imports this package in every process that uses any codec pipeline, as it looks for pipelines
by entry points. Such a process need not load the core. The core loads UCX when it makes its first
client or server.
"""

from importlib.util import find_spec
from pathlib import Path

if find_spec("ucxstore._core") is None:
    # Python looks first in the folder in which it is started.
    raise ImportError(
        f"{Path(__file__).parents[1]} is ucxstore's source, without what is compiled of it: start "
        "Python in another folder than the clone, where ucxstore is installed"
    )

from ucxstore import _core as core

__all__ = ["core"]
