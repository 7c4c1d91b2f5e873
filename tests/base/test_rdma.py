"""Whether a host has RDMA, by a tree like sysfs's."""

from pathlib import Path

import pytest

from ucxstore.base.rdma import has_rdma


@pytest.mark.parametrize(
    ("states", "has"),
    [([], False), (["1: DOWN"], False), (["4: ACTIVE"], True), (["2: INIT", "4: ACTIVE"], True)],
)
def test_an_active_port_is_rdma(tmp_path: Path, states: list[str], has: bool) -> None:
    for number, state in enumerate(states):
        port = tmp_path / f"mlx5_{number}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    assert has_rdma(tmp_path) is has


def test_a_host_without_such_devices_has_none(tmp_path: Path) -> None:
    assert not has_rdma(tmp_path / "infiniband")
