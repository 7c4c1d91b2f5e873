"""The tests of tests/store/test_contract.py, over the local plane."""

from tests.store.test_contract import *  # noqa: F403
