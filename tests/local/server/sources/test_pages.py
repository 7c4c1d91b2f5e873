"""The tests of tests/server/sources/test_pages.py, over the local plane."""

from tests.server.sources.test_pages import *  # noqa: F403
