"""The tests of tests/stores/test_contract.py, over the local plane."""

from tests.stores.test_contract import *  # noqa: F403
