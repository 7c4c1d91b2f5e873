"""The tests of tests/filesystem/test_reading.py, over the local plane."""

from tests.filesystem.test_reading import *  # noqa: F403
