"""``ucx://`` for fsspec: the values of servers as files."""

from ucxstore.filesystem.file_system import UcxFileSystem

__all__ = ["UcxFileSystem"]
