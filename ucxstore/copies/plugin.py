"""Pytest plugin for other projects: the fixture `count_copies`.

To use it, set ``pytest_plugins = ["ucxstore.copies.plugin"]``.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ucxstore.copies import Counts
from ucxstore.copies import count_copies as count_copies_of


@pytest.fixture
def count_copies(tmp_path: Path) -> Callable[..., Counts]:
    """Count copies with `ucxstore.copies.count_copies`; captures go to the test's `tmp_path`.

    >>> def test_read(count_copies):  # doctest: +SKIP
    ...     z = zarr.open_array(store)
    ...     counts = count_copies(lambda: z[:], z.nbytes)
    ...     assert counts.peak_extra < 1.05, counts.culprits
    """
    return partial(count_copies_of, capture=tmp_path / "memray.bin")
