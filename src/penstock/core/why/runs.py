"""What a run without a live workflow task waits for: activities, timers, children, conditions or messages."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.history.structural_limits import LimitExcess
from penstock.core.limits.run_caps import RunCap
from penstock.core.model import ChildRun, Run, Timer
from penstock.core.timestamps import iso
from penstock.core.waits import ConditionWait, Pause, SignalWait
from penstock.core.why.sentences import count_text, duration_text, scope_text, sentence
from penstock.core.why.values import (
    Constraint,
    ConstraintKind,
    LeaseHolder,
    Position,
    Remedy,
    RemedyKind,
    StartEstimate,
    WaitExplanation,
)


def closed_run(run: Run) -> WaitExplanation:
    when = "" if run.closed_at_ms is None else f" at {iso(run.closed_at_ms)}"
    word = run.closed_reason or run.status.value
    return _one(run.workflow_id, Constraint(ConstraintKind.NOT_WAITING, f"it ended as {word}{when}"))


def waits_to_start(
    run: Run,
    cap: RunCap,
    used: int,
    ahead_by_level: Sequence[tuple[int, int]],
    holders: Sequence[LeaseHolder],
) -> WaitExplanation:
    """A run that a cap on runs holds back.

    Args:
        run: the run.
        cap: the cap in whose line it stands.
        used: how many runs hold a place under it.
        ahead_by_level: how many others stand before it in that line.
        holders: the runs that hold a place, the oldest first.
    """
    place = Position(run.level, run.key, tuple(ahead_by_level))
    ahead = place.ahead
    held = "is closed to runs" if not cap.most else f"has {used} of at most {cap.most} runs open"
    frees = [Remedy(RemedyKind.RAISE_RUN_CAP, cap.name, to=max(used, cap.most) + ahead + 1)]
    if cap.most:
        frees.insert(0, Remedy(RemedyKind.CLOSE_RUNS, cap.name, count=max(0, used - cap.most) + ahead + 1))
    behind = (
        f", and {count_text(ahead, 'run')} {'waits' if ahead == 1 else 'wait'} before it" if ahead else ""
    )
    constraint = Constraint(
        ConstraintKind.RUN_CAP,
        f"{scope_text(cap.name)} {held}{behind}",
        cap.name,
        cap.most,
        used,
        frees=tuple(frees),
        holders=tuple(holders),
    )
    unknown = StartEstimate(unknown_because="It starts when runs of its scopes have closed.")
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, (), place, unknown)


def waits_for_activities(
    run: Run, parts: Sequence[tuple[str, WaitExplanation]], count: int, timers: Sequence[Timer], now_ms: int
) -> WaitExplanation:
    """A run that waits for activities, the first of which are explained, and perhaps for timers."""
    names = ", ".join(name for name, _ in parts[:3])
    more = " and others" if count > min(3, len(parts)) else ""
    constraint = Constraint(
        ConstraintKind.ACTIVITY,
        f"{count_text(count, 'activity').replace('activitys', 'activities')} must end first: {names}{more}",
        used=count,
        frees=(Remedy(RemedyKind.REPORT, count=count),),
    )
    unknown = StartEstimate(unknown_because="It continues when an activity ends.")
    then = (timer(timers, now_ms),) if timers else ()
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, then, None, unknown)


def waits_for_timers(run: Run, timers: Sequence[Timer], now_ms: int) -> WaitExplanation:
    constraint = timer(timers, now_ms)
    at_ms = constraint.opens_at_ms
    return WaitExplanation(
        sentence(run.workflow_id, constraint),
        constraint,
        expected=StartEstimate(at_ms, None if at_ms is None else max(at_ms, now_ms) + 2_000),
    )


def timer(timers: Sequence[Timer], now_ms: int) -> Constraint:
    """The timer that fires first."""
    at_ms = min(each.fire_at_ms for each in timers)
    others = f" ({len(timers) - 1} more after it)" if len(timers) > 1 else ""
    return Constraint(
        ConstraintKind.TIMER,
        f"a timer fires in {duration_text(at_ms - now_ms)}, at {iso(at_ms)}{others}",
        opens_at_ms=at_ms,
        frees=(Remedy(RemedyKind.WAIT, at_ms=at_ms),),
    )


def waits_for_condition(run: Run, wait: ConditionWait, now_ms: int) -> WaitExplanation:
    """A run that waits for a condition: only its code can evaluate it, after signals and updates."""
    what = f"the condition {wait.key}" if wait.key else "a condition of its code"
    at_ms = wait.fire_at_ms
    until = "" if at_ms is None else f", or until its timeout in {duration_text(at_ms - now_ms)}"
    frees = (Remedy(RemedyKind.SIGNAL), *(() if at_ms is None else (Remedy(RemedyKind.WAIT, at_ms=at_ms),)))
    constraint = Constraint(
        ConstraintKind.CONDITION, f"it waits until {what} holds{until}", opens_at_ms=at_ms, frees=frees
    )
    expected = StartEstimate(
        unknown_because="It continues when a signal or an update makes the condition true."
    )
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, expected=expected)


def waits_for_one_signal(run: Run, wait: SignalWait, now_ms: int) -> WaitExplanation:
    """A run that waits for one signal by its name."""
    at_ms = wait.fire_at_ms
    until = "" if at_ms is None else f", or until its timeout in {duration_text(at_ms - now_ms)}"
    frees = (Remedy(RemedyKind.SIGNAL), *(() if at_ms is None else (Remedy(RemedyKind.WAIT, at_ms=at_ms),)))
    constraint = Constraint(
        ConstraintKind.SIGNAL, f"it waits for the signal {wait.name}{until}", opens_at_ms=at_ms, frees=frees
    )
    expected = StartEstimate(unknown_because=f"It continues when the signal {wait.name} is sent to it.")
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, expected=expected)


def waits_for_children(run: Run, children: Sequence[ChildRun]) -> WaitExplanation:
    names = ", ".join(each.workflow_id for each in children[:3])
    more = " and others" if len(children) > 3 else ""
    count = len(children)
    children_text = "1 child" if count == 1 else f"{count:,} children"
    constraint = Constraint(
        ConstraintKind.CHILD,
        f"{children_text} must end first: {names}{more}. Ask why for each of them",
        used=count,
        frees=(Remedy(RemedyKind.REPORT, count=count),),
    )
    unknown = StartEstimate(unknown_because="It continues when a child ends.")
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


def waits_for_signal(run: Run) -> WaitExplanation:
    message = "it has no open step; it waits for a signal, an update or a command"
    constraint = Constraint(ConstraintKind.SIGNAL, message, frees=(Remedy(RemedyKind.SIGNAL),))
    unknown = StartEstimate(unknown_because="It continues when a message is sent to it.")
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


def stranded(run: Run) -> WaitExplanation:
    """A run without a workflow task whose code waits for nothing, so that no signal wakes it."""
    message = "it has no open step and no workflow task"
    constraint = Constraint(ConstraintKind.STRANDED, message, frees=(Remedy(RemedyKind.REPAIR),))
    unknown = StartEstimate(unknown_because="It continues when it is repaired.")
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


def paused(subject: str, pause: Pause, *, is_run: bool) -> WaitExplanation:
    """A run or an activity that an operator paused; what a worker runs already is not held back."""
    author = "" if pause.by is None else f" by {pause.by[1]}"
    because = "" if pause.reason is None else f": {pause.reason}"
    what = "the run" if is_run else "the activity"
    message = f"{what} was paused at {iso(pause.at_ms)}{author}{because}"
    act = RemedyKind.RESUME_RUN if is_run else RemedyKind.RESUME_ACTIVITY
    kind = ConstraintKind.RUN_PAUSED if is_run else ConstraintKind.ACTIVITY_PAUSED
    constraint = Constraint(kind, message, frees=(Remedy(act),))
    unknown = StartEstimate(unknown_because=f"It continues when {what} is resumed.")
    return WaitExplanation(sentence(subject, constraint), constraint, expected=unknown)


def debounced(
    subject: str, unique_key: str, starts: int, due_at_ms: int, latest_at_ms: int, now_ms: int
) -> WaitExplanation:
    """A start that waits for others of its unique key.

    Args:
        subject: the workflow or activity.
        unique_key: its unique key.
        starts: how many starts it stands for.
        due_at_ms: when it begins, if no other comes.
        latest_at_ms: when it begins at the latest.
        now_ms: the time.
    """
    message = (
        f"it was debounced: {count_text(starts, 'start')} of the unique key {unique_key} so far. It begins in "
        f"{duration_text(due_at_ms - now_ms)} unless another comes, and by {iso(latest_at_ms)} at the latest"
    )
    constraint = Constraint(
        ConstraintKind.DEBOUNCED,
        message,
        unique_key,
        opens_at_ms=due_at_ms,
        frees=(Remedy(RemedyKind.WAIT, at_ms=due_at_ms),),
    )
    return WaitExplanation(sentence(subject, constraint), constraint, expected=StartEstimate(due_at_ms))


def structural_limit(found: LimitExcess) -> Constraint:
    """A structural limit that waiting does not remove: too much is open, or the history is full."""
    what = LIMIT_WORDS.get(found.limit_kind, found.limit_kind)
    if found.was_refused:
        message = f"its workflow task is refused: the run would hold {found.value:,} {what}, of at most {found.most:,}"
    else:
        message = (
            f"its history is full, with {found.held:,} of at most {found.most:,} events: it takes no signals or"
            " updates, and its code can only end the run or continue as new"
        )
    frees: list[Remedy] = []
    if found.ends_needed is not None:
        frees.append(Remedy(RemedyKind.END_STEPS, count=found.ends_needed))
    if found.was_refused:
        frees.append(Remedy(RemedyKind.FIX))
    if found.setting is not None:
        frees.append(Remedy(RemedyKind.RAISE_SETTING, to=found.value, setting=found.setting))
    frees.append(Remedy(RemedyKind.END_RUN))
    return Constraint(
        ConstraintKind.STRUCTURAL_LIMIT, message, most=found.most, used=found.held, frees=tuple(frees)
    )


def beyond_limit(run: Run, found: LimitExcess) -> WaitExplanation:
    """A run that waits for a message and cannot receive one."""
    constraint = structural_limit(found)
    unknown = StartEstimate(unknown_because=f"It does not continue by itself: {constraint.message}.")
    return WaitExplanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


LIMIT_WORDS = {
    "pending_activity_count": "open activities",
    "pending_timer_count": "open timers",
    "pending_child_count": "open children",
    "pending_external_request_count": "open requests to other workflows",
    "history_event_count": "events",
    "memo_size": "bytes of memo",
    "search_attribute_size": "bytes of search attributes",
}


def _one(subject: str, constraint: Constraint) -> WaitExplanation:
    return WaitExplanation(sentence(subject, constraint), constraint)
