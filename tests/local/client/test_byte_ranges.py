"""The tests of tests/client/test_byte_ranges.py, over the local plane."""

from tests.client.test_byte_ranges import *  # noqa: F403
