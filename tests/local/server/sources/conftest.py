"""Servers of sources with a local plane, and folders for their caches."""

from tests.local.servers import local_servers
from tests.server.sources.conftest import folder

__all__ = ["folder", "local_servers"]
