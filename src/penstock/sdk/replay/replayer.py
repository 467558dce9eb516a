"""Replays recorded histories against workflow code: in tests, and before a release reaches open runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.sdk.clients.descriptions import WorkflowHistory
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import Dispatch, config_getter
from penstock.sdk.plugins import Plugin, WorkerParts, configured_client, merged, of_workers
from penstock.sdk.priority import Priority, priority_in
from penstock.sdk.replay.errors import WorkflowTaskError
from penstock.sdk.replay.events import STARTED
from penstock.sdk.replay.info import PolledRun
from penstock.sdk.replay.instance import Activation, WorkflowRun
from penstock.sdk.workflows.definitions import DefinitionError, WorkflowDefinition

Json = dict[str, Any]
Readable = WorkflowHistory | Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class History:
    """A history that was exported, fetched or saved: its events in order."""

    events: Sequence[Mapping[str, Any]]
    workflow_id: str = "replayed"
    run_id: str = "replayed"
    workflow_type: str | None = None
    namespace: str = "default"
    task_queue: str = "replayed"
    priority: Priority = field(default_factory=Priority)

    @classmethod
    def read(cls, source: Readable) -> History:
        """Read a history from a fetched `WorkflowHistory`, a list of events, or a document that contains one.

        Args:
            source: a `WorkflowHistory`, events as dictionaries, JSON text, or an export or API page with events.
        """
        if isinstance(source, WorkflowHistory):
            source = {"workflow_id": source.workflow_id, "run_id": source.run_id, "events": source.events}
        if not isinstance(source, Mapping):
            source = {"events": source}
        flat = [_flat(event) for event in _events_in(source)]
        about = source.get("workflow")
        if not isinstance(about, Mapping):
            about = source
        identity = _identity(flat) | {name: about[name] for name in _ABOUT if about.get(name)}
        return cls(
            flat, priority=priority_in(about), **{name: str(value) for name, value in identity.items()}
        )

    @classmethod
    def from_file(cls, path: str | Path) -> History:
        try:
            return cls.read(json.loads(Path(path).read_text()))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error

    @property
    def type(self) -> str:
        if self.workflow_type:
            return self.workflow_type
        found = _identity(self.events).get("workflow_type")
        if found is None:
            raise ValueError("The history does not contain the type of its workflow.")
        return str(found)


def _events_in(document: Mapping[str, Any]) -> Sequence[Any]:
    events = document.get("history_events") or document.get("events") or document.get("history")
    if isinstance(events, Mapping):
        events = events.get("events")
    if isinstance(events, str) or not isinstance(events, Sequence):
        raise ValueError(
            "This is not a history: it has no list of events. Export one with penstock workflow export."
        )
    return [each for each in events if not (isinstance(each, Mapping) and each.get("derived"))]


_ABOUT = ("workflow_id", "run_id", "workflow_type", "namespace", "task_queue")


def _identity(events: Sequence[Mapping[str, Any]]) -> Json:
    """Return the identity of the run from the first event: random numbers and ids of the code derive from it."""
    started: Json = next((event["payload"] for event in events if event.get("event_type") == STARTED), {})
    identity = {name: started.get(name) for name in _ABOUT} | {"run_id": started.get("workflow_run_id")}
    return {name: value for name, value in identity.items() if value}


def _flat(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with the field names that workers receive."""
    known = dict(event)
    known.setdefault("event_type", event.get("type"))
    known.setdefault("recorded_at", event.get("timestamp"))
    known.setdefault("payload", {})
    return known


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Whether the code matches one history."""

    history: History
    failure: Exception | None = None
    next: Activation = field(default_factory=Activation)
    """What the code would do after the history."""

    @property
    def fits(self) -> bool:
        return self.failure is None


class Replayer:
    """Replays histories with given workflows."""

    def __init__(
        self,
        *,
        workflows: Sequence[type],
        data_converter: DataConverter = DEFAULT,
        dispatch: Dispatch | None = None,
        interceptors: Sequence[Any] = (),
        plugins: Sequence[Plugin] = (),
    ) -> None:
        """Create a replayer.

        Args:
            workflows: classes decorated with `@workflow.defn`.
            data_converter: the converter with which the histories were recorded.
            dispatch: dispatch configuration for commands beyond a history. Recorded options are never compared.
            interceptors: those of the worker, outermost first.
            plugins: those of the worker and its client. Their converter is used.
        """
        config: WorkerParts = {"workflows": workflows, "activities": (), "interceptors": interceptors}
        of_client = configured_client(plugins, data_converter, (), None)
        for each in plugins:
            config = each.configure_replayer(config)
        given = config["workflows"]
        self._definitions = {each.name: each for each in map(WorkflowDefinition.of, given)}
        if len(self._definitions) < len(given):
            raise DefinitionError("Two of these workflows have the same name.")
        self._converter = of_client["data_converter"]
        self._interceptors = merged(of_workers(of_client["interceptors"]), config["interceptors"])
        self._dispatch = config_getter(dispatch)

    def replay(self, history: History | Readable) -> ReplayResult:
        """Replay one history. The result says where code and history diverge.

        Args:
            history: a `History`, or what `History.read` accepts.
        """
        recorded = history if isinstance(history, History) else History.read(history)
        run: WorkflowRun | None = None
        try:
            run = self._new_run(recorded)
            events = recorded.events
            if not _is_closed(events):
                return ReplayResult(recorded, next=run.activate(events))
            run.replay(events)
            return ReplayResult(recorded)
        except Exception as error:
            return ReplayResult(recorded, error)
        finally:
            if run is not None:
                run.close()

    async def replay_workflow(self, history: Any, *, raise_on_replay_failure: bool = True) -> ReplayResult:
        """Replay one history and await it, as in Temporal's SDK.

        Args:
            history: a `History`, or what `History.read` accepts.
            raise_on_replay_failure: raise the failure instead of returning it in the result.
        """
        result = self.replay(history)
        if raise_on_replay_failure and result.failure is not None:
            raise result.failure
        return result

    def replay_all(self, histories: Iterable[Any]) -> list[ReplayResult]:
        """Replay several histories.

        Args:
            histories: each a `History`, or what `History.read` accepts.
        """
        return [self.replay(each) for each in histories]

    async def replay_workflows(self, histories: AsyncIterator[Any]) -> list[ReplayResult]:
        """Replay several histories and await them, as in Temporal's SDK.

        Args:
            histories: each a `History`, or what `History.read` accepts.
        """
        return [self.replay(each) async for each in histories]

    def _new_run(self, history: History) -> WorkflowRun:
        definition = self._definitions.get(history.type) or self._definitions.get(None)
        if definition is None:
            known = ", ".join(sorted(name for name in self._definitions if name)) or "none"
            raise WorkflowTaskError(
                f'The history is of a workflow "{history.type}", and this replayer has {known}.'
            )
        polled_run = PolledRun(
            namespace=history.namespace,
            task_queue=history.task_queue,
            workflow_id=history.workflow_id,
            run_id=history.run_id,
            workflow_type=history.type,
            priority=history.priority,
        )
        return WorkflowRun(
            definition,
            polled_run,
            self._converter,
            interceptors=self._interceptors,
            dispatch=self._dispatch,
        )


_CLOSED = frozenset(
    {
        "WorkflowCompleted",
        "WorkflowFailed",
        "WorkflowCancelled",
        "WorkflowTerminated",
        "WorkflowTimedOut",
        "WorkflowContinuedAsNew",
    }
)


def _is_closed(events: Sequence[Mapping[str, Any]]) -> bool:
    return any(event.get("event_type") in _CLOSED for event in events[-200:])
