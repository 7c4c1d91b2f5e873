"""The tests of tests/stores/test_listing.py, over the local plane."""

from tests.stores.test_listing import *  # noqa: F403
