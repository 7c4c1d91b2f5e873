"""Grants as values: the chain of caveats against a slow model, and how a `Secret` carries them."""

import base64
import hashlib
import pickle
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.test_grants import caveat
from ucxstore.base import grants
from ucxstore.base.errors import AuthenticationError
from ucxstore.base.grants import ALL, Bounds
from ucxstore.base.secret import ENVIRONMENT_SECRET, MAX_SECRET_BYTES, Secret
from ucxstore.server import Server

pytestmark = pytest.mark.usefixtures("no_secret_around")

TEXT = "correct horse battery staple"
PREFIX, READ_ONLY, EXPIRES, OPERATOR = 1, 2, 3, 4

names = st.text("ab1.", min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})
folders = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "/")
far = st.integers(int(time.time()) + 10**6, 2**33)
steps = st.lists(
    st.tuples(st.none() | folders, st.booleans(), st.none() | far).filter(any),
    min_size=1,
    max_size=5,
)


def slow_mac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 as RFC 2104 has it."""
    key = hashlib.sha256(key).digest() if len(key) > 64 else key
    key = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(one ^ 0x36 for one in key) + message).digest()
    return hashlib.sha256(bytes(one ^ 0x5C for one in key) + inner).digest()


def slow_key(secret: bytes, caveats: list[bytes]) -> bytes:
    key = slow_mac(secret, b"ucxstore grant")
    for one in caveats:
        key = slow_mac(key, b"ucxstore caveat" + one)
    return key


def narrowed(secret: Secret, drawn: list[tuple[str | None, bool, int | None]]) -> Secret:
    for prefix, read_only, end in drawn:
        expires = None if end is None else datetime.fromtimestamp(end, UTC)
        secret = secret.grant(prefix, read_only=read_only, expires=expires)
    return secret


def bounds(secret: Secret) -> Bounds:
    return grants.bounds_of(grants.credentials_of(secret.reveal()).caveats)


# ---- the chain ----


@given(st.binary(min_size=1, max_size=100).filter(bytes.strip), steps)
def test_the_chain_is_that_of_the_model(
    secret: bytes, drawn: list[tuple[str | None, bool, int | None]]
) -> None:
    text = secret.strip()
    if grants.is_grant(text):
        return
    caveats = []
    for prefix, read_only, end in drawn:
        if prefix is not None:
            caveats.append(caveat(PREFIX, prefix.encode()))
        if read_only:
            caveats.append(caveat(READ_ONLY))
        if end is not None:
            caveats.append(caveat(EXPIRES, struct.pack("<Q", end)))
    found = grants.credentials_of(narrowed(Secret(text), drawn).reveal())
    assert found.caveats == b"".join(caveats)
    assert list(grants.split(found.caveats)) == caveats
    assert found.key == slow_key(text, caveats) == grants.key_of(text, found.caveats)


@given(steps, st.lists(names, min_size=1, max_size=7))
def test_it_opens_what_the_model_opens(
    drawn: list[tuple[str | None, bool, int | None]], key: list[str]
) -> None:
    """Part by part: what each narrowing names must come next in the key."""
    granted = bounds(narrowed(Secret(TEXT), drawn))
    rest: list[str] | None = key
    for prefix, *_ in drawn:
        if prefix is not None and rest is not None:
            parts = prefix.removesuffix("/").split("/")
            # The last part of a key is no folder.
            fits = len(rest) > len(parts) and rest[: len(parts)] == parts
            rest = rest[len(parts) :] if fits else None
    assert "/".join(key).startswith(granted.prefix) == (rest is not None)
    assert granted.read_only == any(read_only for _, read_only, _ in drawn)
    ends = [end for *_, end in drawn if end is not None]
    assert granted.expires == (min(ends) if ends else None)


@given(steps, st.data())
def test_no_other_caveats_have_its_key(
    drawn: list[tuple[str | None, bool, int | None]], data: st.DataObject
) -> None:
    key, caveats = grants.credentials_of(narrowed(Secret(TEXT), drawn).reveal())
    each = list(grants.split(caveats))
    how = data.draw(st.sampled_from(["shorter", "without one", "longer", "turned", "changed"]))
    if how == "shorter":
        each = each[: data.draw(st.integers(0, len(each) - 1))]
    elif how == "without one":
        del each[data.draw(st.integers(0, len(each) - 1))]
    elif how == "longer":
        each.insert(data.draw(st.integers(0, len(each))), caveat(9, b"x"))
    elif how == "turned":
        each.reverse()
    else:
        at = data.draw(st.integers(0, len(each) - 1))
        each[at] = caveat(PREFIX, b"other/")
    forged = b"".join(each)
    if forged != caveats:
        assert grants.key_of(TEXT.encode(), forged) != key


def test_the_secret_is_not_the_beginning_of_the_chain() -> None:
    """A client could pass off a MAC that a server has made for a key, and the other way round."""
    assert grants.key_of(b"s", b"") == b"s"
    assert grants.credentials_of(b"s") == (b"s", b"")
    granted = Secret("s").grant("a/").reveal()
    assert b"s" not in base64.urlsafe_b64decode(granted[len(b"ucxgrant1.") :])[:32]


def test_a_grant_is_narrowed_without_the_secret() -> None:
    parent = Secret(TEXT).grant("run-17/")
    child = Secret(parent.reveal()).grant("a/", read_only=True)
    assert bounds(child) == Bounds("run-17/a/", True)
    assert child == Secret(TEXT).grant("run-17/").grant("a/", read_only=True)
    assert grants.key_of(TEXT.encode(), grants.credentials_of(child.reveal()).caveats) == (
        grants.credentials_of(child.reveal()).key
    )


# ---- what it may say ----


@pytest.mark.parametrize(
    "prefix", ["", "/", "/a/", "a//b", "a//", "../", "..", "a/../b/", "./", "a/.", "a\0b", "\ud800"]
)
def test_a_prefix_that_is_no_folder(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"^prefix: "):
        Secret(TEXT).grant(prefix)


def test_a_prefix_ends_at_a_slash() -> None:
    assert Secret(TEXT).grant("run-1") == Secret(TEXT).grant("run-1/")
    assert not "run-17/c/0".startswith(bounds(Secret(TEXT).grant("run-1")).prefix)


def test_one_that_narrows_nothing() -> None:
    with pytest.raises(ValueError, match="it opens all"):
        Secret(TEXT).grant(None)
    with pytest.raises(TypeError, match="prefix: text is needed"):
        Secret(TEXT).grant(b"a/")


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [
        ("90s", 90),
        ("90", 90),
        ("1.5m", 90),
        ("8h", 8 * 3600),
        ("7d", 7 * 86400),
        ("2w", 14 * 86400),
        (90, 90),
        (0.5, 0.5),
        (timedelta(hours=8), 8 * 3600),
    ],
)
def test_lifetimes(expires: grants.Expiry, seconds: float) -> None:
    before = time.time()
    end = bounds(Secret(TEXT).grant("a/", expires=expires)).expires
    assert end is not None
    assert before + seconds <= end <= time.time() + seconds + 1


@pytest.mark.parametrize(
    "expires",
    ["", "8 hours", "h", "-1h", "1h30m", 0, -1, float("nan"), float("inf"), 1e30, "9999999w"],
)
def test_lifetimes_that_are_none(expires: grants.Expiry) -> None:
    with pytest.raises(ValueError, match=r"^expires: "):
        Secret(TEXT).grant("a/", expires=expires)


@pytest.mark.parametrize("expires", [True, [1], object()])
def test_what_is_no_time(expires: object) -> None:
    with pytest.raises(TypeError, match=r"^expires: "):
        Secret(TEXT).grant("a/", expires=expires)


def test_points_in_time() -> None:
    end = datetime(2100, 1, 1, tzinfo=UTC)
    assert bounds(Secret(TEXT).grant("a/", expires=end)).expires == int(end.timestamp())
    with pytest.raises(ValueError, match="no time zone"):
        Secret(TEXT).grant("a/", expires=datetime(2100, 1, 1))
    with pytest.raises(ValueError, match="in the past"):
        Secret(TEXT).grant("a/", expires=datetime(2000, 1, 1, tzinfo=UTC))


def test_the_earliest_end_counts() -> None:
    short = Secret(TEXT).grant("a/", expires="1h")
    assert bounds(short.grant(None, expires="8h")) == bounds(short)
    assert bounds(short.grant("b/")).expires == bounds(short).expires


def test_more_caveats_than_there_may_be() -> None:
    granted = Secret(TEXT).grant("a" * 1000)
    assert len(granted.reveal()) < MAX_SECRET_BYTES
    with pytest.raises(ValueError, match="prefix is longer than 1024 bytes"):
        granted.grant("b" * 24)
    for number in range(94):
        granted = granted.grant(None, expires=10**6 + number)
    assert Secret(granted.reveal()) == granted
    with pytest.raises(ValueError, match="more than 2048 bytes"):
        granted.grant("b/", expires="8h")


def test_bounds_in_words() -> None:
    assert str(ALL) == "everything"
    assert str(Bounds("a/", True, 0)) == "'a/', read-only, until 1970-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("caveats", "message"),
    [
        (caveat(5), "unknown kind, 5"),
        (caveat(OPERATOR, b"x"), "unknown kind, 4"),
        (caveat(PREFIX, b"a/") + caveat(OPERATOR), "only the secret itself"),
        (caveat(READ_ONLY) + caveat(OPERATOR), "only the secret itself"),
        (caveat(EXPIRES, bytes(8)) + caveat(OPERATOR), "only the secret itself"),
        (caveat(OPERATOR) + caveat(OPERATOR), "only the secret itself"),
        (caveat(OPERATOR) + caveat(PREFIX, b"a/"), "opens no values"),
        (caveat(OPERATOR) + caveat(READ_ONLY), "opens no values"),
        (caveat(0), "unknown kind, 0"),
        (caveat(READ_ONLY, b"x"), "unknown kind"),
        (caveat(EXPIRES, b"1234"), "unknown kind"),
        (caveat(PREFIX, b""), "not a folder"),
        (caveat(PREFIX, b"a"), "not a folder"),
        (caveat(PREFIX, b"/"), "not a folder"),
        (caveat(PREFIX, b"../"), "not a folder"),
        (caveat(PREFIX, b"a/../b/"), "not a folder"),
        (caveat(PREFIX, b"\xff/"), "not UTF-8"),
        (caveat(PREFIX, b"a" * 1020 + b"/") + caveat(PREFIX, b"bcde/"), "longer than 1024"),
        (caveat(PREFIX, b"a/")[:-1], "are cut"),
        (b"\1", "are cut"),
        (caveat(9, bytes(2046)), "more than 2048"),
    ],
)
def test_caveats_that_somebody_else_has_made_up(caveats: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grants.bounds_of(caveats)
    assert message in grants.describe(caveats)


@given(st.binary(max_size=60))
def test_any_bytes_are_caveats_or_an_error(data: bytes) -> None:
    try:
        found = grants.bounds_of(data)
    except ValueError:
        return
    assert isinstance(found, Bounds)
    assert found.prefix == "" or found.prefix.endswith("/")


@pytest.mark.parametrize(
    "text",
    [
        "ucxgrant1.",
        "ucxgrant1.AAAA",
        "ucxgrant1.!!!!",
        "ucxgrant1." + base64.urlsafe_b64encode(bytes(32)).decode(),  # without a caveat
        "ucxgrant1." + base64.urlsafe_b64encode(bytes(32) + caveat(PREFIX, b"a/")[:-1]).decode(),
    ],
)
def test_damaged_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^secret (is a damaged grant|the caveats)"):
        Secret(text)


# ---- as a secret ----


def test_it_is_never_shown_and_says_what_it_opens(tmp_path: Path) -> None:
    granted = Secret(TEXT).grant("run-17/", read_only=True)
    assert repr(granted) == "Secret(***, opens 'run-17/', read-only)"
    file = tmp_path / "grant"
    file.write_bytes(granted.reveal() + b"\n")
    file.chmod(0o600)
    assert repr(Secret.from_file(file)) == (
        f"Secret(from {str(file)!r}, opens 'run-17/', read-only)"
    )


def test_it_is_taken_wherever_a_secret_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    granted = Secret(TEXT).grant("run-17/")
    text = granted.reveal().decode()
    (tmp_path / "grant").write_text(text)
    (tmp_path / "grant").chmod(0o600)
    monkeypatch.setenv(ENVIRONMENT_SECRET, text)
    places = Secret.of(text), Secret.from_env(), Secret.find(), Secret.from_file(tmp_path / "grant")
    for found in places:
        assert found == granted


def test_pickled_it_is_narrowed_anew_from_what_it_was_made_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    granted = Secret(TEXT).grant("run-17/").grant("a/", read_only=True)
    data = pickle.dumps(granted)
    assert granted.reveal() not in data
    assert TEXT.encode() not in data
    twin = pickle.loads(data)
    with pytest.raises(AuthenticationError, match="not found in this process"):
        twin.reveal()
    assert "opens 'run-17/a/', read-only" in repr(twin)
    monkeypatch.setenv(ENVIRONMENT_SECRET, TEXT)
    assert twin == granted


@pytest.mark.parametrize("made_of", [0, 1, 2])
def test_pickled_it_is_narrowed_no_further_than_it_was(
    made_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process may have the secret, the grant itself, or one on the way to it."""
    chain = [Secret(TEXT)]
    chain += [chain[0].grant("run-17/", expires="8h")]
    chain += [chain[1].grant("a/")]
    data = pickle.dumps(chain[2])
    monkeypatch.setenv(ENVIRONMENT_SECRET, chain[made_of].reveal().decode())
    twin = pickle.loads(data)
    assert twin == chain[2]


@pytest.mark.parametrize("other", ["run-18/", "run-17/b/", "run-17/a/b/"])
def test_it_is_not_made_of_another_grant(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = pickle.loads(pickle.dumps(Secret(TEXT).grant("run-17/").grant("a/")))
    monkeypatch.setenv(ENVIRONMENT_SECRET, Secret(TEXT).grant(other).reveal().decode())
    with pytest.raises(AuthenticationError, match="is not on the way to the grant"):
        twin.reveal()


def test_the_same_folder_twice_is_a_folder_in_it() -> None:
    assert bounds(Secret(TEXT).grant("a/").grant("a/")).prefix == "a/a/"


def test_the_text_pickles_where_that_is_asked_for() -> None:
    for granted in (
        Secret(TEXT, pickle_text=True).grant("a/"),
        Secret(TEXT).grant("a/", pickle_text=True),
    ):
        twin = pickle.loads(pickle.dumps(granted))
        assert twin == granted
        assert twin.reveal() == granted.reveal()


def test_it_makes_no_server() -> None:
    with pytest.raises(ValueError, match=r"^secret: a grant is for clients"):
        Server("memory://", secret=Secret(TEXT).grant("a/"))
