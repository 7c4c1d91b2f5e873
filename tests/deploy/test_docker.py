"""The image and the compose file, as far as a machine without Docker can try them."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from compose_spec import PyCompose

from tests.deploy.files import DEPLOY, ROOT, dockerfile, documents, image_command, refusal
from tests.eventually import eventually

COMPOSE = documents(DEPLOY / "docker/compose.yaml")[0]


def test_the_dockerfile_has_no_faults() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run(
        [linter, "--no-color", DEPLOY / "docker/Dockerfile"], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "")


def test_the_image_is_small_and_its_user_is_not_root() -> None:
    instructions = dockerfile()
    assert [name for name, _ in instructions].count("FROM") == 2
    last = dict(instructions)
    assert last["USER"] == "10001:10001"
    assert "-slim" in last["FROM"]
    assert last["STOPSIGNAL"] == "SIGTERM"


def test_a_new_volume_is_empty() -> None:
    """It gets what the image has there, and useradd would copy /etc/skel."""
    [added] = [text for name, text in dockerfile() if name == "RUN" and "useradd" in text]
    useradd, install = added.split("&&")
    assert {"--no-create-home"} == {word for word in useradd.split() if "create-home" in word}
    assert "--owner=ucxstore" in install
    assert set(json.loads(dict(dockerfile())["VOLUME"])) <= set(install.split())


def test_the_context_has_what_is_copied() -> None:
    ignored = (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    [copied] = [text for name, text in dockerfile() if name == "COPY" and "--from" not in text]
    assert kept == set(copied.split()[:-1])


def test_the_compose_file_is_valid() -> None:
    text = (DEPLOY / "docker/compose.yaml").read_text()
    assert set(PyCompose.from_yaml(text).service_names()) == {"client", "server"}


def test_a_wrong_compose_file_is_noticed() -> None:
    text = (DEPLOY / "docker/compose.yaml").read_text()
    with pytest.raises(ValueError, match="restarts"):
        PyCompose.from_yaml(text.replace("restart:", "restarts:"))


def test_compose_names_what_is_there() -> None:
    assert set(COMPOSE["services"]) == {"server", "client"}
    for service in COMPOSE["services"].values():
        assert set(service["secrets"]) <= set(COMPOSE["secrets"])
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            known = source in COMPOSE["volumes"]
            assert known or (DEPLOY / "docker" / source).exists(), volume
    build = COMPOSE["services"]["server"]["build"]
    context = DEPLOY / "docker" / build["context"]
    assert context.resolve() == ROOT
    assert (context / build["dockerfile"]).exists()


def test_read_only_services_have_files_as_secrets() -> None:
    """Compose copies others into the container's root, and refuses a read-only one."""
    assert any(service.get("read_only") for service in COMPOSE["services"].values())
    for service in COMPOSE["services"].values():
        if not service.get("read_only"):
            continue
        for kind in ("secrets", "configs"):
            for one in service.get(kind, ()):
                name = one if isinstance(one, str) else one["source"]
                assert set(COMPOSE[kind][name]) == {"file"}


def test_the_secret_stays_out_of_version_control() -> None:
    file = (DEPLOY / "docker" / COMPOSE["secrets"]["ucxstore"]["file"]).resolve()
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert f"/{file.relative_to(ROOT)}" in ignored


def test_clients_can_reach_the_server_of_the_page() -> None:
    """UCX knows the address of the container alone, not that of a published port."""
    page = (ROOT / "docs/howto/docker.md").read_text()
    [line] = [line for line in page.splitlines() if "docker run" in line and " memory://" in line]
    before, image, after = line.partition(" ucxstore:")
    assert image
    assert "--network host" in before
    assert "--publish" not in before
    options = shlex.split(after)[1:]
    assert options[-2:] == ["--metrics", "127.0.0.1:9400"]  # where the image's health check asks
    assert refusal([*image_command()[0], *options]) is None


def test_compose_gives_the_client_the_socket_of_the_server() -> None:
    server, client = COMPOSE["services"]["server"], COMPOSE["services"]["client"]
    assert "--socket=/run/ucxstore/socket" in server["command"]
    assert "socket:/run/ucxstore" in server["volumes"]
    assert "socket:/run/ucxstore" in client["volumes"]


def test_the_command_of_the_image_serves_and_is_healthy(tmp_path: Path) -> None:
    """It runs as the image runs it, in a folder for each of the image's."""
    entry, arguments = image_command()
    secret = tmp_path / "run/secrets/ucxstore"
    secret.parent.mkdir(parents=True)
    secret.write_text("x" * 32)
    secret.chmod(0o600)
    (tmp_path / "data").mkdir()
    places = {
        "/data": str(tmp_path / "data"),
        "/run/secrets/ucxstore": str(secret),
        "0.0.0.0:7400": "0.0.0.0:0",
        "127.0.0.1:9400": "127.0.0.1:0",
    }
    assert set(places) <= set(arguments)
    words = [sys.executable, "-m", *entry, *(places.get(word, word) for word in arguments)]
    with (tmp_path / "out").open("w") as out:
        server = subprocess.Popen(words, stdout=out, cwd=tmp_path)
        try:
            eventually(lambda: "/metrics" in (tmp_path / "out").read_text())
            said = (tmp_path / "out").read_text().split()
            port = next(word for word in said if word.startswith("ucx://")).rpartition(":")[2]
            metrics = next(word for word in said if word.endswith("/metrics"))
            check = json.loads(dict(dockerfile())["HEALTHCHECK"].partition(" CMD ")[2])
            at = metrics.removesuffix("/metrics")
            check = [word.replace("http://127.0.0.1:9400", at) for word in check]
            healthy = subprocess.run([sys.executable, *check[1:]], capture_output=True, text=True)
            assert healthy.returncode == 0, healthy.stderr
            client = subprocess.run(
                [sys.executable, DEPLOY / "docker/client.py", f"ucx://127.0.0.1:{port}"],
                env=os.environ | {"UCXSTORE_SECRET_FILE": str(secret)},
                capture_output=True,
                text=True,
            )
            assert client.returncode == 0, client.stderr
            assert client.stdout.startswith("4194304 bytes written and read")
        finally:
            server.terminate()
            assert server.wait(60) == 0
    assert (tmp_path / "data/example/zarr.json").exists()
