"""The tests of tests/stores/test_parts.py, over the local plane."""

from tests.stores.test_parts import *  # noqa: F403
