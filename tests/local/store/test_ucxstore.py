"""The tests of tests/store/test_ucxstore.py, over the local plane."""

from tests.store.test_ucxstore import *  # noqa: F403
