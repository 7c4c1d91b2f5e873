"""The measurement of what TCP gives: its goals, its record, its page, and its programs."""

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.network import content, goals, page, plan, programs, record, run
from benchmarks.network.links import LOOPBACK, VETH, Link, linked, why_not
from benchmarks.network.programs import Program, ProgramError
from benchmarks.network.record import Cell, Crowd, Record
from benchmarks.network.ways import Load, RawTcp, Way
from benchmarks.network.windows import Window, take_turns, watch
from benchmarks.peers import RedisClient
from benchmarks.result import Line


def window(rate: float, p50: float = 1e-3, cpu: float = 1.0) -> Window:
    return Window(rate, p50, 2 * p50, cpu / 2, cpu / 2)


def cell(way: str, *windows: Window, op: str = "get", nbytes: int = content.MIDDLE) -> Cell:
    return Cell(LOOPBACK, way, op, nbytes, 1, list(windows))


def small_record(*cells: Cell) -> Record:
    crowd = Crowd(
        plan.OURS, 40, 20, [3.0, 5.0], [0, 1], ["lost (1 times)"], 100 * 1024, 1.5, [window(1, 2)],
        [window(1, 3)],
    )  # fmt: skip
    return Record({"system": "Linux"}, cells=list(cells), crowds=[crowd])


def found(lines: list[Line], what: str) -> Line:
    (line,) = [line for line in lines if what in line.what]
    return line


# ---- goals ----


def test_a_rate_is_compared_with_that_of_redis() -> None:
    ours = cell(plan.OURS, window(5), window(3), window(4))
    redis = cell(plan.REDIS, window(1), window(2), window(2.5))
    line = found(goals.of(small_record(ours, redis)), "1 client: GB/s")
    assert (line.median, line.minimum, line.reached) == (2.0, 2.0, True)
    assert line.against == "Redis"


def test_less_time_is_better() -> None:
    ours, redis = cell(plan.OURS, window(1, 4, cpu=3)), cell(plan.REDIS, window(1, 2, cpu=4))
    lines = goals.of(small_record(ours, redis))
    tail, cpu = found(lines, "99 % within"), found(lines, "processor time")
    assert (tail.median, tail.reached) == (2.0, False)
    assert (cpu.median, cpu.reached) == (0.75, False)


def test_many_clients_are_compared_with_few() -> None:
    cells = [
        replace(cell(plan.OURS, window(rate)), clients=clients)
        for clients, rate in ((1, 1.0), (8, 4.0), (64, 3.0))
    ]
    line = found(goals.of(small_record(*cells)), "64 clients: GB/s")
    assert (line.median, line.against, line.reached) == (0.75, "8 clients", False)


@pytest.mark.parametrize(("streams", "against"), [(1, plan.PERFTEST), (2, plan.RAW_TWO)])
def test_large_values_are_compared_with_the_best_of_as_many_streams(
    streams: int, against: str
) -> None:
    rates = {plan.RAW: 2.0, plan.RAW_TWO: 4.0, plan.PERFTEST: 2.5, plan.OURS: 3.0}
    cells = [cell(way, window(rate), nbytes=content.LARGE) for way, rate in rates.items()]
    measured = small_record(*cells)
    measured.streams = {plan.OURS: streams}
    line = found(goals.of(measured), "100 MB, get")
    assert (line.against, line.median) == (against, 3.0 / rates[against])


def test_what_was_not_measured_has_no_goal() -> None:
    plain = cell(plan.OURS, window(4), nbytes=content.LARGE)
    checked = cell(plan.CHECKED, window(3), nbytes=content.LARGE)
    lines = goals.of(small_record(plain, checked))
    assert found(lines, plan.CHECKED).median == 0.75
    assert [line for line in lines if plan.ENCRYPTED in line.what] == []


def test_goals_of_a_crowd() -> None:
    lines = goals.of(small_record())
    reached = {line.what.split(": ", 1)[1]: (line.median, line.reached) for line in lines}
    assert reached == {
        "the last is served: ucxstore, tcp": (4.0, True),
        "have failed: ucxstore, tcp": (0.5, False),
        "memory of the server, each: ucxstore, tcp": (100.0, True),
        "descriptors of the server, each: ucxstore, tcp": (1.5, True),
        "4 KiB, get, half within: ucxstore, tcp": (1.5, False),
    }


# ---- the record, and the page ----


def full_record() -> Record:
    """Return a record with something for each section."""
    many = [
        Cell(network, way.name, "get", content.MIDDLE, clients, [window(clients)])
        for network in (LOOPBACK, VETH)
        for way in plan.MANY_CLIENTS
        for clients in (1, 8)
    ]
    perftest = Cell(LOOPBACK, plan.PERFTEST, "get", content.LARGE, 1, [Window(2.0, 0.05)])
    measured = small_record(cell(plan.OURS, window(3.21), nbytes=content.LARGE), perftest, *many)
    measured.settings = [cell("never sleep", window(7.77))]
    measured.refused = [f"{plan.ENCRYPTED}: ConnectError: no"]
    return measured


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record.write(full_record(), tmp_path / "results.json")
    assert record.read(tmp_path / "results.json") == full_record()
    assert json.loads((tmp_path / "results.json").read_text())["machine"] == {"system": "Linux"}


def test_a_page_has_all_figures() -> None:
    text = page.write(full_record())
    assert "| ucxstore, tcp | 3.21 / 3.21 | 0.50 + 0.50 |" in text
    assert "| ucx_perftest | 2.00 / 2.00 |  |" in text
    assert "| never sleep | 7.77 / 7.77 |" in text
    assert "| ucxstore, tcp | 20 | 4.00 / 3.00 | 1 | 40 | 100 | 1.50 |" in text
    assert f"- {plan.ENCRYPTED}: `ConnectError: no`" in text
    assert "These figures mean nothing" not in text
    assert "These figures mean nothing" in page.write(replace(full_record(), quick=True))


def test_a_page_of_nothing_has_no_sections() -> None:
    empty = Record({})
    assert "\n## " not in page.write(empty)
    assert page.pictures(empty) == {}


def test_the_pictures_are_those_of_the_page(tmp_path: Path) -> None:
    run.draw(full_record(), tmp_path / "network.md", tmp_path / "images")
    drawn = sorted(tmp_path.glob("images/*.svg"))
    text = (tmp_path / "network.md").read_text()
    assert [f"(images/{picture.name})" in text for picture in drawn] == [True] * 3
    for picture in drawn:
        ElementTree.parse(picture)


@pytest.mark.skipif(not run.RECORD.exists(), reason="no whole run is committed")
def test_the_committed_page_is_that_of_the_committed_record(tmp_path: Path) -> None:
    run.draw(record.read(run.RECORD), tmp_path / "network.md", tmp_path / "images")
    assert (tmp_path / "network.md").read_text() == run.PAGE.read_text()
    for picture in tmp_path.glob("images/*.svg"):
        assert picture.read_text() == (run.IMAGES / picture.name).read_text()


# ---- turns ----


def test_each_round_starts_with_another_one() -> None:
    order: list[str] = []

    def turn(name: str) -> Callable[[], Window]:
        return lambda: (order.append(name), window(1))[1]

    windows = take_turns({name: turn(name) for name in "abc"}, 3, pytest.fail)
    assert "".join(order) == "abcbcacab"
    assert {name: len(found) for name, found in windows.items()} == {"a": 3, "b": 3, "c": 3}


def test_one_that_fails_has_no_more_turns() -> None:
    failures: list[tuple[str, str]] = []

    def fail() -> Window:
        raise ProgramError("gone")

    windows = take_turns(
        {"a": lambda: window(1), "b": fail},
        2,
        lambda name, error: failures.append((name, str(error))),
    )
    assert list(windows) == ["a"]
    assert failures == [("b", "gone")]


# ---- programs ----


def test_a_program_that_ends_is_noticed() -> None:
    with Program(["sh", "-c", "read line; echo because >&2; exit 3"]) as program:
        program.say("go")
        with pytest.raises(ProgramError, match="status 3: because"):
            program.hear()


def test_a_program_that_does_not_answer_is_noticed() -> None:
    with (
        Program(["cat"]) as program,
        pytest.raises(ProgramError, match=r"no answer within 0\.05 s"),
    ):
        program.hear(0.05)


@pytest.mark.parametrize("way", [RawTcp("one"), RawTcp("two", streams=2), RawTcp("z", 1, True)])
@pytest.mark.parametrize("op", ["get", "set"])
def test_raw_tcp_moves_large_values(way: RawTcp, op: str) -> None:
    assert moved(way, Load(op, 3_000_000, 1)).rate > 0


@pytest.mark.parametrize("linger", [0, 200])
def test_raw_tcp_serves_many_clients(linger: int) -> None:
    found = moved(RawTcp("many", linger=linger), Load("get", content.SMALL, 5))
    assert found.p50 is not None
    assert found.p99 is not None
    assert 0 < found.p50 <= found.p99
    assert found.cpu is not None
    assert found.cpu > 0


def test_raw_tcp_refuses_several_streams_of_several_clients() -> None:
    with pytest.raises(ProgramError, match="one client of several streams"):
        moved(RawTcp("two", streams=2), Load("get", content.SMALL, 2))


def test_between_namespaces() -> None:
    """A value moves, at the rate of the link; and the namespaces are gone afterwards."""
    name = "1 Gbit/s"
    if (reason := why_not(name)) is not None:
        pytest.skip(reason)
    with linked(name) as link:
        holders = [
            end.inside[end.inside.index("--target") + 1] for end in (link.server, link.client)
        ]
        found = measure(link, RawTcp("raw"), Load("get", 12_500_000, 1))
        assert (
            0.01 < found.rate < 0.14
        )  # 0.125 GB/s are 1 Gbit/s; more comes at once, after a pause
    assert [Path(f"/proc/{pid}/ns/net").exists() for pid in holders] == [False, False]


def moved(way: Way, load: Load) -> Window:
    with linked(LOOPBACK) as link:
        return measure(link, way, load)


def measure(link: Link, way: Way, load: Load) -> Window:
    """Measure a short window. Each client has compared a value before."""
    with way.serve(link) as served, way.clients(link, served, load) as clients:
        assert clients.hear()["ready"] is True
        return watch(clients, served.pid, load, 0.05)


def test_clients_in_python_answer_for_all() -> None:
    way = next(way for way in plan.MANY_CLIENTS if way.name == plan.OURS)
    found = moved(way, Load("get", content.SMALL, 2))
    assert found.rate > 0
    assert found.client_cpu is not None
    assert found.client_cpu > 0


def test_all_pages_of_a_value_are_compared() -> None:
    """A client of raw TCP ends if what comes is not what the server has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_wrongly, args=[listener])
        thread.start()
        port = str(listener.getsockname()[1])
        command = [programs.raw_tcp(), "clients", "127.0.0.1", port, "get", "8192", "1", "1"]
        with (
            Program([*command, "copy", "0"]) as clients,
            pytest.raises(ProgramError, match="byte 4096 came back wrong"),
        ):
            clients.hear()
        thread.join(20)


def answer_wrongly(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        request = connection.recv(64, socket.MSG_WAITALL)
        connection.sendall(bytes(8) + request[8:16] + bytes(48) + bytes(8192))


# ---- Redis ----


def test_redis_answers_in_pieces() -> None:
    value = os.urandom(5000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_as_redis, args=[listener, value])
        thread.start()
        out = bytearray(len(value))
        with closing(RedisClient(f"127.0.0.1:{listener.getsockname()[1]}", out)) as client:
            client.set("key", value)
            client.get_into("key")
            with pytest.raises(RuntimeError, match="gone: Redis has answered"):
                client.get_into("gone")
        thread.join(20)
    assert out == value


def answer_as_redis(listener: socket.socket, value: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        command = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5000\r\n" + value + b"\r\n"
        assert connection.recv(len(command), socket.MSG_WAITALL) == command
        connection.sendall(b"+O")
        connection.sendall(b"K\r\n")
        for key, answer in ((b"key", b"$5000\r\n" + value + b"\r\n"), (b"gone", b"$-1\r\n")):
            command = b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)
            assert connection.recv(len(command), socket.MSG_WAITALL) == command
            connection.sendall(answer[:9])
            connection.sendall(answer[9:])
