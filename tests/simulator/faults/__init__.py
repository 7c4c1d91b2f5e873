"""Faults that the machine once had, or would have without one of its guards.

Each is a machine with the fault planted. `test_simulator.py` has a history that shows it.
"""

from collections.abc import Callable

from tests.simulator.faults import guards, known
from tests.simulator.world import Machine

FAULTS: dict[str, Callable[[int], Machine]] = {**known.FAULTS, **guards.FAULTS}
