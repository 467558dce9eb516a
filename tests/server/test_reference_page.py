"""The API reference page: every operation, schema and reason, and nothing that a browser would have to fetch or run."""

from __future__ import annotations

import re

from penstock.server.operations.table import OPERATIONS
from penstock.server.problems import STATUS
from penstock.server.reference.openapi import document
from penstock.server.reference.page import reference_page

DOCUMENT = document()
PAGE = reference_page(DOCUMENT).decode()
IDS = re.findall(r'id="([^"]+)"', PAGE)


def test_every_operation_is_on_the_page_with_its_method_path_and_roles() -> None:
    for operation in OPERATIONS:
        heading = re.search(rf'<details id="{operation.name}"><summary>(.*?)</summary>', PAGE)
        assert heading is not None
        assert f">{operation.method}</b> <code>{operation.path}</code>" in heading[1]
        roles = DOCUMENT["paths"][operation.path][operation.method.lower()].get("x-roles")
        assert ", ".join(roles or ["no credential"]) in heading[1]


def test_every_schema_and_every_reason_is_on_the_page() -> None:
    assert {f"schema-{name}" for name in DOCUMENT["components"]["schemas"]} <= set(IDS)
    assert all(f"<code>{reason}</code>" in PAGE for reason in STATUS)


def test_every_link_inside_the_page_leads_somewhere() -> None:
    assert set(re.findall(r'href="#([^"]+)"', PAGE)) <= set(IDS)
    assert len(IDS) == len(set(IDS))


def test_the_page_runs_no_script_and_loads_nothing_from_elsewhere() -> None:
    assert "<script" not in PAGE
    assert not re.search(r'(?:href|src)="(?!#|/)', PAGE)


def test_types_are_shown_with_their_bounds() -> None:
    assert "integer 0 to 9" in PAGE
    assert "string 1 to 255 characters" in PAGE
    assert "list of " in PAGE
