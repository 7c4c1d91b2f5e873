import socket
from pathlib import Path

import pytest

from profiles import loopback


def test_the_system_gives_the_port_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("20000\t60999\n")
    monkeypatch.setattr(loopback, "_GIVEN_PORTS", given)
    for _ in range(20):
        port = loopback.free_port()
        assert 10_000 <= port < 20_000
        with socket.create_server((loopback.HOST, port)):
            pass


def test_where_the_system_may_give_any_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("1024\t65535\n")
    monkeypatch.setattr(loopback, "_GIVEN_PORTS", given)
    with socket.create_server((loopback.HOST, loopback.free_port())):
        pass
