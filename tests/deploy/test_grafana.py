"""The dashboard for Grafana: its form, and that servers tell of all that it shows."""

import itertools
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from obstore.store import MemoryStore
from prometheus_client.parser import text_string_to_metric_families
from zarr.core.buffer import cpu

from ucxstore import UcxStore
from ucxstore.server import Server
from ucxstore.server.process.metrics import Metrics

FILE = Path(__file__).parents[2] / "deploy/grafana/ucxstore.json"

# What Prometheus adds to each sample that it reads from a server.
ADDED = {"instance", "job"}

type Told = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What servers tell: the values of each label, by the names of samples."""
    found: Told = {}
    objects = MemoryStore()
    objects.put("a", b"value")
    folder = tmp_path_factory.mktemp("served")
    (folder / "a").write_bytes(b"value")
    with (
        Server("memory://") as memory,
        Server(objects) as source,
        Server(folder) as directory,
    ):
        for server in (memory, source, directory):
            with UcxStore(server.address) as store:
                store.set_sync("b", cpu.Buffer.from_bytes(b"value"))
                store.get_sync("a")
            with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
                text = urllib.request.urlopen(metrics.url, timeout=60).read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = found.setdefault(sample.name, {})
                    for label, value in sample.labels.items():
                        labels.setdefault(label, set()).add(value)
    return found


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"]


def parse(expression: str) -> Any:
    """Parse an expression, with what Grafana puts in the place of its own variables."""
    return promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def selectors(node: Any) -> Iterator[tuple[Any, set[str]]]:
    """Yield each selector of an expression, and the labels by which what it gives is grouped."""
    match node:
        case promql_parser.VectorSelector():
            yield node, set()
        case promql_parser.MatrixSelector():
            yield node.vector_selector, set()
        case promql_parser.AggregateExpr():
            labels = set(node.modifier.labels) if node.modifier is not None else set()
            for selector, grouped in selectors(node.expr):
                yield selector, grouped | labels
        case promql_parser.BinaryExpr():
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case promql_parser.Call():
            for argument in node.args:
                yield from selectors(argument)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            yield from selectors(node.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            pass
        case _:
            raise TypeError(f"an expression of another kind: {type(node)}")


def faults(expression: str, told: Told) -> list[str]:
    """Return what an expression asks for that no server tells."""
    found = []
    for selector, grouped in selectors(parse(expression)):
        labels = told.get(selector.name)
        if labels is None:
            found.append(f"no metric {selector.name}")
            continue
        found += [
            f"no label {label} of {selector.name}" for label in grouped - ADDED - labels.keys()
        ]
        for matcher in selector.matchers.matchers:
            if matcher.name in ADDED:
                continue
            if matcher.name not in labels:
                found.append(f"no label {matcher.name} of {selector.name}")
            elif str(matcher.op) == "MatchOp.Equal" and matcher.value not in labels[matcher.name]:
                found.append(f"no {matcher.name}={matcher.value} of {selector.name}")
    return found


def test_servers_tell_of_all_that_it_shows(dashboard: dict[str, Any], told: Told) -> None:
    shown = list(expressions(dashboard))
    assert len(shown) > 20
    assert {expression: faults(expression, told) for expression in shown} == {
        expression: [] for expression in shown
    }


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("rate(ucxstore_got_total[5m])", "no metric ucxstore_got_total"),
        ("sum by (kind) (ucxstore_values)", "no label kind of ucxstore_values"),
        ('ucxstore_failures_total{reason="broken"}', "no reason=broken of ucxstore_failures_total"),
        ('1 + (ucxstore_values{who="me"})', "no label who of ucxstore_values"),
    ],
)
def test_what_no_server_tells_is_found(told: Told, expression: str, fault: str) -> None:
    assert faults(expression, told) == [fault]


def test_every_metric_is_explained_where_operators_look(told: Told) -> None:
    page = (FILE.parents[2] / "docs/howto/monitor.md").read_text()
    names = {
        re.sub(r"_(bucket|count|sum)$", "", name)
        for name in told
        if name.startswith("ucxstore_") and not name.endswith("_created")
    }
    assert {name for name in names if f"`{name}`" not in page} == set()
    told_there = set(re.findall(r"`(ucxstore_\w+)`", page))
    assert told_there - names - OF_CACHE_DIRECTORIES == set()


# Of servers with a cache directory alone.
OF_CACHE_DIRECTORIES = {
    "ucxstore_disk_hits_total",
    "ucxstore_disk_failures_total",
    "ucxstore_disk_bytes",
}


def test_alerts_ask_for_what_is_there(told: Told) -> None:
    page = (FILE.parents[2] / "docs/howto/monitor.md").read_text()
    rules = re.findall(r"^\s+expr: (.+)$", page, re.MULTILINE)
    assert len(rules) >= 5
    for rule in rules:
        expression = rule.strip("'")
        if not expression.startswith("up"):  # Prometheus's own
            assert faults(expression, told) == []


def test_it_has_what_grafana_requires(dashboard: dict[str, Any]) -> None:
    assert dashboard["uid"] == "ucxstore"
    assert dashboard["title"]
    assert isinstance(dashboard["schemaVersion"], int)
    assert dashboard["schemaVersion"] >= 36
    assert "id" not in dashboard  # Grafana's own number of it
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert "ucxstore_build_info" in variables["instance"]["definition"]
    for panel in panels(dashboard):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names) > 0
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    used = set(re.findall(r"\$\{?(\w+)\}?", FILE.read_text()))
    assert used <= variables.keys() | {"__rate_interval", "__all"}
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_no_panel_lies_over_another(dashboard: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    for place in places:
        assert place["w"] > 0 < place["h"]
        assert 0 <= place["x"] <= 24 - place["w"]
        assert place["y"] >= 0
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
