"""The tests of tests/stores/test_closing.py, over UCX."""

from tests.stores.test_closing import *  # noqa: F403
