"""A host whose own name is its loopback, as Debian's ``/etc/hosts`` has it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.test_slurm import SCRIPT, environment_of_job
from tests.eventually import eventually
from tests.hosts.conftest import RunOn
from tests.hosts.network import Host

AT_HOME = "127.0.0.1 localhost\n127.0.1.1 node1\n"

PROGRAM = """
echo started
until [ -e "$UCXSTORE_SHARED/done" ]; do sleep 0.1; done
"""

USE = """
store = UcxStore("ucx://node1:7400", secret=Secret.from_file({secret!r}), connect_timeout=20)
store.set_sync("key", as_buffer(b"value"))
print(store.get_sync("key").to_bytes(), *store.stats()["lanes"])
"""

TRY = """
try:
    UcxStore("ucx://node1:7400", connect_timeout=1).ping_sync()
    print("reached")
except ConnectError as error:
    print(error)
"""


def test_a_server_that_binds_to_it_is_reached_at_home_alone(
    hosts: Sequence[Host], run_on: RunOn
) -> None:
    serving, using, *_ = hosts
    with (
        serving.knowing(AT_HOME),
        using.knowing(f"{serving.ip} node1\n"),
        serving.serving(
            "memory://", bind="node1:7400", warns="bind: node1 is 127.0.1.1 on this host"
        ),
    ):
        assert run_on(serving, "ucx://127.0.0.1:1", TRY).end() == "reached\n"
        assert "Connection refused" in run_on(using, "ucx://127.0.0.1:1", TRY).end()


def test_a_job_of_slurm_is_reached_from_elsewhere(
    hosts: Sequence[Host], run_on: RunOn, tmp_path: Path
) -> None:
    serving, using, *_ = hosts
    environment = environment_of_job(tmp_path, ["node1"], 7400)
    with (
        serving.knowing(AT_HOME),
        using.knowing(f"{serving.ip} node1\n"),
        (tmp_path / "out").open("w") as out,
        subprocess.Popen(
            [*serving.inside, "bash", str(SCRIPT), "sh", "-c", PROGRAM],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as job,
    ):
        try:
            eventually(lambda: "started" in (tmp_path / "out").read_text())
            [secret] = tmp_path.glob(".ucxstore-*/secret")
            code = USE.format(secret=str(secret))
            for host in (using, serving):
                assert run_on(host, "ucx://127.0.0.1:1", code).end() == "b'value' tcp\n"
        finally:
            (tmp_path / "done").touch()
        assert job.wait(60) == 0, (tmp_path / "out").read_text()
