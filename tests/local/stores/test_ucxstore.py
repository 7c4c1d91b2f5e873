"""The tests of tests/stores/test_ucxstore.py, over the local plane."""

from tests.stores.test_ucxstore import *  # noqa: F403
