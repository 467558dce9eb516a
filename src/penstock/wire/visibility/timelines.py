"""Requests and responses of timelines. Instants of spans are milliseconds since the start of the run."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from penstock.core.timeline.time_spent import TimeSpent
from penstock.core.timeline.values import Span, TimelineLane
from penstock.core.why.sentences import duration_text
from penstock.wire.fields import INT_MAX, Name
from penstock.wire.requests import RequestModel

Body = dict[str, Any]


class ReadTimeline(RequestModel):
    width: Annotated[int, Meta(ge=50, le=4_000)] = 1_200
    """The most spans that a lane is drawn with."""
    type: Name | None = None
    """Only the lanes with this label, one for each step: opens a folded lane."""
    after_step: Annotated[int, Meta(ge=0, le=INT_MAX)] = 0
    """With `type`: only steps after this one."""


def lane(each: TimelineLane, start_ms: int) -> Body:
    """A lane; fields without a value are left out, because an answer has many."""
    body: Body = {"kind": each.kind.value, "label": lane_label(each), "type": each.label}
    facts: Body = {
        "step": each.step,
        "outcome": each.outcome,
        "is_open": each.is_open or None,
        "child_workflow_id": each.child_id,
        "child_run_id": each.child_run_id,
    }
    if each.folded:
        facts |= {"folded": each.folded, "p50_ms": each.p50_ms, "failed": each.failed}
    if each.ticks:
        facts["ticks"] = [
            {"at": tick.at_ms - start_ms, "label": tick.label[:80], "event": tick.event}
            for tick in each.ticks
        ]
    body |= {name: value for name, value in facts.items() if value is not None}
    return body | {"spans": [_span(span, start_ms) for span in each.spans]}


def lane_label(each: TimelineLane) -> str:
    """The label of a lane; of a folded one with its count, median duration and failures."""
    if not each.folded:
        return each.label
    parts = [f"{each.label} × {each.folded:,}"]
    if each.p50_ms is not None:
        parts.append(f"p50 {duration_text(each.p50_ms)}")
    if each.failed:
        parts.append(f"{each.failed:,} failed")
    return ", ".join(parts)


def spent_body(spent: TimeSpent) -> Body:
    """Where the time went; the three parts add up to `total_ms`."""
    return {
        "total_ms": spent.total_ms,
        "held_back_ms": spent.held_back_ms,
        "running_ms": spent.running_ms,
        "by_design_ms": spent.by_design_ms,
        "waits": {cause.value: ms for cause, ms in spent.by_cause.items()},
    }


def _span(span: Span, start_ms: int) -> Body:
    body: Body = {"from": span.from_ms - start_ms, "to": span.to_ms - start_ms, "state": span.state.value}
    if span.cause is not None:
        body["cause"] = span.cause.value
        if not span.is_held_back:
            body["by_design"] = True
    if span.attempt is not None and span.attempt > 1:
        body["attempt"] = span.attempt
    if span.outcome is not None and span.outcome != "completed":
        body["outcome"] = span.outcome
    if span.events:
        body["events"] = span.events
    return body
