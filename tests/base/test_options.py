import math

import numpy as np
import pytest

from ucxstore import UcxStore
from ucxstore.base.options import MAX_TIMEOUT, ClientOptions, UcxConfig, normalize_ucx
from ucxstore.base.secret import Secret
from ucxstore.pipeline.access import access_to


def test_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCXSTORE_LOCAL", raising=False)
    options = ClientOptions.of()
    assert options == ClientOptions()
    assert (options.timeout, options.connect_timeout) == (30.0, 30.0)
    assert options.ucx == UcxConfig(progress="blocking", options=())
    assert options.secret is None


def test_options_hash_and_compare_by_what_they_mean() -> None:
    one = ClientOptions.of(timeout=3, ucx={"UCX_TLS": "tcp", "MM_ERROR_HANDLING": True}, secret="s")
    two = ClientOptions.of(timeout=3.0, ucx={"MM_ERROR_HANDLING": "y", "TLS": "tcp"}, secret=b"s")
    assert one == two
    assert hash(one) == hash(two)
    assert one != ClientOptions.of(timeout=3)
    assert "'s'" not in repr(one)


@pytest.mark.parametrize("name", ["timeout", "connect_timeout"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 10**400, MAX_TIMEOUT * 2])
def test_a_time_that_cannot_be_waited_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name}:"):
        ClientOptions.of(**{name: value})


@pytest.mark.parametrize("value", [None, "3", True])
def test_a_timeout_is_a_number(value: object) -> None:
    with pytest.raises(TypeError, match=r"^timeout:"):
        ClientOptions.of(timeout=value)
    with pytest.raises(TypeError, match=r"^timeout:"):
        ClientOptions(timeout=value)


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError), ("1G", ValueError)],
)
def test_a_budget_is_a_number_of_bytes(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^buffer_budget:"):
        ClientOptions.of(buffer_budget=value)
    with pytest.raises(error, match=r"^buffer_budget:"):
        ClientOptions(buffer_budget=value)


def test_bytes_are_given_in_units_too() -> None:
    for given in "256MiB", "268435456B", 256 << 20, np.int64(256 << 20):
        assert ClientOptions.of(buffer_budget=given).buffer_budget == 256 << 20
    with UcxStore("ucx://localhost:1", buffer_budget="1.5GB") as store:
        assert access_to(store).budget.total == 1_500_000_000


@pytest.mark.parametrize("value", [0, 1, "on"])
def test_integrity_is_wanted_or_not_or_left_open(value: object) -> None:
    assert ClientOptions.of().integrity is None
    assert ClientOptions.of(integrity=True) != ClientOptions.of(integrity=False)
    with pytest.raises(ValueError, match=r"^integrity:"):
        ClientOptions.of(integrity=value)


def test_progress() -> None:
    assert UcxConfig.of("polling").polling
    assert not UcxConfig.of("blocking").polling
    with pytest.raises(ValueError, match="progress: 'busy' is neither 'blocking' nor 'polling'"):
        UcxConfig.of("busy")


def test_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCXSTORE_LOCAL", raising=False)
    assert ClientOptions.of().local == "auto"
    assert ClientOptions.of(local="ucx").local == "ucx"
    with pytest.raises(ValueError, match="local: 'shm' is neither 'auto' nor 'ucx'"):
        ClientOptions.of(local="shm")


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (None, ()),
        ({}, ()),
        ({"TLS": "tcp"}, (("TLS", "tcp"),)),
        ({"UCX_TLS": "tcp"}, (("TLS", "tcp"),)),
        ({"ucx_tls": "tcp,sm"}, (("TLS", "tcp,sm"),)),
        ({"B": True, "A": False, "C": 4096}, (("A", "n"), ("B", "y"), ("C", "4096"))),
        ({"NET_DEVICES": ""}, (("NET_DEVICES", ""),)),
    ],
)
def test_ucx_options_are_normalised(
    given: dict[str, str | int | bool] | None, normal: tuple[tuple[str, str], ...]
) -> None:
    assert normalize_ucx(given) == normal


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"": "x"}, ValueError, "'' is not the name"),
        ({"UCX_": "x"}, ValueError, "'UCX_' is not the name"),
        ({"A=B": "x"}, ValueError, "'A=B' is not the name"),
        ({1: "x"}, ValueError, "1 is not the name"),
        ({"TLS": "tcp", "UCX_TLS": "sm"}, ValueError, "TLS is given twice"),
        ({"TLS": None}, TypeError, "TLS takes"),
        ({"TLS": 1.5}, TypeError, "TLS takes"),
        ({"TLS": "tcp\0"}, ValueError, "TLS has unprintable"),
        ({"TLS": "tcp\nsm"}, ValueError, "TLS has unprintable"),
        ("TLS=tcp", TypeError, "a mapping"),
    ],
)
def test_bad_ucx_options_are_refused_by_name(
    given: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^ucx: {message}"):
        normalize_ucx(given)


def test_a_secret_is_taken_in_every_form() -> None:
    secret = Secret("s")
    assert ClientOptions.of(secret=secret).secret is secret
    assert ClientOptions.of(secret=b"s").secret == secret
