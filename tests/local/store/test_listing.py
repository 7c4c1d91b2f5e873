"""The tests of tests/store/test_listing.py, over the local plane."""

from tests.store.test_listing import *  # noqa: F403
