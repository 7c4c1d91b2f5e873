"""The tests of tests/stores/test_large_values.py, over UCX."""

from tests.stores.test_large_values import *  # noqa: F403
