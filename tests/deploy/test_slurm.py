"""The Slurm script, with stand-ins that start its steps as processes of this machine."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY
from tests.eventually import eventually

SCRIPT = DEPLOY / "slurm/ucxstore.sbatch"
# Addresses that no other process listens on: a port that was free a moment ago is so still.
_PLACE = f"127.{1 + os.getpid() % 250}.{1 + os.getpid() // 250 % 250}"
NODES = (f"{_PLACE}.1", f"{_PLACE}.2")

# As Slurm's: a task's place is in the environment, signals go to all of a step, and its exit status
# is the worst of its tasks'.
SRUN = """
    import json, os, pathlib, signal, subprocess, sys
    words = sys.argv[1:]
    options = {}
    while words[0].startswith("--"):
        name, _, value = words.pop(0).partition("=")
        options[name] = value
    known = {"--overlap", "--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task",
             "--cpu-bind", "--kill-on-bad-exit"}
    assert set(options) <= known, options
    step = "server" if "--kill-on-bad-exit" in options else "program"
    pathlib.Path(os.environ["UCXSTORE_SHARED"], step).write_text(json.dumps(options))
    nodes = os.environ["SLURM_JOB_NODELIST"].split(",")
    def node_of(node):
        # Nodes that are addresses of one machine need servers at these alone.
        bind = {"UCXSTORE_BIND": node} if node[0].isdigit() else {}
        return {"SLURMD_NODENAME": node} | bind
    assert int(options.get("--nodes", len(nodes))) == len(nodes)
    each = int(options.get("--ntasks-per-node", 2))
    tasks = [
        subprocess.Popen(
            words, env=os.environ | node_of(node) | {"SLURM_PROCID": str(rank)},
            start_new_session=True,
        )
        for rank, node in enumerate(node for node in nodes for _ in range(each))
    ]
    def forward(number, _):
        for task in tasks:
            if task.poll() is None:
                os.killpg(task.pid, number)
    signal.signal(signal.SIGTERM, forward)
    sys.exit(max(abs(task.wait()) for task in tasks))
"""
SCONTROL = """
    import sys
    assert sys.argv[1:3] == ["show", "hostnames"], sys.argv
    print("\\n".join(sys.argv[3].split(",")))
"""
PROGRAM = """
    import os, sys
    from zarr.core.buffer import default_buffer_prototype
    from ucxstore import Secret, UcxStore
    buffer = default_buffer_prototype().buffer
    rank = os.environ["SLURM_PROCID"]
    with UcxStore(os.environ["UCXSTORE_ADDRESS"], secret=Secret.find()) as store:
        for number in range(16):
            store.set_sync(f"{rank}/{number}", buffer.from_bytes(b"x"))
    sys.stdout.write(f"written by {rank}\\n")  # at once: other tasks write there, too
    sys.stdout.flush()
    sys.exit(int(os.environ.get("RESULT", 0)))
"""


@pytest.fixture
def environment(tmp_path: Path, unused_tcp_port: int) -> dict[str, str]:
    return environment_of_job(tmp_path, NODES, unused_tcp_port)


def environment_of_job(folder: Path, nodes: Sequence[str], port: int) -> dict[str, str]:
    """Return the environment of a job's script, with the stand-ins first on PATH."""
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("program", PROGRAM)):
        (stand_ins / name).write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
        (stand_ins / name).chmod(0o755)
    command = stand_ins / "ucxstore"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ucxstore "$@"\n')
    command.chmod(0o755)
    return os.environ | {
        "PATH": f"{stand_ins}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "UCXSTORE_SHARED": str(folder),
        "UCXSTORE_PORT": str(port),
    }


def job(
    environment: dict[str, str], *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script as a job's."""
    return subprocess.run(
        ["bash", SCRIPT, *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def left_over(environment: dict[str, str]) -> list[Path]:
    return list(Path(environment["UCXSTORE_SHARED"]).glob(".ucxstore-*"))


def test_the_program_has_a_server_on_each_node(environment: dict[str, str]) -> None:
    done = job(environment, "program")
    assert done.returncode == 0, done.stderr
    port = environment["UCXSTORE_PORT"]
    lines = done.stdout.splitlines()
    assert f"servers: ucx://{NODES[0]}:{port},{NODES[1]}:{port}" in lines
    assert sorted(line for line in lines if line.startswith("written")) == [
        f"written by {rank}" for rank in range(4)
    ]
    assert left_over(environment) == []


def test_the_jobs_result_is_the_programs(environment: dict[str, str]) -> None:
    done = job(environment, "program", RESULT="3")
    assert done.returncode == 3, done.stderr
    assert left_over(environment) == []


@pytest.mark.parametrize("processors", [None, "8"])
def test_the_program_has_the_jobs_processors_and_umask(
    processors: str | None, environment: dict[str, str], tmp_path: Path
) -> None:
    if processors is not None:
        environment["SLURM_CPUS_PER_TASK"] = processors
    done = subprocess.run(
        ["bash", SCRIPT, "sh", "-c", "umask"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        umask=0o027,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == ["0027"] * 4
    step = json.loads((tmp_path / "program").read_text())
    assert step.get("--cpus-per-task") == processors


def test_all_threads_of_a_server_may_run(environment: dict[str, str], tmp_path: Path) -> None:
    """A step with processors of its own has no others."""
    assert job(environment, "true", UCXSTORE_OPTIONS="--threads 2").returncode == 0
    step = json.loads((tmp_path / "server").read_text())
    assert "--cpus-per-task" not in step
    assert step["--cpu-bind"] == "none"


def test_a_server_that_does_not_start_ends_the_job(environment: dict[str, str]) -> None:
    done = job(environment, "program", UCXSTORE_OPTIONS="--threads none")
    assert done.returncode == 1
    assert "--threads" in done.stderr
    assert f"the server of {NODES[0]} has not started" in done.stderr
    assert "written" not in done.stdout
    assert left_over(environment) == []


def test_a_job_that_is_ended_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin/program").write_text("#!/bin/sh\necho started\nexec sleep 600\n")
    with (tmp_path / "out").open("w") as out:
        script = subprocess.Popen(["bash", SCRIPT, "program"], env=environment, stdout=out)
        try:
            eventually(lambda: "started" in (tmp_path / "out").read_text())
            [shared] = left_over(environment)
            assert shared.stat().st_mode & 0o777 == 0o700
            assert (shared / "secret").stat().st_mode & 0o777 == 0o600
        finally:
            script.terminate()
        assert script.wait(60) == 143
    assert left_over(environment) == []


def test_a_job_without_a_program_says_so(environment: dict[str, str]) -> None:
    done = job(environment)
    assert (done.returncode, done.stderr) == (
        2,
        "usage: sbatch ucxstore.sbatch PROGRAM [ARGUMENT...]\n",
    )


def test_the_script_has_no_faults() -> None:
    linter = Path(sys.executable).with_name("shellcheck")
    found = subprocess.run([linter, SCRIPT], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")
