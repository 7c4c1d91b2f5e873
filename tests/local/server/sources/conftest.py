"""Servers of sources with a local plane, and objects behind them as in tests/server/sources."""

from tests.local.servers import local_servers
from tests.server.sources.conftest import objects

__all__ = ["local_servers", "objects"]
