"""The OpenAPI document, rendered from the table of operations."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from penstock import __version__
from penstock.core.limits.admission import GROUP_NAME_MAX
from penstock.core.permissions import ACCESS, AuthDriver, Plane
from penstock.server.operation import Operation
from penstock.server.operations.contract import CONTRACT_OPERATIONS
from penstock.server.operations.table import OPERATIONS
from penstock.server.versions import HEADERS, VERSIONS
from penstock.wire.fields import FAIRNESS_KEY_BYTES_MAX
from penstock.wire.requests import RequestModel

Body = dict[str, Any]
_REF = "#/components/schemas/{name}"
_VISIBLE = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
_LONGEST = {
    "workflow_id": 128,
    "activity_id": 128,
    "group": GROUP_NAME_MAX,
    "key": FAIRNESS_KEY_BYTES_MAX,
    "stream": 128,
}
_SCHEMES: dict[AuthDriver, Body] = {
    AuthDriver.NONE: {},
    AuthDriver.TOKEN: {"token": {"type": "http", "scheme": "bearer"}},
    AuthDriver.SIGNATURE: {"signature": {"type": "apiKey", "in": "header", "name": "X-Penstock-Signature"}},
}
_WARNINGS = {
    "type": "array",
    "description": "Unknown fields that were ignored, and limits that are nearly reached.",
    "items": {"type": "object"},
}


class ProblemDetails(msgspec.Struct):
    """The body of an error: programs branch on `reason`, people read `message`."""

    message: str
    error: str
    reason: str
    errors: dict[str, list[str]] | None = None
    """Of a 422: problems by field."""
    validation_errors: dict[str, list[str]] | None = None
    """A copy of `errors`, under the name that other clients read."""


def document(auth: AuthDriver = AuthDriver.TOKEN) -> Body:
    """The document that a server with this authentication driver serves."""
    bodies = list(dict.fromkeys(each.body for each in OPERATIONS if each.body is not None))
    shapes: list[Any] = [*bodies, ProblemDetails]
    references, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    by_shape = dict(zip(shapes, references, strict=True))
    for shape in _strict_bodies():
        components[shape.__name__]["additionalProperties"] = False
    paths: dict[str, Body] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _item(operation, by_shape)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": "Durable workflows and task queues. Errors have a stable `reason`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _portable(components),
            "securitySchemes": _SCHEMES[auth],
        },
        "security": [{name: []} for name in _SCHEMES[auth]],
    }


def _strict_bodies() -> set[type[RequestModel]]:
    """Bodies that only Penstock's own operations use, which reject unknown fields."""
    ours = {
        each.body for each in OPERATIONS if each.name not in CONTRACT_OPERATIONS and each.body is not None
    }
    return ours - {each.body for each in OPERATIONS if each.name in CONTRACT_OPERATIONS}


def _portable(schema: Any) -> Any:
    """The schema with portable patterns: Python's \\A and \\Z are letters in other regular expression dialects."""
    if isinstance(schema, dict):
        return {
            name: value.replace(r"\A", "^").replace(r"\Z", "$")
            if name == "pattern" and isinstance(value, str)
            else _portable(value)
            for name, value in schema.items()
        }
    return [_portable(each) for each in schema] if isinstance(schema, list) else schema


def _item(operation: Operation, references: dict[Any, Any]) -> Body:
    access = ACCESS[operation.family]
    item: Body = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.path.split("/")[2]],
        "parameters": _path_parameters(operation) + _query_parameters(operation) + _headers(operation),
        "responses": _responses(operation, references[ProblemDetails]),
    }
    if access.roles is None:
        item["security"] = []
    else:
        item["x-roles"] = sorted(role.value for role in access.roles)
    if operation.body is not None:
        item["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(operation.body)),
            "content": {"application/json": {"schema": references[operation.body]}},
        }
    elif operation.takes_bytes:
        octets = {"schema": {"type": "string", "format": "binary"}}
        item["requestBody"] = {"required": True, "content": {"application/octet-stream": octets}}
    return item


def _path_parameters(operation: Operation) -> list[Body]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": _longest(operation.path, name),
                "pattern": _VISIBLE,
            },
        }
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _longest(path: str, name: str) -> int:
    """The maximum length of a path segment, as the endpoints check it."""
    if name == "name":
        return 128 if path.startswith(("/api/namespaces/", "/api/search-attributes/")) else 255
    return _LONGEST.get(name, 255)


def _query_parameters(operation: Operation) -> list[Body]:
    (schema,), components = msgspec.json.schema_components([operation.query], ref_template=_REF)
    shape = components.get(operation.query.__name__, schema)
    return [
        {"name": name, "in": "query", "required": False, "schema": _portable(_without_null(field))}
        for name, field in shape.get("properties", {}).items()
    ]


def _without_null(schema: Body) -> Body:
    """A query parameter is absent or has a value; it is never null."""
    schema = {key: value for key, value in schema.items() if key != "default" or value is not None}
    if "enum" in schema:
        return schema | {"enum": [each for each in schema["enum"] if each is not None]}
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) != 1:
        return schema
    del schema["anyOf"]
    return {**schema, **options[0]}


def _headers(operation: Operation) -> list[Body]:
    access = ACCESS[operation.family]
    headers: list[Body] = []
    if access.plane is not None:
        served = VERSIONS[access.plane]
        example = (
            {"type": "string", "enum": [served]}
            if access.plane is Plane.CONTROL
            else {"type": "string", "enum": [served, "1.0"]}
        )
        headers.append(
            {
                "name": HEADERS[access.plane],
                "in": "header",
                "required": operation.needs_version,
                "schema": example,
            }
        )
    if access.namespaced:
        headers.append(
            {
                "name": "X-Namespace",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "default": "default"},
            }
        )
    return headers


_MEANINGS = {
    400: "Malformed request, or unsupported version",
    401: "No valid credential",
    403: "The role of the credential does not permit the operation",
    404: "Not found",
    408: "The request took too long to arrive",
    409: "Conflicts with the current state",
    410: "It is deleted",
    412: "Register first",
    413: "Too large",
    415: "Not JSON",
    421: "The host is not served by this server",
    422: "A field is missing, malformed or out of bounds",
    429: "A limit is exhausted; retry after Retry-After seconds",
    431: "The request head is too large",
    500: "Internal error, or no credential configured",
    503: "Temporarily unavailable; retry",
    504: "No worker answered in time",
    507: "The disk is full",
}


def _error_statuses(operation: Operation) -> set[int]:
    access = ACCESS[operation.family]
    statuses = {400, 408, 413, 421, 431, 500, 503, *operation.refusals}
    if access.roles is not None:
        statuses |= {401, 403, 429}
    if access.namespaced:
        statuses.add(404)
    if operation.body is not None or operation.query.__struct_fields__ or "{" in operation.path:
        statuses.add(422)
    if operation.method != "GET":
        statuses |= {415, 507}
    return statuses - {operation.status}


def _responses(operation: Operation, problem: Body) -> Body:
    kind = "object" if operation.media == "application/json" else "string"
    schema: Body = {"type": kind}
    if kind == "object" and operation.name in CONTRACT_OPERATIONS:
        schema["properties"] = {"warnings": _WARNINGS}
    body = {"content": {operation.media: {"schema": schema}}}
    responses: Body = {str(operation.status): {"description": operation.summary, **body}}
    if operation.status in (201, 202):
        responses["200"] = {"description": "It already existed, or has already completed", **body}
    if operation.may_fail_partially:
        responses["207"] = {"description": "Some items failed; each result has its outcome", **body}
    for status in sorted(_error_statuses(operation)):
        responses[str(status)] = {
            "description": _MEANINGS[status],
            "content": {"application/json": {"schema": problem}},
        }
    return responses
