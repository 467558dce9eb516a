"""What a run waits for when no task of its own is under way: activities, timers, or a word from outside."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.explaining.values import Act, Constraint, Expectation, Explanation, Kind, Remedy
from penstock.core.explaining.words import counted, sentence, span
from penstock.core.history.bounds import Excess
from penstock.core.history.waits import ConditionWait
from penstock.core.model import Child, Run, Timer
from penstock.core.timers import iso


def closed_run(run: Run) -> Explanation:
    when = "" if run.closed_at_ms is None else f" at {iso(run.closed_at_ms)}"
    word = run.closed_reason or run.status.value
    return _one(run.workflow_id, Constraint(Kind.NOT_WAITING, f"it ended as {word}{when}"))


def waits_for_activities(
    run: Run, parts: Sequence[tuple[str, Explanation]], count: int, timers: Sequence[Timer], now_ms: int
) -> Explanation:
    """A run that waits for activities, of which the first are explained, and perhaps for timers."""
    names = ", ".join(name for name, _ in parts[:3])
    more = " and others" if count > min(3, len(parts)) else ""
    constraint = Constraint(
        Kind.ACTIVITY,
        f"{counted(count, 'activity').replace('activitys', 'activities')} must end first: {names}{more}",
        used=count,
        frees=(Remedy(Act.REPORT, count=count),),
    )
    unknown = Expectation(unknown_because="It goes on when an activity ends.")
    then = (timer(timers, now_ms),) if timers else ()
    return Explanation(sentence(run.workflow_id, constraint), constraint, then, None, unknown)


def waits_for_timers(run: Run, timers: Sequence[Timer], now_ms: int) -> Explanation:
    constraint = timer(timers, now_ms)
    at_ms = constraint.opens_at_ms
    return Explanation(
        sentence(run.workflow_id, constraint),
        constraint,
        expected=Expectation(at_ms, None if at_ms is None else max(at_ms, now_ms) + 2_000),
    )


def timer(timers: Sequence[Timer], now_ms: int) -> Constraint:
    """The timer that fires first."""
    at_ms = min(each.fire_at_ms for each in timers)
    others = f" ({len(timers) - 1} more after it)" if len(timers) > 1 else ""
    return Constraint(
        Kind.TIMER,
        f"a timer fires in {span(at_ms - now_ms)}, at {iso(at_ms)}{others}",
        opens_at_ms=at_ms,
        frees=(Remedy(Act.WAIT, at_ms=at_ms),),
    )


def waits_for_condition(run: Run, wait: ConditionWait, now_ms: int) -> Explanation:
    """Only the code knows when its condition holds; what it hears can make it so."""
    what = f"the condition {wait.key}" if wait.key else "a condition of its code"
    at_ms = wait.fire_at_ms
    until = "" if at_ms is None else f", or until its timeout in {span(at_ms - now_ms)}"
    frees = (Remedy(Act.SIGNAL), *(() if at_ms is None else (Remedy(Act.WAIT, at_ms=at_ms),)))
    constraint = Constraint(
        Kind.CONDITION, f"it waits until {what} holds{until}", opens_at_ms=at_ms, frees=frees
    )
    expected = Expectation(unknown_because="It goes on when a signal or an update makes the condition true.")
    return Explanation(sentence(run.workflow_id, constraint), constraint, expected=expected)


def waits_for_children(run: Run, children: Sequence[Child]) -> Explanation:
    names = ", ".join(each.workflow_id for each in children[:3])
    more = " and others" if len(children) > 3 else ""
    count = len(children)
    told = "1 child" if count == 1 else f"{count:,} children"
    constraint = Constraint(
        Kind.CHILD,
        f"{told} must end first: {names}{more}. Ask why for each of them",
        used=count,
        frees=(Remedy(Act.REPORT, count=count),),
    )
    unknown = Expectation(unknown_because="It goes on when a child ends.")
    return Explanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


def waits_for_signal(run: Run) -> Explanation:
    message = "nothing of it is under way; it waits for a signal, an update or a command"
    constraint = Constraint(Kind.SIGNAL, message, frees=(Remedy(Act.SIGNAL),))
    unknown = Expectation(unknown_because="It goes on when somebody sends something.")
    return Explanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


def stranded(run: Run) -> Explanation:
    """A run that no signal wakes: its code waits for nothing, and it has no workflow task."""
    message = "nothing of it is under way, and it has no workflow task that would go on"
    constraint = Constraint(Kind.STRANDED, message, frees=(Remedy(Act.REPAIR),))
    unknown = Expectation(unknown_because="It goes on when it is repaired.")
    return Explanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


def structural_limit(found: Excess) -> Constraint:
    """A run that waiting does not help: its code asks for more than a run may hold, or its history is full."""
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
        frees.append(Remedy(Act.END_STEPS, count=found.ends_needed))
    if found.was_refused:
        frees.append(Remedy(Act.FIX))
    if found.setting is not None:
        frees.append(Remedy(Act.RAISE_SETTING, to=found.value, setting=found.setting))
    frees.append(Remedy(Act.END_RUN))
    return Constraint(Kind.STRUCTURAL_LIMIT, message, most=found.most, used=found.held, frees=tuple(frees))


def beyond_limit(run: Run, found: Excess) -> Explanation:
    """A run that waits for a message, and cannot receive one."""
    constraint = structural_limit(found)
    unknown = Expectation(unknown_because=f"It does not go on by itself: {constraint.message}.")
    return Explanation(sentence(run.workflow_id, constraint), constraint, expected=unknown)


LIMIT_WORDS = {
    "pending_activity_count": "open activities",
    "pending_timer_count": "open timers",
    "pending_child_count": "open children",
    "pending_external_request_count": "open requests to other workflows",
    "history_event_count": "events",
    "memo_size": "bytes of memo",
    "search_attribute_size": "bytes of search attributes",
}


def _one(subject: str, constraint: Constraint) -> Explanation:
    return Explanation(sentence(subject, constraint), constraint)
