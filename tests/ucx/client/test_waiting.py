"""The tests of tests/client/test_waiting.py, over UCX."""

from tests.client.test_waiting import *  # noqa: F403
