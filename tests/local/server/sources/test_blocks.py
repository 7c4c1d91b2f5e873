"""The tests of tests/server/sources/test_blocks.py, over the local plane."""

from tests.server.sources.test_blocks import *  # noqa: F403
