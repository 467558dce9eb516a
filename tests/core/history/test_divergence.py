"""Code that no longer fits its history: what the SDK says of it is understood, and both sides are kept."""

from __future__ import annotations

from typing import Any

import pytest
from durable_workflow.errors import NonDeterministicReplayError

from penstock.core.history import divergence
from penstock.core.history.divergence import CHARS_MAX, Divergence
from penstock.core.model import ReplayBlock
from tests.support.builders import NOW_MS, a_run, a_worker, an_event


def said(*arguments: Any, **more: Any) -> Divergence:
    error = NonDeterministicReplayError(*arguments, **more)
    parted = divergence.of(type(error).__name__, str(error))
    assert parted is not None
    assert parted.message == str(error)
    return parted


def test_what_the_sdk_says_is_taken_apart():
    parted = said(4, "activity", ["TimerScheduled", "TimerFired"])
    assert (parted.step, parted.recorded, parted.yielded) == (
        4,
        ("TimerScheduled", "TimerFired"),
        "activity",
    )


@pytest.mark.parametrize(
    "shape",
    [
        "activity 'shop.charge'",
        "timer of 3.5 seconds",
        "condition terminal history with its durable selection path",
        "SelectionResolved with a declared member key, index, base, and size",
    ],
)
def test_what_the_code_did_is_told_whole_and_without_the_detail(shape: str):
    parted = said(12, shape, ["ActivityScheduled"], detail="activity type changed. See the code.")
    assert (parted.step, parted.yielded) == (12, shape)


def test_an_empty_record_is_a_record():
    assert said(1, "timer", []).recorded == ()


@pytest.mark.parametrize("kind", ["NonDeterministicReplayError", "NonDeterminismError", "nondeterminism"])
def test_words_that_are_not_known_still_block(kind: str):
    assert divergence.of(kind, "it differs") == Divergence(None, (), None, "it differs")


@pytest.mark.parametrize("kind", [None, "", "RuntimeError", "WorkflowTaskWaitingForHistory"])
def test_other_failures_are_no_divergence(kind: str | None):
    error = NonDeterministicReplayError(1, "timer", [])
    assert divergence.of(kind, str(error)) is None


def test_long_messages_are_kept_in_part():
    message = str(NonDeterministicReplayError(4, "x" * 9_000, ["TimerScheduled"]))
    kept = divergence.of("nondeterminism", message)
    assert kept == Divergence(4, ("TimerScheduled",), "x" * CHARS_MAX, message[:CHARS_MAX])


# ── Where they part ─────────────────────────────────────────────────────────────────────────────────────


def test_the_first_event_of_the_step_is_where_they_part():
    events = [
        an_event("r1", 1, "WorkflowStarted"),
        an_event("r1", 2, "ActivityScheduled", payload='{"sequence":41}'),
        an_event("r1", 3, "SignalReceived", payload='{"arguments":"\\"sequence\\":4"}'),
        an_event("r1", 4, "MemoUpserted", payload='{"sequence":5,"merged":{"sequence":4}}'),
        an_event("r1", 5, "TimerScheduled", payload='{"sequence":4}'),
        an_event("r1", 6, "TimerFired", payload='{"sequence":4}'),
    ]
    found = divergence.first(events, said(4, "activity", ["TimerScheduled"]))
    assert found is not None
    assert found.sequence == 5
    assert divergence.first(events, said(9, "activity", [])) is None
    assert divergence.first(events, Divergence(None, (), None, "it differs")) is None


def test_the_block_names_both_sides_and_the_code_that_did_not_fit():
    run, worker = a_run(), a_worker(build_id="build-2")
    event = an_event("r1", 5, "TimerScheduled")
    block = divergence.replay_block(said(4, "activity", ["TimerScheduled"]), event, run, worker, NOW_MS)
    assert (block.reason, block.sequence) == ("nondeterminism", 4)
    assert (block.event_sequence, block.event_type) == (5, "TimerScheduled")
    assert (block.recorded, block.yielded) == (("TimerScheduled",), "activity")
    assert (block.worker_id, block.build_id, block.fingerprint) == (
        "worker-1",
        "build-2",
        "f00d",
    )


def test_a_run_is_blocked_since_the_first_time():
    parted = said(4, "activity", ["TimerScheduled"])
    first = divergence.replay_block(parted, None, a_run(), None, NOW_MS)
    again = divergence.replay_block(parted, None, a_run(blocked=first), None, NOW_MS + 60_000)
    assert again.since == first.since


# ── Who may go on ───────────────────────────────────────────────────────────────────────────────────────


def blocked(**changes: Any) -> ReplayBlock:
    return ReplayBlock(**{"build_id": "build-1", "fingerprint": "f00d"} | changes)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, False),
        ({"build_id": "build-2"}, True),
        ({"fingerprints": {"Order": "beef"}}, True),
        ({"build_id": "build-2", "workflow_types": ("Other",)}, False),
        ({"build_id": "build-2", "workflow_types": ()}, True),
    ],
)
def test_a_worker_with_other_code_of_the_type_may_fit(changes: dict[str, Any], fits: bool):
    worker = a_worker(**({"build_id": "build-1"} | changes))
    assert divergence.may_fit(blocked(), "Order", worker) is fits


def test_code_that_says_nothing_of_itself_may_be_any():
    worker = a_worker(build_id="build-1", fingerprints={})
    assert divergence.may_fit(blocked(fingerprint=None), "Order", worker)
