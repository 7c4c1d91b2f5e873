from dataclasses import replace
from pathlib import Path

import pytest

from ucxstore.base.address import HostPort
from ucxstore.base.errors import ConnectError, StorageError
from ucxstore.base.options import Local
from ucxstore.base.ucx_library import UcxLibrary
from ucxstore.cli.doctor.advice import (
    Finding,
    advise_on_failure,
    advise_on_machine,
    advise_on_way,
)
from ucxstore.cli.doctor.machine import Machine, parse_transports
from ucxstore.cli.doctor.measure import Way
from ucxstore.cli.doctor.ports import Ports
from ucxstore.cli.doctor.steps import STEPS

LIBRARY = UcxLibrary("system", "1.21.0", Path("/usr/lib/libucp.so.0"))
MACHINE = Machine(
    transports={"self": ["memory"], "tcp": ["lo"], "sysv": ["memory"]},
    locked_memory=8 << 20,
    open_files=4096,
    container=False,
)
SHARED = Way(lanes=["posix/memory"], same_host=True, round_trip=1e-5)
TCP = Way(lanes=["tcp/lo"], same_host=True, round_trip=1e-5)
RDMA = {"rc_mlx5": ["mlx5_0:1"], "tcp": ["eth0"]}


def advise(library: UcxLibrary, machine: Machine, way: Way, local: Local) -> list[Finding]:
    ports = Ports(control="h:7400", data=[])
    return [*advise_on_machine(library, machine), *advise_on_way(ports, way, local)]


def test_nothing_to_say() -> None:
    expected = [Finding("ok", "UCX's shared memory is used: posix/memory")]
    assert advise(LIBRARY, MACHINE, SHARED, "auto") == expected


def test_memory_that_is_not_seen() -> None:
    [finding] = advise(LIBRARY, MACHINE, TCP, "auto")
    assert finding.level == "problem"
    assert "its memory is not seen: tcp/lo" in finding.what
    assert "--no-local" in finding.change


@pytest.mark.parametrize(("local", "way"), [("ucx", "UCX"), ("off", "the network")])
def test_memory_that_nobody_wants_to_see(local: Local, way: str) -> None:
    [finding] = advise(LIBRARY, MACHINE, TCP, local)
    assert finding.level == "note"
    assert f"UCXSTORE_LOCAL={local} asks for {way}: tcp/lo" in finding.what


def test_another_machine() -> None:
    [finding] = advise(LIBRARY, MACHINE, replace(TCP, same_host=False), "auto")
    assert finding.level == "ok"
    assert "not one of this machine" in finding.what


def test_the_plane_of_one_host() -> None:
    [finding] = advise(LIBRARY, MACHINE, replace(TCP, lanes=["local"]), "auto")
    assert finding.level == "ok"


def test_rdma() -> None:
    machine = replace(MACHINE, transports=RDMA, locked_memory=-1)
    way = Way(lanes=["rc_mlx5/mlx5_0:1"], same_host=False, round_trip=1e-6)
    assert [one.what for one in advise(LIBRARY, machine, way, "auto")] == [
        "the server is reached by RDMA: rc_mlx5/mlx5_0:1"
    ]
    problem, _ = advise(LIBRARY, replace(machine, locked_memory=65536), way, "auto")
    assert (problem.level, problem.change) == ("problem", "ulimit -l unlimited")


@pytest.mark.parametrize(
    ("library", "machine", "level", "what"),
    [
        (replace(LIBRARY, version="1.22.0"), MACHINE, "problem", "1.22.0"),
        (replace(LIBRARY, origin="wheel"), MACHINE, "note", "wheel"),
        (LIBRARY, replace(MACHINE, transports=None), "note", "ucx_info"),
        (LIBRARY, replace(MACHINE, open_files=256), "note", "256 files"),
    ],
)
def test_what_else_there_is_to_say(
    library: UcxLibrary, machine: Machine, level: str, what: str
) -> None:
    finding, _ = advise(library, machine, SHARED, "auto")
    assert finding.level == level
    assert what in finding.what
    assert "docs/" not in finding.change  # an installed package has no pages


@pytest.mark.parametrize("error", [ConnectError("x"), StorageError("x"), OSError("x")], ids=repr)
@pytest.mark.parametrize("step", [name for name, _ in STEPS])
def test_there_is_advice_on_each_failure(step: str, error: Exception) -> None:
    advice = advise_on_failure(step, error, HostPort("h", 7400))
    assert advice
    assert "docs/" not in advice


def test_advice_on_ports() -> None:
    ports = Ports(control="h:7400", data=["10.0.0.1:7500"])
    far = Way(lanes=["tcp/eth0"], same_host=False, round_trip=1e-4)
    _, finding = advise_on_way(ports, far, "auto")
    assert "at h:7400 and at UCX's ports" in finding.what
    assert "--data-ports" in finding.change
    assert "docs/" not in finding.change  # an installed package has no pages
    assert len(advise_on_way(ports, replace(far, same_host=True), "auto")) == 1
    assert len(advise_on_way(replace(ports, data=[]), far, "auto")) == 1


def test_no_limits_are_no_problem() -> None:
    machine = replace(MACHINE, open_files=-1, locked_memory=-1)
    assert len(advise(LIBRARY, machine, SHARED, "auto")) == 1


def test_transports() -> None:
    text = """\
# Memory domain: tcp
#      Transport: tcp
#         Device: eth0
#           Type: network
#      Transport: tcp
#         Device: lo
#      Transport: sysv
#         Device: memory
#      Transport: tcp
#         Device: lo
"""
    assert parse_transports(text) == {"tcp": ["eth0", "lo"], "sysv": ["memory"]}
    assert parse_transports("") == {}
