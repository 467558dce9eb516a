"""The deployment kit names settings, metrics, pages and commands that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from prometheus_client import CollectorRegistry

from penstock.server.endpoints.visibility.queue_metrics import QueueMetrics
from penstock.server.metrics import Metrics
from penstock.server.operations.table import OPERATIONS
from penstock.settings.catalogue import NAMES
from tests.conventions.test_docs import anchors

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "monitoring/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = json.loads((DEPLOY / "monitoring/grafana/penstock.json").read_text())["panels"]
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in RULES] + [
    (panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]
]


def _series(registry: CollectorRegistry) -> Iterator[str]:
    """The names of all series that a registry can have, with the suffixes of their kind."""
    for family in registry.collect():
        yield family.name
        yield from {"counter": [f"{family.name}_total"], "histogram": [f"{family.name}_bucket"]}.get(
            family.type, []
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_of_the_deployment_kit_exists(path: Path) -> None:
    known = {name for setting in NAMES for name in (setting, f"{setting}_FILE")}
    assert set(re.findall(r"\bDW_[A-Z_]+\b", path.read_text())) <= known


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def test_every_metric_of_an_alert_or_a_panel_exists(title: str, expression: str) -> None:
    known = {*_series(Metrics().registry), *_series(QueueMetrics().registry)}
    named = set(re.findall(r"\bpenstock_\w+", expression))
    assert named <= known, f"{title} reads {named - known}"
    assert named or "up{" in expression


def test_every_operation_that_an_alert_selects_exists() -> None:
    selected = re.findall(r'operation=~"([^"]+)"', " ".join(expression for _, expression in EXPRESSIONS))
    names = {each for choice in selected for each in choice.split("|")}
    assert names
    assert names <= {operation.name for operation in OPERATIONS}


def test_every_alert_leads_to_its_section_of_the_guide() -> None:
    page = ROOT / "docs/guides/alerts.md"
    sections = {f"docs/guides/alerts.md#{anchor}" for anchor in anchors(page)}
    for rule in RULES:
        url = rule["annotations"]["runbook_url"]
        assert url in sections
        assert url.endswith(f"#{rule['alert'].lower()}")
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_compose_starts_two_servers_after_one_migration() -> None:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    servers = [service for name, service in services.items() if name.startswith("server-")]
    assert len(servers) == 2
    for server in servers:
        assert server["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        assert server["read_only"] is True
        assert server["cap_drop"] == ["ALL"]
    assert services["migrate"]["command"] == ["db", "migrate"]
    named = re.findall(r"\./([\w./-]+)", " ".join(services["proxy"]["volumes"]))
    assert all((DEPLOY / name).is_file() for name in named)


def test_the_chart_reads_only_values_that_it_declares_and_its_defaults_fit_their_schema() -> None:
    chart = DEPLOY / "chart"
    values: dict[str, Any] = yaml.safe_load((chart / "values.yaml").read_text())
    jsonschema_rs.validate(json.loads((chart / "values.schema.json").read_text()), values)
    for template in (chart / "templates").iterdir():
        for path in re.findall(r"\.Values((?:\.\w+)+)", template.read_text()):
            found: Any = values
            for name in path.strip(".").split("."):
                assert name in found, f"{template.name} reads .Values{path}"
                found = found[name]
