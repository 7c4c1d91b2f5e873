"""The manifests: valid, and of one mind."""

import inspect
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.files import DEPLOY, MANIFESTS, ROOT, documents
from ucxstore.server import Server

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION = documents(FOLDER / "kustomization.yaml")[0]
STATEFUL = documents(FOLDER / "statefulset.yaml")[0]
SERVICE = documents(FOLDER / "service.yaml")[0]
CLIENT = documents(FOLDER / "client.yaml")[0]
POD = STATEFUL["spec"]["template"]
[CONTAINER] = POD["spec"]["containers"]


def refused(resource: Any) -> str | None:
    """Return what Kubernetes' schema says against a resource; ``None`` for nothing."""
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return None


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_valid(path: Path) -> None:
    for resource in documents(path):
        assert refused(resource) is None


def test_a_wrong_manifest_is_noticed() -> None:
    wrong = {**SERVICE, "spec": {**SERVICE["spec"], "portz": []}}
    assert "portz" in (refused(wrong) or "")


def test_the_kustomization_has_every_manifest() -> None:
    files = {path.name for path in MANIFESTS}
    assert set(KUSTOMIZATION["resources"]) == files - {"client.yaml"}


def test_the_service_finds_the_servers() -> None:
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert STATEFUL["spec"]["serviceName"] == SERVICE["metadata"]["name"]
    labels = POD["metadata"]["labels"]
    others = [documents(FOLDER / name)[0] for name in ("disruption.yaml", "network.yaml")]
    selectors = [
        SERVICE["spec"]["selector"],
        STATEFUL["spec"]["selector"]["matchLabels"],
        others[0]["spec"]["selector"]["matchLabels"],
        others[1]["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()


def test_the_image_is_that_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    compose = documents(DEPLOY / "docker/compose.yaml")[0]["services"].values()
    [replaced] = KUSTOMIZATION["images"]
    assert replaced["name"] == CONTAINER["image"]
    named = {service["image"] for service in compose} | {CLIENT["spec"]["containers"][0]["image"]}
    assert named == {f"{replaced['newName']}:{replaced['newTag']}"} == {f"ucxstore:{version}"}


def test_ports_are_those_of_the_command() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert f"--bind=0.0.0.0:{ports['ucxstore']}" in CONTAINER["args"]
    assert f"--metrics=0.0.0.0:{ports['metrics']}" in CONTAINER["args"]
    assert {port["name"]: port["port"] for port in SERVICE["spec"]["ports"]} == ports
    for probe, path in (
        ("startupProbe", "/readyz"),
        ("readinessProbe", "/readyz"),
        ("livenessProbe", "/healthz"),
    ):
        assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "metrics"}


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_wait_for_the_answer(probe: str) -> None:
    """Kubernetes waits a second unless it is told otherwise."""
    answers = {"/readyz": Server.unready, "/healthz": Server.dead}
    answer = answers[CONTAINER[probe]["httpGet"]["path"]]
    takes = inspect.signature(answer).parameters["timeout"].default
    assert CONTAINER[probe].get("timeoutSeconds", 1) > takes


def test_the_secret_is_where_the_command_looks() -> None:
    [made] = KUSTOMIZATION["secretGenerator"]
    for pod, container in ((POD, CONTAINER), (CLIENT, CLIENT["spec"]["containers"][0])):
        [volume] = [one for one in pod["spec"]["volumes"] if "secret" in one]
        assert volume["secret"]["secretName"] == made["name"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert f"{mounts[volume['name']]}/{made['files'][0]}" == "/etc/ucxstore/secret"
    assert "--secret-file=/etc/ucxstore/secret" in CONTAINER["args"]


def test_servers_drain_before_they_are_killed() -> None:
    [grace] = [word for word in CONTAINER["args"] if word.startswith("--grace=")]
    seconds = int(grace.partition("=")[2])
    assert seconds < POD["spec"]["terminationGracePeriodSeconds"]


def test_the_client_names_every_server() -> None:
    address = CLIENT["spec"]["containers"][0]["args"][-1]
    name, service = STATEFUL["metadata"]["name"], SERVICE["metadata"]["name"]
    hosts = [f"{name}-{number}.{service}:7400" for number in range(STATEFUL["spec"]["replicas"])]
    assert address == f"ucx://{','.join(hosts)}"


def test_the_network_lets_clients_in_at_one_port() -> None:
    [policy] = documents(FOLDER / "network.yaml")
    clients, prometheus = policy["spec"]["ingress"]
    assert clients["ports"] == [{"port": "ucxstore"}]
    assert prometheus["ports"] == [{"port": "metrics"}]
    assert {"ucxstore", "metrics"} == {port["name"] for port in CONTAINER["ports"]}


def test_the_monitor_finds_the_servers() -> None:
    """Its schema is the Prometheus Operator's, which is not here: these are all of its fields."""
    [component] = documents(FOLDER / "monitoring/kustomization.yaml")
    assert component["resources"] == ["servicemonitor.yaml"]
    [monitor] = documents(FOLDER / "monitoring/servicemonitor.yaml")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["kind"] == "ServiceMonitor"
    assert monitor["spec"].keys() == {"selector", "endpoints"}
    given = [one["pairs"] for one in KUSTOMIZATION["labels"]]
    labels: dict[str, str] = SERVICE["metadata"].get("labels", {})
    for pairs in given:
        labels = {**labels, **pairs}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "15s"}
    assert endpoint["port"] in {port["name"] for port in SERVICE["spec"]["ports"]}
    [patch] = component["patches"]  # else its servers would be read twice
    assert patch["target"] == {"kind": "StatefulSet", "name": STATEFUL["metadata"]["name"]}
    [change] = yaml.safe_load(patch["patch"])
    at: Any = STATEFUL
    for part in change["path"].strip("/").split("/"):
        at = at[part]
    assert change["op"] == "remove"
    assert all(name.startswith("prometheus.io/") for name in at)


def test_nobody_is_root_and_everything_has_limits() -> None:
    for pod in (POD["spec"], CLIENT["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert {"requests", "limits"} == set(container["resources"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("component", ["", "socket", "monitoring"])
def test_kustomize_builds_valid_resources(component: str, tmp_path: Path) -> None:
    base = shutil.copytree(FOLDER, tmp_path / "kubernetes")
    (base / "secret").write_text("x" * 32)
    if component:
        whole = {**KUSTOMIZATION, "components": [component]}
        (base / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    built = subprocess.run(["kubectl", "kustomize", base], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    resources = list(yaml.safe_load_all(built.stdout))
    monitors = [one for one in resources if one["kind"] == "ServiceMonitor"]
    assert len(monitors) == (component == "monitoring")
    resources = [one for one in resources if one not in monitors]  # of no schema that is here
    assert [refused(resource) for resource in resources] == [None] * len(resources)
    assert {resource["kind"] for resource in resources} == {
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Secret",
        "Service",
        "StatefulSet",
    }
    [stateful] = [one for one in resources if one["kind"] == "StatefulSet"]
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    assert any(word.startswith("--socket=") for word in container["args"]) is (
        component == "socket"
    )
    assert stateful["spec"]["template"]["metadata"]["labels"]["app"] == "ucxstore"
