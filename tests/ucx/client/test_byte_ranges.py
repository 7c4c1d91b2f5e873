"""The tests of tests/client/test_byte_ranges.py, over UCX."""

from tests.client.test_byte_ranges import *  # noqa: F403
