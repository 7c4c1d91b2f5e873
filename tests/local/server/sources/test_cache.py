"""The tests of tests/server/sources/test_cache.py, over the local plane."""

from tests.server.sources.test_cache import *  # noqa: F403
