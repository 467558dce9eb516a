"""Replay: recorded histories stay replayable, and code that no longer matches them is detected."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import Replayer, workflow
from penstock.sdk.clients.descriptions import WorkflowHistory
from penstock.sdk.converters import DEFAULT
from penstock.sdk.replay.errors import DeterminismViolationError, NonDeterminismError, WorkflowTaskError
from penstock.sdk.replay.info import PolledRun
from penstock.sdk.replay.instance import WorkflowRun
from penstock.sdk.replay.replayer import History
from penstock.sdk.workflows.definitions import WorkflowDefinition
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.history_replay import RECORDED_AS, Retracer
from tests.sdk.histories import code

RECORDED = sorted((Path(__file__).parents[1] / "histories").glob("*.json"))
REPLAYER = Replayer(workflows=code.WORKFLOWS)


@pytest.fixture
def every_command() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED[0].with_name("every_command.json").read_text())
    return found


# ── recorded histories ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_history_is_replayed_for_ever(path: Path) -> None:
    result = REPLAYER.replay(History.from_file(path))
    assert result.failure is None
    assert result.fits


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_beginning_of_a_recorded_history_leads_to_what_came_next(path: Path) -> None:
    Retracer(code.WORKFLOWS).check(History.from_file(path))


def test_the_recorded_histories_have_every_command() -> None:
    seen = {event["event_type"] for path in RECORDED for event in json.loads(path.read_text())["events"]}
    assert set(RECORDED_AS.values()) <= seen


# ── formats ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_history_is_read_as_it_was_fetched_saved_or_listed(every_command: dict[str, Any]) -> None:
    fetched = WorkflowHistory.from_json(json.dumps(every_command))
    exported = {"workflow": {"run_id": every_command["run_id"]}, "history_events": every_command["events"]}
    for form in (fetched, every_command, every_command["events"], exported):
        history = History.read(form)
        assert history.type == "EveryCommand"
        assert history.run_id == every_command["run_id"]
        assert REPLAYER.replay(form).fits


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no list of events"):
        History.read({"name": "something else"})
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        History.from_file(path)


async def test_a_history_of_an_unknown_type_is_told_and_does_not_stop_the_others(
    every_command: dict[str, Any],
) -> None:
    replayer = Replayer(workflows=[code.EndsFailed])
    unknown, known = replayer.replay_all([every_command, History.from_file(_recorded("ends_failed"))])
    assert isinstance(unknown.failure, WorkflowTaskError)
    assert "EveryCommand" in str(unknown.failure)
    assert known.fits
    with pytest.raises(WorkflowTaskError, match="EveryCommand"):
        await replayer.replay_workflow(every_command)


def _recorded(name: str) -> Path:
    return RECORDED[0].with_name(f"{name}.json")


# ── changed code ────────────────────────────────────────────────────────────────────────────────────────────────


def changed(name: str, **methods: Any) -> type:
    """A workflow of a recorded type with different code."""
    return workflow.defn(name=name)(type(name, (), methods))


def define(run: Any) -> type:
    run.__qualname__ = f"EndsFailed.{run.__name__}"
    return changed("EndsFailed", run=workflow.run(run))


def difference(cls: type, name: str) -> NonDeterminismError:
    result = Replayer(workflows=[cls]).replay(History.from_file(_recorded(name)))
    assert isinstance(result.failure, NonDeterminismError)
    return result.failure


def test_another_activity_than_the_recorded_one_is_found_with_its_place() -> None:
    async def run(self: Any) -> None:
        await workflow.execute_activity("another")

    found = difference(define(run), "ends_failed")
    assert found.sequence == 3
    assert "ActivityScheduled 'recorded_failure'" in found.recorded
    assert "'another'" in found.asked
    assert "test_replay.py" in str(found)
    assert "workflow.patched" in str(found)


def test_a_command_too_many_and_one_too_few_are_found() -> None:
    async def more(self: Any) -> None:
        await asyncio.gather(
            workflow.execute_activity(code.recorded_failure, "for good"),
            workflow.sleep(1),
            return_exceptions=True,
        )

    found = difference(define(more), "ends_failed")
    assert (found.sequence, found.asked) == (4, "start_timer")

    async def run(self: Any) -> None:
        await asyncio.Event().wait()

    found = difference(define(run), "ends_failed")
    assert (found.sequence, found.asked) == (3, "nothing more")


def test_another_end_than_the_recorded_one_is_found() -> None:
    async def run(self: Any) -> None:
        await asyncio.wait([workflow.start_activity(code.recorded_failure, "for good")])

    found = difference(define(run), "ends_failed")
    assert found.recorded.startswith("WorkflowFailed")
    assert found.asked == "complete_workflow"


def test_a_change_behind_a_patch_fits_the_old_history() -> None:
    async def run(self: Any) -> None:
        if workflow.patched("better"):
            await workflow.sleep(1)
        await workflow.execute_activity(code.recorded_failure, "for good")

    result = Replayer(workflows=[define(run)]).replay(History.from_file(_recorded("ends_failed")))
    assert result.failure is None


# ── determinism guard ───────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def started(cls: type) -> Iterator[WorkflowRun]:
    definition = WorkflowDefinition.of(cls)
    assert definition.name is not None
    run = WorkflowRun(definition, PolledRun("default", "q", "w", "r", definition.name), DEFAULT)
    try:
        yield run
    finally:
        run.close()


START = {
    "sequence": 1,
    "event_type": "WorkflowStarted",
    "payload": {},
    "recorded_at": "2026-01-01T00:00:00+00:00",
}


@workflow.defn
class StartsInNoOrder:
    @workflow.run
    async def run(self) -> None:
        for each in asyncio.as_completed([workflow.execute_activity(acts.echo, n) for n in range(3)]):
            await each


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_asyncio_as_completed_of_coroutines_is_refused_because_their_order_is_that_of_memory() -> None:
    with (
        started(StartsInNoOrder) as run,
        pytest.raises(DeterminismViolationError, match=r"workflow\.as_comp"),
    ):
        run.activate([START])


@workflow.defn
class LooksAtTheClockBesides:
    @workflow.run
    async def run(self) -> None:
        workflow.start_activity(acts.echo, 1)
        time.time()


def test_code_that_has_asked_for_an_activity_is_guarded_as_before() -> None:
    with (
        started(LooksAtTheClockBesides) as run,
        pytest.raises(DeterminismViolationError, match=r"workflow\.time"),
    ):
        run.activate([START])


@dataclass
class Stamped:
    at: float = 0.0

    def __post_init__(self) -> None:
        self.at = time.time()


@workflow.defn
class ReadsWhatStampsItself:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity("stamp", result_type=Stamped)


def test_a_type_that_looks_at_the_clock_when_a_result_is_read_is_refused() -> None:
    stamped = {
        "sequence": 4,
        "event_type": "ActivityCompleted",
        "payload": {"sequence": 1, "result": DEFAULT.encode({}, "result")},
        "recorded_at": "2026-01-01T00:00:01+00:00",
    }
    with started(ReadsWhatStampsItself) as run:
        run.activate([START])
        run.confirm_recorded(3)
        with pytest.raises(DeterminismViolationError, match=r"workflow\.time"):
            run.activate([stamped])


class EndsLoudly:
    def __del__(self) -> None:
        time.time()


@workflow.defn
class ClearsUp:
    @workflow.run
    async def run(self) -> str:
        EndsLoudly()
        return "done"


def test_what_an_object_does_at_its_end_is_no_doing_of_the_workflow() -> None:
    """Objects are finalized at any time, even if they have nothing to do with the run."""
    with started(ClearsUp) as run:
        assert [command["type"] for command in run.activate([START]).commands] == ["complete_workflow"]


# ── cached runs ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_behind_does_not_take_what_it_missed_for_its_own(every_command: dict[str, Any]) -> None:
    """Another cached copy of the run was ahead: the events in between must not be skipped."""
    events = History.read(every_command).events
    marker = next(event["sequence"] for event in events if event["event_type"] == "WorkflowTaskCompleted")
    second = next(
        event["sequence"]
        for event in events
        if event["event_type"] == "WorkflowTaskCompleted" and event["sequence"] > marker
    )
    with started(code.EveryCommand) as run:
        activation = run.activate(events[: marker - 1])
        assert not activation.closes
        run.confirm_recorded(marker + 3)
        with pytest.raises(WorkflowTaskError):
            run.activate(events[second:])
