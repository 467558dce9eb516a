"""Requests generated from the OpenAPI document: the server responds as documented.

Every operation is a test, which generates its requests when it runs: to generate them all takes a minute, and every
process that collects the tests would do so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from penstock.server.reference.openapi import document
from tests.support import live
from tests.support.effort import times
from tests.support.live import LiveServer
from tests.support.patience import PATIENCE_S

CHECKS = [not_a_server_error, content_type_conformance, status_code_conformance]
EXAMPLES_PER_OPERATION = times(5)
KNOWN = {"workflow_id": "known", "activity_id": "known-activity", "name": "known", "worker_id": "known"}
"""What half of the requests are about, so that they get beyond "not there"."""

DOCUMENT = document()
METHODS = frozenset({"get", "put", "post", "delete", "patch"})
OPERATIONS = [
    (method, path) for path, item in DOCUMENT["paths"].items() for method in item if method in METHODS
]
CONFIG = schemathesis.Config.from_dict({"seed": 1, "generation": {"mode": "all", "deterministic": True}})


schema = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("invented")
    short = {"DW_WORKER_POLL_TIMEOUT": "1", "DW_LOG_LEVEL": "error"}
    url = f"sqlite:///{folder / 'penstock.db'}"
    with live.running(live.server(folder, url, settings=short)) as (running,):
        _populate(running)
        yield running


def _populate(server: LiveServer) -> None:
    import requests

    for role, path, body in (
        ("admin", "namespaces", {"name": "known"}),
        ("worker", "worker/register", {"worker_id": "known", "task_queue": "staffed", "runtime": "python"}),
        ("operator", "workflows", {"workflow_type": "greet", "workflow_id": "known", "task_queue": "known"}),
        (
            "operator",
            "activities",
            {"activity_type": "charge", "activity_id": "known-activity", "task_queue": "known"},
        ),
    ):
        answer = requests.post(
            f"{server.url}/api/{path}", json=body, headers=live.headers(role), timeout=PATIENCE_S
        )
        assert answer.status_code == 201, answer.text


@schema.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    for name in path_parameters or ():
        value = path_parameters[name]
        if name in KNOWN and isinstance(value, str) and len(value) % 2:
            path_parameters[name] = KNOWN[name]
    return path_parameters


@schema.hook
def map_headers(context: Any, headers: Any) -> Any:
    """Three of four requests are about the namespace that is there."""
    if headers and len(str(headers.get("X-Namespace", ""))) % 4:
        headers.pop("X-Namespace")
    return headers


def hurry(case: schemathesis.Case) -> None:
    """A request that may wait would, and nothing would be learned from it. Examples do not pass through hooks."""
    if isinstance(case.query, dict):
        for name, at_once in (("wait_new_event", "false"), ("wait_seconds", "0")):
            if name in case.query:
                case.query[name] = at_once
    if isinstance(case.body, dict) and case.path.endswith("/poll"):
        case.body["timeout_seconds"] = 0
    if isinstance(case.body, dict) and "/update/" in case.path:
        case.body["wait_timeout_seconds"] = 1


@settings(
    max_examples=EXAMPLES_PER_OPERATION,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def send(case: schemathesis.Case, server: LiveServer) -> None:
    hurry(case)
    roles = case.operation.definition.raw.get("x-roles", ["operator"])
    credential = {"Authorization": f"Bearer {roles[0]}-secret"}
    case.call_and_validate(base_url=server.url, headers=credential, checks=CHECKS, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("method", "path"), OPERATIONS, ids=[f"{method.upper()} {path}" for method, path in OPERATIONS]
)
def test_the_server_answers_whatever_the_document_lets_one_send(
    method: str, path: str, server: LiveServer
) -> None:
    load_all_checks()
    test = build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=send,
        given_kwargs={},
        feedback=FeedbackSources(),
    )
    test(server=server)
