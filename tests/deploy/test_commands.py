"""Every call of ``ucxstore`` in ``deploy/`` is one that it understands."""

import pytest

from tests.deploy.files import commands, refusal

COMMANDS = list(commands())


@pytest.mark.parametrize("words", [words for _, words in COMMANDS], ids=[at for at, _ in COMMANDS])
def test_a_command_is_understood(words: list[str]) -> None:
    assert words[0].rpartition("/")[2] == "ucxstore"
    assert refusal(words) is None


def test_every_file_is_looked_at() -> None:
    assert {at for at, _ in COMMANDS} == {
        "Dockerfile",
        "compose.yaml",
        "statefulset.yaml",
        "socket/kustomization.yaml",
        "client.yaml",
        "ucxstore.service",
        "ucxstore.sbatch",
    }


def test_a_wrong_option_is_noticed() -> None:
    assert "--nonesuch" in (refusal(["ucxstore", "serve", "/data", "--nonesuch"]) or "")
