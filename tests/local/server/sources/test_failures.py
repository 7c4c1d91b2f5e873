"""The tests of tests/server/sources/test_failures.py, over the local plane."""

from tests.server.sources.test_failures import *  # noqa: F403
