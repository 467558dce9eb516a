"""What the code waits for: kept with the run, met, opened anew, timed out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core import waits
from penstock.core.history.commands import (
    Command,
    CompleteUpdate,
    CompleteWorkflow,
    OpenConditionWait,
    RecordSideEffect,
    ScheduleActivity,
    StartTimer,
)
from penstock.core.model import Blob, Timer
from penstock.core.run_codec import decode_waits, encode_waits
from penstock.core.timestamps import iso
from penstock.core.waits import ConditionWait, Selection, SelectionMember, SignalWait, Waits
from tests.core.history.run_driver import SIGNAL, Life, fired
from tests.support.builders import NOW_MS, an_update

PAID = OpenConditionWait("paid", "f00d")
PAID_SOON = replace(PAID, timeout_s=30)


def waiting(command: OpenConditionWait = PAID) -> Life:
    life = Life()
    life.decide(command)
    return life


def its_timer(life: Life, step: int = 1) -> Timer:
    """The timer of the wait at a step, as its event tells it."""
    told = next(
        life.said(place)
        for place, line in enumerate(life.history)
        if line.type == "TimerScheduled" and life.said(place)["sequence"] == step
    )
    names = ("timer_kind", "condition_wait_id", "condition_key", "condition_definition_fingerprint")
    extra = json.dumps({name: told[name] for name in names})
    return Timer(told["timer_id"], life.run.run_id, step, told["delay_seconds"], NOW_MS, extra)


# ── Kept ────────────────────────────────────────────────────────────────────────────────────────────────

names = st.text(max_size=5)
counts = st.integers(0, 9)
conditions = st.builds(
    ConditionWait,
    id=names,
    step=counts,
    key=st.none() | names,
    fingerprint=st.none() | names,
    timer_id=st.none() | names,
    delay_s=st.none() | counts,
    fire_at_ms=st.none() | counts,
    fired=st.booleans(),
    heard=st.booleans(),
)


def by_index(found: list[SelectionMember]) -> dict[int, SelectionMember]:
    return {each.index: each for each in found}


members = st.builds(
    SelectionMember,
    key=names | counts,
    index=counts,
    base=counts,
    size=counts,
    kind=names,
    identity=names,
    left=counts,
    done=st.booleans(),
    cancelled=st.booleans(),
)
signal_waits = st.builds(
    SignalWait,
    id=names,
    step=counts,
    name=names,
    timer_id=st.none() | names,
    delay_s=st.none() | counts,
    fire_at_ms=st.none() | counts,
    applied=st.booleans(),
    fired=st.booleans(),
)
selections = st.builds(
    Selection, names, counts, counts, st.lists(members, max_size=3).map(by_index), st.booleans()
)


@given(
    st.builds(
        Waits,
        st.none() | conditions,
        st.dictionaries(names, counts, max_size=3),
        st.lists(selections, max_size=2).map(tuple),
        *[st.booleans()] * 3,
        signal=st.none() | signal_waits,
    )
)
def test_what_is_waited_for_is_read_as_it_was_written(kept: Waits):
    assert decode_waits(encode_waits(kept)) == kept


def test_a_run_that_waits_for_nothing_special_keeps_nothing():
    assert encode_waits(Waits()) == "{}"
    assert decode_waits("{}") == Waits()


# ── Opening ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wait_with_a_timeout_has_a_timer_that_says_whose_it_is():
    life = waiting(PAID_SOON)
    opened, timer = life.said(0), life.said(1)
    assert (opened["condition_key"], opened["condition_definition_fingerprint"]) == ("paid", "f00d")
    assert opened["timeout_seconds"] == timer["delay_seconds"] == 30
    assert (timer["timer_kind"], timer["sequence"]) == ("condition_timeout", 1)
    assert timer["condition_wait_id"] == opened["condition_wait_id"]
    assert timer["fire_at"] == iso(NOW_MS + 30_000)
    assert life.run.open_timers == 1


def test_a_wait_without_a_timeout_has_none():
    life = waiting()
    assert life.types == ["ConditionWaitOpened"]
    assert life.said()["timeout_seconds"] is None
    assert life.run.open_timers == 0


def test_a_timeout_of_nothing_is_due_at_once():
    step = Life().decide(replace(PAID, timeout_s=0))
    assert [timer.fire_at_ms for timer in step.timers] == [NOW_MS]


# ── Woken for nothing ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [PAID, PAID_SOON])
def test_code_that_was_woken_for_nothing_waits_on(command: OpenConditionWait):
    life = waiting(command)
    before = life.run.waits
    step = life.decide(command)
    assert (step.events, step.timers, step.ended_timers) == ((), (), ())
    assert (life.run.waits, life.run.last_step) == (before, 1)


def test_no_key_and_an_empty_key_are_the_same():
    life = waiting(OpenConditionWait(None, "f00d"))
    assert life.decide(OpenConditionWait("", "f00d")).events == ()


@pytest.mark.parametrize("other", [replace(PAID, key="shipped"), replace(PAID, fingerprint="beef")])
def test_another_condition_means_that_the_first_was_met(other: OpenConditionWait):
    life = waiting()
    life.decide(other)
    assert life.types[1:] == ["ConditionWaitSatisfied", "ConditionWaitOpened"]


# ── Met ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command", [ScheduleActivity("Ship", None, Blob("")), StartTimer(1), CompleteWorkflow(Blob(""))]
)
def test_code_that_goes_on_has_met_its_condition(command: Command):
    life = waiting()
    opened = life.said(0)
    life.decide(command)
    met = life.said(1)
    assert life.types[1] == "ConditionWaitSatisfied"
    for name in ("condition_wait_id", "sequence", "condition_key", "condition_definition_fingerprint"):
        assert met[name] == opened[name]
    assert life.waits.condition is None


def test_the_timer_of_a_condition_that_was_met_is_cancelled_after_it():
    life = waiting(PAID_SOON)
    timer_id = life.said(1)["timer_id"]
    step = life.decide(RecordSideEffect(Blob("")), StartTimer(1))
    assert life.types[2:] == [
        "ConditionWaitSatisfied",
        "TimerCancelled",
        "SideEffectRecorded",
        "TimerScheduled",
    ]
    assert (life.said(3)["timer_id"], life.said(3)["timer_kind"]) == (timer_id, "condition_timeout")
    assert step.ended_timers == (timer_id,)
    assert life.run.open_timers == 1, "the new one"


def test_the_timer_of_a_wait_that_may_not_last_says_its_delay_to_the_end():
    """A timeout of nothing is a number like any other."""
    life = waiting(replace(PAID, timeout_s=0))
    life.decide(StartTimer(1))
    assert (life.types[3], life.said(3)["delay_seconds"]) == ("TimerCancelled", 0)


# ── Looked at anew ──────────────────────────────────────────────────────────────────────────────────────


def test_a_wait_that_heard_something_is_opened_anew_with_a_number_and_a_clock_of_its_own():
    life = waiting(PAID_SOON)
    first = life.said(0)["condition_wait_id"]
    assert life.tell(SIGNAL)
    step = life.decide(PAID_SOON)
    assert life.types[3:] == [
        "ConditionWaitSatisfied",
        "TimerCancelled",
        "ConditionWaitOpened",
        "TimerScheduled",
    ]
    assert (life.said(3)["condition_wait_id"], life.said(3)["sequence"]) == (first, 1)
    assert (life.said(5)["sequence"], life.run.last_step) == (2, 2)
    assert life.said(5)["condition_wait_id"] != first
    assert len(step.timers) == len(step.ended_timers) == life.run.open_timers == 1


def test_a_signal_is_heard_once():
    life = waiting()
    life.tell(SIGNAL)
    life.decide(PAID)
    assert life.decide(PAID).events == (), "the wait that was opened anew has heard nothing yet"


def test_a_signal_from_before_the_wait_is_not_heard_by_it():
    life = Life()
    assert not life.tell(SIGNAL)
    life.decide(PAID)
    assert life.decide(PAID).events == ()


# ── Timed out ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_wait_ends_when_its_timer_fires():
    life = waiting(PAID_SOON)
    assert life.tell(fired(its_timer(life)))
    assert life.types[2:] == ["TimerFired"]
    assert life.said()["condition_wait_id"] == life.said(0)["condition_wait_id"]
    assert life.waits.condition is None
    life.decide(StartTimer(1))
    assert "ConditionWaitSatisfied" not in life.types, "it has timed out"


def test_after_a_timeout_the_same_condition_is_a_new_wait():
    life = waiting(PAID_SOON)
    life.tell(fired(its_timer(life)))
    life.decide(PAID_SOON)
    assert life.types[3:] == ["ConditionWaitOpened", "TimerScheduled"]
    assert life.said(3)["sequence"] == 2


def test_a_timer_that_fires_for_a_condition_that_was_met_is_not_told():
    life = waiting(PAID_SOON)
    late = fired(its_timer(life))
    life.decide(StartTimer(1))
    before = list(life.history)
    assert not life.tell(late)
    assert life.history == before


def test_a_timer_that_fires_for_the_wait_before_does_not_end_the_one_that_is_open():
    life = waiting(PAID_SOON)
    late = fired(its_timer(life))
    life.tell(SIGNAL)
    life.decide(PAID_SOON)
    assert not life.tell(late)
    assert life.waits.condition is not None
    assert life.waits.condition.step == 2


def fired_unseen(life: Life) -> Any:
    """The timer fires while a worker decides: the run knows, its history does not say so yet."""
    condition = life.waits.condition
    assert condition is not None
    life.run = replace(
        life.run,
        open_timers=life.run.open_timers - 1,
        waits=replace(life.waits, condition=replace(condition, fired=True)),
    )
    return fired(its_timer(life, condition.step))


def test_a_condition_that_is_met_while_its_timer_fires_is_met_and_counts_its_timer_once():
    life = waiting(PAID_SOON)
    late = fired_unseen(life)
    step = life.decide(ScheduleActivity("Ship", None, Blob("")))
    assert life.types[2:] == ["ConditionWaitSatisfied", "TimerCancelled", "ActivityScheduled"]
    assert (step.ended_timers, life.run.open_timers) == ((), 0)
    assert not life.tell(late)


def test_a_condition_that_is_still_awaited_when_its_timer_has_fired_times_out():
    life = waiting(PAID_SOON)
    late = fired_unseen(life)
    assert life.decide(PAID_SOON).events == ()
    assert life.tell(late)
    assert life.types[2:] == ["TimerFired"]
    assert life.waits.condition is None


# ── Who looks first ─────────────────────────────────────────────────────────────────────────────────────


def test_signals_wait_for_the_first_look_of_the_code_and_no_longer():
    life = Life(waits=waits.NEW_RUN)
    assert life.waits.signals_deferred
    life.decide(PAID)
    assert not life.waits.signals_deferred


def test_after_a_timeout_signals_wait_until_the_code_has_looked():
    life = waiting(PAID_SOON)
    life.tell(fired(its_timer(life)))
    assert life.waits.signals_deferred
    life.decide(PAID)
    assert not life.waits.signals_deferred


def test_the_task_of_an_update_is_no_look():
    life = Life(waits=waits.NEW_RUN, open_updates=1)
    life.decide(CompleteUpdate("u1", Blob("")), update=an_update("u1"))
    assert life.waits.signals_deferred
