"""The JSON Schema says what the reader says, as far as a schema can."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import tomli

from penstock.dispatch import DispatchConfigError, dispatch_from
from penstock.dispatch.file.shape import json_schema
from tests.dispatch.tables import FULL, PIPELINES, R1, tree

_PUBLISHED = Path(__file__).parents[3] / "docs" / "reference" / "dispatch.schema.json"
_VALIDATOR = jsonschema_rs.validator_for(json_schema())


def test_the_published_file_fits_the_schema() -> None:
    assert _VALIDATOR.is_valid(tomli.loads(PIPELINES.read_text()))


def test_the_schema_of_the_documentation_is_this_one() -> None:
    """Made with `penstock config schema > docs/reference/dispatch.schema.json`."""
    assert json.loads(_PUBLISHED.read_text()) == json_schema()


def test_every_key_is_described() -> None:
    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, inner in schema.get("properties", {}).items():
            if "properties" not in inner and not inner.get("description"):
                found.append(f"{path}.{name}")
            found += undescribed(inner, f"{path}.{name}")
        return found

    assert undescribed(json_schema()["$defs"]["dispatch"], "") == []


@pytest.mark.parametrize(
    ("given", "is_right"),
    [
        (tree(R1), True),
        (tree(options={"home": {"heartbeat_timeout": "unset"}}), True),
        (tree(options={"home": {"retry_policy_config": {"maximum_attempts": "unset"}}}), True),
        (tree({"a": {"default": "q", "by_handle": "unset", "by_pattern": "unset"}}), True),
        (tree({"a": {"default": "q", "options": {"heartbeat_timeout": 3}}}), True),
        (tree({"a": {"default": "q", "options": {"max_task_queue_activities_per_second": 3}}}), False),
        ({"worker_runtime_profiles": {"profiles": {"p": {"max_cached_workflows": "unset"}}}}, True),
        ({"strict_queues": "unset"}, True),
        (tree(options={"home": {"start_to_close_timeot": 3}}), False),
        (tree(options={"home": {"max_task_queue_activities_per_second": 0}}), False),
        (tree(options={"home": {"retry_policy_config": {**FULL, "maximum_attempts": 0}}}), False),
        (tree({"a": {}}), False),
        (tree({"a": {"default": "q", "by_handle": {"h": 3}}}), False),
        ({"worker_runtime_profiles": {"profiles": {"p": {"tuning_mode": "magic"}}}}, False),
        ({"strict_queues": 1}, False),
        (tomllib.loads('worker_config.task_timeout = "PT5S"'), True),
    ],
)
def test_schema_and_reader_agree(given: dict[str, Any], is_right: bool) -> None:
    assert _VALIDATOR.is_valid({"penstock": given}) is is_right
    try:
        dispatch_from(given)
    except DispatchConfigError:
        assert not is_right
    else:
        assert is_right
