"""The model of docs/scale.md, against formulas of queueing and a simulation of another kind."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.model import page
from benchmarks.model.__main__ import main
from benchmarks.model.constants import LARGE, ROW, SMALL, Constants, Cost, Figures
from benchmarks.model.engine import Hop, Simulation, Station
from benchmarks.model.load import Load, places
from benchmarks.model.play import Ways, play

CONSTANTS = Constants(
    server_get=Cost(30e-6, 2e-10),
    client_get=Cost(50e-6, 3e-10),
    server_set=Cost(40e-6, 3e-10),
    client_set=Cost(50e-6, 2e-10),
    local_get=Cost(5e-6, 1e-11),
)
FEW = Load(nodes=24, keys=500, requests=200, nbytes=LARGE)


# ---- queues, against formulas ----


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_wait_of_a_queue_with_equal_services(load: float) -> None:
    """Pollaczek and Khinchine, M/D/1: the mean wait is load / (2 (1 - load)) services."""
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / load, 400_000))
    station = Station()
    waits = [station.serve(now, 1.0) - 1.0 - now for now in arrivals.tolist()]
    assert np.mean(waits) == pytest.approx(load / (2 * (1 - load)), rel=0.05)
    assert station.busy == station.served == 400_000


def test_the_time_in_queues_one_after_the_other() -> None:
    """Jackson: where services are exponential, each queue is as if it were alone, M/M/1."""
    rng = np.random.default_rng(2)
    rates, number = (2.0, 1.6, 3.0), 60_000
    stations = [Station() for _ in rates]
    services = [rng.exponential(1 / rate, number).tolist() for rate in rates]
    simulation = Simulation()
    took: list[float] = []

    def begin(job: int) -> None:
        begun = simulation.now
        hops = [Hop(one, each[job], 0.5) for one, each in zip(stations, services, strict=True)]
        simulation.travel(hops, lambda: took.append(simulation.now - begun))

    for job, now in enumerate(np.cumsum(rng.exponential(1.0, number)).tolist()):
        simulation.at(now, begin, job)
    simulation.run()
    expected = sum(1 / (rate - 1.0) + 0.5 for rate in rates)
    assert np.mean(took) == pytest.approx(expected, rel=0.05)


class Job(NamedTuple):
    begin: float
    route: Sequence[tuple[int, float, float]]  # station, service, delay


def by_relaxation(jobs: Sequence[Job]) -> list[float]:
    """Return the ends of jobs: serve each station's arrivals in order, until none changes.

    It has no events and no clock. Each round has the next of all services right.
    """
    arrivals = [[job.begin] + [np.inf] * len(job.route) for job in jobs]
    while True:
        before = [list(times) for times in arrivals]
        for station in {hop[0] for job in jobs for hop in job.route}:
            here = sorted(
                (before[number][stage], number, stage)
                for number, job in enumerate(jobs)
                for stage, hop in enumerate(job.route)
                if hop[0] == station
            )
            free = 0.0
            for arrived, number, stage in here:
                _, service, delay = jobs[number].route[stage]
                free = max(free, arrived) + service
                arrivals[number][stage + 1] = free + delay
        if arrivals == before:
            return [times[-1] for times in arrivals]


@pytest.mark.parametrize("seed", range(20))
def test_a_network_of_queues_against_a_slow_simulation(seed: int) -> None:
    """Jobs go any way, also back to where they were."""
    rng = np.random.default_rng(seed)
    jobs = [
        Job(
            float(rng.random()),
            [
                (int(rng.integers(4)), float(rng.random() / 8), float(rng.random() / 8))
                for _ in range(rng.integers(1, 6))
            ],
        )
        for _ in range(30)
    ]
    stations = [Station() for _ in range(4)]
    simulation = Simulation()
    ends = [0.0] * len(jobs)

    def begin(number: int) -> None:
        def end() -> None:
            ends[number] = simulation.now

        hops = [Hop(stations[station], *times) for station, *times in jobs[number].route]
        simulation.travel(hops, end)

    for number, job in enumerate(jobs):
        simulation.at(job.begin, begin, number)
    simulation.run()
    assert ends == pytest.approx(by_relaxation(jobs), rel=1e-12)


def test_no_event_is_before_now() -> None:
    simulation = Simulation()
    simulation.at(1.0, lambda: simulation.at(0.5, print))
    with pytest.raises(ValueError, match=r"at 0\.5 would be before now, 1\.0"):
        simulation.run()


# ---- loads ----


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0, 1.2])
def test_keys_are_drawn_by_the_law_of_zipf(exponent: float) -> None:
    load = replace(FEW, nodes=100, requests=1000, exponent=exponent)
    harmonic = sum(1 / rank**exponent for rank in range(1, load.keys + 1))
    drawn = Counter(load.draw(3).ravel().tolist())
    assert drawn.total() == 100_000
    for rank in (1, 2, 3, 10, 100, 500):
        share = 1 / rank**exponent / harmonic
        spread = np.sqrt(100_000 * share * (1 - share))
        assert abs(drawn[rank - 1] - 100_000 * share) < 5 * spread
    assert (load.draw(3) == load.draw(3)).all()


def test_a_load_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nodes must be at least 1, not 0"):
        Load(nodes=0)


# ---- what is simulated ----


def steps(nbytes: int) -> list[float]:
    """Return what each station on the way of a value takes."""
    wire = nbytes / CONSTANTS.bandwidth
    return [CONSTANTS.server_get.of(nbytes), wire, wire, CONSTANTS.client_get.of(nbytes)]


def alone(at_once: int) -> Load:
    """Return the load of two nodes that want a key of one of them."""
    return Load(nodes=2, keys=1, nbytes=LARGE, requests=50, at_once=at_once)


def test_one_get_after_the_other_takes_the_sum_of_its_steps() -> None:
    outcome = play(alone(1), CONSTANTS, Ways())
    each = sum(steps(LARGE)) + 2 * CONSTANTS.latency
    assert outcome.seconds == pytest.approx(50 * each)
    assert outcome.latency(1) == pytest.approx(each)
    assert outcome.sent == outcome.hottest == 50


def test_gets_at_once_take_the_longest_step_each() -> None:
    outcome = play(alone(50), CONSTANTS, Ways())
    took = steps(LARGE)
    assert outcome.seconds == pytest.approx(sum(took) + 49 * max(took) + 2 * CONSTANTS.latency)
    assert outcome.busy == pytest.approx(50 * took[0] / outcome.seconds)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_each_server_sends_the_part_of_its_keys(exponent: float) -> None:
    load = replace(FEW, exponent=exponent)
    place = np.array(places(load.nodes, load.keys))
    shares = np.bincount(place, load.shares(), load.nodes)
    hottest = shares.max() * load.requests * (load.nodes - 1)
    outcome = play(load, CONSTANTS, Ways())
    assert abs(outcome.hottest - hottest) < 5 * np.sqrt(hottest)
    remote = (place[load.draw(0)] != np.arange(load.nodes)[:, None]).sum()
    assert outcome.sent == remote
    assert len(outcome.latencies) == load.nodes * load.requests
    assert outcome.seconds > outcome.hottest * max(steps(LARGE)[:2])  # at the server


def test_keys_are_placed_as_clients_place_them() -> None:
    found = Counter(places(24, 5000))
    assert len(found) == 24
    assert max(found.values()) < 5000 / 24 * 1.5


@pytest.mark.parametrize("group", [1, 5, 24])
def test_a_cache_sends_for_each_value_once(group: int) -> None:
    outcome = play(FEW, CONSTANTS, Ways(group=group))
    place = places(FEW.nodes, FEW.keys)
    fetched: set[tuple[int, int]] = set()
    sent: Counter[int] = Counter()
    for reader, keys in enumerate(FEW.draw(0).tolist()):
        for key in keys:
            cache = reader // group * group + key % group
            cache = cache if cache < FEW.nodes else reader
            fetched.add((cache, key))
            sent[cache] += cache != reader
    for cache, key in fetched:
        sent[place[key]] += cache != place[key]
    assert outcome.sent == sent.total()
    assert outcome.hottest == max(sent.values())


def test_parts_and_copies_spread_what_is_sent() -> None:
    hot = replace(FEW, exponent=2.0)
    whole = play(hot, CONSTANTS, Ways())
    parts = play(hot, CONSTANTS, Ways(parts=4))
    copies = play(hot, CONSTANTS, Ways(copies=4, copied=hot.keys))
    assert parts.sent == pytest.approx(4 * whole.sent, rel=0.05)
    assert copies.sent == pytest.approx(whole.sent, rel=0.05)
    assert copies.hottest == pytest.approx(whole.hottest / 4, rel=0.3)
    assert max(parts.seconds, copies.seconds) < whole.seconds / 2
    assert len(parts.latencies) == len(copies.latencies) == hot.nodes * hot.requests


def test_threads_of_a_server_share_its_work() -> None:
    slow = replace(CONSTANTS, server_get=Cost(1e-3, 0.0))
    hot = replace(FEW, exponent=2.0, nbytes=SMALL)
    one, four = (play(hot, slow, Ways(threads=threads)) for threads in (1, 4))
    assert one.seconds == pytest.approx(one.hottest * 1e-3, rel=0.05)
    assert four.seconds == pytest.approx(one.seconds / 4, rel=0.1)


def test_the_servers_that_are_met() -> None:
    rng = np.random.default_rng(5)
    met = [len(set(rng.integers(0, 40, 60).tolist()) - {7}) for _ in range(4000)]
    assert page.servers_met(40, 60) == pytest.approx(np.mean(met), rel=0.01)


# ---- constants, and the page ----


def test_costs_go_through_what_was_measured() -> None:
    cost = Cost.through(20e-6, 150e-6)
    assert cost.of(SMALL) == pytest.approx(20e-6)
    assert cost.of(LARGE) == pytest.approx(150e-6)
    assert Cost.through(20e-6, 10e-6).of(LARGE) == pytest.approx(20e-6)


def test_bad_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    for text, why in (
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"rows": []}', f"no row {ROW!r}"),
        (
            json.dumps({"machine": {"processor": "x"}, "rows": [{"name": ROW, "lines": []}]}),
            "no line 'tcp: a get of 4 KiB, server'",
        ),
    ):
        file.write_text(text)
        assert main(["--from", str(file)]) == 1
        assert why in capsys.readouterr().err
    assert main(["--from", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    assert main(["--write", "--nodes", "7"]) == 1
    assert "default load" in capsys.readouterr().err


def test_figures_come_back_as_they_were_written(tmp_path: Path) -> None:
    figures = Figures.read()
    figures.write(tmp_path / "constants.json")
    assert Figures.read(tmp_path / "constants.json") == figures


def test_the_command_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "20", "--requests", "5", "--network", "ucx"]) == 0
    made = capsys.readouterr().out
    assert "over UCX over TCP" in made
    assert "20 nodes, 5 gets each" in made


def tables_of(text: str) -> str:
    """Return the tables of the page."""
    return text.partition("<!-- model -->\n\n")[2].partition("<!-- /model -->")[0]


def test_the_page_has_the_tables_of_the_constants() -> None:
    written = page.FILE.read_text()
    made = tables_of(written)
    assert made.startswith(page.measured(Figures.read(), "tcp"))
    assert page.put_in(written, made) == written
    with pytest.raises(ValueError, match="the page has no lines '<!-- model -->'"):
        page.put_in("# A page without tables\n", made)


@pytest.mark.full
def test_the_page_has_the_tables_of_the_simulation() -> None:
    assert tables_of(page.FILE.read_text()) == page.tables(Figures.read(), "tcp", Load())
