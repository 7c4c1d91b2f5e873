"""The tests of tests/stores/test_listing.py, over UCX."""

from tests.stores.test_listing import *  # noqa: F403
