"""The tests of tests/server/sources/test_cache_dir.py, over the local plane."""

from tests.server.sources.test_cache_dir import *  # noqa: F403
