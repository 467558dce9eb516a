"""Commands: what workflow code requests by completing a workflow task."""

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
    """Fields that the events of this step repeat."""
    priority: PriorityOverride = field(default_factory=PriorityOverride)
    """Priority level, fairness key and weight, where they differ from the run's."""
    routing_key: str | None = None
    """The routing key, taken from its arguments."""
    dispatch: Json | None = None
    """The origin of its options: fingerprint of the configuration, and layer of each value."""
    delay_ms: int = 0
    """The delay before it may start; its timeouts run from then on."""
    good_until_ms: int | None = None
    """The time by which it must start, or time out."""
    good_for_ms: int | None = None
    """The time within which it must start, from when it first may."""


class RecordLocalActivity(Struct, frozen=True):
    """A local activity, run by the worker inside the workflow task, with its outcome."""

    activity_type: str
    outcome: str
    """completed, failed, timed_out or cancelled"""
    arguments: Blob
    result: Blob | None = None
    reported_fields: Json = field(default_factory=dict)
    """Attempts, message, exception and other fields, as the worker sent them."""
    extra: Json = field(default_factory=dict)


class StartTimer(Struct, frozen=True):
    delay_s: int
    extra: Json = field(default_factory=dict)
    delay_ms: int | None = None
    """The delay in milliseconds; takes precedence over `delay_s`."""

    @property
    def lasts_ms(self) -> int:
        return self.delay_s * 1000 if self.delay_ms is None else self.delay_ms


class StartChild(Struct, frozen=True):
    workflow_type: str
    task_queue: str | None
    """None: the queue of the parent."""
    arguments: Blob
    workflow_id: str | None = None
    """None: derived from the parent's run and step."""
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
    """None: on the parent's queue the parent's build, else the promoted one."""
    delay_ms: int = 0
    """The delay of its first workflow task; its timeouts run from then on."""
    reuse: IdReusePolicy = IdReusePolicy.REJECT_DUPLICATE
    """Whether it may reuse the id of a closed workflow."""
    problem: str | None = None
    """Why it cannot be started; delivered to the parent as a child failure."""


class RecordSideEffect(Struct, frozen=True):
    result: Blob
    stream: Json | None = None
    """An operation on one of the run's streams."""


class RecordVersionMarker(Struct, frozen=True):
    change_id: str
    version: int
    min_supported: int
    max_supported: int


class UpsertSearchAttributes(Struct, frozen=True):
    attributes: Json
    """A value of None deletes the attribute."""


class UpsertMemo(Struct, frozen=True):
    entries: Json
    blob: Blob
    """The entries as the worker encoded them, for comparison in replay."""


class OpenConditionWait(Struct, frozen=True):
    key: str | None = None
    fingerprint: str | None = None
    timeout_s: int | None = None
    extra: Json = field(default_factory=dict)


class OpenSignalWait(Struct, frozen=True):
    """Wait for the next signal of a name, in order of arrival; a signal that came before the wait counts."""

    name: str
    timeout_s: int | None = None


class CompleteUpdate(Struct, frozen=True):
    update_id: str
    result: Blob


class FailUpdate(Struct, frozen=True):
    update_id: str
    message: str
    extra: Json = field(default_factory=dict)


class CancelSelectionOperation(Struct, frozen=True):
    """Cancel one member of a selection; `echoed` is repeated in the event."""

    group_id: str
    member_index: int
    echoed: Json


class CancelStep(Struct, frozen=True):
    """Of a concurrent run: cancel a step."""

    step: int
    wait: bool = False
    """Of an activity: ask it to stop and record how it ends. Otherwise nothing more is recorded for the step."""


class SignalExternal(Struct, frozen=True):
    """Of a concurrent run: signal another workflow."""

    workflow_id: str
    signal_name: str
    arguments: Blob
    run_id: str | None = None
    """None: the latest run."""
    children_only: bool = False
    """Only if the receiver is a child of this run: its id may belong to another workflow by now."""


class CancelExternal(Struct, frozen=True):
    """Of a concurrent run: request the cancellation of another workflow."""

    workflow_id: str
    run_id: str | None = None
    reason: str | None = None
    children_only: bool = False


class CancelWorkflow(Struct, frozen=True):
    """Of a concurrent run: close it as cancelled, after a cancel request."""

    reason: str | None = None


class CompleteWorkflow(Struct, frozen=True):
    result: Blob


class FailWorkflow(Struct, frozen=True):
    message: str
    extra: Json = field(default_factory=dict)
    """Exception type, class and other fields, as the worker sent them."""


class ContinueAsNew(Struct, frozen=True):
    arguments: Blob
    workflow_type: str | None = None
    """None: unchanged."""
    task_queue: str | None = None
    priority: PriorityOverride = field(default_factory=PriorityOverride)
    """Priority level, fairness key and weight of the next run, where they differ from this one's."""
    run_timeout_s: int | None = None
    """None: unchanged, here and below."""
    retry: RetrySchedule | None = None
    memo: Json | None = None
    search_attributes: Json | None = None


Terminal = CompleteWorkflow | FailWorkflow | ContinueAsNew | CancelWorkflow
External = SignalExternal | CancelExternal
"""Commands to another run: an outbox message and its response."""
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
    | OpenSignalWait
    | SignalExternal
    | CancelExternal
)
"""Commands that are numbered steps of the run."""
Command = Step | OnUpdate | CancelSelectionOperation | CancelStep | Terminal
Grouped = ScheduleActivity | RecordLocalActivity | StartTimer | StartChild | OpenConditionWait
"""Commands that may be members of a parallel group or selection."""
ConcurrentOnly = CancelStep | SignalExternal | CancelExternal | CancelWorkflow
"""Commands of concurrent runs only."""
StepwiseOnly = OpenConditionWait | OpenSignalWait | CancelSelectionOperation
"""Commands of stepwise runs only."""
