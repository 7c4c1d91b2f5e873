"""Start an S3 server, or use the one that the environment names.

The first that exists is used: the address in ``UCXSTORE_S3_ENDPOINT``; the versitygw that
``make s3`` builds; a versitygw or minio on PATH; moto's server, a mock that pip installs.
"""

import importlib.metadata
import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.config
import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from profiles.loopback import HOST, free_port, last_lines, listening

ENDPOINT_VARIABLE = "UCXSTORE_S3_ENDPOINT"

_KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

# The default region of all these servers.
_REGION = "us-east-1"

# Variables with the user's account and settings of other servers, which ours must not have.
_FOREIGN_VARIABLES = ("AWS_", "MINIO_", "MOTO_", "ROOT_", "VGW_")


class S3ServerError(RuntimeError):
    """No S3 server could be started, or the one in the environment cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """An S3 server with an empty bucket.

    Attributes
    ----------
    endpoint : str
        Its URL: ``"http://127.0.0.1:41234"``.
    access_key, secret_key, region : str
        The credentials for requests.
    bucket : str
        The bucket's name.
    description : str
        The program, for reports: ``"versitygw v1.8.0"``.
    pid : int or None
        Its process, if we have started it.
    log : Path or None
        Its log of requests, if we have started it and it has one; see `read_log`.
    """

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str
    bucket: str
    description: str
    pid: int | None = None
    log: Path | None = None

    def access(self) -> dict[str, str]:
        """Return the endpoint, the keys and the region, for a client."""
        return {
            "endpoint": self.endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "region": self.region,
        }

    def environment(self) -> dict[str, str]:
        """Return the environment variables by which obstore, botocore and s3fs find the server."""
        return environment_of(self.access())


def environment_of(access: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables by which obstore, botocore and s3fs find a server.

    Parameters
    ----------
    access : mapping
        The result of `S3Server.access`.
    """
    return {
        "AWS_ENDPOINT_URL": access["endpoint"],
        "AWS_REGION": access["region"],
        "AWS_ACCESS_KEY_ID": access["access_key"],
        "AWS_SECRET_ACCESS_KEY": access["secret_key"],
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def s3_server(folder: Path, build: Path = Path("build/s3")) -> Iterator[S3Server]:
    """Run an S3 server with an empty bucket during the block.

    A server that this starts listens only on loopback and accepts only its own keys. It ends with
    the block, or with the thread that entered the block. On a server that the environment names,
    the bucket is removed at the end, with all its objects.

    Parameters
    ----------
    folder : Path
        A folder for the objects and the log of a server that this starts; the caller removes it.
    build : Path
        The folder in which ``make s3`` builds versitygw.

    Raises
    ------
    S3ServerError
        If there is no server, it does not start, or it refuses the keys or the bucket.
    """
    endpoint = os.environ.get(ENDPOINT_VARIABLE)
    with _named(endpoint) if endpoint else _started(folder, build) as server:
        yield server


@contextmanager
def _named(endpoint: str) -> Iterator[S3Server]:
    if not re.match(r"https?://[^/]", endpoint):
        raise S3ServerError(f"{ENDPOINT_VARIABLE}={endpoint} is not an http:// or https:// address")
    if missing := [name for name in _KEY_VARIABLES if not os.environ.get(name)]:
        raise S3ServerError(f"{ENDPOINT_VARIABLE} is set, but not {' and '.join(missing)}")
    access_key, secret_key = (os.environ[name] for name in _KEY_VARIABLES)
    server = S3Server(
        endpoint=endpoint.rstrip("/"),
        access_key=access_key,
        secret_key=secret_key,
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION,
        bucket=_new_bucket_name(),
        description=f"at {endpoint} ({ENDPOINT_VARIABLE})",
    )
    with closing(_client(server)) as client:
        _make_bucket(client, server)
        try:
            yield server
        finally:
            _remove_bucket(client, server)


@contextmanager
def _started(folder: Path, build: Path) -> Iterator[S3Server]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "s3.log"
    port = free_port()
    program = _choose(folder, build, port, log)
    access_key, secret_key = secrets.token_hex(10), secrets.token_hex(20)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN_VARIABLES)
    }
    # In the environment, since others can see a command line.
    environment |= dict(zip(program.key_variables, (access_key, secret_key), strict=True))
    with ExitStack() as running:
        try:
            pid = running.enter_context(listening(program.command, environment, port, log))
        except OSError as error:
            raise S3ServerError(f"no S3 server by {program.description}: {error}") from error
        server = S3Server(
            endpoint=f"http://{HOST}:{port}",
            access_key=access_key,
            secret_key=secret_key,
            region=_REGION,
            bucket=_new_bucket_name(),
            description=program.description,
            pid=pid,
            log=program.log,
        )
        with closing(_client(server)) as client:
            try:
                _make_bucket(client, server)
            except S3ServerError as error:
                error.add_note(f"the end of {log}:{last_lines(log)}")
                raise
        yield server


@dataclass(frozen=True, slots=True)
class _Program:
    description: str
    command: Sequence[str]
    key_variables: tuple[str, str]
    log: Path | None = None


def _choose(folder: Path, build: Path, port: int, output: Path) -> _Program:
    address = f"{HOST}:{port}"
    objects = folder / "objects"
    built = (build / "versitygw").absolute()
    versitygw = str(built) if built.exists() else shutil.which("versitygw")
    if versitygw is not None:
        # A sidecar folder, since some file systems for temporary files have no extended attributes.
        metadata = folder / "metadata"
        for needed in (objects, metadata):
            needed.mkdir(exist_ok=True)
        log = folder / "access.log"
        command = [versitygw, "--port", address, "--region", _REGION, "--quiet", "--keep-alive"]
        command += ["--access-log", str(log), "posix", "--sidecar", str(metadata), str(objects)]
        description = f"versitygw {_version(versitygw)}"
        return _Program(description, command, ("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"), log)
    if (minio := shutil.which("minio")) is not None:
        command = [minio, "server", "--address", address, "--console-address", f"{HOST}:0"]
        description = f"minio {_version(minio)}"
        return _Program(
            description, [*command, str(objects)], ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD")
        )
    if importlib.util.find_spec("moto") and importlib.util.find_spec("flask"):
        command = [sys.executable, "-m", "moto.server", "--host", HOST, "--port", str(port)]
        # It accepts any key. These only keep it from looking for others.
        return _Program(
            f"moto's server {importlib.metadata.version('moto')}", command, _KEY_VARIABLES, output
        )
    raise S3ServerError(
        "there is no S3 server: build one with `make s3`, put versitygw or minio on PATH, set "
        f"{ENDPOINT_VARIABLE}, or install moto with `pip install --group profiles`"
    )


def _version(program: str) -> str:
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise S3ServerError(f"{program} does not run: {error}") from error
    found = re.search(r"version\W+(\S+)", answer.stdout, re.IGNORECASE)
    return found[1] if found else "of unknown version"


def _new_bucket_name() -> str:
    return f"ucxstore-{secrets.token_hex(6)}"


def _client(server: S3Server) -> Any:
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=botocore.config.Config(
            connect_timeout=5,
            read_timeout=30,
            # A server that listens may still be starting, and answer 503.
            retries={"mode": "standard", "total_max_attempts": 4},
            s3={"addressing_style": "path"},  # no name resolves to a bucket on loopback
        ),
    )


def _make_bucket(client: Any, server: S3Server) -> None:
    # The region must be named, unless it is us-east-1.
    where = {"LocationConstraint": server.region}
    options = {} if server.region == _REGION else {"CreateBucketConfiguration": where}
    try:
        client.create_bucket(Bucket=server.bucket, **options)
    except (BotoCoreError, ClientError) as error:
        raise S3ServerError(
            f"cannot create a bucket on the S3 server {server.description}: {error}"
        ) from error


def _remove_bucket(client: Any, server: S3Server) -> None:
    try:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=server.bucket):
            for entry in page.get("Contents", []):
                client.delete_object(Bucket=server.bucket, Key=entry["Key"])
        client.delete_bucket(Bucket=server.bucket)
    except (BotoCoreError, ClientError) as error:
        raise S3ServerError(
            f"bucket {server.bucket} is left on the S3 server {server.description}: {error}"
        ) from error
