"""The tests of tests/store/test_parts.py, over the local plane."""

from tests.store.test_parts import *  # noqa: F403
