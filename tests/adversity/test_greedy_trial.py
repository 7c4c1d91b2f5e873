"""A short trial of greedy clients beside honest ones: counts and memory, no times."""

from pathlib import Path

import pytest

from tests.adversity.greedy.server import BESIDE, MEMORY
from tests.adversity.greedy.trial import OPERATIONS, PLANES, Trial

# Together they take what each of them takes, and bring up what others wait for.
_SECONDS = 3.0


@pytest.mark.full
@pytest.mark.parametrize("plane", PLANES)
def test_honest_clients_beside_all_kinds_of_greedy_ones(plane: str, tmp_path: Path) -> None:
    with Trial(plane, tmp_path, honest=2, greedy=1) as trial:
        found = trial.beside(list(trial.plane.kinds), _SECONDS)
    assert found.lives
    assert not found.refused
    assert found.memory <= MEMORY + BESIDE
    for operation in OPERATIONS:
        assert any(seen.seconds[operation] for seen in found.seen), operation
