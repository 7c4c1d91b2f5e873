"""`ucxstore doctor --pair` and `--listen` on two hosts, and what goes wrong between them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.network import Host
from ucxstore.cli.doctor.pair import DEFAULT_PORT, PORTS
from ucxstore.cli.doctor.pair.trials import STEPS

SECRET = "a secret that is long enough"

# The command, with measurements that take a moment, and a short wait for a host that is gone.
COMMAND = """
import sys
from ucxstore.cli import main
from ucxstore.cli.doctor.pair import listening, pairing
pairing.MEASURE_SECONDS = {seconds}
pairing.STEP_SECONDS, pairing.START_SECONDS = {step}, {step}
listening.GONE_SECONDS = 2.0
sys.exit(main(["doctor", *sys.argv[1:]]))
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "pair-secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


@contextmanager
def started(
    host: Host, *arguments: object, seconds: float = 0.05, step: float = 20.0
) -> "Iterator[subprocess.Popen[str]]":
    code = COMMAND.format(seconds=seconds, step=step)
    process = subprocess.Popen(
        [*host.inside, sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                host.end(process.pid, signal.SIGKILL)


def line_with(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"no line with {words!r}: {process.communicate()[1]}")


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


@pytest.fixture
def listens(hosts: Sequence[Host], secret: Path) -> "Iterator[subprocess.Popen[str]]":
    with started(hosts[0], "--listen", "--secret-file", secret) as process:
        line_with(process, f"    ucxstore doctor --pair {os.uname().nodename} --secret-file pair-")
        yield process


def test_a_pair_on_two_hosts(
    hosts: Sequence[Host], secret: Path, listens: "subprocess.Popen[str]"
) -> None:
    """Over the ports that are documented, and no other."""
    serving, using, *_ = hosts
    last = DEFAULT_PORT + PORTS - 1
    others = [f"1024-{DEFAULT_PORT - 1}", f"{last + 1}-65534"]
    with serving.barring(others[0], rejects=False):
        rule = f"pref 9 iif eth0 ipproto tcp dport {others[1]} blackhole"
        serving.run(f"ip rule add {rule}")
        with started(using, "--pair", serving.ip, "--secret-file", secret, "--json") as pairs:
            status, out, err = ended(pairs)
        serving.run(f"ip rule del {rule}")
    assert (status, err) == (0, ""), out
    assert ended(listens)[::2] == (0, "")
    tcp, ucx, *_ = json.loads(out)["trials"]
    for trial, lanes in ((tcp, ["tcp"]), (ucx, ["tcp/eth0"])):
        steps = {step["step"]: step for step in trial["steps"]}
        assert tuple(steps) == STEPS
        assert [step for step in trial["steps"] if step["state"] != "ok"] == []
        assert steps["connect"]["figures"]["lanes"] == lanes
        assert steps["connect"]["figures"]["integrity"] is True
        assert steps["kill in get"]["figures"]["seconds"] < 20


def test_a_slow_network(
    hosts: Sequence[Host], secret: Path, listens: "subprocess.Popen[str]"
) -> None:
    """The sizes follow its speed, so that it takes no longer; the speed is what the link has."""
    serving, using, *_ = hosts
    with (
        serving.limited("16mbit"),
        using.limited("16mbit"),
        started(
            using, "--pair", serving.ip, "--secret-file", secret, "--json", seconds=0.5
        ) as pairs,
    ):
        status, out, err = ended(pairs)
    assert (status, err) == (0, ""), out
    found = json.loads(out)
    assert found["seconds"] < 150
    for trial in found["trials"][:2]:
        steps = {step["step"]: step for step in trial["steps"]}
        for name in ("set", "get"):
            figures = steps[name]["figures"]
            assert figures["nbytes"] < 4_000_000
            assert figures["median_gbs"] < 0.002 * 1.5  # 2 MB/s, and what the queue lets through


def test_the_other_host_vanishes(
    hosts: Sequence[Host], secret: Path, listens: "subprocess.Popen[str]"
) -> None:
    """Neither end waits for ever: no packet tells them."""
    serving, using, *_ = hosts
    arguments = ("--pair", serving.ip, "--secret-file", secret, "--timeout", "5")
    with started(using, *arguments, step=3.0) as pairs:
        line_with(pairs, "values       ok")
        using.cut(serving.ip)
        serving.cut(using.ip)
        try:
            status, out, err = ended(pairs)
            gone, _, why = ended(listens)
        finally:
            using.mend(serving.ip)
            serving.mend(using.ip)
    assert (status, err) == (1, "")
    assert "not reached: the other host is gone" in out
    assert (gone, why) == (5, "ucxstore doctor: the other host is gone before it was done\n")


def test_a_wrong_secret_and_then_the_right_one(
    hosts: Sequence[Host], secret: Path, tmp_path: Path, listens: "subprocess.Popen[str]"
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another secret of some length")
    wrong.chmod(0o600)
    with started(hosts[1], "--pair", hosts[0].ip, "--secret-file", wrong) as pairs:
        status, _, err = ended(pairs)
    assert status == 4
    assert "the secret is wrong" in err
    with started(hosts[1], "--pair", hosts[0].ip, "--secret-file", secret) as pairs:
        line_with(pairs, "way          tcp")
        hosts[1].end(pairs.pid, signal.SIGINT)
        assert ended(pairs)[0] == 130


def test_the_firewall_is_closed(hosts: Sequence[Host], secret: Path) -> None:
    serving, using, *_ = hosts
    arguments = ("--pair", serving.ip, "--secret-file", secret, "--wait", "6")
    with (
        serving.barring(str(DEFAULT_PORT), rejects=False),
        started(using, *arguments) as pairs,
    ):
        status, _, err = ended(pairs)
    assert status == 5
    assert "it does not answer: nothing came within" in err


def test_the_host_that_measures_comes_first(hosts: Sequence[Host], secret: Path) -> None:
    """It waits for the other one, and says so."""
    serving, using, *_ = hosts
    arguments = ("--secret-file", secret)
    with started(using, "--pair", serving.ip, *arguments) as pairs:
        line_with(pairs, "    ucxstore doctor --listen --secret-file pair-secret")
        assert pairs.stderr is not None
        assert "trying again" in pairs.stderr.readline()
        with started(serving, "--listen", *arguments) as listens:
            line_with(pairs, "way          tcp")
            using.end(pairs.pid, signal.SIGKILL)
            assert ended(listens)[0] == 5
