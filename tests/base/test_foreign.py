"""JSON that others have written ends nobody's call but by an error that names the thing."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from ucxstore import Server, UcxStore
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ProtocolError
from ucxstore.base.foreign import Fields
from ucxstore.base.stats import parse_server_stats
from ucxstore.client.connect import Greeting
from ucxstore.cluster.record import Record
from ucxstore.protocol.frames import MAX_RECORD_BYTES
from ucxstore.server.peers.presence import Presence

PACKAGE = Path(__file__).parents[2] / "ucxstore"

# What Python's reader takes, or fails at by errors of its own.
HOSTILE = [
    b"[" * 30_000,
    b'{"a":' * 30_000,
    b"[" * 500 + b"]" * 500,
    b'{"set":Infinity,"generation":Infinity,"members":[],"epoch":Infinity,"gets":Infinity}',
    b'{"generation":-Infinity}',
    b'{"generation":NaN}',
    b'{"generation":1e999}',
    b'{"generation":' + b"9" * 20 + b"}",
    b'{"generation":' + b"9" * 10_000 + b"}",
    b'{"a":' + b"[" * 20 + b"]" * 20 + b"}",
    b'"text"',
    b"\xff\xfe\0",
    b"{}" + b" " * (9 << 20),
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: repr(data[:24]))
def test_every_reader_refuses(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a record of a set of servers"):
        Record.decode(data)
    with pytest.raises(ProtocolError, match="not the counters of a server"):
        parse_server_stats(data)
    assert Presence.parse(data) is None


RECORD: dict[str, Any] = {
    "set": "00" * 16,
    "generation": 1,
    "members": [{"identity": "01" * 16, "name": "a:1"}],
}
WRONG: list[Any] = [
    float("inf"),
    float("nan"),
    -1,
    1.5,
    2**64,
    True,
    None,
    [],
    {},
    "\ud800",
    "é",
]


@pytest.mark.parametrize("name", RECORD)
@pytest.mark.parametrize("value", WRONG, ids=ascii)
def test_a_record_with_a_wrong_field(name: str, value: object) -> None:
    assert Record.decode(json.dumps(RECORD).encode()) is not None
    with pytest.raises(ProtocolError, match=f"not a record of .*{name}|finite|64"):
        Record.decode(json.dumps({**RECORD, name: value}).encode())


CARD = Presence(server="s", epoch=1, asks=False, addresses=("h",), port=1, process=("", "", 0, 0))


@pytest.mark.parametrize("name", ["server", "epoch", "asks", "addresses", "port", "process"])
@pytest.mark.parametrize("value", [float("inf"), -1, None, {}, [1], [[]] * 4, "\ud800", "9" * 5000])
def test_a_presence_with_a_wrong_field(name: str, value: object) -> None:
    fields = json.loads(CARD.encode())
    assert Presence.parse(CARD.encode()) == CARD
    text = value if isinstance(value, str) and value.isdigit() else json.dumps(value)
    assert Presence.parse(json.dumps({**fields, name: "?"}).replace('"?"', text).encode()) is None


@pytest.mark.parametrize("data", HOSTILE[:6], ids=lambda data: repr(data[:24]))
def test_a_server_that_keeps_such_a_record(data: bytes) -> None:
    """Each client that connects hears of it, and can use the server no further."""
    with Server("memory://") as server:
        host, port = server.address.removeprefix("ucx://").split(":")
        with Greeting(HostPort(host, int(port)), None, 10.0, None) as greeting:
            assert greeting.keep(b"", data[:MAX_RECORD_BYTES])
        store = UcxStore(server.address)
        with pytest.raises(ProtocolError, match="not a record of a set of servers"):
            store.get_sync("key")


def test_deep_but_allowed() -> None:
    data = b'{"a":' * 15 + b"{}" + b"}" * 15
    assert "a" in Fields.read(data, "a test", 1000).plain


def test_nothing_else_reads_json() -> None:
    """But what a process of ours has printed for its parent."""
    readers = {"loads", "load", "JSONDecoder", "raw_decode", "scan_once"}
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="json" | "orjson"), attr=name):
                    if name in readers:
                        found.add(str(file.relative_to(PACKAGE)))
                case ast.ImportFrom(module="json" | "orjson"):
                    found.add(str(file.relative_to(PACKAGE)))
    of_children = {f"cli/doctor/pair/{module}.py" for module in ("child", "pairing")}
    assert found == {"base/foreign.py", "copies/process.py"} | of_children
