import socket
from pathlib import Path

import pytest

from profiles import loopback


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [("20000\t60999", 10_000, 19_999), ("1024\t65535", 1024, 65_535)],
)
def test_ports_that_the_system_gives_are_left_to_others(
    given: str, first: int, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(f"{given}\n")
    monkeypatch.setattr(loopback, "GIVEN_PORTS", tmp_path / "range")
    for _ in range(20):
        port = loopback.free_port()
        assert first <= port <= last
        with socket.create_server((loopback.HOST, port)):
            pass


def test_no_port_can_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "HOST", "192.0.2.1")  # no address of this machine
    with pytest.raises(OSError, match="Cannot assign"):
        loopback.free_port()
