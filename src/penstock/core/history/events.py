"""Event types of histories."""

from __future__ import annotations

from enum import StrEnum

CODEC = "avro"
MESSAGE_STREAM_SIGNAL = "__durable_workflow_message_stream"
"""The signal name that delivers messages of streams."""


class EventType(StrEnum):
    WORKFLOW_STARTED = "WorkflowStarted"
    WORKFLOW_COMPLETED = "WorkflowCompleted"
    WORKFLOW_FAILED = "WorkflowFailed"
    WORKFLOW_CANCELLED = "WorkflowCancelled"
    WORKFLOW_TERMINATED = "WorkflowTerminated"
    WORKFLOW_TIMED_OUT = "WorkflowTimedOut"
    WORKFLOW_CONTINUED_AS_NEW = "WorkflowContinuedAsNew"
    CANCEL_REQUESTED = "CancelRequested"
    TERMINATE_REQUESTED = "TerminateRequested"
    COOPERATIVE_CANCELLATION_REQUESTED = "CooperativeCancellationRequested"
    """Of a stepwise run: a cancellation with time to clean up."""
    COOPERATIVE_CANCELLATION_DELIVERED = "CooperativeCancellationDelivered"
    """Of a stepwise run: the call at which the code received it."""
    WORKFLOW_TASK_COMPLETED = "WorkflowTaskCompleted"
    """Of a concurrent run: the end of an activation, with the last event that its code had seen."""
    STEP_CANCEL_REQUESTED = "StepCancelRequested"
    EXTERNAL_REQUEST_INITIATED = "ExternalRequestInitiated"
    EXTERNAL_REQUEST_DELIVERED = "ExternalRequestDelivered"
    EXTERNAL_REQUEST_FAILED = "ExternalRequestFailed"
    ACTIVITY_SCHEDULED = "ActivityScheduled"
    ACTIVITY_RETRY_SCHEDULED = "ActivityRetryScheduled"
    ACTIVITY_COMPLETED = "ActivityCompleted"
    ACTIVITY_FAILED = "ActivityFailed"
    ACTIVITY_TIMED_OUT = "ActivityTimedOut"
    ACTIVITY_CANCELLED = "ActivityCancelled"
    TIMER_SCHEDULED = "TimerScheduled"
    TIMER_FIRED = "TimerFired"
    TIMER_CANCELLED = "TimerCancelled"
    CHILD_WORKFLOW_SCHEDULED = "ChildWorkflowScheduled"
    CHILD_RUN_STARTED = "ChildRunStarted"
    CHILD_RUN_COMPLETED = "ChildRunCompleted"
    CHILD_RUN_FAILED = "ChildRunFailed"
    CHILD_RUN_CANCELLED = "ChildRunCancelled"
    CHILD_RUN_TERMINATED = "ChildRunTerminated"
    SIDE_EFFECT_RECORDED = "SideEffectRecorded"
    VERSION_MARKER_RECORDED = "VersionMarkerRecorded"
    SEARCH_ATTRIBUTES_UPSERTED = "SearchAttributesUpserted"
    MEMO_UPSERTED = "MemoUpserted"
    CONDITION_WAIT_OPENED = "ConditionWaitOpened"
    CONDITION_WAIT_SATISFIED = "ConditionWaitSatisfied"
    CONDITION_WAIT_TIMED_OUT = "ConditionWaitTimedOut"
    SIGNAL_WAIT_OPENED = "SignalWaitOpened"
    SIGNAL_RECEIVED = "SignalReceived"
    SIGNAL_APPLIED = "SignalApplied"
    """Recorded only where it ends a wait for one signal; otherwise it is derived (`core/audit/trail.py`)."""
    UPDATE_ACCEPTED = "UpdateAccepted"
    UPDATE_APPLIED = "UpdateApplied"
    UPDATE_COMPLETED = "UpdateCompleted"
    SELECTION_RESOLVED = "SelectionResolved"
    SELECTION_OPERATION_CANCELLED = "SelectionOperationCancelled"


CLOSING = (
    EventType.WORKFLOW_COMPLETED,
    EventType.WORKFLOW_FAILED,
    EventType.WORKFLOW_CANCELLED,
    EventType.WORKFLOW_TERMINATED,
    EventType.WORKFLOW_TIMED_OUT,
    EventType.WORKFLOW_CONTINUED_AS_NEW,
)

SUCCEEDED = frozenset(
    {
        EventType.ACTIVITY_COMPLETED,
        EventType.TIMER_FIRED,
        EventType.CHILD_RUN_COMPLETED,
        EventType.CONDITION_WAIT_SATISFIED,
        EventType.CONDITION_WAIT_TIMED_OUT,
    }
)
"""A step succeeded."""
ENDED = SUCCEEDED | {
    EventType.ACTIVITY_FAILED,
    EventType.ACTIVITY_TIMED_OUT,
    EventType.ACTIVITY_CANCELLED,
    EventType.CHILD_RUN_FAILED,
    EventType.CHILD_RUN_CANCELLED,
    EventType.CHILD_RUN_TERMINATED,
}
"""A step ended."""

WAKES_ALWAYS = frozenset(
    {
        EventType.SIGNAL_RECEIVED,
        EventType.UPDATE_ACCEPTED,
        EventType.CANCEL_REQUESTED,
        EventType.EXTERNAL_REQUEST_DELIVERED,
        EventType.EXTERNAL_REQUEST_FAILED,
    }
)
"""Events that wake concurrent code, besides the ends of its steps."""
