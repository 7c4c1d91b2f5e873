"""The tests of tests/server/sources/test_writes.py, over the local plane."""

from tests.server.sources.test_writes import *  # noqa: F403
