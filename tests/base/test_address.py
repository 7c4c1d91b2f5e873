import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import AddressError


@pytest.mark.parametrize(
    ("text", "servers", "prefix"),
    [
        ("ucx://127.0.0.1:41234", [("127.0.0.1", 41234)], ""),
        ("ucx://127.0.0.1:41234/", [("127.0.0.1", 41234)], ""),
        ("ucx://host:7400/run-17", [("host", 7400)], "run-17"),
        ("ucx://Node_1.Example.ORG.:7400//run/17//", [("node_1.example.org.", 7400)], "run/17"),
        ("ucx://[::1]:7400/a", [("::1", 7400)], "a"),
        ("ucx://[0:0::01]:7400", [("::1", 7400)], ""),
        ("ucx://[fe80::1%eth0]:7400", [("fe80::1%eth0", 7400)], ""),
        ("ucx://a:7400,b:7401,[::1]:1/p", [("a", 7400), ("b", 7401), ("::1", 1)], "p"),
        ("ucx://h:1/a b/%20/ä", [("h", 1)], "a b/%20/ä"),
    ],
)
def test_parse(text: str, servers: list[tuple[str, int]], prefix: str) -> None:
    address = Address.parse(text)
    assert [(server.host, server.port) for server in address.servers] == servers
    assert address.prefix == prefix
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not start with 'ucx://'"),
        ("host:7400", "does not start with 'ucx://'"),
        ("http://host:7400", "does not start with 'ucx://'"),
        ("UCX://host:7400", "does not start with 'ucx://'"),
        ("ucx://", "names no host:port"),
        ("ucx:///prefix", "names no host:port"),
        ("ucx://host", "names no port"),
        ("ucx://host/7400", "names no port"),
        ("ucx://[::1]", "names no port"),
        ("ucx://:7400", "host is missing"),
        ("ucx://host:", "port"),
        ("ucx://host:0", "1 to 65535"),
        ("ucx://host:65536", "65535"),
        ("ucx://host:-1", "port"),
        ("ucx://host:7_400", "port"),
        ("ucx://host:\u0667", "port"),
        ("ucx://host: 7400", "port"),
        ("ucx://host:74000000", "port"),
        ("ucx://::1:7400", "brackets"),
        ("ucx://[host]:7400", "brackets"),
        ("ucx://[::g]:7400", "not an IPv6 address"),
        ("ucx://[::1%a b]:7400", "not an IPv6 address"),
        ("ucx://user@host:7400", "not a host name"),
        ("ucx://ho st:7400", "not a host name"),
        ("ucx://-host:7400", "not a host name"),
        (f"ucx://{'h' * 254}:7400", "not a host name"),
        ("ucx://a:1,", "names no port"),
        ("ucx://a:1,,b:1", "names no port"),
        ("ucx://a:1,A:1", "a server twice"),
        ("ucx://h:1/a//b", "empty segment"),
        ("ucx://h:1/a/../b", "'..' segment"),
        ("ucx://h:1/.", "'.' segment"),
        ("ucx://h:1/a\0", "NUL"),
        ("ucx://h:1/\udc80", "surrogate"),
        ("ucx://h:1/" + "x" * 2000, "2000 bytes"),
        ("ucx://h:1/a?timeout=3", "'?'"),
        ("ucx://h:1/a#b", "'#'"),
    ],
)
def test_a_malformed_address_is_refused_by_name_and_reason(text: str, problem: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)
    assert problem in str(caught.value)


@given(st.text(alphabet="ucx:/[].,ab01%-_?#@ \0é", max_size=30))
def test_nothing_but_an_address_error_comes_of_any_text(tail: str) -> None:
    try:
        address = Address.parse(f"ucx://{tail}")
    except AddressError:
        return
    assert Address.parse(str(address)) == address


def test_one_made_by_hand_is_checked_too() -> None:
    with pytest.raises(AddressError, match="at least one"):
        Address(())
    with pytest.raises(AddressError, match="starts with '/'"):
        Address((HostPort("h", 1),), "/a")
    with pytest.raises(AddressError, match="between 0 and 65535"):
        HostPort("h", -1)


def test_addresses_compare_hash_and_pickle() -> None:
    address = Address.parse("ucx://h:1/p")
    assert address == Address.parse("ucx://H:1/p/")
    assert len({address, Address.parse("ucx://h:1//p"), Address.parse("ucx://h:2/p")}) == 2
    assert pickle.loads(pickle.dumps(address)) == address


def test_port_0_asks_for_any_port_and_is_no_address() -> None:
    assert str(HostPort.parse("127.0.0.1:0")) == "127.0.0.1:0"
    with pytest.raises(AddressError, match="1 to 65535"):
        Address((HostPort("h", 0),))
