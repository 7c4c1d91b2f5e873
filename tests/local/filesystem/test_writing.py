"""The tests of tests/filesystem/test_writing.py, over the local plane."""

from tests.filesystem.test_writing import *  # noqa: F403
