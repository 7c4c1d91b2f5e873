"""Requests as the core takes them, taken apart and joined as a cluster does it."""

import ast
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import ucxstore
from ucxstore.client import requests
from ucxstore.client.memory import readable_view
from ucxstore.client.requests import Request, pick

MEMORY = readable_view(np.arange(8, dtype="u1"))
PART: Any = (0, 4, [], [], None)

BUFFER: Any = object()  # one of the core's, as far as a request knows

EACH: list[Request[Any]] = [
    requests.get(["a", "b"], [[(1, 0, 2)], []]),
    requests.get(["a", "b"], [[(1, 0, 2)], []], [7, 8]),
    requests.get_into(["a", "b"], [[], []], [MEMORY, MEMORY]),
    requests.get_into_buffers(["a", "b"], [BUFFER, BUFFER]),
    requests.read_boxes(["a", "b"], [0, 0, 2, 0, 2, 2], MEMORY, [2]),
    requests.read_parts(["a", "b"], [PART, PART], [PART, PART], MEMORY),
    requests.set(["a", "b"], [MEMORY, MEMORY]),
    requests.add(["a", "b"], [MEMORY, MEMORY]),
    requests.set_parts(["a", "b"], [[MEMORY.layout], []], [MEMORY.owner]),
    requests.write_boxes(["a", "b"], [0, 2], MEMORY, [2]),
    requests.delete(["a", "b"]),
    requests.delete_prefix("p/"),
    requests.stat(["a", "b"]),
    requests.measure("p/", any=True),
    requests.list_page("p/", delimited=True, cursor=""),
    requests.list_page("p/", delimited=False, cursor="p/k"),
    requests.ping(),
    requests.stats(),
    requests.operate("{}"),
    requests.begin_space("name", 100, 1000),
    requests.renew_space("name"),
    requests.end_space("name"),
]

FILE: Any = object()  # an allocation of the core's, as far as a request knows
OF_ONE_KEY: list[Request[Any]] = [
    requests.commit("a", MEMORY, FILE, if_absent=if_absent) for if_absent in (False, True)
]

NOT_REQUESTS = {"leaving", "alive", "peer", "lanes", "checked", "encrypted", "close"}
NOT_REQUESTS |= {"see", "see_value", "hold", "map_file", "allocate"}


def methods() -> dict[str, tuple[set[str], set[str]]]:
    """What the core's methods must be given, and all that they take."""
    stub = ast.parse(Path(ucxstore.__file__).with_name("_core.pyi").read_text())
    (connection,) = [
        node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Connection"
    ]
    found = {}
    for node in connection.body:
        if isinstance(node, ast.FunctionDef) and node.name not in NOT_REQUESTS:
            names = [argument.arg for argument in node.args.args][1:]
            optional = len(node.args.defaults)
            found[node.name] = set(names[: len(names) - optional]), set(names)
    return found


class Connection:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def method(*keys: Any, **arguments: Any) -> None:
            self.calls.append((name, {**dict(zip(["keys"], keys, strict=False)), **arguments}))

        return method


def call_of(request: Request[Any]) -> tuple[str, dict[str, Any]]:
    """Return the method that a request calls, and the arguments by name."""
    connection: Any = Connection()
    request.start(connection, 5.0, None)
    (call,) = connection.calls
    return call


def name_of(request: Request[Any]) -> str:
    return call_of(request)[0]


def arguments_of(request: Request[Any]) -> dict[str, Any]:
    return call_of(request)[1]


@pytest.mark.parametrize("request_", [*EACH, *OF_ONE_KEY], ids=name_of)
def test_the_core_takes_it(request_: Request[Any]) -> None:
    name, arguments = call_of(request_)
    needed, taken = methods()[name]
    assert needed <= arguments.keys() <= taken


def test_nothing_of_the_core_is_forgotten() -> None:
    assert {name_of(request) for request in [*EACH, *OF_ONE_KEY]} == methods().keys()


@pytest.mark.parametrize("request_", [one for one in EACH if one.kind.keyed], ids=name_of)
def test_some_of_the_keys(request_: Request[Any]) -> None:
    whole, part = arguments_of(request_), arguments_of(request_.for_keys([1]))
    assert part.pop("keys") == ["b"]
    assert whole.pop("keys") == ["a", "b"]
    assert part.keys() == whole.keys()
    for name, value in part.items():
        if name in request_.kind.columns:
            middle = len(whole[name]) // 2
            assert list(value) == list(whole[name][middle:])
        else:
            assert value is whole[name]
    assert request_.for_keys([0, 1]) is request_


@given(st.data(), st.integers(0, 3), st.integers(0, 6))
def test_what_belongs_to_keys_is_picked(data: st.DataObject, width: int, count: int) -> None:
    positions = sorted(data.draw(st.sets(st.sampled_from(range(count)))) if count else [])
    numbers = list(range(count * width))
    rows = [numbers[i * width : (i + 1) * width] for i in range(count)]
    assert list(pick(numbers, positions, width)) == [n for i in positions for n in rows[i]]


names = st.text(st.sampled_from("ab/-é0"), min_size=1, max_size=4)


@given(st.lists(st.sets(names), min_size=1, max_size=4), st.integers(1, 5))
def test_pages_of_keys_are_merged(servers: list[set[str]], most: int) -> None:
    """Each server's pages hold `most` keys; a cursor is the key that the next one begins with."""
    kind = requests.list_page("", delimited=False, cursor="").kind
    listed: list[str] = []
    cursor = ""
    while True:
        answers: list[Any] = []
        for server in servers:
            left = sorted(name for name in server if name >= cursor)
            answers.append(((0,), (left[:most], left[most] if len(left) > most else "", [])))
        some, cursor, _ = kind.join(1, answers)
        listed += some
        if not cursor:
            break
        assert some
    assert listed == sorted(set().union(*servers))


def test_what_came_later_counts() -> None:
    join = requests.stat([]).kind.join
    assert join(3, [((0, 2), [-1, 5]), ((1,), [6]), ((0,), [4])]) == [4, 6, 5]


def test_missing_keys_are_told_by_where_they_were_asked_for() -> None:
    join = requests.read_boxes([], [], MEMORY, []).kind.join
    assert join(5, [((1, 4), [1]), ((0, 2, 3), [0, 2])]) == [0, 3, 4]


def test_a_folder_is_asked_for_until_its_end() -> None:
    page = requests.list_page("p/", delimited=True, cursor="")
    following = page.kind.following
    assert following is not None
    assert following(page, (["a"], "", [])) is None
    then = following(page, (["a"], "p/b", []))
    assert then is not None
    assert arguments_of(then) == {**arguments_of(page), "cursor": "p/b"}


def test_unreadable_folders_of_all_servers_are_told() -> None:
    answers = [((0,), (["a"], "", ["x", "y"])), ((0,), (["b"], "", ["y"]))]
    for delimited in (True, False):
        kind = requests.list_page("", delimited=delimited, cursor="").kind
        assert kind.join(1, answers) == (["a", "b"], "", ["x", "y"])
    measure = requests.measure("", any=False).kind
    assert measure.join(1, [((0,), (1, 5, ["y"])), ((0,), (2, 6, ["x"]))]) == (3, 11, ["x", "y"])
