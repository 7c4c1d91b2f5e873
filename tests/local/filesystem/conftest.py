"""The fixtures of tests/filesystem."""

from tests.filesystem.conftest import fs, fs_path

__all__ = ["fs", "fs_path"]
