"""The API reference of a running server: one HTML page, rendered from the OpenAPI document, without scripts.

Browsers open a `<details>` when a link leads to something inside it, so the ids of schemas and statuses are on the
first element inside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from penstock import __version__
from penstock.errors import Reason
from penstock.server.problems import STATUS
from penstock.server.reference.markdown import MEANINGS

Body = dict[str, Any]

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Penstock API</title>
<link rel="icon" href="/favicon.ico" type="image/svg+xml">
<link rel="stylesheet" href="/docs/page.css">
</head>
<body>
<h1>Penstock {version}</h1>
<p>The HTTP API of this server. The same in machine-readable form: <a href="/openapi.json">/openapi.json</a>;
numbers for Prometheus: <a href="/metrics">/metrics</a>.</p>
<nav>{links}</nav>
{sections}
</body>
</html>
"""


def reference_page(document: Body) -> bytes:
    """Render an OpenAPI document of `openapi.document`: operations by tag, then schemas, then reasons by status."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method.upper(), path, operation))
    sections = {tag: "".join(operations) for tag, operations in sorted(by_tag.items())}
    sections["schemas"] = "".join(
        _schema(*each) for each in sorted(document["components"]["schemas"].items())
    )
    sections["reasons"] = _reasons()
    return _PAGE.format(
        version=escape(__version__),
        links=" · ".join(f'<a href="#tag-{title}">{title}</a>' for title in sections),
        sections="\n".join(
            f'<section id="tag-{title}"><h2>{title}</h2>{html}</section>' for title, html in sections.items()
        ),
    ).encode()


def _operation(method: str, path: str, operation: Body) -> str:
    roles = ", ".join(operation.get("x-roles", ())) or "no credential"
    parameters = [
        (f"<code>{each['name']}</code>", each["in"], _type(each["schema"]), _required(each["required"]))
        for each in operation["parameters"]
    ]
    body = operation.get("requestBody")
    return (
        f'<details id="{operation["operationId"]}"><summary><b class="{method}">{method}</b> <code>{path}</code> '
        f"{escape(operation['summary'])} <i>{roles}</i></summary>"
        + _table(("parameter", "in", "type", ""), parameters)
        + (f"<p>Body: {_type(_content(body))}{'' if body['required'] else ', optional'}</p>" if body else "")
        + _responses(operation["responses"])
        + "</details>"
    )


def _responses(responses: Mapping[str, Body]) -> str:
    """What is returned on success, then the error statuses with links to their reasons."""
    success = [
        (
            status,
            " or ".join(f"<code>{media}</code>" for media in each["content"]),
            escape(each["description"]),
        )
        for status, each in responses.items()
        if int(status) < 400
    ]
    errors = [
        f'<a href="#status-{status}" title="{escape(each["description"])}">{status}</a>'
        for status, each in responses.items()
        if int(status) >= 400
    ]
    return (
        _table(("status", "returns", ""), success)
        + f'<p>Errors (<a href="#schema-ProblemDetails">ProblemDetails</a>): {" ".join(errors)}</p>'
    )


def _content(body: Body) -> Body:
    schema: Body = next(iter(body["content"].values()))["schema"]
    return schema


def _schema(name: str, schema: Body) -> str:
    required = schema.get("required", ())
    rows = [
        (f"<code>{escape(field)}</code>", _type(each), _required(field in required), _prose(each))
        for field, each in schema.get("properties", {}).items()
    ]
    return (
        f'<details><summary><code>{name}</code></summary><p id="schema-{name}">{_prose(schema)}</p>'
        + _table(("field", "type", "", ""), rows)
        + "</details>"
    )


def _reasons() -> str:
    meanings = {reason: meaning for group in MEANINGS.values() for reason, meaning in group.items()}
    by_status: dict[int, list[Reason]] = {}
    for reason, status in STATUS.items():
        by_status.setdefault(status, []).append(reason)
    return "".join(
        f'<details><summary>{status}</summary><div id="status-{status}">'
        + _table(
            ("reason", "meaning"), [(f"<code>{each}</code>", _marked(meanings[each])) for each in reasons]
        )
        + "</div></details>"
        for status, reasons in sorted(by_status.items())
    )


def _type(schema: Body) -> str:
    """A type on one line: `integer 1 to 100`, `list of Item`, `"on" or "off"`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(
            f"<code>{escape(msgspec.json.encode(each).decode())}</code>" for each in schema["enum"]
        )
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            return f"{kind}{_bounds(schema)}"


def _bounds(schema: Body) -> str:
    least = schema.get("minimum", schema.get("minLength"))
    most = schema.get("maximum", schema.get("maxLength"))
    unit = " characters" if schema["type"] == "string" else ""
    if least is not None and most is not None:
        return f" {least} to {most}{unit}"
    if most is not None:
        return f" up to {most}{unit}"
    return "" if least is None else f" from {least}{unit}"


def _required(required: bool) -> str:
    return "required" if required else ""


def _prose(schema: Body) -> str:
    return _marked(schema.get("description", ""))


def _marked(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + f"</tr>{cells}</table>"
