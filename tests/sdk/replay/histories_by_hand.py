"""Handwritten histories, for replay without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.sdk.converters import DEFAULT
from penstock.sdk.replay.info import PolledRun
from penstock.sdk.replay.instance import Activation, WorkflowRun
from penstock.sdk.workflows.definitions import WorkflowDefinition

Json = dict[str, Any]
MARKER = "WorkflowTaskCompleted"


def value(thing: Any) -> str:
    """An encoded value as in an event."""
    return DEFAULT.encode(thing, "value")["blob"]


def arguments(*things: Any) -> str:
    return DEFAULT.encode_arguments(list(things), "arguments")["blob"]


class Story:
    """A history under construction; every event a second after the previous one."""

    def __init__(self, *given: Any) -> None:
        self.events: list[Json] = []
        self.then("WorkflowStarted", arguments=arguments(*given))

    def then(self, event_type: str, **payload: Any) -> Story:
        number = len(self.events) + 1
        at = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        self.events.append(
            {"sequence": number, "event_type": event_type, "payload": payload, "recorded_at": at}
        )
        return self

    def decided(self, *events: tuple[str, Json]) -> Story:
        """A completed workflow task with these commands."""
        self.then(MARKER, seen_through=len(self.events))
        for event_type, payload in events:
            self.then(event_type, **payload)
        return self


def a_run(workflow: type, **options: Any) -> WorkflowRun:
    definition = WorkflowDefinition.of(workflow)
    return WorkflowRun(
        definition, PolledRun("default", "q", "w-1", "r-1", definition.name or "any"), DEFAULT, **options
    )


def types(activation: Activation) -> list[str]:
    return [command["type"] for command in activation.commands]


def result(activation: Activation) -> Any:
    """The result of the run in these commands."""
    ending = activation.commands[-1]
    assert ending["type"] == "complete_workflow", activation.commands
    return DEFAULT.decode(ending["result"])


def kept_and_replayed(workflow: type, portions: Sequence[int], story: Story) -> list[Activation]:
    """The last activation of a cached run, and of one replayed from the start."""
    kept = a_run(workflow)
    begun = 0
    for end in (*portions, len(story.events)):
        last = kept.activate(story.events[begun:end])
        begun = end
    return [last, a_run(workflow).activate(story.events)]
