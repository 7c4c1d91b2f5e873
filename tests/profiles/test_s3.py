import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import obstore.store
import pytest
import s3fs

from profiles import loopback
from profiles import s3 as s3_module
from profiles.s3 import S3Server, S3ServerError, s3_server
from profiles.s3_log import S3Request, read_log
from tests.eventually import eventually

BUILT = Path("build/s3")

NOWHERE = Path("/nowhere")

# Enough of a server to get a bucket, under the name of a real one.
FAKE = f"""\
#!{sys.executable}
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_PUT(self):
        self.send_response(STATUS)
        self.end_headers()

if "--version" in sys.argv:
    print("NAME version VERSION")
else:
    flag = "--port" if "--port" in sys.argv else "--address"
    host, port = sys.argv[sys.argv.index(flag) + 1].split(":")
    HTTPServer((host, int(port)), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def no_server_but_moto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the S3 servers that this machine happens to have."""
    monkeypatch.delenv("UCXSTORE_S3_ENDPOINT", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("UCXSTORE_S3_ENDPOINT", raising=False)
        patched.setenv("PATH", "")
        with s3_server(tmp_path_factory.mktemp("moto"), NOWHERE) as server:
            yield server


def install(
    folder: Path, name: str, text: str = FAKE, *, version: str = "v0.0.7", status: int = 200
) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    for placeholder, value in {"NAME": name, "VERSION": version, "STATUS": str(status)}.items():
        text = text.replace(placeholder, value)
    program.write_text(text)
    program.chmod(0o755)


def obstore_of(server: S3Server) -> obstore.store.S3Store:
    return obstore.store.S3Store(
        server.bucket,
        endpoint=server.endpoint,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region=server.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def s3fs_of(server: S3Server) -> s3fs.S3FileSystem:
    return s3fs.S3FileSystem(
        key=server.access_key,
        secret=server.secret_key,
        endpoint_url=server.endpoint,
        client_kwargs={"region_name": server.region},
        skip_instance_cache=True,
    )


def is_open(endpoint: str) -> bool:
    where = urlsplit(endpoint)
    with socket.socket() as probe:
        return probe.connect_ex((where.hostname, where.port)) == 0


@pytest.mark.parametrize("build", [BUILT, NOWHERE], ids=["best", "moto"])
def test_bucket_is_empty_and_takes_objects(tmp_path: Path, build: Path) -> None:
    """With versitygw where `make s3` has built it; with moto's server everywhere."""
    value = os.urandom(300_000)
    with s3_server(tmp_path / "s3", build) as server:
        built = (build / "versitygw").exists()
        assert server.description.startswith("versitygw v" if built else "moto's server ")
        assert server.endpoint.startswith("http://127.0.0.1:")
        assert server.secret_key not in repr(server)

        store, files = obstore_of(server), s3fs_of(server)
        assert list(store.list()) == []
        store.put("a/b", value)
        assert files.cat_file(f"{server.bucket}/a/b", start=7, end=77) == value[7:77]
        files.pipe_file(f"{server.bucket}/c", value)
        assert bytes(store.get("c").bytes()) == value
        store.head("c")
        with pytest.raises(FileNotFoundError):
            store.get("c d/none")
        asked = [S3Request("PutObject", "a/b"), S3Request("GetObject", "a/b")]
        asked += [S3Request(f"{what}Object", "c") for what in ("Put", "Get", "Head")]
        found = read_log(server)
        assert [each for each in found if each in asked] == asked
        assert found[-1] == S3Request("GetObject", "c d/none")
    assert not is_open(server.endpoint)


def test_keys_are_on_no_command_line(moto: S3Server) -> None:
    command = Path(f"/proc/{moto.pid}/cmdline").read_text()
    assert "moto.server" in command
    assert moto.access_key not in command
    assert moto.secret_key not in command


def test_listens_on_loopback_only(moto: S3Server) -> None:
    port = f":{urlsplit(moto.endpoint).port:04X} "
    listening = " 0A "  # TCP_LISTEN, in the fourth column
    lines = [
        line
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()
        if port in line and listening in line
    ]
    assert [line.split()[1].split(":")[0] for line in lines] == ["0100007F"]


def test_ends_when_the_block_fails(tmp_path: Path) -> None:
    install(tmp_path / "bin", "minio")
    with pytest.raises(KeyError), s3_server(tmp_path, NOWHERE) as server:
        raise KeyError
    assert not is_open(server.endpoint)
    assert not Path(f"/proc/{server.pid}").exists()


def test_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    install(tmp_path / "bin", "minio")
    code = """\
        import sys, time
        from pathlib import Path
        from profiles.s3 import s3_server

        with s3_server(Path(sys.argv[1]), Path("/nowhere")) as server:
            print(server.endpoint, flush=True)
            time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        endpoint = parent.stdout.readline().strip()
        assert is_open(endpoint)
        parent.kill()
    eventually(lambda: not is_open(endpoint))


def test_order_of_choice(tmp_path: Path) -> None:
    def chosen(build: Path) -> str:
        with s3_server(tmp_path / "s3", build) as server:
            return server.description

    built, on_path = tmp_path / "built", tmp_path / "bin"
    assert chosen(built).startswith("moto's server ")
    install(on_path, "minio")
    assert chosen(built) == "minio v0.0.7"
    install(on_path, "versitygw")
    assert chosen(built) == "versitygw v0.0.7"
    install(built, "versitygw", version="v0.0.8")
    assert chosen(built) == "versitygw v0.0.8"


def test_named_server_comes_first_and_loses_only_the_bucket(
    tmp_path: Path, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore_of(moto).put("of somebody else", b"1")
    monkeypatch.setenv("UCXSTORE_S3_ENDPOINT", moto.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    with s3_server(tmp_path, BUILT) as server:
        assert server.description == f"at {moto.endpoint} (UCXSTORE_S3_ENDPOINT)"
        assert (server.pid, server.region) == (None, "eu-north-1")
        obstore_of(server).put("a/b", b"1")
    files = s3fs_of(moto)
    assert not files.exists(server.bucket)
    assert files.exists(f"{moto.bucket}/of somebody else")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "UCXSTORE_S3_ENDPOINT is set, but not AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "is set, but not AWS_SECRET_ACCESS_KEY$"),
        ({"UCXSTORE_S3_ENDPOINT": "127.0.0.1:9000"}, "is not an http:// or https:// address"),
        (
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
            r"cannot create a bucket on the S3 server at http://127.0.0.1:1 "
            r"\(UCXSTORE_S3_ENDPOINT\): .*connect",
        ),
    ],
)
def test_named_server_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    monkeypatch.setenv("UCXSTORE_S3_ENDPOINT", "http://127.0.0.1:1")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(S3ServerError, match=message), s3_server(tmp_path):
        pass


@pytest.mark.skipif(
    not (BUILT / "versitygw").exists(), reason="moto takes every key; `make s3` builds versitygw"
)
def test_wrong_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(tmp_path / "right", BUILT) as right:
        monkeypatch.setenv("UCXSTORE_S3_ENDPOINT", right.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", right.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        message = r"cannot create a bucket on the S3 server at http://127.*SignatureDoesNotMatch"
        with pytest.raises(S3ServerError, match=message), s3_server(tmp_path / "wrong"):
            pass


def test_program_that_refuses_a_bucket(tmp_path: Path) -> None:
    install(tmp_path / "bin", "minio", status=403)
    message = r"cannot create a bucket on the S3 server minio v0\.0\.7: .*\(403\)"
    with pytest.raises(S3ServerError, match=message) as error, s3_server(tmp_path, NOWHERE):
        pass
    # Its log is beside the message: this server notes every request there.
    (note,) = error.value.__notes__
    assert "PUT /ucxstore-" in note


def test_program_that_ends_at_once(tmp_path: Path) -> None:
    install(
        tmp_path / "bin",
        "minio",
        f"#!{sys.executable}\nimport sys\n"
        "sys.exit(0 if '--version' in sys.argv else 'the disk is purple')",
    )
    message = "no S3 server by minio of unknown version: it ended with status 1:\n  the disk is"
    with (
        pytest.raises(S3ServerError, match=message),
        s3_server(tmp_path / "s3", NOWHERE),
    ):
        pass


def test_program_that_never_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "START_SECONDS", 0.5)
    pid = tmp_path / "pid"
    install(
        tmp_path / "bin",
        "minio",
        f"#!{sys.executable}\nimport os, pathlib, sys, time\nif '--version' not in sys.argv:\n"
        f"    pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n    time.sleep(600)",
    )
    with (
        pytest.raises(S3ServerError, match=r"does not listen after 0\.5 s"),
        s3_server(tmp_path / "s3", NOWHERE),
    ):
        pass
    assert not pid.exists() or not Path(f"/proc/{pid.read_text()}").exists()


def test_program_that_does_not_run(tmp_path: Path) -> None:
    install(tmp_path / "bin", "versitygw", "#!/nowhere/interpreter\n")
    with (
        pytest.raises(S3ServerError, match="bin/versitygw does not run: "),
        s3_server(tmp_path / "s3", NOWHERE),
    ):
        pass


def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    with (
        pytest.raises(S3ServerError, match="no S3 server: build one with `make s3`"),
        s3_server(tmp_path, NOWHERE),
    ):
        pass
