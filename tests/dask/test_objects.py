"""What a deployment shows: counters, the dashboard's page, progress. Where tasks are run."""

import importlib
import json
import pickle
import subprocess
import sys
import urllib.request
from dataclasses import fields
from html.parser import HTMLParser
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.array.optimization import optimize as dasks_own
from distributed import Client, futures_of, get_task_stream, wait

from tests.dask.conftest import SECONDS
from tests.eventually import eventually
from ucxstore import ConnectError, Scratch, StorageError
from ucxstore.base.stats import names_of
from ucxstore.dask import deploy, deployment, locality
from ucxstore.dask.dashboard import METRIC, DashboardPlugin, page, stats_of
from ucxstore.dask.figures import DeploymentStats, WorkerStats, WorkStats

SHAPE = (400, 300)
CHUNKS = (50, 60)
COUNT = 8 * 5

HOSTILE = "<script>alert(1)</script>&\"'\x1b[31m"


def make_array(store: Any, name: str = "a") -> zarr.Array:
    return zarr.create_array(
        store, name=name, shape=SHAPE, chunks=CHUNKS, dtype="f4", fill_value=-1, compressors=None
    )


def some_values() -> np.ndarray:
    return np.random.default_rng(5).random(SHAPE, dtype="f4")


def test_the_counters_of_all_workers_add_up(client: Client) -> None:
    values = some_values()
    with deploy(client, memory="64MiB") as deployed:
        start = deployed.stats()
        z = make_array(deployed.store("run"))
        da.from_array(values, chunks=CHUNKS).store(z, lock=False)
        np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
        stats = deployed.stats()
        workers = stats.workers
        assert isinstance(stats, DeploymentStats)
        assert stats.servers == len(workers) == 2
        assert {f"ucx://{each.server}" for each in workers.values()} == {
            *deployed.addresses.values()
        }
        for name in "gets", "sets", "bytes_sent", "memory_bytes", "direct", "bytes_read":
            assert stats[name] == sum(each[name] for each in workers.values())
        assert stats.memory_limit_bytes == 2 * (64 << 20)
        assert stats.memory_bytes >= values.nbytes
        assert stats.sets >= COUNT
        # What this process has written is no worker's; all chunks went the short way there.
        assert stats.direct - start.direct == 2 * COUNT
        assert stats.bytes_read - start.bytes_read >= values.nbytes
        assert stats.fallback == start.fallback
        moved = stats.bytes_sent + stats.bytes_received + stats.bytes_seen
        assert sum(stats.lane_bytes.values()) == moved
        assert any(lane.startswith("tcp") for lane in stats.lane_bytes)
        assert pickle.loads(pickle.dumps(stats)) == json.loads(json.dumps(stats)) == stats
        assert "workers:\nworkers " in str(stats)
        assert "open" in repr(deployed)
        assert deployed.name in deployed._repr_html_()
    assert repr(deployed).endswith("closed>")
    with pytest.raises(ConnectError, match="is closed"):
        deployed.stats()


class Text(HTMLParser):
    """The text and the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def fetched(link: str) -> tuple[str, Any]:
    with urllib.request.urlopen(link, timeout=SECONDS) as answer:
        return answer.read().decode(), answer.headers


def test_the_page_of_the_dashboard(client: Client) -> None:
    values = some_values()
    with deploy(client) as deployed, deploy(client) as other:
        z = make_array(deployed.store("run"))
        da.from_array(values, chunks=CHUNKS).store(z, lock=False)
        assert deployed.dashboard_link is not None
        assert deployed.dashboard_link in deployed._repr_html_()

        def told() -> Any:
            text, headers = fetched(f"{deployed.dashboard_link}.json")
            assert headers["Content-Type"] == "application/json"
            return json.loads(text)

        expected = deployed.stats()
        # Servers and workers tell it one after another.
        eventually(
            lambda: (
                (one := told().get(deployed.name, {})).get("sets") == expected.sets
                and one.get("direct") == expected.direct
            ),
            SECONDS,
        )
        found = told()
        assert set(found) == {deployed.name, other.name}
        assert found[deployed.name]["memory_bytes"] == expected.memory_bytes
        assert found[deployed.name]["direct"] == expected.direct
        assert set(found[deployed.name]["workers"]) == set(deployed.addresses)
        html, headers = fetched(deployed.dashboard_link)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        shown = Text(html)
        assert "script" not in shown.tags
        for text in (
            deployed.name,
            *deployed.addresses,
            *(each.server for each in expected.workers.values()),
            *expected.lane_bytes,
            "2.1 GB",  # the limit of each
            "Ways of chunks",
        ):
            assert text in shown.text
        assert 'http-equiv="refresh"' in html
        link = deployed.dashboard_link
    eventually(lambda: "No worker has a server now" in fetched(link)[0])


class Elsewhere(DashboardPlugin):
    """A plugin of a package that the scheduler does not have."""

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("no_such_package",)


def test_a_scheduler_without_this_package_has_no_page(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deployment, "DashboardPlugin", Elsewhere)
    with deploy(client) as deployed:
        assert deployed.dashboard_link is None
        assert deployed.stats().servers == 2
    assert "no page /ucxstore on the dashboard: ModuleNotFoundError" in caplog.text


def test_what_workers_tell_is_escaped() -> None:
    zeros = dict.fromkeys(names_of(DeploymentStats), 0)
    figures = {**zeros, "server": HOSTILE, "process": "1", "lane_bytes": {HOSTILE: 7}}
    stats = stats_of({HOSTILE: {METRIC: {HOSTILE: figures}}, "tcp://b:1": {}})
    shown = Text(page(stats))
    assert "script" not in shown.tags
    assert shown.text.count("<script>alert(1)</script>") == 6
    assert "7 B" in shown.text


def test_workers_of_one_process_count_their_stores_once() -> None:
    zeros = dict.fromkeys(names_of(DeploymentStats), 0)
    one = {**zeros, "server": "a:1", "process": "1", "lane_bytes": {}, "direct": 5, "sets": 5}
    metrics = {f"w{i}": {METRIC: {"d": {**one, "process": str(i // 2)}}} for i in range(3)}
    stats = stats_of(metrics)["d"]
    assert (stats.sets, stats.direct) == (15, 10)


def test_progress_of_tasks(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    values = some_values()
    with deploy(client) as deployed:
        z = make_array(deployed.store("run"))
        with deployed.progress(2 * values.nbytes, "both ways") as counted:
            da.from_array(values, chunks=CHUNKS).store(z, lock=False)
            da.from_zarr(z).sum().compute()
        assert counted.planned == 2 * values.nbytes
        assert (
            2 * values.nbytes <= counted.moved < 2 * values.nbytes + 100_000
        )  # metadata, requests
        assert "both ways" in capsys.readouterr().err
        with pytest.raises(TypeError, match=r"^planned: a number of bytes"):
            deployed.progress(z.store)
        with pytest.raises(KeyError), deployed.progress("1kB"):
            raise KeyError
        with deployed.progress(1):
            deployed.close()  # what was computed until then stands


def test_what_is_no_loss_is_not_tried_again(client: Client) -> None:
    attempts = []

    def step(scratch: Scratch) -> None:
        attempts.append(scratch)
        raise error

    with deploy(client) as deployed:
        for error in KeyError("mine"), StorageError("no room"):
            with pytest.raises(type(error)) as caught:
                deployed.retry(step, "1MB")
            assert caught.value is error
        with pytest.raises(ValueError, match="attempts: 0"):
            deployed.retry(step, "1MB", attempts=0)
    assert len(attempts) == 2
    assert attempts[0].closed


@pytest.mark.parametrize("optimizer", ["dask's own", "the user's"])
def test_locality_needs_no_option_of_compute(client: Client, optimizer: str) -> None:
    values = some_values()
    seen = []

    def users(graph: Any, keys: Any, **options: Any) -> Any:
        seen.append(keys)
        return dasks_own(graph, keys, **options)

    if optimizer == "the user's":
        dask.config.set(array_optimize=users)
    with deploy(client) as deployed:
        z = make_array(deployed.store("here"))
        z[...] = values
        x = locality(da.from_zarr(z), client)
        with get_task_stream(client) as ran:
            total = ((x + 1) * 2).sum(dtype="f8").compute()
        assert total == pytest.approx(((values + 1) * 2).sum(dtype="f8"))
        preferred = x.dask.layers[x.name].annotations["workers"]
        tasks = {task["key"]: task["worker"] for task in ran.data if task["key"][0] == x.name}
        assert len(tasks) == COUNT
        assert {key: [worker] for key, worker in tasks.items()} == {
            key: preferred(key) for key in tasks
        }
        blocks = x.persist()
        wait(blocks, timeout=SECONDS)
        places = client.who_has(futures_of(blocks))
        assert places == {key: tuple(preferred(key)) for key in places}
        assert len(places) == COUNT
        np.testing.assert_array_equal(blocks.compute(), values)
    other = da.ones(3, chunks=1) + 1
    other.__dask_optimize__(other.dask, other.__dask_keys__())
    assert bool(seen) == (optimizer == "the user's")


def test_other_graphs_are_optimized_as_before(client: Client) -> None:
    x = da.ones((40, 40), chunks=10)
    graph = ((x + 1)[:20] * 2).sum()
    before = dict(graph.__dask_optimize__(graph.dask, graph.__dask_keys__()))
    with deploy(client) as deployed:
        locality(da.from_zarr(make_array(deployed.store())), client)
    after = dict(graph.__dask_optimize__(graph.dask, graph.__dask_keys__()))
    assert set(after) == set(before)
    assert graph.compute() == 20 * 40 * 4
    # Nannies and schedulers get it, which may not have this package.
    pickled = pickle.dumps(dask.config.get("array_optimize"))
    code = "import pickle, sys; sys.modules['ucxstore'] = None; import dask.array as da; "
    code += f"optimize = pickle.loads({pickled!r}); x = da.ones(30, chunks=10) + 1; "
    code += "print(len(optimize(x.dask, x.__dask_keys__())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_the_counters_of_many_workers_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    counted = {field.name: 123_456_789 for field in fields(WorkStats)}
    lanes = {"rc_mlx5/mlx5_0:1 + tcp/eth0": 10**12, "local": 10**9, "clients that have gone": 1}
    workers = {
        f"tcp://worker-{number}.cluster.example:40{number:03}": WorkerStats(
            **{**counted, "lane_bytes": lanes},
            server=f"10.0.0.{number}:7400",
            process=str(number),
        )
        for number in range(5)
    }
    text = str(DeploymentStats.of(workers))
    assert max(map(len, text.splitlines())) <= 80
    for worker in workers:
        # In the first table, and in each that goes on; a name is not cut.
        assert text.count(worker) > 1
    for field in fields(WorkStats):
        assert field.name in text.partition("workers:")[2]
