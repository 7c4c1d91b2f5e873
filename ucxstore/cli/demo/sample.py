"""The data that the demo moves."""

from pathlib import Path

import iris_sample_data
import numpy as np
import numpy.typing as npt
import xarray as xr

# Monthly means of the sea-surface temperature around the equator, from the Met Office's OSTIA.
SAMPLE = "ostia_monthly.nc"

_SEED = 20250521  # the same numbers in every process
_COLUMNS = 5000


def open_sample() -> xr.Dataset:
    """Open the real data. The caller closes it."""
    path = Path(iris_sample_data.path, SAMPLE)
    return xr.open_dataset(path, engine="h5netcdf")


def random_array(megabytes: int) -> npt.NDArray[np.float32]:
    """Make the random array, the same in all processes. A megabyte is a million bytes."""
    shape = (megabytes * 1_000_000 // 4 // _COLUMNS, _COLUMNS)
    return np.random.default_rng(_SEED).random(shape, dtype=np.float32)
