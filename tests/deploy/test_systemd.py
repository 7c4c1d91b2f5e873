"""The systemd unit, and its command as systemd would start it."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, unit
from ucxstore import UcxStore
from ucxstore.cli.common.status import Status

UNIT = DEPLOY / "systemd/ucxstore.service"
OPTIONS = DEPLOY / "systemd/ucxstore.toml"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With a command that is there, since systemd looks for it."""
    text = UNIT.read_text().replace("/opt/ucxstore/bin/ucxstore", "/bin/true")
    (tmp_path / UNIT.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / UNIT.name],
        capture_output=True,
        text=True,
    )
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, said) == (0, [])


def test_the_unit_gives_the_service_little() -> None:
    settings = unit()
    assert settings["User"] == ["ucxstore"]
    assert settings["NoNewPrivileges"] == ["yes"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert settings["ProtectSystem"] == ["strict"]


def test_the_service_has_time_to_drain() -> None:
    grace = tomllib.loads(OPTIONS.read_text())["grace"]
    assert grace < int(unit()["TimeoutStopSec"][0])


def test_the_service_has_a_limit_of_memory() -> None:
    """A share of the machine's, which the server heeds in turn."""
    [most] = unit()["MemoryMax"]
    assert most.endswith("%")
    assert 0 < int(most.removesuffix("%")) < 100
    page = (ROOT / "docs/howto/systemd.md").read_text()
    assert f"to {most.removesuffix('%')} % of" in page


def test_a_wrong_option_is_not_tried_again_and_a_stuck_server_is_restarted() -> None:
    settings = unit()
    assert settings["Restart"] == ["on-failure"]
    assert settings["RestartPreventExitStatus"] == [str(int(Status.USAGE))]
    assert 0 < int(settings["WatchdogSec"][0]) <= 60


def test_the_user_can_read_the_secret_at_a_reload() -> None:
    """It owns the file, of which systemd would make a copy at the start, as a credential."""
    settings = unit()
    [start], [user] = settings["ExecStart"], settings["User"]
    assert not [name for name in settings if name.endswith(("Credential", "CredentialEncrypted"))]
    words = shlex.split(start)
    file = words[words.index("--secret-file") + 1]
    page = (ROOT / "docs/howto/systemd.md").read_text()
    assert f"sudo install --mode=600 --owner={user} secret {file}\n" in page
    assert f"sudo systemd-sysusers --inline 'u {user} - " in page


def test_the_command_starts_reloads_and_ends_as_systemd_expects(tmp_path: Path) -> None:
    """It says READY=1, reads the secret at ExecReload's signal, and ends by SIGTERM with 0."""
    (tmp_path / "secret").write_text("x" * 32)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "state").mkdir()
    options = OPTIONS.read_text()
    for fixed, free in (("0.0.0.0:7400", "127.0.0.1:0"), ("127.0.0.1:9400", "127.0.0.1:0")):
        assert fixed in options
        options = options.replace(fixed, free)
    (tmp_path / OPTIONS.name).write_text(options)
    [start] = unit()["ExecStart"]
    places = {
        "/opt/ucxstore/bin/ucxstore": f"{shlex.quote(sys.executable)} -m ucxstore",
        "/etc/ucxstore": str(tmp_path),
        "/var/lib/ucxstore": str(tmp_path / "state"),
    }
    for place, here in places.items():
        assert place in start
        start = start.replace(place, here)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.settimeout(60)
        notified.bind(str(tmp_path / "notify"))
        server = subprocess.Popen(
            shlex.split(start),
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"},
        )
        try:
            messages = told(notified, b"READY=1")
            address = messages.partition(b" at ucx://")[2].split()[0].decode()
            assert b"WATCHDOG=1" in told(notified, b"WATCHDOG=1")
            (tmp_path / "secret").write_text("y" * 32)
            assert unit()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
            server.send_signal(signal.SIGHUP)
            assert b"RELOADING=1\nMONOTONIC_USEC=" in told(notified, b"READY=1")
            with UcxStore(f"ucx://{address}", secret="y" * 32) as store:
                store.ping_sync()
        finally:
            server.terminate()
            assert server.wait(60) == 0


def told(notified: socket.socket, what: bytes) -> bytes:
    """Return the messages until one says this."""
    messages = b""
    while what not in messages:
        messages += notified.recv(4096) + b"\n"
    return messages
