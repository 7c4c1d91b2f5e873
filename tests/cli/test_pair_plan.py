"""What `ucxstore doctor --pair` plans, reads of a host, and prints: all without a network."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.cli.command import run
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ProtocolError
from ucxstore.base.foreign import Fields
from ucxstore.base.ucx_library import UcxLibrary
from ucxstore.cli.doctor.machine import Machine
from ucxstore.cli.doctor.pair import reporting
from ucxstore.cli.doctor.pair.commands import place_for_others
from ucxstore.cli.doctor.pair.reporting import PairReport, hide, hide_in, report_json, report_lines
from ucxstore.cli.doctor.pair.sides import Side, examine_side
from ucxstore.cli.doctor.pair.trials import (
    STEPS,
    Trial,
    TrialStep,
    not_reached,
    plan_trials,
    sizes_for,
)

SIDE = Side(
    versions={"ucxstore": "0.1.0"},
    kernel="Linux 6.1.0 x86_64",
    processors=8,
    ucx="1.21.0 (system: /usr/lib/libucp.so.0)",
    transports={"tcp": ["eth0"]},
    locked_memory=-1,
    container=False,
    environment={},
    devices=["eth0, 25000 Mb/s, mlx5_core, MTU 9000"],
    adapters=0,
)
RDMA = replace(
    SIDE,
    transports={
        "rc_verbs": ["mlx5_0:1"],
        "rc_mlx5": ["mlx5_0:1"],
        "dc_mlx5": ["mlx5_0:1"],
        "ud_mlx5": ["mlx5_0:1"],
        "tcp": ["eth0"],
    },
    adapters=1,
)
MACHINE = Machine(transports=None, locked_memory=8 << 20, open_files=1024, container=False)


def tried(here: Side, there: Side) -> dict[str, str]:
    return {trial.name: trial.why_not for trial in plan_trials(here, there)}


# ---- the plan ----


def test_without_rdma_two_ways_are_tried() -> None:
    assert tried(SIDE, RDMA) == {
        "tcp": "",
        "ucx tcp": "",
        "ucx rdma": "this host has no RDMA adapter",
    }


def test_an_adapter_that_this_ucx_does_not_use_is_told() -> None:
    wheel = replace(SIDE, adapters=1)
    assert tried(wheel, SIDE)["ucx rdma"] == (
        "this host has an RDMA adapter, but UCX does not use it; the other host has no RDMA adapter"
    )


def test_with_rdma_all_that_both_have_is_tried_together_and_alone() -> None:
    """Also what UCX chooses by itself, and with threads that poll."""
    trials = plan_trials(RDMA, RDMA)
    assert [(trial.network, trial.tls) for trial in trials] == [
        ("tcp", ""),
        ("ucx", "tcp"),
        ("ucx", "dc,rc,ud"),
        ("ucx", "dc,rc,ud"),
        ("ucx", ""),
        ("ucx", "dc"),
        ("ucx", "rc"),
        ("ucx", "ud"),
    ]
    assert [trial.progress for trial in trials[2:5]] == ["blocking", "polling", "blocking"]
    verbs = replace(RDMA, transports={"rc_verbs": ["hfi1_0:1"], "tcp": ["eth0"]})
    assert list(tried(RDMA, verbs)) == ["tcp", "ucx tcp", "ucx rc", "ucx rc, polling", "ucx"]
    efa = replace(RDMA, transports={"srd": ["efa_0:1"]})
    assert tried(RDMA, efa)["ucx rdma"] == "the hosts have no transport over RDMA in common"


def test_an_adapter_is_tried_where_ucx_info_is_missing() -> None:
    unknown = replace(SIDE, transports=None, adapters=1)
    assert "ucx rc,ud" in tried(unknown, RDMA)
    assert tried(replace(unknown, adapters=0), RDMA)["ucx rdma"] == "this host has no RDMA adapter"


def test_without_ucx_plain_tcp_is_tried() -> None:
    assert tried(RDMA, replace(RDMA, ucx="")) == {
        "tcp": "",
        "ucx tcp": "the other host has no UCX",
        "ucx rdma": "the other host has no UCX",
    }


@pytest.mark.parametrize(
    ("rate", "large", "count"),
    [
        (1e3, 64 << 10, 8),
        (1e6, 1_000_000, 15),
        (118e6, 100_000_000, 1000),
        (2e10, 100_000_000, 1000),
    ],
)
def test_sizes_follow_the_speed(rate: float, large: int, count: int) -> None:
    sizes = sizes_for(rate, 1.0)
    assert (sizes.large, sizes.count) == (large, count)
    assert 0 < sizes.strided <= 16 << 20
    assert sizes.strided % 4096 == 0


# ---- the facts about a host ----


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


def test_devices_and_their_speeds(tmp_path: Path) -> None:
    """As the kernel shows them; what it does not tell is left out."""
    put(
        tmp_path,
        {
            "class/net/lo/operstate": "unknown",
            "class/net/eth0/operstate": "up",
            "class/net/eth0/speed": "25000",
            "class/net/eth0/mtu": "9000",
            "class/net/eth1/operstate": "down",
            "class/net/ib0/operstate": "up",
            "class/net/ib0/speed": "-1",
            "class/infiniband/mlx5_0/hca_type": "MT4129",
            "class/infiniband/mlx5_0/fw_ver": "28.39.1002",
            "class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
            "class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
            "class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
            "class/infiniband/rxe0/ports/1/state": "4: ACTIVE",
            "class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "eth0",
        },
    )
    (tmp_path / "drivers/mlx5_core").mkdir(parents=True)
    (tmp_path / "class/net/eth0/device").mkdir()
    (tmp_path / "class/net/eth0/device/driver").symlink_to(tmp_path / "drivers/mlx5_core")
    side = examine_side(None, MACHINE, tmp_path)
    assert side.devices == [
        "mlx5_0:1, 400 Gb/sec (4X NDR), InfiniBand, ACTIVE, MT4129, firmware 28.39.1002",
        "rxe0:1, rate unknown, ACTIVE, eth0",
        "eth0, 25000 Mb/s, mlx5_core, MTU 9000",
        "ib0, speed unknown",
    ]
    assert side.adapters == 2
    assert examine_side(None, MACHINE, tmp_path / "none").devices == []


def test_a_side_has_versions_limits_and_what_ucx_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no secret."""
    monkeypatch.setenv("UCXSTORE_SECRET", "nobody may read this")
    monkeypatch.setenv("UCXSTORE_UCX", "system")
    library = UcxLibrary("system", "1.21.0", Path("/opt/libucp.so.0"))
    machine = replace(
        MACHINE,
        transports={"tcp": ["eth0"], "posix": ["memory"], "self": ["memory"]},
        environment={"UCX_NET_DEVICES": "mlx5_0:1"},
    )
    side = examine_side(library, machine, tmp_path)
    assert side.ucx == "1.21.0 (system: /opt/libucp.so.0)"
    assert side.transports == {"tcp": ["eth0"]}
    assert side.environment == {"UCX_NET_DEVICES": "mlx5_0:1", "UCXSTORE_UCX": "system"}
    assert {"ucxstore", "Python", "zarr", "numpy"} <= set(side.versions)
    assert "nobody may read this" not in json.dumps(asdict(side))


@pytest.mark.parametrize("side", [SIDE, RDMA, replace(SIDE, transports=None, locked_memory=65536)])
def test_a_side_is_read_as_it_was_sent(side: Side) -> None:
    sent = Fields.read(json.dumps(asdict(side)).encode(), "a side", 1 << 20)
    assert Side.read(sent) == side


@pytest.mark.parametrize(
    "change",
    [
        {"processors": "many"},
        {"devices": [1]},
        {"environment": 1},
        {"transports": ["tcp"]},
        {"locked_memory": -2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_fact_of_the_other_host_is_refused(change: dict[str, object]) -> None:
    sent = Fields("a side", {**asdict(SIDE), **change})
    with pytest.raises(ProtocolError, match=next(iter(change))):
        Side.read(sent)


# ---- the report ----


MOVED: dict[str, object] = {
    "nbytes": 100_000_000,
    "repeats": 30,
    "median_gbs": 10.123,
    "least_gbs": 9.5,
    "processor_s_per_gb_here": 0.011,
    "processor_s_per_gb_there": 0.022,
}
FIGURES: dict[str, dict[str, object]] = {
    "connect": {
        "seconds": 0.1,
        "round_trip_us": 5.2,
        "lanes": ["rc_mlx5/mlx5_0:1"],
        "integrity": False,
    },
    "values": {"count": 14, "largest": 1 << 20},
    "set": MOVED,
    "get": {**MOVED, "median_gbs": 11.0},
    "many": {"count": 1000, "set_gbs": 1.5, "get_gbs": 2.5},
    "small": {"count": 2000, "p50_us": 6.4, "p99_us": 9.6, "worst_us": 19.2},
    "strided": {"nbytes": 16 << 20, "gbs_4096": 8.0, "gbs_256": 3.0},
    "kill in get": {"seconds": 0.013, "error": "ServerLostError"},
    "kill in set": {"seconds": 0.014, "error": "ChangeLostError"},
}
WELL = [TrialStep(step=name, state="ok", figures=FIGURES[name]) for name in STEPS]
RC = Trial(name="ucx rc", network="ucx", tls="rc")


def text_of(*trials: tuple[Trial, list[TrialStep]], same_machine: bool = False) -> str:
    report = PairReport(
        here=RDMA, there=SIDE, same_machine=same_machine, trials=trials, seconds=93.4
    )
    found = report_json(report)
    assert json.loads(json.dumps(found)) == found
    return "\n".join(report_lines(report))


def test_the_report_of_a_way_that_is_well() -> None:
    text = text_of((RC, WELL))
    assert text.startswith(reporting.BEGIN)
    assert text.endswith(reporting.END)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in (
        "ucxstore doctor --pair, 93 s",
        "this host:",
        "Linux 6.1.0 x86_64, 8 processors",
        "UCX 1.21.0 (system: /usr/lib/libucp.so.0)",
        "device eth0, 25000 Mb/s, mlx5_core, MTU 9000",
        "set, GB/s: median, least 10.1, 9.5",
        "get, CPU s/GB: here, there 0.01, 0.02",
        "get of 4 KiB, us: p50, p99, worst 6, 10, 19",
        "killed in a get: error after s 0.01",
        "ucx rc (network=ucx, TLS=rc, progress=blocking):",
        "connect: ok: lanes rc_mlx5/mlx5_0:1; 0.10 s, then 5 us a round trip",
        "9 of 9 steps ok",
    ):
        assert line in lines
    assert "one machine" not in text
    assert "both hosts are one machine" in text_of((RC, WELL), same_machine=True)


def test_the_report_of_a_way_that_fails() -> None:
    """It has the reason, of a long one the ends, and nothing a terminal would obey."""
    why = f"IntegrityError: \x1b[31m{'x' * 2000}the end"
    steps = [
        *WELL[:3],
        TrialStep(step="get", state="failed", what=why),
        *not_reached(STEPS[4:], "no time is left"),
    ]
    left_out = [TrialStep(step="connect", state="left out", what="this host has no RDMA adapter")]
    rdma = Trial(name="ucx rdma", network="ucx", why_not="this host has no RDMA adapter")
    text = text_of((RC, steps), (rdma, left_out))
    [line] = [one for one in text.splitlines() if one.startswith("  get: failed")]
    assert "\\x1b[31mxxx" in line
    assert line.endswith("the end")
    assert len(line) < 700
    assert text.count("not reached: no time is left") == 1
    assert "\n  3 of 9 steps ok\n" in text
    assert "\n  connect: left out: this host has no RDMA adapter\n" in text


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("[node7.hpc.example.org:12] UCX ERROR", "[<host>:12] UCX ERROR"),
        ("node7: no, node77: yes, my-node7: yes", "<host>: no, node77: yes, my-node7: yes"),
        ("gateway is given", "gateway is given"),
        ("/home/jane/lib/libucp.so.0", "~/lib/libucp.so.0"),
        ("at localhost", "at localhost"),
    ],
)
def test_names_of_hosts_are_hidden_unless_they_were_given(text: str, hidden: str) -> None:
    names = {"node7.hpc.example.org", "node7", "gateway", "localhost", ""}
    found = hide_in(
        {"a": [text], "b": 1},
        lambda one: hide(one, names=names, given={"gateway"}, home="/home/jane"),
    )
    assert found == {"a": [hidden], "b": 1}


# ---- the command ----


@pytest.mark.parametrize(
    ("bound", "name", "place"),
    [
        ("10.0.0.1:7450", "node7", "10.0.0.1:7450"),
        ("0.0.0.0:7450", "node7", "node7:7450"),
        ("[::]:7451", "node7.example.org", "node7.example.org:7451"),
        ("0.0.0.0:7450", "(none)", "THIS-HOST:7450"),
        ("0.0.0.0:7450", "", "THIS-HOST:7450"),
    ],
)
def test_where_another_host_reaches_this_one(bound: str, name: str, place: str) -> None:
    assert place_for_others(HostPort.parse(bound), name) == place


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pair", "h"], "both hosts need the same secret"),
        (["--listen"], "'ucxstore secret --output pair-secret' makes one"),
        (["--pair", "h", "--listen"], "--pair does not go with --listen"),
        (["--pair", "h", "ucx://h:1"], "--pair does not go with ADDRESS"),
        (["--listen", "h:1", "--write"], "--listen does not go with --write"),
        (["--pair", "h", "--ucx", "TLS=rc"], "set UCX_... in the environment of each host"),
        (["--pair", "a b"], "--pair: 'a b' is not a host name"),
        (["--pair", "h:nan"], "--pair: 'h:nan' has a port that is not a number"),
        (["--pair", "::1"], "--pair: '::1' needs brackets"),
    ],
)
def test_a_mistake_in_the_command_is_named(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UCXSTORE_SECRET", raising=False)
    done = run("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore doctor: ")
    assert message in line
