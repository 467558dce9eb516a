"""The OpenAPI document: complete, valid, and in line with the routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis

from penstock.core.permissions import ACCESS, AuthDriver
from penstock.errors import Reason
from penstock.server.operations.table import OPERATIONS
from penstock.server.problems import STATUS
from penstock.server.reference.openapi import document
from tests.server.client import Client

DOCUMENT = document()
METHODS = frozenset({"get", "put", "post", "delete", "patch", "head", "options", "trace"})


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside the document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def test_the_document_is_valid_openapi_3_1() -> None:
    assert re.fullmatch(r"3\.1\.\d", DOCUMENT["openapi"])
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_every_operation_of_the_table_is_in_the_document_and_no_other() -> None:
    documented = {(method.upper(), path): each["operationId"] for path, method, each in operations()}
    assert documented == {(each.method, each.path): each.name for each in OPERATIONS}
    assert {method for _, method, _ in operations()} <= METHODS


def test_names_of_operations_are_unique_and_fit_for_generated_clients() -> None:
    names = [each["operationId"] for _, _, each in operations()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_reference_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    references = {part["$ref"] for part in parts(DOCUMENT) if "$ref" in part}
    assert references <= known
    assert references


def test_every_placeholder_in_a_path_is_declared_once() -> None:
    for path, _, operation in operations():
        declared = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
        assert declared == re.findall(r"{(\w+)}", path)
        everything = [(each["in"], each["name"]) for each in operation["parameters"]]
        assert len(set(everything)) == len(everything)
        assert all(each["required"] for each in operation["parameters"] if each["in"] == "path")


def test_patterns_mean_the_same_in_every_dialect() -> None:
    """JSON Schema reads patterns as JavaScript does, where Python's anchors are letters."""
    patterns = [part["pattern"] for part in parts(DOCUMENT) if isinstance(part.get("pattern"), str)]
    assert patterns
    for pattern in patterns:
        re.compile(pattern)
        assert pattern.startswith("^")
        assert pattern.endswith("$")
        assert not re.search(r"\\[AZzG]|\(\?", pattern)


def test_roles_and_headers_are_those_that_are_enforced() -> None:
    by_name = {each["operationId"]: each for _, _, each in operations()}
    for row in OPERATIONS:
        access, shown = ACCESS[row.family], by_name[row.name]
        headers = {each["name"]: each["required"] for each in shown["parameters"] if each["in"] == "header"}
        assert ("X-Namespace" in headers) == access.namespaced
        assert any(name.startswith("X-Durable") for name in headers) == (access.plane is not None)
        if access.roles is None:
            assert shown["security"] == []
        else:
            assert shown["x-roles"] == sorted(role.value for role in access.roles)
            assert "security" not in shown


def test_every_operation_documents_its_success_and_the_refusals_of_the_common_path() -> None:
    for _, method, operation in operations():
        found = {int(status) for status in operation["responses"]}
        assert found & {200, 201}
        assert {400, 408, 413, 421, 431, 500, 503} <= found
        if operation.get("x-roles"):
            assert {401, 403, 429} <= found
        if "requestBody" in operation:
            assert {415, 422} <= found
        assert all(each["description"] and each["content"] for each in operation["responses"].values())
        assert method == "get" or 507 in found


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_refusals_that_a_row_names_are_statuses_that_some_reason_has(row: Any) -> None:
    assert set(row.refusals) <= set(STATUS.values())


def test_a_refusal_in_the_document_has_the_fields_that_refusals_have() -> None:
    problem = DOCUMENT["components"]["schemas"]["ProblemDetails"]
    assert {"message", "reason", "errors", "validation_errors"} <= problem["properties"].keys()
    assert {"message", "reason"} <= set(problem["required"])
    assert Reason.VALIDATION_FAILED in STATUS


async def test_the_server_serves_this_document(penstock: Client) -> None:
    reply = await penstock.get("/openapi.json", role=None)
    assert reply.status == 200
    assert reply.json == json.loads(json.dumps(DOCUMENT))
    assert reply.headers["content-type"] == "application/json"


def test_bodies_and_headers_are_required_only_where_a_request_without_them_is_refused() -> None:
    for path, method, operation in operations():
        body = operation.get("requestBody")
        if body is not None:
            [(media, content)] = body["content"].items()
            if media == "application/octet-stream":
                assert body["required"], "an empty body is no payload"
                continue
            shape = DOCUMENT["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
            assert body["required"] is bool(shape.get("required")), (method, path)
    (metrics,) = DOCUMENT["paths"]["/api/metrics/task-queues"].values()
    assert [each["required"] for each in metrics["parameters"] if each["in"] == "header"] == [False, False]


def test_bodies_of_our_own_routes_name_all_fields_that_they_take() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["SignalWithStart"]["additionalProperties"] is False
    assert "additionalProperties" not in schemas["StartWorkflow"]


@pytest.mark.parametrize(
    ("driver", "names"), [("none", []), ("token", ["token"]), ("signature", ["signature"])]
)
def test_the_credential_is_that_of_the_servers_authentication(driver: str, names: list[str]) -> None:
    served = document(AuthDriver(driver))
    assert list(served["components"]["securitySchemes"]) == names
    assert served["security"] == [{name: []} for name in names]


def test_a_segment_of_a_path_is_bounded_as_the_server_bounds_it() -> None:
    longest = {
        (path, each["name"]): each["schema"]["maxLength"]
        for path, _, operation in operations()
        for each in operation["parameters"]
        if each["in"] == "path"
    }
    assert longest["/api/workflows/{workflow_id}", "workflow_id"] == 128
    assert longest["/api/namespaces/{name}", "name"] == 128
    assert longest["/api/task-queues/{name}", "name"] == 255
