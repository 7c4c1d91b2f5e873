"""The columns of the matrix: all directions, codecs and layouts."""

from collections.abc import Sequence
from itertools import product

from ucxstore.copies.workload import CODECS, DIRECTIONS, LAYOUTS, Workload


def select(patterns: Sequence[str], side: int) -> list[Workload]:
    """Return the workloads whose names contain any of the patterns; all without patterns.

    Raises
    ------
    ValueError
        If a pattern matches none.
    """
    everything = [
        Workload(direction, codec, layout, side)
        for direction, codec, layout in product(DIRECTIONS, CODECS, LAYOUTS)
    ]
    for pattern in patterns:
        if not any(pattern in workload.name for workload in everything):
            raise ValueError(f"no workload has {pattern!r} in its name, such as write-raw-one")
    return [
        workload
        for workload in everything
        if not patterns or any(pattern in workload.name for pattern in patterns)
    ]
