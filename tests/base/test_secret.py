import copy
import os
import pickle
import re
from pathlib import Path

import pytest

from ucxstore.base.errors import AuthenticationError
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET, MAX_SECRET_BYTES, Secret

pytestmark = pytest.mark.usefixtures("no_secret_around")

TEXT = "correct horse battery staple"


def shipped(secret: Secret) -> Secret:
    data = pickle.dumps(secret)
    assert TEXT.encode() not in data
    twin = pickle.loads(data)
    assert isinstance(twin, Secret)
    return twin


def test_it_is_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_SECRET", TEXT)
    file = tmp_path / "secret"
    file.write_text(TEXT)
    file.chmod(0o600)
    for secret in (Secret(TEXT), Secret.from_env("MY_SECRET"), Secret.from_file(file)):
        assert TEXT not in f"{secret} {secret!r} {secret!s:>99} {[secret]}"
    assert "MY_SECRET" in repr(Secret.from_env("MY_SECRET"))
    assert str(file) in repr(Secret.from_file(file))


def test_white_space_around_it_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{TEXT}\n")
    file.chmod(0o600)
    assert Secret.from_file(file).reveal() == TEXT.encode()
    assert Secret(f" {TEXT} ") == Secret.from_file(file)


def test_equal_texts_are_equal_wherever_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", TEXT)
    assert Secret(TEXT) == Secret(TEXT.encode()) == Secret.from_env("MY_SECRET")
    assert hash(Secret(TEXT)) == hash(Secret.from_env("MY_SECRET"))
    assert Secret(TEXT) != Secret("another")
    assert Secret(TEXT) != TEXT


def test_of() -> None:
    secret = Secret("s")
    assert Secret.of(None) is None
    assert Secret.of(secret) is secret
    assert Secret.of("s") == Secret.of(b"s") == secret


@pytest.mark.parametrize("text", ["", " \n", b"", "x" * (MAX_SECRET_BYTES + 1)])
def test_one_that_is_empty_or_a_document_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^secret is (empty|longer than 4096 bytes)$"):
        Secret(text)


@pytest.mark.parametrize("number", [5, 0, True, [1, 2]])
def test_what_is_no_text_is_refused(number: object) -> None:
    """``bytes(5)`` would be five zeros, which anybody can guess."""
    with pytest.raises(TypeError, match="secret: text or bytes are needed, not"):
        Secret.of(number)


def test_places_without_one_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="variable MY_SECRET is not set"):
        Secret.from_env("MY_SECRET")
    monkeypatch.setenv("MY_SECRET", "")
    with pytest.raises(ValueError, match="variable MY_SECRET is empty"):
        Secret.from_env("MY_SECRET")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Secret.from_file(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"file '/dev/zero' is longer than 4096 bytes"):
        Secret.from_file("/dev/zero")


def test_from_env_pickles_as_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", TEXT)
    twin = shipped(Secret.from_env("MY_SECRET"))
    assert twin.reveal() == TEXT.encode()
    twin = shipped(twin)  # also one that came by pickle
    monkeypatch.setenv("MY_SECRET", "what the other process has")
    assert twin.reveal() == b"what the other process has"


def test_from_file_pickles_as_the_absolute_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(TEXT)
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    secret = Secret.from_file("secret")
    monkeypatch.chdir("/")
    assert shipped(secret).reveal() == TEXT.encode()


def test_a_text_stays_behind_and_is_looked_for_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    twin = shipped(Secret(TEXT))
    with pytest.raises(AuthenticationError, match="UCXSTORE_SECRET or UCXSTORE_SECRET_FILE"):
        twin.reveal()
    monkeypatch.setenv(ENVIRONMENT_SECRET, TEXT)
    assert twin.reveal() == TEXT.encode()

    monkeypatch.delenv(ENVIRONMENT_SECRET)
    twin = shipped(Secret(TEXT))
    (tmp_path / "secret").write_text(TEXT)
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv(ENVIRONMENT_FILE, str(tmp_path / "secret"))
    assert twin == Secret(TEXT)


def test_the_message_says_why_each_place_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(TEXT)
    file.chmod(0o600)
    twin = shipped(Secret.from_file(file))
    file.unlink()
    monkeypatch.setenv(ENVIRONMENT_FILE, "/dev/null")
    with pytest.raises(AuthenticationError) as caught:
        twin.reveal()
    for part in (str(file), "UCXSTORE_SECRET is not set", "'/dev/null' is empty"):
        assert part in str(caught.value)


def test_secrets_that_are_not_there_are_equal_if_they_are_sought_in_one_place() -> None:
    assert shipped(Secret(TEXT)) == shipped(Secret(TEXT))
    assert shipped(Secret(TEXT)) != Secret(TEXT)


def test_the_text_pickles_where_that_is_asked_for() -> None:
    twin = pickle.loads(pickle.dumps(Secret(TEXT, pickle_text=True)))
    assert twin.reveal() == TEXT.encode()
    assert pickle.loads(pickle.dumps(twin)) == twin


def test_copies_in_this_process_keep_the_text() -> None:
    secret = Secret(TEXT)
    assert copy.copy(secret).reveal() == copy.deepcopy([secret])[0].reveal() == TEXT.encode()


# ---- files that others can read ----


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666, 0o610])
def test_a_file_that_others_can_use_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "a secret"
    file.write_text(TEXT)
    file.chmod(mode)
    message = f"is open to other users (mode {mode:04o}): chmod 600 '{file}'"
    with pytest.raises(PermissionError, match=re.escape(message)):
        Secret.from_file(file)


def test_an_empty_variable_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ENVIRONMENT_SECRET, "")
    monkeypatch.setenv(ENVIRONMENT_FILE, "")
    assert Secret.find() is None
    with pytest.raises(AuthenticationError, match="variable UCXSTORE_SECRET is empty"):
        shipped(Secret(TEXT)).reveal()
    file = tmp_path / "secret"
    file.write_text(TEXT)
    file.chmod(0o600)
    monkeypatch.setenv(ENVIRONMENT_FILE, str(file))
    assert Secret.find() == Secret(TEXT)
    assert shipped(Secret(TEXT)).reveal() == TEXT.encode()


def test_a_file_in_the_environment_is_refused_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(TEXT)
    file.chmod(0o644)
    monkeypatch.setenv(ENVIRONMENT_FILE, str(file))
    with pytest.raises(PermissionError, match="mode 0644"):
        Secret.find()
    with pytest.raises(AuthenticationError, match="mode 0644"):
        shipped(Secret(TEXT)).reveal()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_file_is_taken_by_way_of_a_link(mode: int, tmp_path: Path) -> None:
    """Kubernetes shows a secret by links to a folder with a date in its name."""
    file = tmp_path / "..data"
    file.write_text(TEXT)
    file.chmod(mode)
    (tmp_path / "secret").symlink_to(file)
    assert Secret.from_file(tmp_path / "secret") == Secret(TEXT)


def test_another_users_file_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As root's of mode 0644, which orchestrators mount for a process that is not root."""
    file = tmp_path / "secret"
    file.write_text(TEXT)
    file.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert Secret.from_file(file) == Secret(TEXT)


def test_a_file_on_a_read_only_mount_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(TEXT)
    file.chmod(0o444)
    found = os.statvfs(file)
    read_only = [*found[:8], found.f_flag | os.ST_RDONLY, found.f_namemax]
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(read_only))
    assert Secret.from_file(file) == Secret(TEXT)


def test_a_pipe_has_no_readers_to_be_refused(tmp_path: Path) -> None:
    """As bash's ``<(pass show ucxstore)``."""
    reading, writing = os.pipe()
    os.write(writing, TEXT.encode())
    os.close(writing)
    try:
        assert Secret.from_file(f"/dev/fd/{reading}") == Secret(TEXT)
    finally:
        os.close(reading)
