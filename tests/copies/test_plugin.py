"""The fixture, used as another project would use it."""

import pytest

pytest_plugins = ["pytester"]

TEST = """
import numpy as np
import zarr

def test_in_memory(count_copies, tmp_path):
    z = zarr.create_array(
        zarr.storage.LocalStore(tmp_path / "z"), shape=(500, 500), dtype="f4", chunks=(500, 500),
        compressors=None,
    )
    z[:] = 1
    counts = count_copies(lambda: z[:], z.nbytes)
    assert 0.9 < counts.peak_extra < 1.1, counts.culprits

def test_that_fails(count_copies):
    x = np.ones(1_000_000)
    counts = count_copies(lambda: len(x.copy()), x.nbytes)
    assert counts.peak_extra < 0.5, counts.culprits
"""


def test_in_a_project_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["ucxstore.copies.plugin"]')
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Culprit(bytes=8000*<lambda> (*"])
