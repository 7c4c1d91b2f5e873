"""What holds for all tests of the pipeline."""

import gzip
from collections.abc import Iterator
from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True, scope="session")
def gzip_at_the_same_time() -> Iterator[None]:
    """Let gzip, which notes the time, make the same of the same bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip, "time", SimpleNamespace(time=lambda: 0))
        yield
