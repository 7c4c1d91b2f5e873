"""zarr's own state machines, which compare a store with a model, for both storages."""

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from zarr.testing.stateful import (
    MAX_BINARY_SIZE,
    ZarrHierarchyStateMachine,
    ZarrStoreStateMachine,
)
from zarr.testing.strategies import keys

from tests.conftest import address_of
from tests.drawing import examples
from ucxstore import UcxStore
from ucxstore.server import Server

# A step of the hierarchy machine makes arrays, and reads all keys of both sides.
SETTINGS = settings(
    max_examples=examples(30),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class DirectoryStoreMachine(ZarrStoreStateMachine):
    """Draws no key under another key: a file is no folder, here as in zarr's `LocalStore`."""

    @rule(key=keys(), data=st.binary(max_size=MAX_BINARY_SIZE))
    def set(self, key: str, data: bytes) -> None:
        assume(not any(key.startswith(f"{other}/") for other in self.model))
        assume(not any(other.startswith(f"{key}/") for other in self.model))
        super().set(key, data)


def run(machine: type[RuleBasedStateMachine], *args: Any) -> None:
    run_state_machine_as_test(lambda: machine(*args), settings=SETTINGS)


def test_values(ucx_store: UcxStore, storage: str) -> None:
    run(DirectoryStoreMachine if storage == "directory" else ZarrStoreStateMachine, ucx_store)


@pytest.mark.filterwarnings("ignore")  # of dtypes that zarr's specification does not have yet
def test_hierarchies(ucx_store: UcxStore) -> None:
    run(ZarrHierarchyStateMachine, ucx_store)


@pytest.fixture
def spread_store(three_servers: list[Server], prefix: str) -> Iterator[UcxStore]:
    with UcxStore(address_of(three_servers, prefix)) as store:
        yield store


def test_values_on_three_servers(spread_store: UcxStore) -> None:
    run(ZarrStoreStateMachine, spread_store)


@pytest.mark.filterwarnings("ignore")  # as above
def test_hierarchies_on_three_servers(spread_store: UcxStore) -> None:
    run(ZarrHierarchyStateMachine, spread_store)
