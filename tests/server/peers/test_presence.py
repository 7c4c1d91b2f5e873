"""What a server can tell of the end of another one's process."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ucxstore.server.peers.presence import Presence
from ucxstore.server.source_thread import presence
from ucxstore.server.source_thread.presence import has_ended, this_process


@pytest.fixture
def other() -> Iterator[tuple[str, str, int, int]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        host, namespace, _, _ = this_process()
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        yield host, namespace, process.pid, int(fields[19])
        process.kill()


def test_a_process_that_runs(other: tuple[str, str, int, int]) -> None:
    assert not has_ended(other)
    assert not has_ended(("another host", *other[1:]))


def test_a_process_that_was_killed(other: tuple[str, str, int, int]) -> None:
    os.kill(other[2], 9)
    os.waitid(os.P_PID, other[2], os.WEXITED | os.WNOWAIT)
    assert has_ended(other), "a zombie does nothing any more"
    os.waitpid(other[2], 0)
    assert has_ended(other)


def test_a_number_that_another_process_has_now(other: tuple[str, str, int, int]) -> None:
    assert has_ended((*other[:3], other[3] - 1))


def test_a_process_that_proc_hides(
    other: tuple[str, str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A /proc with hidepid=2 shows no processes of other users."""

    def hide(number: int) -> tuple[str, int]:
        raise FileNotFoundError

    mine = this_process()
    monkeypatch.setattr(presence, "this_process", lambda: mine)
    monkeypatch.setattr(presence, "_look", hide)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert not has_ended(other)
    os.kill(other[2], 9)
    os.waitpid(other[2], 0)
    assert has_ended(other)


@pytest.mark.parametrize("port", [0, 65_535, 65_536])
def test_a_presence_has_a_port_that_can_be_dialled(port: int) -> None:
    presence = Presence(server="a", epoch=1, port=port)
    assert Presence.parse(presence.encode()) == (presence if port < 65_536 else None)
