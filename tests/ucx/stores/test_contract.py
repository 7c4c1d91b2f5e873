"""The tests of tests/stores/test_contract.py, over UCX."""

from tests.stores.test_contract import *  # noqa: F403
