"""The tests of tests/client/test_memory.py, over UCX."""

from tests.client.test_memory import *  # noqa: F403
