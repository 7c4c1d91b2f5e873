"""`ucxstore doctor --pair` and `--listen` over the loopback: real processes, servers and deaths."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ServerLostError
from ucxstore.base.foreign import Fields
from ucxstore.base.secret import Secret
from ucxstore.base.zarr_compat import cpu
from ucxstore.cli.doctor.machine import examine_machine
from ucxstore.cli.doctor.pair import listening, pairing
from ucxstore.cli.doctor.pair.listening import Listening, processor_seconds
from ucxstore.cli.doctor.pair.mailbox import Asking, OtherSideError
from ucxstore.cli.doctor.pair.measuring import Bench, take_steps
from ucxstore.cli.doctor.pair.pairing import Pair, greet, meet, part, run_trial
from ucxstore.cli.doctor.pair.sides import Side, examine_side
from ucxstore.cli.doctor.pair.trials import STEPS, Trial, TrialStep
from ucxstore.stores.store import UcxStore

SECRET = "a secret that is long enough"
TCP = Trial(name="tcp", network="tcp")
UCX = Trial(name="ucx tcp", network="ucx", tls="tcp")

# The command, with measurements that take a moment, and a short wait for a host that is gone.
COMMAND = """
import sys
from ucxstore.cli import main
from ucxstore.cli.doctor.pair import listening, pairing
pairing.MEASURE_SECONDS = 0.05
listening.GONE_SECONDS = 1.0
sys.exit(main(["doctor", *sys.argv[1:]]))
"""


def started(*arguments: str, secret: str = SECRET) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "UCXSTORE_SECRET": secret},
    )


@contextmanager
def listener(*arguments: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """Run the command that listens; yield it, and the place that the other one needs."""
    with started("--listen", "127.0.0.1:0", *arguments) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "doctor --pair" in line:
                    break
            yield process, line.split()[-1]
        finally:
            process.kill()


def ended(process: "subprocess.Popen[str]", seconds: float = 120) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def line_with(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"no line with {words!r}: {process.communicate()[1]}")


# ---- the two commands ----


def test_a_pair() -> None:
    """Each way that there is, each step; and both ends come to theirs."""
    with listener() as (listens, place), started("--pair", place, "--json") as pairs:
        status, out, err = ended(pairs)
        assert (status, err) == (0, ""), out
        assert ended(listens)[::2] == (0, "")
    found = json.loads(out)
    assert found["same_machine"] is True
    assert found["here"] == found["there"]
    assert found["here"]["ucx"]
    tcp, ucx, rdma, *_ = found["trials"]
    for trial, lanes in ((tcp, ["tcp"]), (ucx, ["tcp/lo"])):
        steps = {step["step"]: step for step in trial["steps"]}
        assert tuple(steps) == STEPS
        assert [step for step in trial["steps"] if step["state"] != "ok"] == []
        assert steps["connect"]["figures"]["lanes"] == lanes
        assert steps["values"]["figures"]["count"] >= 10
        for name in ("set", "get"):
            figures = steps[name]["figures"]
            assert 0 < figures["least_gbs"] <= figures["median_gbs"] < 1000
            assert figures["processor_s_per_gb_here"] > 0
            assert figures["processor_s_per_gb_there"] >= 0  # in ticks of 10 ms
        small = steps["small"]["figures"]
        assert 0 < small["p50_us"] <= small["p99_us"] <= small["worst_us"]
        assert steps["kill in get"]["figures"]["error"] == "ServerLostError"
        assert steps["kill in set"]["figures"]["error"] == "ChangeLostError"
        for name in ("kill in get", "kill in set"):
            assert steps[name]["figures"]["seconds"] < 20
    if not found["here"]["adapters"]:
        assert (
            rdma["why_not"] == "this host has no RDMA adapter; the other host has no RDMA adapter"
        )


def test_what_is_printed_to_report() -> None:
    """It has no secret, and what has not been given of names."""
    with listener() as (listens, place), started("--pair", place) as pairs:
        status, out, err = ended(pairs)
        assert (status, err) == (0, ""), out
        _, said, _ = ended(listens)
    assert f"\n    ucxstore doctor --listen 0.0.0.0:{place.rpartition(':')[2]}\n" in out
    text = out[out.index("---- what to report") :]
    assert "both hosts are one machine" in text
    assert text.count("9 of 9 steps ok") == 2
    assert "set, GB/s: median, least" in text
    assert SECRET not in out
    assert os.uname().nodename not in text
    assert said.splitlines()[-4:] == [
        "paired with the other host, which prints the report",
        "serving over tcp blocking",
        "serving over ucx tcp blocking",
        "done",
    ]


def test_a_wrong_secret() -> None:
    with listener() as (listens, place):
        with started("--pair", place, secret="another secret of some length") as pairs:
            status, _, err = ended(pairs)
        assert status == 4
        [line] = err.splitlines()
        assert "the secret is wrong" in line
        assert listens.poll() is None  # the right one may still come
        listens.send_signal(signal.SIGINT)
        assert ended(listens)[0] == 130


def test_nobody_listens() -> None:
    with started("--pair", "127.0.0.1:1", "--wait", "1") as pairs:
        status, out, err = ended(pairs)
    assert status == 5
    assert "\n    ucxstore doctor --listen 0.0.0.0:1\n" in out
    assert "127.0.0.1:1: it does not answer: Connection refused" in err.splitlines()[-1]


def test_nobody_comes() -> None:
    with listener("--wait", "0.5") as (listens, _):
        status, _, err = ended(listens)
    assert (status, err) == (5, "ucxstore doctor: no host has come within 0.5 s\n")


def test_a_second_command_on_the_port() -> None:
    with listener() as (_, place), started("--listen", place) as second:
        status, _, err = ended(second)
    assert status == 1
    assert f"address {place} is in use" in err


def test_the_listening_host_dies_in_the_middle() -> None:
    """The report comes all the same, with what was measured until then."""
    with listener() as (listens, place), started("--pair", place) as pairs:
        line_with(pairs, "values       ok")
        listens.kill()
        status, out, err = ended(pairs)
    assert (status, err) == (1, "")
    text = out[out.index("---- what to report") :]
    assert "tcp (network=tcp, progress=blocking):\n  connect: ok: " in text
    assert "not reached: the other host is gone" in text
    assert "ucx tcp (network=ucx, TLS=tcp, progress=blocking):\n  connect: not reached" in text


def test_the_measuring_host_dies_in_the_middle() -> None:
    """Its process that measures ends with it, and the listening host does not wait for ever."""
    with listener() as (listens, place), started("--pair", place) as pairs:
        line_with(pairs, "values       ok")
        [child] = children_of(pairs.pid)
        servers = children_of(listens.pid)
        pairs.kill()
        status, out, err = ended(listens)
    assert (status, "done" in out) == (5, False)
    assert err == "ucxstore doctor: the other host is gone before it was done\n"
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (child, *servers)))


def children_of(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


# ---- within this process ----


@contextmanager
def paired() -> Iterator[Pair]:
    """Listen in a thread of this process, and pair with that."""
    secret = Secret(SECRET)
    side = examine_side(None, examine_machine(None))
    with Listening(HostPort("127.0.0.1", 0), secret, side, print, str) as listens:
        thread = threading.Thread(target=listens.serve, args=(60.0,))
        thread.start()
        pair = meet(HostPort("127.0.0.1", listens.port), secret, timeout=20.0, wait=20.0)
        pair.seconds = 0.05
        try:
            assert greet(pair) == (side, True)
            yield pair
        finally:
            part(pair)
            thread.join(60)
            pair.store.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with paired() as pair:
        yield pair


def steps_of(pair: Pair, trial: Trial, act: Callable[[str], object]) -> Mapping[str, TrialStep]:
    """Run a trial, and do something after each step."""
    steps = run_trial(pair, trial, 1e12, lambda step: act(step.step))
    assert tuple(step.step for step in steps) == STEPS
    return {step.step: step for step in steps}


def measuring_child() -> int:
    """Return the process that measures now: servers are the other children."""
    return next(
        child
        for child in children_of(os.getpid())
        if b"pair.child" in Path(f"/proc/{child}/cmdline").read_bytes()
    )


@pytest.mark.parametrize("trial", [TCP, UCX], ids=lambda trial: trial.name)
def test_a_crash_of_the_process_that_measures_ends_one_step(pair: Pair, trial: Trial) -> None:
    def crash(step: str) -> None:
        if step == "set":
            os.kill(measuring_child(), signal.SIGSEGV)

    steps = steps_of(pair, trial, crash)
    assert steps["get"].state == "failed"
    assert "the process was ended by SIGSEGV" in steps["get"].what
    assert {step.state for name, step in steps.items() if name != "get"} == {"ok"}


def test_a_step_that_does_not_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is ended, and the next one goes on; after the second such step, none does."""
    monkeypatch.setattr(pairing, "STEP_SECONDS", -18.0)  # beside the time-out, of 20 s

    def stop(step: str) -> None:
        if step in ("values", "many"):
            os.kill(measuring_child(), signal.SIGSTOP)

    steps = steps_of(pair, TCP, stop)
    hung = {name for name, step in steps.items() if "it did not end within" in step.what}
    assert hung == {name for name, step in steps.items() if step.state == "failed"}
    assert hung == {"set", "small"}
    given_up = [step for step in steps.values() if step.state == "not reached"]
    assert [step.step for step in given_up] == ["strided", "kill in get", "kill in set"]
    assert {step.what for step in given_up} == {"too many steps did not end"}
    assert not [
        child
        for child in children_of(os.getpid())
        if b"pair.child" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_a_way_that_does_not_connect(pair: Pair) -> None:
    """The error is the step's outcome, and the others are not reached."""
    nowhere = Trial(name="nowhere", network="ucx", tls="no_such_transport")
    steps = run_trial(pair, nowhere, 1e12, lambda _: None)
    assert [step.state for step in steps] == ["failed", *["not reached"] * 8]
    assert "no_such_transport" in steps[0].what
    assert steps[1].what == "there is no connection"


def test_a_step_that_the_time_of_its_way_ends(pair: Pair) -> None:
    """It has not failed: the way may be slow."""

    def stop(step: TrialStep) -> None:
        if step.step == "set":
            os.kill(measuring_child(), signal.SIGSTOP)

    steps = run_trial(pair, TCP, time.monotonic() + 8.0, stop)
    states = [step.state for step in steps]
    assert states == ["ok"] * 3 + ["not reached"] * 6
    assert "this way had no more time, after " in steps[3].what
    assert steps[3].what.endswith(" s of this step")
    assert steps[4].what == "no time is left"


def test_no_step_begins_without_time(pair: Pair) -> None:
    steps = run_trial(pair, TCP, 0.0, lambda _: None)
    assert {(step.state, step.what) for step in steps} == {("not reached", "no time is left")}


SERVE = {"network": "tcp", "tls": "", "progress": "blocking", "seconds": 20}


class Lying(Asking):
    """Give other checksums than the other host has sent for some requests."""

    lies_about = ""

    def ask(self, what: str, **fields: object) -> Fields:
        answer = super().ask(what, **fields)
        if what != self.lies_about:
            return answer
        sums = {key: found ^ 1 for key, found in answer.integers("sums").items()}
        return Fields("an answer", {"sums": sums})


@pytest.mark.parametrize(
    ("request_kind", "message"),
    [
        ("", ""),
        ("make", "theirs/1: other bytes have come than were sent"),
        ("sum", "ours/1: the other host has other bytes than were written"),
    ],
)
def test_bytes_that_differ_are_noticed(pair: Pair, request_kind: str, message: str) -> None:
    asking = Lying(pair.store, pair.timeout)
    asking.lies_about = request_kind
    options: dict[str, Any] = {"secret": pair.secret, "timeout": 20.0, "local": "off"}
    bench = Bench(
        host="127.0.0.1", trial=TCP, asking=asking, options=options, timeout=20.0, seconds=0.05
    )
    [outcome] = take_steps(bench, ["values"])
    assert outcome.what == (message and f"IntegrityError: {message}")
    assert outcome.state == ("failed" if message else "ok")
    bench.connected.close()


@pytest.mark.parametrize(
    ("what", "fields", "message"),
    [
        ("hello", {"version": 99}, "install the same release of ucxstore"),
        ("hello", {"version": 2, "silence": "long"}, "'silence' is 'long'"),
        ("dance", {}, "'what' is 'dance'"),
        ("serve", {"network": "ucx"}, "no 'tls'"),
        ("serve", {**SERVE, "tls": "a\nb"}, "unprintable"),
        ("serve", {**SERVE, "progress": "lazy"}, "progress: 'lazy'"),
        ("serve", {**SERVE, "seconds": -1}, "start_timeout: -1 is not between"),
        ("make", {"sizes": [1 << 40]}, "'sizes' is "),
        ("make", {"sizes": [True]}, "'sizes' is "),
        ("make", {"sizes": [1] * 1000}, "'sizes' is "),
    ],
)
def test_requests_that_are_refused(
    pair: Pair, what: str, fields: Mapping[str, object], message: str
) -> None:
    if what == "make":
        pair.asking.ask("serve", **SERVE)
    with pytest.raises(OtherSideError, match=f"^the other host: .*{message}"):
        pair.asking.ask(what, **fields)
    assert greet(pair)[1]  # it goes on


def test_what_a_server_has_printed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """UCX, that is, if it is told to; nothing else."""
    monkeypatch.setenv("UCX_LOG_LEVEL", "info")
    pair.asking.ask("serve", **{**SERVE, "network": "ucx", "tls": "tcp"})
    assert " UCX  INFO " in pair.asking.ask("output").text("text")
    monkeypatch.undo()
    pair.asking.ask("serve", **SERVE)
    assert pair.asking.ask("output").text("text") == ""


def test_what_needs_a_server_says_so(pair: Pair) -> None:
    pair.asking.ask("serve", **SERVE)
    assert pair.asking.ask("processors").number("seconds") > 0
    pair.asking.ask("kill")
    eventually(lambda: refusal(pair, "processors") == refusal(pair, "kill") != "")
    assert "no server of a trial is running" in refusal(pair, "kill")


def refusal(pair: Pair, what: str) -> str:
    try:
        pair.asking.ask(what)
    except OtherSideError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("request_text", [b"", b"[]", b"{", b'{"what": "hello"}', b"x" * 3_000_000])
def test_a_request_that_is_none_is_dropped(pair: Pair, request_text: bytes) -> None:
    pair.store.set_sync("request", cpu.Buffer.from_bytes(request_text))
    assert greet(pair)[1]


def test_an_answer_that_does_not_come(pair: Pair) -> None:
    with (
        UcxStore(f"{pair.store.address}/nobody-looks-here", secret=pair.secret) as store,
        pytest.raises(OtherSideError, match=r"has not answered 'hello' within 0\.1 s"),
    ):
        Asking(store, 0.1).ask("hello")


def test_the_listening_side_notices_that_the_other_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "GONE_SECONDS", 0.5)
    secret = Secret(SECRET)
    side = examine_side(None, examine_machine(None))
    said: list[Side] = []

    def hiding(text: str) -> str:
        return text.replace("Linux", "<hidden>")

    with Listening(HostPort("127.0.0.1", 0), secret, side, print, hiding) as listens:

        def come_and_go() -> None:
            pair = meet(HostPort("127.0.0.1", listens.port), secret, timeout=20.0, wait=20.0)
            said.append(greet(pair)[0])
            pair.store.close()

        thread = threading.Thread(target=come_and_go)
        thread.start()
        with pytest.raises(ServerLostError, match="gone before it was done"):
            listens.serve(30.0)
        thread.join()
    assert said == [replace(side, kernel=side.kernel.replace("Linux", "<hidden>"))]


def test_the_seconds_of_processors() -> None:
    """As the kernel counts them: this process's own."""
    before = processor_seconds(os.getpid())
    own = os.times()
    assert before <= own.user + own.system + 0.02
    assert own.user + own.system - before < 5
    with pytest.raises(ValueError, match="has ended"):
        processor_seconds(2**22 + 1)
