"""A cluster takes the requests that a connection takes: the store knows no difference."""

import ast
import inspect
from pathlib import Path

import ucxstore
from ucxstore.cluster.cluster import Cluster

# What stores ask of a link instead, and what each server has of its own.
NOT_REQUESTS = {
    "alive",
    "peer",
    "lanes",
    "close",
    "stats",
    "begin_space",
    "renew_space",
    "end_space",
}


def test_every_request_has_the_same_parameters() -> None:
    stub = ast.parse(Path(ucxstore.__file__).with_name("_core.pyi").read_text())
    (connection,) = [
        node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Connection"
    ]
    requests = {
        node.name: [argument.arg for argument in node.args.args]
        for node in connection.body
        if isinstance(node, ast.FunctionDef) and node.name not in NOT_REQUESTS
    }
    assert "read_parts" in requests
    for name, parameters in requests.items():
        assert list(inspect.signature(getattr(Cluster, name)).parameters) == parameters, name
