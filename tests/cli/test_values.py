"""``ucxstore cat``, ``rm``, ``ls`` and ``du`` of an empty server, and their options."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from zarr.core.buffer import cpu

from tests.cli.command import COMMAND, run, run_process
from ucxstore import UcxStore
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET, Secret
from ucxstore.cli import main
from ucxstore.cli.common import command as shared
from ucxstore.server import Server

VALUES = {"a": b"\0\xffbytes\n", "b/c": b"0123456789", "b/d": b"x" * 1500}


@pytest.fixture
def filled(ucx_store: UcxStore, address: str) -> str:
    for key, value in VALUES.items():
        ucx_store.set_sync(key, cpu.Buffer.from_bytes(value))
    return address


def keys(address: str) -> list[str]:
    return run("ls", "-R", address).stdout.splitlines()


# ---- an empty server ----


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    with Server("memory://") as server:
        yield server.address


@pytest.mark.parametrize("options", [[], ["-l"], ["-h"], ["-R"], ["--json"]])
def test_ls_of_an_empty_server(options: list[str], empty: str) -> None:
    done = run("ls", *options, empty)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_du_of_an_empty_server(empty: str) -> None:
    for address in (empty, f"{empty}/"):
        done = run("du", address)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"0\t0\t{empty}\n", "")
    assert json.loads(run("du", "--json", empty).stdout) == {
        "address": empty,
        "bytes": 0,
        "values": 0,
    }


# ---- names that the output's encoding lacks ----


def test_names_that_cannot_be_encoded(filled: str, ucx_store: UcxStore) -> None:
    ucx_store.set_sync("\u65e5\u672c", cpu.Buffer.from_bytes(b"\xe6value"))
    env = {"PYTHONIOENCODING": "latin-1"}
    done = run_process("ls", filled, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["a", "b/", "\\u65e5\\u672c"]
    done = run_process("rm", "--dry-run", f"{filled}/\u65e5\u672c", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{filled}/\\u65e5\\u672c: 1 value, 6 B\n"
    assert cat(f"{filled}/\u65e5\u672c", env=env) == b"\xe6value"


# ---- sizes for people and for programs ----


@pytest.mark.parametrize("flag", ["-h", "--human"])
def test_sizes_for_people(flag: str, filled: str) -> None:
    assert run("du", flag, f"{filled}/b").stdout == f"1.5 kB\t2\t{filled}/b\n"
    lines = run("ls", flag, f"{filled}/b").stdout.splitlines()
    assert [line.split("  ")[-2:] for line in lines] == [["10 B", "c"], ["1.5 kB", "d"]]
    assert [line.strip() for line in run("ls", flag, filled).stdout.splitlines()][1] == "b/"


def test_sizes_for_programs(filled: str) -> None:
    def found(*options: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in run("ls", *options).stdout.splitlines()]

    folder = {"name": "b/", "size": None}
    assert found("--json", filled) == [{"name": "a", "size": 8}, folder]
    assert found("--json", "-R", f"{filled}/b") == [
        {"name": "c", "size": 10},
        {"name": "d", "size": 1500},
    ]
    assert found("--json", f"{filled}/b/c") == [{"name": "c", "size": 10}]
    done = json.loads(run("du", "--json", filled).stdout)
    assert done == {"address": filled, "bytes": 1518, "values": 3}


def cp(*arguments: str) -> str:
    """Run `ucxstore cp`, which ends its process."""
    done = subprocess.run(
        [*COMMAND, "cp", *arguments], capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout


def test_the_summary_of_a_copy(filled: str) -> None:
    assert cp("-h", f"{filled}/b", f"{filled}/e").startswith("copied 2 values, 1.5 kB in ")
    assert cp("--no-human", f"{filled}/b", f"{filled}/f").startswith(
        "copied 2 values, 1510 bytes in "
    )
    found = json.loads(cp("--json", "--all", f"{filled}/b", f"{filled}/f"))
    assert found.pop("seconds") > 0
    assert found == {"values": 2, "bytes": 1510, "present": 0}


# ---- cat ----


def cat(*arguments: str, env: Mapping[str, str] | None = None) -> bytes:
    done = subprocess.run(
        [*COMMAND, "cat", *arguments],
        capture_output=True,
        timeout=240,
        check=True,
        env={**os.environ, **(env or {})},
    )
    assert done.stderr == b""
    return done.stdout


def test_cat_prints_values_byte_for_byte(filled: str) -> None:
    assert cat(f"{filled}/a", f"{filled}/b/c") == VALUES["a"] + VALUES["b/c"]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("2:5", b"234"),
        (":3", b"012"),
        ("7:", b"789"),
        ("-2:", b"89"),
        ("8:100", b"89"),
        (":", b"0123456789"),
        ("3:3", b""),
    ],
)
def test_parts_of_a_value(
    part: str, expected: bytes, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    assert main(["cat", f"--range={part}", f"{filled}/b/c"]) == 0
    assert out.getvalue() == expected


@pytest.mark.parametrize("part", ["", "1", "a:b", "5:2", "1-2", "-5:-2"])
def test_what_is_no_part(part: str, filled: str) -> None:
    done = run("cat", f"--range={part}", f"{filled}/a")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ucxstore cat: --range: ")


def test_a_server_is_no_key(filled: str) -> None:
    server = filled.rpartition("/")[0]
    for command in ("cat", "rm"):
        done = run(command, server)
        assert done.returncode == 2
        assert done.stderr == f"ucxstore {command}: {server}: it names a server, not a key\n"


# ---- rm ----


def test_rm_deletes_one_key(filled: str) -> None:
    done = run("rm", f"{filled}/b/c")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert keys(filled) == ["a", "b/d"]


def test_rm_deletes_several(filled: str) -> None:
    assert run("rm", f"{filled}/a", f"{filled}/b/d").returncode == 0
    assert keys(filled) == ["b/c"]


def test_rm_refuses_a_prefix(filled: str) -> None:
    done = run("rm", f"{filled}/b/")
    assert done.returncode == 1
    assert done.stderr == (
        f"ucxstore rm: {filled}/b/: it is a prefix with 2 values: -r deletes them\n"
    )
    assert keys(filled) == sorted(VALUES)


def test_rm_deletes_a_prefix_and_nothing_beside_it(filled: str, ucx_store: UcxStore) -> None:
    ucx_store.set_sync("bb", cpu.Buffer.from_bytes(b"x"))
    ucx_store.set_sync("b", cpu.Buffer.from_bytes(b"x"))
    assert run("rm", "-r", f"{filled}/b").returncode == 0
    assert keys(filled) == ["a", "bb"]


def test_a_dry_run_deletes_nothing(filled: str) -> None:
    done = run("rm", "-r", "--dry-run", f"{filled}/b", f"{filled}/a")
    assert done.stdout == f"{filled}/b: 2 values, 1.5 kB\n{filled}/a: 1 value, 8 B\n"
    assert keys(filled) == sorted(VALUES)


def test_force_takes_a_missing_key(filled: str) -> None:
    assert run("rm", f"{filled}/nothing").returncode == 3
    assert run("rm", "-f", f"{filled}/nothing").returncode == 0
    assert run("rm", "-rf", f"{filled}/nothing").returncode == 0
    assert keys(filled) == sorted(VALUES)


def test_a_grant_of_a_prefix_opens_it_without_a_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the key that has the prefix's name."""
    secret = Secret("correct horse battery staple", pickle_text=True)
    with Server("memory://", secret=secret) as server:
        whole = UcxStore(server.address, secret=secret)
        for key in ("p", "p/a", "p/b", "q/a"):
            whole.set_sync(key, cpu.Buffer.from_bytes(b"x"))
        monkeypatch.setenv(ENVIRONMENT_SECRET, secret.grant("p/").reveal().decode())
        granted = f"{server.address}/p"
        done = run("rm", granted)
        assert (done.returncode, "outside of the grant" in done.stderr) == (4, True)
        assert run("rm", "-r", f"{server.address}/q").returncode == 4
        done = run("rm", "-r", "--dry-run", granted)
        assert (done.stdout, done.stderr) == (f"{granted}: 2 values, 2 B\n", "")
        done = run("rm", "-r", granted)
        assert (done.returncode, done.stderr) == (0, "")
        for command in (["ls"], ["du"], ["rm", "-r"]):
            done = run(*command, granted)
            assert (done.returncode, done.stdout) == (3, "")
            assert f"{granted}: no values found" in done.stderr
        assert run("rm", "-rf", granted).returncode == 0
        monkeypatch.delenv(ENVIRONMENT_SECRET)
        assert sorted(key for key in ("p", "p/a", "p/b", "q/a") if whole.get_sync(key)) == [
            "p",
            "q/a",
        ]


@pytest.mark.parametrize("command", [["rm"], ["rm", "-r"], ["cat"]], ids=" ".join)
@pytest.mark.parametrize("wrong", ["SERVER", "data/", "ucx://h:0/k"])
def test_nothing_is_done_if_an_address_is_wrong(
    command: list[str], wrong: str, filled: str
) -> None:
    server = filled.rpartition("/")[0]
    done = run(*command, f"{filled}/a", server if wrong == "SERVER" else wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert keys(filled) == sorted(VALUES)


def test_all_of_a_server_is_deleted_by_force_alone() -> None:
    with Server("memory://") as server:
        UcxStore(server.address).set_sync("a/b", cpu.Buffer.from_bytes(b"x"))
        done = run("rm", "-r", server.address)
        assert done.returncode == 2
        assert "-rf is needed to delete all values of a server" in done.stderr
        assert run("rm", "-r", "--dry-run", server.address).stdout.endswith(": 1 value, 1 B\n")
        assert keys(server.address) == ["a/b"]
        assert run("rm", "-rf", server.address).returncode == 0
        assert keys(server.address) == []


# ---- ping ----


def test_ping(address: str) -> None:
    done = run("ping", "-c", "3", "-i", "0", address)
    assert (done.returncode, done.stderr) == (0, "")
    first, *trips, last = done.stdout.splitlines()
    assert first.startswith(f"{address}: connected in ")
    assert [line.split(":")[0] for line in trips] == [f"round trip {n}" for n in (1, 2, 3)]
    assert last.startswith("3 round trips: min ")


def test_ping_as_json(three_servers: list[Server]) -> None:
    hosts = ",".join(server.address.removeprefix("ucx://") for server in three_servers)
    found = json.loads(run("ping", "--json", "-c", "4", "-i", "0", f"ucx://{hosts}").stdout)
    assert found["address"] == f"ucx://{hosts}"
    assert found["lanes"]
    assert len(found["round_trips"]) == 4
    assert 0 < found["min"] <= found["median"] <= found["max"] < 60
    assert found["connect"] > 0


@pytest.mark.parametrize("options", [["-c", "0"], ["-i", "-1"], ["-i", "nan"]])
def test_what_is_no_ping(options: list[str], address: str) -> None:
    done = run("ping", *options, address)
    assert (done.returncode, done.stdout) == (2, "")


# ---- secret ----


def test_a_secret_is_printed() -> None:
    one, other = run("secret").stdout, run("secret").stdout
    assert one != other
    assert len(one.strip()) >= 43


def test_a_secret_is_written_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "a secret"
    done = run("secret", "--output", file)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"give it to servers and clients: --secret-file '{file}'\n"
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_text()
    assert before.strip() not in done.stderr
    done = run("secret", "-o", file)
    assert (done.returncode, file.read_text()) == (1, before)
    assert done.stderr == f"ucxstore secret: --output: File exists: {file}\n"
    with Server("memory://", secret=before) as server:
        assert run("ls", server.address, "--secret-file", file).returncode == 0


def test_a_secret_file_that_cannot_be_opened_is_named(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["ls", address], ["cp", address, tmp_path], ["grant", "x/"], ["info", address]):
        with monkeypatch.context() as patch:
            patch.setattr("ucxstore.cli.cp.leave", sys.exit)
            done = run(*command, "--secret-file", "/nope")
            assert (done.returncode, done.stderr) == (
                2,
                f"ucxstore {command[0]}: --secret-file: No such file or directory: /nope\n",
            )
    monkeypatch.delenv(ENVIRONMENT_SECRET, raising=False)
    monkeypatch.setenv(ENVIRONMENT_FILE, str(tmp_path))
    done = run("ls", address)
    assert (done.returncode, done.stderr) == (
        2,
        f"ucxstore ls: UCXSTORE_SECRET_FILE: Is a directory: {tmp_path}\n",
    )


def test_a_short_secret_is_taken_with_a_warning(tmp_path: Path) -> None:
    shared.warn.cache_clear()  # once a process
    file = tmp_path / "secret"
    file.write_text("fifteen letters")
    file.chmod(0o600)
    with Server("memory://", secret="fifteen letters") as server:
        done = run("ls", server.address, "--secret-file", file)
        removed = run("rm", f"{server.address}/a", f"{server.address}/b", "--secret-file", file)
    assert done.returncode == 0
    assert "warning" not in removed.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore: warning: the secret has fewer than 16 bytes")
    assert "fifteen letters" not in line


def test_a_secret_file_that_others_can_read_is_refused(tmp_path: Path, address: str) -> None:
    file = tmp_path / "secret"
    file.write_text("correct horse battery staple")
    file.chmod(0o644)
    for command in (["ls", address], ["grant", "x/"], ["stats", address]):
        done = run(*command, "--secret-file", file)
        assert done.returncode == 2
        assert f"is open to other users (mode 0644): chmod 600 {file}" in done.stderr
