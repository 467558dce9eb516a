"""What a backfill would do: how many fires start, wait or are skipped, and how long the queue needs for them.

The fires of a backfill come one after the other within seconds, so the prediction lets no run close in the meantime: it
applies the overlap policy to each fire in turn, with the runs that are open now and those that the backfill itself
starts. That is why a backfill with the policy `skip` starts at most one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.schedules.overlap import Buffer, Overlap, Skip, StartNow, decide_fire

MINUTE_S: Final = 60


class BackfillPlan(Struct, frozen=True, kw_only=True):
    """The outcomes that are expected, as numbers of fires."""

    starts: int = 0
    waits: int = 0
    """Fires that are buffered until the open runs have closed."""
    skips: int = 0
    repeated: int = 0
    """Fires of earlier backfills, which are not made again."""
    ends_runs: bool = False
    """Whether open runs are cancelled or terminated."""
    beyond_max_runs: int = 0
    """Fires for which no start is left."""


class QueueLoad(Struct, frozen=True, kw_only=True):
    """The queue that would get the tasks."""

    task_queue: str
    waiting: int
    """Tasks that wait there now and go first: of the same or a more urgent priority level."""
    dispatched: float
    """Dispatches of the last minute."""
    rate_per_s: float | None = None
    """The rate limit of the queue; None if there is none."""
    paused: bool = False


def plan_backfill(
    policy: Overlap,
    fires: int,
    *,
    open_runs: int,
    buffered: int,
    remaining: int | None = None,
    repeated: int = 0,
) -> BackfillPlan:
    """The outcomes of so many fires in a row, of which `repeated` were made before."""
    starts = waits = skips = 0
    ends_runs = False
    left = fires - repeated if remaining is None else min(fires - repeated, max(0, remaining))
    for _ in range(fires - repeated):
        if starts == left and remaining is not None:
            break
        match decide_fire(policy, open_runs=open_runs, buffered=buffered):
            case StartNow(terminate=terminate):
                ends_runs = ends_runs or (terminate and open_runs > 0)
                open_runs = 1 if terminate else open_runs + 1
                starts += 1
            case Buffer(cancel=cancel):
                ends_runs = ends_runs or cancel
                buffered += 1
                waits += 1
            case Skip():
                skips += 1
    return BackfillPlan(
        starts=starts,
        waits=waits,
        skips=skips,
        repeated=repeated,
        ends_runs=ends_runs,
        beyond_max_runs=fires - repeated - starts - waits - skips,
    )


def drain_s(plan: BackfillPlan, load: QueueLoad) -> float | None:
    """How long the queue needs for what waits and what is started, at its limit or the pace of the last minute."""
    measured = load.dispatched / MINUTE_S
    rate = load.rate_per_s if load.rate_per_s is not None else measured
    if load.paused or rate <= 0:
        return None
    return (load.waiting + plan.starts) / rate


def in_sentences(plan: BackfillPlan, policy: Overlap, load: QueueLoad) -> Sequence[str]:
    """The prediction for the person who is about to backfill."""
    found = [f"{plan.starts} of {_total(plan)} fires start a run at once."]
    if plan.waits:
        found.append(f"{plan.waits} wait until the open runs have closed.")
    if plan.skips:
        found.append(
            f"{plan.skips} are skipped, because a run is open and the overlap policy is {policy.value}; "
            "buffer_all starts them one after the other, allow_all at the same time."
        )
    if plan.ends_runs:
        found.append("Open runs of the schedule are ended.")
    if plan.repeated:
        found.append(f"{plan.repeated} were backfilled before and are not made again.")
    if plan.beyond_max_runs:
        found.append(f"{plan.beyond_max_runs} fail: max_runs is reached, and the schedule is deleted.")
    if plan.starts:
        found.append(_queue_sentence(plan, load))
    return found


def _queue_sentence(plan: BackfillPlan, load: QueueLoad) -> str:
    name = repr(load.task_queue)
    if load.paused:
        return f"The task queue {name} is paused: the runs wait there, behind {load.waiting} tasks."
    seconds = drain_s(plan, load)
    if seconds is None:
        return f"{load.waiting} tasks wait in {name}, and none was dispatched in the last minute."
    pace = (
        f"its limit of {load.rate_per_s:g}/s"
        if load.rate_per_s is not None
        else "the pace of the last minute"
    )
    return f"{load.waiting} tasks wait in {name}; at {pace} it needs {seconds:,.0f} s for all of them."


def _total(plan: BackfillPlan) -> int:
    return plan.starts + plan.waits + plan.skips + plan.repeated + plan.beyond_max_runs
