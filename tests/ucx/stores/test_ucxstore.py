"""The tests of tests/stores/test_ucxstore.py, over UCX."""

from tests.stores.test_ucxstore import *  # noqa: F403
