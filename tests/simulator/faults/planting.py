"""Plant faults in the machine of a member."""

from collections.abc import Callable

from tests.simulator.chances import PATIENCE
from tests.simulator.world import holds
from ucxstore.server.peers.machine import PeerMachine
from ucxstore.server.peers.state import State


def planted(*faults: type) -> Callable[[int], PeerMachine]:
    """Return what makes machines in which classes with a fault take the place of their bases."""
    kinds = [fault for fault in faults if issubclass(fault, PeerMachine)] or [PeerMachine]
    parts = {part.__base__.__name__: part for part in faults if part not in kinds and part.__base__}
    kind = type("Planted", tuple(kinds), parts)
    return lambda number: kind(State(str(number), patience=PATIENCE, holds=holds))
