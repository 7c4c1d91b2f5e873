"""Object stores whose endpoint is plain HTTP, in every way that an endpoint can be given."""

import logging
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from profiles.s3 import S3Server
from tests.cli.command import run_process
from tests.cli.test_serve import Serving
from tests.server.sources.test_cache import get, put
from ucxstore import UcxStore
from ucxstore.base.object_urls import open_object_store
from ucxstore.cli.serve.settings import gather
from ucxstore.server import Server

VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
OPTIONS = ("endpoint", "endpoint_url", "aws_endpoint", "AWS_ENDPOINT_URL")


@pytest.fixture(autouse=True)
def nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture
def keys(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that S3 needs in the environment, but for where it is, and that it may be plain."""
    for name, text in s3.environment().items():
        if name not in {"AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"}:
            monkeypatch.setenv(name, text)


def stored(s3: S3Server, key: str) -> bytes:
    """Read an object past the server."""
    store = S3Store(
        s3.bucket,
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        client_options={"allow_http": True},
    )
    return bytes(obstore.get(store, key).bytes())


def use(server: Server, s3: S3Server, prefix: str) -> None:
    with UcxStore(server.address) as store:
        put(store, "k", prefix.encode())
        assert get(store, "k") == prefix.encode()
    assert stored(s3, f"{prefix}/k") == prefix.encode()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]


# ---- S3, by a server of it ----


@pytest.mark.parametrize("variable", VARIABLES)
def test_by_a_variable(
    variable: str,
    s3: S3Server,
    keys: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(variable, s3.endpoint)
    with Server(f"s3://{s3.bucket}/{variable}") as server:
        use(server, s3, variable)
    [warning] = warnings(caplog)
    assert warning.startswith(f"{variable}: the endpoint is plain HTTP")


@pytest.mark.parametrize("option", OPTIONS)
def test_by_an_option(
    option: str, s3: S3Server, keys: None, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = f"option-{option}"
    with Server(
        f"s3://{s3.bucket}/{prefix}", storage_options={option: s3.endpoint.replace("http", "HTTP")}
    ) as server:
        use(server, s3, prefix)
    [warning] = warnings(caplog)
    assert warning.startswith(f"{option}: the endpoint is plain HTTP")


@pytest.mark.parametrize("way", ["argument", "variable", "file"])
def test_by_the_options_of_the_command(way: str, s3: S3Server, keys: None, tmp_path: Path) -> None:
    prefix = f"command-{way}"
    pair = f"endpoint={s3.endpoint}"
    arguments = {"storage_options": [pair]} if way == "argument" else {}
    environment = {"UCXSTORE_SERVE_STORAGE_OPTIONS": shlex.quote(pair)} if way == "variable" else {}
    file = tmp_path / "serve.toml"
    file.write_text(f'[storage_options]\nendpoint = "{s3.endpoint}"\n' if way == "file" else "")
    options = gather(arguments, environment, str(file)).server()
    with Server.from_options(f"s3://{s3.bucket}/{prefix}", options) as server:
        use(server, s3, prefix)


def test_an_option_goes_before_a_variable(
    s3: S3Server, keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES[1:]:
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    options = {"endpoint": s3.endpoint}
    with Server(f"s3://{s3.bucket}/before", storage_options=options) as server:
        use(server, s3, "before")
    monkeypatch.setenv(VARIABLES[0], "http://127.0.0.1:1")  # obstore takes this one all the same
    with pytest.raises(
        ValueError, match=f"endpoint: {VARIABLES[0]} of the environment goes before"
    ):
        Server(f"s3://{s3.bucket}/before", storage_options=options)


@pytest.mark.parametrize(
    ("variables", "options"),
    [({"AWS_ALLOW_HTTP": "true"}, {}), ({}, {"aws_allow_http": "true"})],
)
def test_no_warning_where_it_is_allowed_anyway(
    variables: dict[str, str],
    options: dict[str, str],
    s3: S3Server,
    keys: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, text in {"AWS_ENDPOINT_URL": s3.endpoint, **variables}.items():
        monkeypatch.setenv(name, text)
    with Server(f"s3://{s3.bucket}/allowed", storage_options=options) as server:
        use(server, s3, "allowed")
    assert warnings(caplog) == []


def test_the_commands(
    s3: S3Server, keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page says it: the variable alone."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    location = f"s3://{s3.bucket}/commands"
    with closing(Serving(location, "--no-banner")) as serving:
        with UcxStore(serving.address) as store:
            put(store, "k", b"value")
        status, _, said = serving.end()
    assert status == 0
    assert "WARNING ucxstore.server: AWS_ENDPOINT_URL: the endpoint is plain HTTP" in said
    done = run_process("cp", location, tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    assert "ucxstore: warning: AWS_ENDPOINT_URL: the endpoint is plain HTTP" in done.stderr
    assert (tmp_path / "copy/k").read_bytes() == b"value"


# ---- all kinds, by what arrives at a port ----


@pytest.fixture
def port() -> Iterator[tuple[str, list[str | None]]]:
    """The URL of a port, and how those call themselves whose requests come there."""
    agents: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            agents.append(self.headers.get("User-Agent"))
            self.send_error(403)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", agents
        server.shutdown()
        thread.join(60)


KINDS = {
    "s3://bucket": ("AWS", ("ENDPOINT_URL", "ENDPOINT", "ENDPOINT_URL_S3")),
    "az://container": ("AZURE", ("STORAGE_ENDPOINT", "ENDPOINT")),
    "gs://bucket": ("GOOGLE", ("BASE_URL",)),
}
CASES = [
    (url, prefix, name, way)
    for url, (prefix, names) in KINDS.items()
    for name in names
    for way in ("variable", "option", "bare option")
    # As options, obstore does not know these.
    if way == "variable" or name != "ENDPOINT_URL_S3"
    if way != "bare option" or name != "STORAGE_ENDPOINT"
]


@pytest.mark.parametrize(("url", "prefix", "name", "way"), CASES)
def test_each_kind(
    url: str,
    prefix: str,
    name: str,
    way: str,
    port: tuple[str, list[str | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the environment's options of the HTTP client hold as before."""
    endpoint, agents = port
    for each in ("SKIP_SIGNATURE", "USER_AGENT"):
        monkeypatch.setenv(f"{prefix}_{each}", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    given = f"{prefix}_{name}" if way == "variable" else name.lower()
    if way == "option":
        given = f"{prefix.lower()}_{given}"
    options = {given: endpoint} if way != "variable" else {}
    if way == "variable":
        monkeypatch.setenv(given, endpoint)
    said: list[str] = []
    store = open_object_store(url, options, warn=said.append)
    with suppress(BaseError):
        obstore.head(store, "key")
    assert agents == ["true"]
    [warning] = said
    assert warning.startswith(f"{given}: the endpoint is plain HTTP")
    assert f"{prefix}_ALLOW_HTTP=true" in warning


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, {}),
        ({"AWS_ENDPOINT_URL": "https://host"}, {}),
        ({"AWS_ENDPOINT_URL_S3": "https://host", "AWS_ENDPOINT_URL": "http://host"}, {}),
        ({"AWS_ENDPOINT_URL": "http://host"}, {"endpoint": "https://host"}),
        ({"AWS_PROXY_URL": "http://host", "AWS_ENDPOINT_URL": ""}, {}),
        ({"AZURE_STORAGE_ENDPOINT": "http://host"}, {}),
    ],
)
def test_what_is_not_plain(
    variables: dict[str, str], options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    warn: Callable[[str], object] = pytest.fail
    store = open_object_store("s3://bucket", options, warn=warn)
    assert isinstance(store, S3Store)
    assert "allow_http" not in (store.client_options or {})
