"""The files of ``deploy/``, and the calls of ``ucxstore`` in them."""

import argparse
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from ucxstore.cli import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = [
    path
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    if path.name != "kustomization.yaml"
]


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with their arguments."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "docker/Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def image_command() -> tuple[list[str], list[str]]:
    """Return the image's entry point and what it is given by default."""
    last = dict(dockerfile())
    return json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])


def unit() -> dict[str, list[str]]:
    """Return the settings of the systemd unit: each may be there several times."""
    settings: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd/ucxstore.service").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            settings.setdefault(name, []).append(value)
    return settings


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each call of ``ucxstore``: which file has it, and its words."""
    entry, arguments = image_command()
    yield "Dockerfile", [*entry, *arguments]
    compose = documents(DEPLOY / "docker/compose.yaml")[0]
    yield "compose.yaml", [*entry, *compose["services"]["server"]["command"]]
    [stateful] = documents(DEPLOY / "kubernetes/statefulset.yaml")
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    yield "statefulset.yaml", [*entry, *container["args"]]
    component = documents(DEPLOY / "kubernetes/socket/kustomization.yaml")[0]
    added = [
        change["value"]
        for change in yaml.safe_load(component["patches"][0]["patch"])
        if "/args/" in change["path"]
    ]
    yield "socket/kustomization.yaml", [*entry, *container["args"], *added]
    [client] = documents(DEPLOY / "kubernetes/client.yaml")
    [inside] = client["spec"]["containers"]
    yield "client.yaml", [*inside["command"], *inside["args"]]
    [start] = unit()["ExecStart"]
    yield "ucxstore.service", shlex.split(start)
    script = (DEPLOY / "slurm/ucxstore.sbatch").read_text().replace("\\\n", " ")
    for found in re.findall(r'exec "\$command" (serve .*?)>', script):
        yield "ucxstore.sbatch", ["ucxstore", *shlex.split(found.replace('"$@"', ""))]


class _Parsed(BaseException):
    """The arguments were understood."""


_parse_args = argparse.ArgumentParser.parse_args


def _parse_and_stop(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    _parse_args(parser, arguments)
    raise _Parsed


def refusal(words: Sequence[str]) -> str | None:
    """Return what the command line says against a call; ``None`` for nothing."""
    message = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(message):
        patch.setattr(argparse.ArgumentParser, "parse_args", _parse_and_stop)
        try:
            main(words[1:])
        except _Parsed:
            return None
        except SystemExit:
            return message.getvalue()
    return f"{words[0]}: no options were parsed"
