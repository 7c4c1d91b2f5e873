"""How many descriptors the process has, and may have."""

import os

from ucxstore.server.shortage import open_files


def test_each_one_counts() -> None:
    before, limit = open_files()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(30)]
    assert open_files() == (before + len(opened), limit)
    for descriptor in opened:
        os.close(descriptor)
    assert open_files() == (before, limit)
