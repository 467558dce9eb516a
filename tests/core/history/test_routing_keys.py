"""Runs are found by the routing keys of their activities."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.history import lineage
from penstock.core.history.commands import (
    Command,
    ContinueAsNew,
    ScheduleActivity,
    UpsertSearchAttributes,
)
from penstock.core.history.decide import advance
from penstock.core.history.routing_keys import KEY_CHARS_MAX, KEYS_MAX
from penstock.core.history.structural_limits import SEARCH_ATTRIBUTE_BYTES_MAX, StructuralLimits
from penstock.core.model import Blob, RunId
from tests.support.builders import NOW_MS, a_run


def _called(key: str | None) -> Command:
    return ScheduleActivity("Charge", None, Blob(""), routing_key=key)


def _after(*commands: Command, attributes: str = "{}") -> Any:
    return advance(
        a_run(search_attributes=attributes), commands, StructuralLimits(1_000, 1_000, 1_000), NOW_MS
    )


def _attributes(step: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(step.run.search_attributes)
    return found


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ([None], None),
        (["opus", None, "eu", "opus"], ["opus", "eu"]),
        (["", "k" * KEY_CHARS_MAX, "k" * (KEY_CHARS_MAX + 1)], ["", "k" * KEY_CHARS_MAX]),
        ([str(each) for each in range(KEYS_MAX + 5)], [str(each) for each in range(KEYS_MAX)]),
    ],
    ids=["none", "each once", "none that is long", "the first"],
)
def test_a_run_keeps_the_keys_of_its_activities(keys: list[str | None], kept: list[str] | None) -> None:
    step = _after(*map(_called, keys))
    assert _attributes(step).get("RoutingKey") == kept
    assert step.attributes_changed is (kept is not None)


def test_a_key_that_is_known_changes_nothing() -> None:
    first = _after(_called("opus"))
    assert _after(_called("opus"), attributes=first.run.search_attributes).attributes_changed is False


def test_what_the_code_says_of_its_run_stays_and_has_as_much_room_as_before() -> None:
    keys = _after(*(_called(f"{each}" * 200) for each in range(9)))
    long = "x" * (SEARCH_ATTRIBUTE_BYTES_MAX - len('{"Customer":""}'))
    step = _after(UpsertSearchAttributes({"Customer": long}), attributes=keys.run.search_attributes)
    assert set(_attributes(step)) == {"RoutingKey", "Customer"}
    own = _after(_called("opus"), attributes='{"RoutingKey":"mine"}')
    assert _attributes(own) == {"RoutingKey": "mine"}


def test_the_next_run_has_keys_of_its_own() -> None:
    run = _after(_called("opus"), attributes='{"Customer":"acme"}').run
    following = lineage.continued(run, RunId("next"), ContinueAsNew(Blob("")), NOW_MS).run
    assert following.search_attributes == '{"Customer":"acme"}'
