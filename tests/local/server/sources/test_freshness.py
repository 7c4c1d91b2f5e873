"""The tests of tests/server/sources/test_freshness.py, over the local plane."""

from tests.server.sources.test_freshness import *  # noqa: F403
