"""The `dispatch` field: where the options of an activity come from."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.history.commands import ScheduleActivity
from penstock.errors import ValidationFailed
from penstock.wire.workflows.commands import parse_commands

Json = dict[str, Any]
SCHEDULE: Json = {"type": "schedule_activity", "activity_type": "generate"}
RESOLVED: Json = {
    "fingerprint": "f00d",
    "sources": {"task_queue": "baseline", "retry.maximum_attempts": "decorator"},
}


def parsed(body: Json) -> ScheduleActivity:
    (command,) = parse_commands([SCHEDULE | body], concurrent=True)
    assert isinstance(command, ScheduleActivity)
    return command


def test_key_and_sources_are_kept_as_they_were_said() -> None:
    command = parsed({"routing_key": "", "dispatch": RESOLVED})
    assert command.routing_key == ""
    assert command.dispatch == RESOLVED
    assert parsed({}).dispatch is None


def test_clocks_that_layers_gave_may_contradict_each_other_and_clocks_of_code_may_not() -> None:
    clocks = {"start_to_close_timeout": 5, "heartbeat_timeout": 60}
    assert parsed(clocks | {"dispatch": RESOLVED}).timeouts.heartbeat_ms == 60_000
    with pytest.raises(ValidationFailed) as refusal:
        parsed(clocks)
    assert refusal.value.details["errors"] == {
        "commands.0.heartbeat_timeout": ["must not exceed start_to_close_timeout (5)"]
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"routing_key": "x" * 1001}, "commands.0.routing_key"),
        ({"routing_key": 3}, "commands.0.routing_key"),
        ({"dispatch": "file"}, "commands.0.dispatch"),
        ({"dispatch": {"fingerprint": "x" * 256}}, "commands.0.dispatch.fingerprint"),
        ({"dispatch": {"sources": {str(each): "x" for each in range(51)}}}, "commands.0.dispatch.sources"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(body: Json, field: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        parsed(body)
    assert field in refusal.value.details["errors"]
