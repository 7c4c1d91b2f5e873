"""The options of ``ucxstore serve``: arguments, variables, a file, and which one holds."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from ucxstore.base.address import HostPort
from ucxstore.base.options import parse_size
from ucxstore.base.secret import Secret
from ucxstore.cli.serve import build_parser
from ucxstore.cli.serve.settings import OPTIONS, gather
from ucxstore.server import Server, ServerOptions
from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.described import described
from ucxstore.server.process import foreground

# For each option: as arguments, as a variable, in a file, and the value.
GIVEN: dict[str, tuple[list[str], str, str, object]] = {
    "location": (["s3://b"], "s3://b", '"s3://b"', "s3://b"),
    "metrics": (["--metrics", "[::1]:0"], "[::1]:0", '"[::1]:0"', "[::1]:0"),
    "banner": (["--no-banner"], "no", "false", False),
    "verbose": (["-v", "-v"], "2", "2", 2),
    "log_format": (["--log-format", "json"], "json", '"json"', "json"),
    "log_file": (["--log-file", "f"], "f", '"f"', "f"),
    "pid_file": (["--pid-file", "f"], "f", '"f"', "f"),
    "bind": (["--bind", "h:7"], "h:7", '"h:7"', HostPort("h", 7)),
    "data_ports": (["--data-ports", "7-9"], "7-9", '"7-9"', (7, 9)),
    "network": (["--network", "tcp"], "tcp", '"tcp"', "tcp"),
    "threads": (["--threads", "3"], "3", "3", 3),
    "insecure": (["--insecure"], "1", "true", True),
    "read_only": (["--read-only"], "yes", "true", True),
    "ucx_shared_memory": (["--ucx-shared-memory"], "yes", "true", True),
    "create": (["--create"], "on", "true", True),
    "check": (["--no-check"], "off", "false", False),
    "shared": (["--no-shared"], "FALSE", "false", False),
    "durability": (["--durability", "fsync"], "fsync", '"fsync"', "fsync"),
    "cache": (["--cache", "1MB"], "1MB", "1000000", 1_000_000),
    "cache_dir": (["--cache-dir", "d"], "d", '"d"', "d"),
    "cache_dir_size": (["--cache-dir-size", "3MB"], "3MB", '"3MB"', 3_000_000),
    "block_size": (["--block-size", "1MiB"], "1MiB", '"1MiB"', 1 << 20),
    "freshness": (["--freshness", "always"], "0", "0", 0.0),
    "source_timeout": (["--source-timeout", "3"], "3", "3.0", 3.0),
    "storage_options": (["--storage-options", "a=b"], "a=b", '{a = "b"}', {"a": "b"}),
    "write_budget": (["--write-budget", "4MB"], "4MB", '"4MB"', 4_000_000),
    "scratch_limit": (["--scratch-limit", "2MB"], "2MB", '"2MB"', 2_000_000),
    "decoded": (["--decoded", "5MB"], "5MB", '"5MB"', 5_000_000),
    "local": (["--no-local"], "false", "false", False),
    "socket": (["--socket", "s"], "s", '"s"', "s"),
    "memory": (["--memory", "6MB"], "6MB", '"6MB"', 6_000_000),
    "when_full": (["--when-full", "evict:a,b"], "evict:a,b", '"evict:a,b"', "evict:a,b"),
    "metrics_allow": (
        ["--metrics-allow", "::1/128", "--metrics-allow", "10.0.0.0/8,192.168.0.0/16"],
        "::1/128,10.0.0.0/8,192.168.0.0/16",
        '["::1/128", "10.0.0.0/8", "192.168.0.0/16"]',
        ("::1/128", "10.0.0.0/8", "192.168.0.0/16"),
    ),
    "encrypt": (["--encrypt"], "yes", "true", True),
    "mapped_limit": (["--mapped-limit", "5MB"], "5MB", '"5MB"', 5_000_000),
    "max_sessions": (["--max-sessions", "7"], "7", "7", 7),
    "grace": (["--grace", "2.5"], "2.5", "2.5", 2.5),
    "progress": (["--progress", "polling"], "polling", '"polling"', "polling"),
    "ucx": (
        ["--ucx", "TLS=tcp,self", "--ucx", "A=1"],
        "TLS=tcp,self A=1",
        '{TLS = "tcp,self", A = 1}',
        {"TLS": "tcp,self", "A": "1"},
    ),
}

# What one alone may not be given.
WITH = {
    "cache_dir": {"cache_dir_size": "1MB"},
    "cache_dir_size": {"cache_dir": "d"},
}


def made(
    arguments: list[str], environment: dict[str, str], file: Path | None
) -> tuple[CommandOptions, ServerOptions]:
    from ucxstore.cli.serve import build_parser

    given = vars(build_parser().parse_args(arguments))
    settings = gather(given, environment, None if file is None else str(file))
    return settings.command(), settings.server()


def value_of(both: tuple[CommandOptions, ServerOptions], name: str) -> object:
    return getattr(both[0] if hasattr(both[0], name) else both[1], name)


def test_the_tables_have_all_options() -> None:
    assert {*GIVEN, "secret_file"} == set(OPTIONS)
    names = {each.name for each in fields(ServerOptions)} | {
        each.name for each in fields(CommandOptions)
    }
    assert set(OPTIONS) == names - {"secret"}
    assert all(each.help for each in OPTIONS.values())


@pytest.mark.parametrize("name", GIVEN)
def test_each_option_each_way(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "encrypt":  # it needs one
        monkeypatch.setenv("UCXSTORE_SECRET", "correct horse battery staple")
    arguments, variable, in_file, value = GIVEN[name]
    beside = {OPTIONS[other].variable: text for other, text in WITH.get(name, {}).items()}
    file = tmp_path / "serve.toml"
    file.write_text(f"{name} = {in_file}\n")
    by_default = value_of(made([], {}, None), name)
    assert by_default != value
    assert value_of(made(arguments, beside, None), name) == value
    assert value_of(made([], {OPTIONS[name].variable: variable, **beside}, None), name) == value
    assert value_of(made([], beside, file), name) == value


def test_scratch_space_without_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('scratch_limit = "unlimited"\n')
    by_file, by_argument = made([], {}, file), made(["--scratch-limit", "unlimited"], {}, None)
    assert value_of(by_file, "scratch_limit") == value_of(by_argument, "scratch_limit") == 1 << 50


def test_an_argument_goes_before_a_variable_before_a_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('threads = 2\ngrace = 2\nread_only = true\n[ucx]\nTLS = "tcp"\n')
    environment = {
        "UCXSTORE_SERVE_CONFIG": str(file),
        "UCXSTORE_SERVE_THREADS": "3",
        "UCXSTORE_SERVE_GRACE": "3",
        "UCXSTORE_SERVE_READ_ONLY": "",  # as good as unset
    }
    _, options = made(["--threads", "4"], environment, None)
    assert (options.threads, options.grace, options.read_only) == (4, 3, True)
    assert options.ucx == {"TLS": "tcp"}
    _, options = made(["--no-read-only", "--ucx", "A=1"], environment, None)
    assert (options.read_only, options.ucx) == (False, {"A": "1"})


def test_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "secret", tmp_path / "other"
    file.write_text("correct horse\n")
    other.write_text("battery staple\n")
    for path in (file, other):
        path.chmod(0o600)
    assert made([], {}, None)[1].secret is None
    assert made(["--secret-file", str(file)], {}, None)[1].secret == Secret("correct horse")
    environment = {"UCXSTORE_SERVE_SECRET_FILE": str(file)}
    assert made([], environment, None)[1].secret == Secret("correct horse")
    monkeypatch.setenv("UCXSTORE_SECRET_FILE", str(other))
    assert made([], {"UCXSTORE_SECRET_FILE": str(other)}, None)[1].secret == Secret(
        "battery staple"
    )
    assert made([], environment, None)[1].secret == Secret("correct horse")


@pytest.mark.parametrize(
    "name", ["UCXSTORE_SECRET", "UCXSTORE_SECRET_FILE", "UCXSTORE_SERVE_SECRET_FILE"]
)
def test_an_empty_variable_opens_no_server(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compose and Helm set variables that nobody has filled in."""
    monkeypatch.setenv(name, "")
    done = run("serve", "memory://", "--insecure")
    [line] = done.stderr.splitlines()
    assert f"secret: the environment variable {name} is empty: give the secret, or unset" in line
    assert done.returncode == 2
    file = tmp_path / "secret"
    file.write_text("correct horse\n")
    file.chmod(0o600)
    arguments = ["--secret-file", str(file)]
    assert made(arguments, dict(os.environ), None)[1].secret == Secret("correct horse")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cash = 1", "cash: there is no such option; did you mean cache?"),
        ("cache-dir = 'd'", "cache-dir: there is no such option; did you mean cache_dir?"),
        ("secret = 'x'", "secret: give the secret a file of its own"),
        ("threads = '2'", "threads: a whole number is needed, not '2'"),
        ("threads = true", "threads: a whole number is needed, not True"),
        ("threads = 0", "threads: 0 is not between 1 and 256 (from "),
        ("read_only = 1", "read_only: true or false is needed, not 1"),
        ("ucx = 'TLS=tcp'", "ucx: a table is needed, not 'TLS=tcp'"),
        ("bind = {}", "bind: a text is needed, not a table"),
        ("progress = 'busy'", "progress: 'busy' is none of 'blocking', 'polling'"),
        ("cache =", "(at "),
        ("cache = 4", "cache: '4' has no unit, and so is 4 bytes; did you mean '4GiB'?"),
        ("memory = -1", "memory: '-1' is not a size"),
        ("verbose = -1", "verbose: -1 is less than 0 (from "),
    ],
)
def test_a_mistake_in_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    done = run("serve", "memory://", "--config", file)
    [line] = done.stderr.splitlines()
    assert (done.returncode, message in line, str(file) in line) == (2, True, True), line


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("THREADS", "many", "UCXSTORE_SERVE_THREADS: 'many' is not a whole number"),
        ("THREADS", "0", "threads: 0 is not between 1 and 256 (from UCXSTORE_SERVE_THREADS)"),
        ("READ_ONLY", "maybe", "UCXSTORE_SERVE_READ_ONLY: 'maybe' is neither yes nor no"),
        ("UCX", "TLS", "UCXSTORE_SERVE_UCX takes NAME=VALUE, not 'TLS'"),
        ("UCX", "TLS='tcp", "UCXSTORE_SERVE_UCX: No closing quotation"),
        ("VERBOSE", "-5", "verbose: -5 is less than 0 (from UCXSTORE_SERVE_VERBOSE)"),
        ("VERBOSE", "-1", "verbose: -1 is less than 0 (from UCXSTORE_SERVE_VERBOSE)"),
        ("LOG_FORMAT", "xml", "UCXSTORE_SERVE_LOG_FORMAT: 'xml' is none of 'text', 'json'"),
        ("CONFIG", "/no/such/file", "/no/such/file"),
    ],
)
def test_a_mistake_in_a_variable_is_named(
    name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"UCXSTORE_SERVE_{name}", text)
    done = run("serve", "memory://")
    [line] = done.stderr.splitlines()
    assert message in line
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("in_file", "variable", "flag"),
    [
        ("storage_options = 'secret_access_key=PASSW'", "secret_access_key=abc PASSW", "PASSW"),
        ("storage_options = ['PASSW']", "'PASSW", "secret_access_key:PASSW"),
        ("storage_options = {secret_access_key = {a = 'PASSW'}}", "PASSW", ""),
        ("location = ['https://user:PASSW@host']", "a=1 a=PASSW", ""),
    ],
)
def test_a_mistake_shows_no_credentials(
    in_file: str, variable: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(in_file)
    name = in_file.partition(" ")[0]
    done = [run("serve", "--config", file), run("serve", "s3://b", "--storage-options", flag)]
    monkeypatch.setenv("UCXSTORE_SERVE_STORAGE_OPTIONS", variable)
    done.append(run("serve", "s3://b"))
    assert [each.returncode for each in done] == [2, 2, 2]
    assert not any("PASSW" in each.stderr for each in done)
    assert f"{name}: " in done[0].stderr
    assert "--storage-options takes NAME=VALUE" in done[1].stderr
    assert done[2].stderr.startswith("ucxstore serve: UCXSTORE_SERVE_STORAGE_OPTIONS")


@pytest.mark.parametrize("beginning", ["https:", "https:/", "ftp:", "ftp://", "s3:///"])
def test_a_url_that_is_almost_one_shows_no_password(beginning: str) -> None:
    done = run("serve", f"{beginning}user:PASSW@host/a")
    assert done.returncode == 2
    assert "PASSW" not in done.stderr
    assert f"{beginning}host/a" in done.stderr


def test_an_unknown_variable_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^UCXSTORE_SERVE_CASHE: .* mean UCXSTORE_SERVE_CACHE\?$"):
        gather({}, {"UCXSTORE_SERVE_CASHE": "1"}, None)
    gather({}, {"UCXSTORE_SERVE_CONFIG": "", "UCXSTORE_LOCAL": "ucx"}, None)


def test_show_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("max_sessions = 7\n[storage_options]\naccess_key = 'the-secret'\n")
    monkeypatch.setenv("UCXSTORE_SERVE_THREADS", "3")
    monkeypatch.setenv("UCXSTORE_SECRET", "the-secret of both")
    monkeypatch.setattr(foreground, "serve_command", None)
    arguments = ["s3://user:the-secret@bucket", "--config", file, "--grace", "2", "--show-config"]
    done = run("serve", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the-secret" not in done.stdout
    found = json.loads(done.stdout)
    assert list(found) == list(OPTIONS)
    assert found["location"] == {"value": "s3://bucket", "from": "argument"}
    assert found["max_sessions"] == {"value": 7, "from": str(file)}
    assert found["storage_options"] == {"value": {"access_key": "***"}, "from": str(file)}
    assert found["threads"] == {"value": 3, "from": "UCXSTORE_SERVE_THREADS"}
    assert found["grace"] == {"value": 2, "from": "argument"}
    assert found["cache"] == {"value": 1 << 30, "from": "default", "default": "1GiB"}
    assert found["secret_file"] == {"value": "***", "from": "UCXSTORE_SECRET"}
    monkeypatch.setenv("COLUMNS", "1000")
    done = run("serve", *arguments)
    assert "the-secret" not in done.stdout
    rows: Any = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert rows["threads"].split() == ["3", "UCXSTORE_SERVE_THREADS"]
    assert rows["storage_options"].split() == ["access_key=***", str(file)]
    assert run("serve", "memory://", "--json").returncode == 2
    assert run("serve", "--show-config", "--threads", "0").returncode == 2


def shown_as_json(*arguments: object) -> dict[str, Any]:
    done = run("serve", *arguments, "--show-config", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return {name: each["value"] for name, each in json.loads(done.stdout).items()}


def test_what_programs_get_of_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCXSTORE_NETWORK", raising=False)
    found = shown_as_json()
    assert {name: value for name, value in found.items() if value is None} == dict.fromkeys(
        [
            "location",
            "secret_file",
            "metrics",
            "log_file",
            "pid_file",
            "data_ports",
            "when_full",
            "shared",
            "cache_dir",
            "cache_dir_size",
            "freshness",
            "storage_options",
            "scratch_limit",
            "decoded",
            "socket",
        ]
    )
    assert {name for name, value in found.items() if value is True} == {"banner", "check", "local"}
    assert {name for name, value in found.items() if value is False} == {
        "insecure",
        "read_only",
        "create",
        "ucx_shared_memory",
        "encrypt",
    }
    # What the words say, read as a user's.
    for name, option in OPTIONS.items():
        if option.form == "size" and option.default[:1].isdigit() and " " not in option.default:
            assert found[name] == parse_size(name, option.default)
        if option.form in ("whole", "count", "seconds") and option.default.isdigit():
            assert found[name] == float(option.default)
        if option.form == "choice":
            assert found[name] == option.default
    with Server("memory://") as server:
        assert found["memory"] == server.stats()["memory_limit"]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["mapped_limit"] == total // 2


@pytest.mark.parametrize("way", ["arguments", "file"])
def test_what_programs_get_of_what_is_given(way: str, tmp_path: Path) -> None:
    for name, (arguments, _, in_file, value) in GIVEN.items():
        if name == "encrypt":
            continue
        beside = {
            name: in_file,
            **{other: f'"{text}"' for other, text in WITH.get(name, {}).items()},
        }
        file = tmp_path / "serve.toml"
        if way == "arguments":
            del beside[name]
        file.write_text("".join(f"{key} = {text}\n" for key, text in beside.items()))
        found = shown_as_json("--config", file, *(arguments if way == "arguments" else []))
        wanted: object = list(value) if isinstance(value, tuple) else value
        if name == "storage_options":
            wanted = {"a": "***"}
        if isinstance(value, HostPort):
            wanted = "h:7"
        assert found[name] == wanted, name
    assert shown_as_json("--freshness", "forever")["freshness"] == "forever"


def test_programs_get_a_mistake_with_its_place() -> None:
    done = run("serve", "--show-config", "--json", "--threads", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "threads: 0 is not between" in done.stderr


def test_show_config_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    location = f"/data/{'long/' * 40}"
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("serve", location, "--show-config").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    begin = next(line for line in lines if line.startswith("location ")).index("/data/")
    of_location = [
        line for line in lines[1:] if not line.startswith(tuple(OPTIONS.keys() - {"location"}))
    ]
    shown = "".join(line[begin:].split(" ")[0] for line in of_location)
    assert shown.startswith(location)


def test_the_help_of_serve_has_its_options_in_groups() -> None:
    groups = {
        group.title: [action.dest for action in group._group_actions]
        for group in build_parser()._action_groups
    }
    assert [*groups["positional arguments"]] == ["location"]
    assert set(groups["options"]) == {"help", "config", "show_config", "json"}
    titled = [title for title in groups if title not in ("positional arguments", "options")]
    grouped = [name for title in titled for name in groups[title]]
    assert sorted(grouped) == sorted(OPTIONS.keys() - {"location"})
    assert all(1 < len(groups[title]) <= 12 for title in titled), groups


def test_serve_gets_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(foreground, "serve_command", lambda *order, **_: seen.append(order))
    assert run("serve", "memory://").returncode == 0
    assert seen == [(ServerOptions(), CommandOptions(location="memory://"))]
    assert next(described(CommandOptions)).name == "location"
