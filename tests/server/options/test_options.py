"""The options of a server: which values each accepts, and who takes them."""

import inspect
import math
import pickle
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.cli.command import run_process
from ucxstore.base.address import HostPort
from ucxstore.base.options import UcxConfig, parse_size
from ucxstore.base.secret import Secret
from ucxstore.server import Server, ServerOptions
from ucxstore.server.options.described import described
from ucxstore.server.options.keywords import ServerKeywords


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (0, 0),
        (4096, 4096),
        (4, 4),
        ("65536", 65536),
        ("4B", 4),
        ("0", 0),
        ("4GiB", 4 << 30),
        ("1.5 GiB", 3 << 29),
        ("512MB", 512_000_000),
        ("512 MiB", 512 << 20),
        ("2kB", 2000),
        ("2KB", 2000),
        (" 2KiB ", 2048),
        ("1TB", 10**12),
    ],
)
def test_sizes(given: int | str, size: int) -> None:
    assert parse_size("cache", given) == size


@pytest.mark.parametrize("given", ["", "GiB", "4 gigs", "-1", "1e3", "0x10", "4GiBs", -1, 1 << 60])
def test_what_is_no_size(given: int | str) -> None:
    with pytest.raises(ValueError, match=r"^cache: "):
        parse_size("cache", given)


@pytest.mark.parametrize("given", ["4", "4096", "65535", " 1.5"])
def test_a_number_without_a_unit_that_makes_no_sense(given: str) -> None:
    with pytest.raises(ValueError, match=rf"^cache: .* did you mean '{given.strip()}GiB'\?"):
        parse_size("cache", given)


@pytest.mark.parametrize("given", [1.5, True, None, b"4GiB"])
def test_what_cannot_be_a_size(given: object) -> None:
    with pytest.raises(TypeError, match=r"^cache: "):
        parse_size("cache", given)


def of(**options: Any) -> ServerOptions:
    return ServerOptions(**options)


def test_all_who_take_options_take_the_same() -> None:
    names = {each.name for each in fields(ServerOptions)}
    assert names == {"bind", *ServerKeywords.__annotations__}
    assert names == {each.name for each in described(ServerOptions, unlisted=True)}
    text = inspect.getdoc(ServerOptions) or ""
    assert all(re.search(rf"^{name} : ", text, re.MULTILINE) for name in names - {"bind"})
    here, there = inspect.signature(Server), inspect.signature(Server.spawn)
    mine = {"die_with_parent", "start_timeout"}
    assert list(here.parameters) == [each for each in there.parameters if each not in mine]
    for name, parameter in here.parameters.items():
        assert there.parameters[name].annotation == parameter.annotation
        assert there.parameters[name].default == parameter.default
    assert list(here.parameters) == ["storage", "bind", "options"]
    assert get_type_hints(ServerOptions.of)["options"] is ServerKeywords


GIVEN = {
    "bind": "localhost:7400",
    "threads": 2,
    "secret": "correct horse",
    "read_only": True,
    "insecure": True,
    "progress": "polling",
    "ucx": {"UCX_TLS": "tcp", "net_devices": "all"},
    "shared": True,
    "cache": "1MB",
    "block_size": "1MiB",
    "freshness": "2.5",
    "source_timeout": 3,
    "storage_options": {"region": "r"},
    "scratch_limit": "2MB",
    "decoded": "5MB",
    "memory": "6MB",
    "cache_dir": Path("d"),
    "cache_dir_size": "3MB",
    "write_budget": "4MB",
    "when_full": "evict:a",
    "local": True,
    "ucx_shared_memory": True,
    "socket": Path("s"),
    "mapped_limit": "5MB",
    "durability": "fsync",
    "grace": 2,
    "max_sessions": 7,
    "create": False,
    "check": False,
    "data_ports": "7500-7599",
    "network": "auto",
    "encrypt": True,
}


def test_what_is_normal_stays_as_it_is() -> None:
    assert {each.name for each in fields(ServerOptions)} == set(GIVEN)
    options = of(**GIVEN)
    assert options.bind == HostPort("localhost", 7400)
    assert options.ucx == {"TLS": "tcp", "NET_DEVICES": "all"}
    assert (options.cache, options.freshness, options.cache_dir) == (1_000_000, 2.5, "d")
    assert options.data_ports == (7500, 7599)
    assert replace(options) == options
    assert replace(options, freshness="forever").freshness == math.inf
    assert replace(ServerOptions()) == ServerOptions()


def test_a_pickle_holds_all_but_the_secret() -> None:
    options = of(**GIVEN)
    pickled = pickle.dumps(options)
    assert b"correct horse" not in pickled
    shown = replace(options, secret=Secret("correct horse", pickle_text=True))
    assert pickle.loads(pickle.dumps(shown)) == options
    assert "correct horse" not in repr(shown)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("bind", "127.0.0.1", ValueError),
        ("threads", 257, ValueError),
        ("threads", True, TypeError),
        ("threads", "2", TypeError),
        ("secret", 7, TypeError),
        ("secret", "", ValueError),
        ("read_only", "no", TypeError),
        ("insecure", 1, TypeError),
        ("progress", "busy", ValueError),
        ("ucx", {"": "tcp"}, ValueError),
        ("ucx", "TLS=tcp", TypeError),
        ("shared", "yes", TypeError),
        ("cache", "much", ValueError),
        ("block_size", 1, ValueError),
        ("source_timeout", 0, ValueError),
        ("source_timeout", -1, ValueError),
        ("source_timeout", float("nan"), ValueError),
        ("scratch_limit", "much", ValueError),
        ("decoded", "1KiB", ValueError),
        ("cache_dir_size", "1MiB", ValueError),
        ("cache_dir", "", ValueError),
        ("write_budget", "much", ValueError),
        ("local", "yes", TypeError),
        ("socket", "", ValueError),
        ("socket", "s" * 108, ValueError),
        ("mapped_limit", "much", ValueError),
        ("durability", "much", ValueError),
        ("when_full", "much", ValueError),
        ("when_full", 7, TypeError),
        ("grace", -1, ValueError),
        ("max_sessions", 0, ValueError),
        ("max_sessions", True, TypeError),
        ("max_sessions", "2", TypeError),
        ("create", 1, TypeError),
        ("check", "no", TypeError),
        ("data_ports", "7500-", ValueError),
        ("data_ports", "7599-7500", ValueError),
        ("data_ports", (0, 7), ValueError),
        ("data_ports", "7500-77777", ValueError),
        ("data_ports", 7500, ValueError),
    ],
)
def test_an_option_that_is_not_usable_is_named(name: str, value: object, kind: Any) -> None:
    words = {"cache_dir_size": "cache_dir: "}.get(
        name, "secret" if name == "secret" else f"{name}: "
    )
    with pytest.raises(kind, match=f"^{words}"):
        of(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("socket", "s"), ("mapped_limit", 1000)])
def test_an_option_of_the_local_plane_needs_it(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: with local=False"):
        of(**{name: value, "local": False})


def test_nobody_who_may_not_write_makes_a_directory() -> None:
    with pytest.raises(ValueError, match=r"^create: a read-only server"):
        of(create=True, read_only=True)


def test_nobody_serves_memory_that_stays_empty() -> None:
    """tests/stores/test_scratch.py has the server that offers scratch space in it."""
    with pytest.raises(ValueError, match=r"^read_only: the memory of a new server is empty"):
        Server("memory://", read_only=True)
    done = run_process("serve", "memory://", "--read-only")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("ucxstore serve: read_only: the memory of a new server is empty")


def test_data_ports_are_an_option_of_ucxs() -> None:
    assert of(data_ports="7500-7599").ucx_config == UcxConfig.of(
        "blocking", {"TCP_PORT_RANGE": "7500-7599"}
    )
    assert of(data_ports="7500").data_ports == (7500, 7500)
    with pytest.raises(ValueError, match=r"^data_ports: .*TCP_PORT_RANGE"):
        of(data_ports="7500-7599", ucx={"TCP_PORT_RANGE": "1-2"})


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError, match="'cash'"):
        Server("memory://", cash=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("size", [None, "large"])
def test_a_cache_dir_needs_a_size(size: str | None) -> None:
    with pytest.raises(ValueError, match=r"^cache_dir_size: "):
        of(cache_dir="d", cache_dir_size=size)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None),
        ("forever", math.inf),
        ("always", 0.0),
        (0, 0.0),
        ("0", 0.0),
        ("2.5", 2.5),
        (60, 60.0),
    ],
)
def test_times(given: float | str | None, seconds: float | None) -> None:
    assert of(freshness=given).freshness == seconds


@pytest.mark.parametrize("given", [-1, "-1", "often", "nan", "inf", ""])
def test_what_is_no_time(given: float | str) -> None:
    with pytest.raises(ValueError, match=r"^freshness: "):
        of(freshness=given)


def test_storage_options_are_text_and_not_shown() -> None:
    options = of(storage_options={"secret_access_key": "the-secret"})
    assert "the-secret" not in repr(options)
    with pytest.raises(TypeError, match=r"^storage_options: ") as caught:
        of(storage_options={"a": "the-secret", "b": 1})
    assert "the-secret" not in str(caught.value)


def test_what_only_a_source_has_is_named() -> None:
    ServerOptions().refuse_source_options()
    for name in ("cache", "block_size", "freshness", "source_timeout", "storage_options", "check"):
        with pytest.raises(ValueError, match=f"^{name}: only an object store"):
            of(**{name: GIVEN[name]}).refuse_source_options()
