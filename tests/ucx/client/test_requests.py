"""The tests of tests/client/test_requests.py, over UCX."""

from tests.client.test_requests import *  # noqa: F403
