"""A model server: it records commands, and lets outcomes happen in any order.

What happens next is decided by a random generator seeded by the history, so that a worker that dies changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from penstock.sdk.converters import DEFAULT
from penstock.sdk.failures import ApplicationError, failure_fields
from penstock.sdk.replay.info import PolledRun
from penstock.sdk.replay.instance import Activation, WorkflowRun
from penstock.sdk.replay.runtime import LocalActivityRequest
from penstock.sdk.workflows.definitions import WorkflowDefinition
from tests.sdk.behaviours.programs import Interpreter, Program, signals_in

Json = dict[str, Any]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = {
    "complete_workflow": "WorkflowCompleted",
    "fail_workflow": "WorkflowFailed",
    "cancel_workflow": "WorkflowCancelled",
}
DEFINITION = WorkflowDefinition.of(Interpreter)


@dataclass
class ModelServer:
    """One run: its history, and its open steps."""

    program: Program
    seed: int
    run_id: str = "model"
    cancels: bool = False
    events: list[Json] = field(default_factory=list)
    open: dict[int, Json] = field(default_factory=dict)
    last_step: int = 0
    told_signals: int = 0
    end: Json | None = None

    def __post_init__(self) -> None:
        arguments = DEFAULT.encode_arguments([self.program], "program")["blob"]
        self._record("WorkflowStarted", workflow_type="Interpreter", arguments=arguments)

    def _record(self, event_type: str, **payload: Any) -> None:
        sequence = len(self.events) + 1
        at = (BEGAN + timedelta(milliseconds=10 * sequence)).isoformat()
        self.events.append(
            {"sequence": sequence, "event_type": event_type, "payload": payload, "recorded_at": at}
        )

    # ── reports of the worker ───────────────────────────────────────────────────────────────────────────

    def complete(self, commands: Sequence[Json]) -> None:
        self._record("WorkflowTaskCompleted", seen_through=len(self.events))
        for command in commands:
            getattr(self, f"_on_{command['type']}", self._on_end)(command)

    def _step(self) -> int:
        self.last_step += 1
        return self.last_step

    def _on_schedule_activity(self, command: Json) -> None:
        step = self._step()
        self.open[step] = command
        self._record("ActivityScheduled", sequence=step, activity_type=command["activity_type"])

    def _on_start_timer(self, command: Json) -> None:
        step = self._step()
        self.open[step] = command
        self._record("TimerScheduled", sequence=step, delay_ms=command["delay_ms"])

    def _on_start_child_workflow(self, command: Json) -> None:
        step = self._step()
        self.open[step] = command
        kind = command["workflow_type"]
        self._record("ChildWorkflowScheduled", sequence=step, child_workflow_type=kind)
        self._record("ChildRunStarted", sequence=step, child_workflow_type=kind)

    def _on_record_local_activity(self, command: Json) -> None:
        said = {"sequence": self._step(), "execution_mode": "local"}
        said |= {name: command[name] for name in ("activity_type", "local_number")}
        self._record("ActivityScheduled", **said)
        if command["outcome"] == "completed":
            self._record("ActivityCompleted", **said, result=command["result"])
        else:
            told = {name: command[name] for name in ("message", "exception_type", "non_retryable")}
            self._record("ActivityFailed", **said, **told)

    def _on_record_version_marker(self, command: Json) -> None:
        said = {name: command[name] for name in ("change_id", "version")}
        self._record("VersionMarkerRecorded", sequence=self._step(), **said)

    def _on_upsert_memo(self, command: Json) -> None:
        self._record("MemoUpserted", sequence=self._step())

    def _on_cancel_step(self, command: Json) -> None:
        step = command["step_sequence"]
        if command.get("wait"):
            if step in self.open:
                self.open[step] = self.open[step] | {"stops": True}
        else:
            self.open.pop(step, None)
        self._record("StepCancelRequested", step_sequence=step, wait=bool(command.get("wait")))

    def _on_end(self, command: Json) -> None:
        self.end = command
        self._record(ENDS[command["type"]])

    # ── outcomes ────────────────────────────────────────────────────────────────────────────────────────

    def happen(self) -> bool:
        """One to three inputs for the code. False if there are none."""
        dice = random.Random(f"{self.seed} {len(self.events)}")
        before = len(self.events)
        for _ in range(dice.randint(1, 3)):
            choices: list[Callable[[], None]] = [partial(self._outcome, step) for step in self.open]
            if self.told_signals < signals_in(self.program):
                choices.append(self._signal)
            if self.cancels and before > 8:
                choices.append(self._cancel)
            if choices:
                dice.choice(choices)()
        return len(self.events) > before

    def _signal(self) -> None:
        self.told_signals += 1
        blob = DEFAULT.encode_arguments([self.told_signals], "signal")["blob"]
        self._record("SignalReceived", signal_name="tell", arguments=blob)

    def _cancel(self) -> None:
        self.cancels = False
        self._record("CancelRequested", reason="by the model")

    def _outcome(self, step: int) -> None:
        command = self.open.pop(step)
        if command["type"] == "start_timer":
            self._record("TimerFired", sequence=step)
        elif command["type"] == "schedule_activity":
            self._activity(step, command)
        else:
            self._child(step, command)

    def _activity(self, step: int, command: Json) -> None:
        said = {"sequence": step, "activity_type": command["activity_type"]}
        value = DEFAULT.decode_arguments(command["arguments"])[0]
        if command.get("stops") and random.Random(f"{self.seed} stops {step}").random() < 0.5:
            self._record("ActivityCancelled", **said, message="stopped")
        elif command["activity_type"] == "give":
            self._record("ActivityCompleted", **said, result=DEFAULT.encode(value, "result")["blob"])
        else:
            self._record("ActivityFailed", **said, **failure_fields(refusal_of(value), DEFAULT))

    def _child(self, step: int, command: Json) -> None:
        program = DEFAULT.decode_arguments(command["arguments"])[0]
        below = carry_out(ModelServer(program, self.seed + step, f"{self.run_id}-{step}"))
        assert below.end is not None
        said = {"sequence": step, "child_workflow_type": command["workflow_type"]}
        if below.end["type"] == "complete_workflow":
            self._record("ChildRunCompleted", **said, output=below.end["result"]["blob"])
        else:
            told = {name: below.end[name] for name in ("message", "exception_type", "exception")}
            self._record("ChildRunFailed", **said, **told)


def refusal_of(value: Any) -> ApplicationError:
    return ApplicationError(f"refused {value}", type="Refused", non_retryable=True)


class Worker:
    """Decides the tasks of one run. It may evict the run, or lose its decision, whenever `dies` says so."""

    def __init__(self, server: ModelServer, dies: Callable[[], bool]) -> None:
        self._server, self._dies = server, dies
        self._run: WorkflowRun | None = None
        self._through = 0
        """The last event that the server believes this worker has."""

    def decide(self) -> None:
        server = self._server
        while True:
            activation = self._activation()
            if not self._dies():
                break
            self._forget()
        server.complete(activation.commands)
        with_echo = random.Random(f"{server.seed} echo {len(server.events)}").random() < 0.5
        assert self._run is not None
        self._through = self._run.seen if with_echo else len(server.events)
        self._run.confirm_recorded(len(server.events))
        if server.end is not None or self._dies():
            self._forget()

    def _activation(self) -> Activation:
        events = self._server.events
        if self._run is None:
            self._run, self._through = new_run(self._server.run_id), 0
        activation = self._run.activate(events[self._through :])
        waiting = list(activation.local)
        dice = random.Random(f"{self._server.seed} local {len(events)}")
        while waiting:
            request = waiting.pop(dice.randrange(len(waiting)))
            activation = self._run.resolve_local(request.request_id, local_outcome(request))
            waiting = [] if activation.closes else [*waiting, *activation.local]
        return activation

    def _forget(self) -> None:
        if self._run is not None:
            self._run.close()
        self._run = None


def new_run(run_id: str) -> WorkflowRun:
    place = PolledRun("default", "model", f"of {run_id}", run_id, "Interpreter")
    return WorkflowRun(DEFINITION, place, DEFAULT, is_guarded=False, stuck_after_s=None)


def local_outcome(request: LocalActivityRequest) -> Json:
    value = DEFAULT.decode_arguments(request.arguments)[0]
    if request.activity_type == "give":
        return {"outcome": "completed", "result": DEFAULT.encode(value, "result")["blob"]}
    error = refusal_of(value)
    told = {"message": error.message, "exception_type": error.type, "non_retryable": True}
    return {"outcome": "failed", **told}


def never() -> bool:
    return False


def carry_out(server: ModelServer, dies: Callable[[], bool] = never) -> ModelServer:
    """Run a program to its end, or until it waits for something that never happens."""
    worker = Worker(server, dies)
    worker.decide()
    while server.end is None and server.happen():
        worker.decide()
    return server
