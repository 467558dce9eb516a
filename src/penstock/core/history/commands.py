"""What workflow code asked for."""

from __future__ import annotations

from msgspec import Struct, field

from penstock.core.id_policies import IdReusePolicy
from penstock.core.model import ActivityTimeouts, Blob, ClosePolicy, Json, PriorityOverride, RetrySchedule


class ScheduleActivity(Struct, frozen=True):
    activity_type: str
    task_queue: str | None
    """None: the queue of the run."""
    arguments: Blob
    retry: RetrySchedule = field(default_factory=RetrySchedule)
    timeouts: ActivityTimeouts = field(default_factory=ActivityTimeouts)
    extra: Json = field(default_factory=dict)
    """What the events of this step must repeat."""
    priority: PriorityOverride = field(default_factory=PriorityOverride)
    """Priority level, fairness key and weight, where they differ from the run's."""
    routing_key: str | None = None
    """What of its arguments decided where it goes."""
    dispatch: Json | None = None
    """Where its options come from: the configuration's fingerprint, and the layer of each value."""
    delay_ms: int = 0
    """How long it waits before it may start; its clocks run from then on."""
    good_until_ms: int | None = None
    """When it must have started, or else times out."""
    good_for_ms: int | None = None
    """The same, counted from when it may start for the first time."""


class RecordLocalActivity(Struct, frozen=True):
    """An activity that the worker ran by itself, inside the workflow task, and how it ended."""

    activity_type: str
    outcome: str
    """completed, failed, timed_out or cancelled"""
    arguments: Blob
    result: Blob | None = None
    told: Json = field(default_factory=dict)
    """Attempts, message, exception and the like, as the worker sent them."""
    extra: Json = field(default_factory=dict)


class StartTimer(Struct, frozen=True):
    delay_s: int
    extra: Json = field(default_factory=dict)
    delay_ms: int | None = None
    """The same to the millisecond, where the code says it so."""

    @property
    def lasts_ms(self) -> int:
        return self.delay_s * 1000 if self.delay_ms is None else self.delay_ms


class StartChild(Struct, frozen=True):
    workflow_type: str
    task_queue: str | None
    """None: the queue of the parent."""
    arguments: Blob
    workflow_id: str | None = None
    """None: one is made from the parent's run and step."""
    policy: ClosePolicy = ClosePolicy.ABANDON
    retry: RetrySchedule = field(default_factory=RetrySchedule)
    execution_timeout_s: int | None = None
    run_timeout_s: int | None = None
    extra: Json = field(default_factory=dict)
    priority: PriorityOverride = field(default_factory=PriorityOverride)
    memo: Json = field(default_factory=dict)
    search_attributes: Json = field(default_factory=dict)
    business_key: str | None = None
    build_id: str | None = None
    """None: the parent's build on the parent's queue, else the promoted one."""
    delay_ms: int = 0
    """How long its code waits before it runs first; its timeouts run from then on."""
    reuse: IdReusePolicy = IdReusePolicy.REJECT_DUPLICATE
    """Whether it may have the id of a closed workflow."""
    problem: str | None = None
    """Why it cannot be started: the parent's code hears it as the failure of the child."""


class RecordSideEffect(Struct, frozen=True):
    result: Blob
    stream: Json | None = None
    """What it adds to, or says of, a stream that the run writes."""


class RecordVersionMarker(Struct, frozen=True):
    change_id: str
    version: int
    min_supported: int
    max_supported: int


class UpsertSearchAttributes(Struct, frozen=True):
    attributes: Json
    """None as a value deletes."""


class UpsertMemo(Struct, frozen=True):
    entries: Json
    blob: Blob
    """The same, as the worker encoded it: replay compares it."""


class OpenConditionWait(Struct, frozen=True):
    key: str | None = None
    fingerprint: str | None = None
    timeout_s: int | None = None
    extra: Json = field(default_factory=dict)


class CompleteUpdate(Struct, frozen=True):
    update_id: str
    result: Blob


class FailUpdate(Struct, frozen=True):
    update_id: str
    message: str
    extra: Json = field(default_factory=dict)


class CancelSelectionOperation(Struct, frozen=True):
    """Give up one member of a selection; the seven fields are repeated in the event."""

    group_id: str
    member_index: int
    echoed: Json


class CancelStep(Struct, frozen=True):
    """Of a concurrent run: cancel a step, whatever runs there."""

    step: int
    wait: bool = False
    """Of an activity: ask it to stop, and record how it ends. Otherwise nothing more is recorded of the step."""


class SignalExternal(Struct, frozen=True):
    """Of a concurrent run: tell another workflow something."""

    workflow_id: str
    signal_name: str
    arguments: Blob
    run_id: str | None = None
    """None: whichever run is current."""
    children_only: bool = False
    """Only if the receiver is a child of this run: its id may be another workflow's by now."""


class CancelExternal(Struct, frozen=True):
    """Of a concurrent run: ask another workflow to end."""

    workflow_id: str
    run_id: str | None = None
    reason: str | None = None
    children_only: bool = False


class CancelWorkflow(Struct, frozen=True):
    """Of a concurrent run: its code was asked to end, and does."""

    reason: str | None = None


class CompleteWorkflow(Struct, frozen=True):
    result: Blob


class FailWorkflow(Struct, frozen=True):
    message: str
    extra: Json = field(default_factory=dict)
    """Exception type, class and the like, as the worker sent them."""


class ContinueAsNew(Struct, frozen=True):
    arguments: Blob
    workflow_type: str | None = None
    """None: the same as now."""
    task_queue: str | None = None
    priority: PriorityOverride = field(default_factory=PriorityOverride)
    """Priority level, fairness key and weight of the next run, where they differ from this one's."""
    run_timeout_s: int | None = None
    """None: the same as now; so for all that follow."""
    retry: RetrySchedule | None = None
    memo: Json | None = None
    search_attributes: Json | None = None


Terminal = CompleteWorkflow | FailWorkflow | ContinueAsNew | CancelWorkflow
External = SignalExternal | CancelExternal
"""What concerns another run: a letter to it, and an answer."""
OnUpdate = CompleteUpdate | FailUpdate
Step = (
    ScheduleActivity
    | RecordLocalActivity
    | StartTimer
    | StartChild
    | RecordSideEffect
    | RecordVersionMarker
    | UpsertSearchAttributes
    | UpsertMemo
    | OpenConditionWait
    | SignalExternal
    | CancelExternal
)
"""Each of these is numbered: a step of the run."""
Command = Step | OnUpdate | CancelSelectionOperation | CancelStep | Terminal
Grouped = ScheduleActivity | RecordLocalActivity | StartTimer | StartChild | OpenConditionWait
"""What may be a member of a parallel group or of a selection."""
ConcurrentOnly = CancelStep | SignalExternal | CancelExternal | CancelWorkflow
"""What only the code of a concurrent run asks for."""
StepwiseOnly = OpenConditionWait | CancelSelectionOperation
"""What it never asks for."""
