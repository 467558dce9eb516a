"""Errors between activities, workflows and clients: encoding and decoding."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from durable_workflow import errors as other_errors
from durable_workflow import workflow as other_sdk
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Reason
from penstock.sdk import failures
from penstock.sdk.converters import DEFAULT, ConversionError, DataConverter, ZlibCodec
from penstock.sdk.errors.error_mapping import BY_REASON
from penstock.sdk.failures import (
    ActivityError,
    ActivityFailureError,
    ActivityThrottled,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    RetryState,
    ServerRefused,
    TerminatedError,
    TimeoutError,  # noqa: A004
    Unreachable,
    WorkflowAlreadyStartedError,
    WorkflowFailureError,
    error_from,
    failure_fields,
    failure_of,
    is_cancelled_exception,
    refusal,
)
from penstock.wire.command_shapes import FailWorkflowCommand
from penstock.wire.request_parser import parse
from penstock.wire.requests import ActivityFailure
from tests.support.effort import times


class CardDeclined(Exception):
    pass


def raised(make: Callable[[], BaseException]) -> BaseException:
    try:
        raise make()
    except BaseException as error:
        return error


def chained(*errors: BaseException) -> BaseException:
    """The first error, caused by the second, and so on."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def travelled(error: BaseException, converter: DataConverter = DEFAULT) -> FailureError:
    """The error after encoding and decoding."""
    return error_from(json.loads(json.dumps(failure_of(error, converter))), converter)


def activity_failed(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The payload of `ActivityFailed`, as the server writes it."""
    return {
        "activity_type": "charge",
        "activity_execution_id": "r1-a1",
        "attempt_number": 3,
        "message": body["message"],
        "exception_type": body.get("type"),
        "exception_class": body.get("class"),
        "non_retryable": bool(body.get("non_retryable")),
        "failure_category": "activity",
        "exception": body,
        "activity": {"retry_policy": {"max_attempts": 3}, "attempt_count": 3},
    } | more


# Encoding


def test_an_exception_is_told_by_its_class_its_message_and_where_it_was_raised() -> None:
    body = failure_of(raised(lambda: CardDeclined("no money")), DEFAULT)
    assert body["message"] == "no money"
    assert body["type"] == "CardDeclined"
    assert body["class"].endswith("test_failures.CardDeclined")
    assert body["non_retryable"] is False
    assert "in raised" in body["stack_trace"]


def test_what_is_told_is_what_the_wire_takes() -> None:
    errors: list[BaseException] = [
        raised(lambda: CardDeclined("no")),
        ApplicationError("no", {"a": 1}, type="T", non_retryable=True, next_retry_delay=timedelta(seconds=2)),
        ActivityThrottled(1.5),
        CancelledError(),
        TimeoutError("late", "heartbeat"),
        chained(ActivityError("a", activity_type="charge", attempt=2), ValueError("b")),
        ApplicationError("x" * 50_000, type="T" * 5_000),
    ]
    for error in errors:
        body = json.loads(json.dumps(failure_of(error, DEFAULT)))
        assert parse(body, ActivityFailure).message == body["message"]
        command = json.loads(json.dumps(failure_fields(error, DEFAULT)))
        assert parse(command, FailWorkflowCommand).exception == body


def test_causes_are_followed_and_contexts_where_nothing_hides_them() -> None:
    def with_cause() -> None:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner

    def with_context() -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer")  # noqa: B904

    def hidden() -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer") from None

    told = []
    for function in (with_cause, with_context, hidden):
        with pytest.raises(ValueError) as caught:
            function()
        told.append(failure_of(caught.value, DEFAULT).get("cause", {}).get("type"))
    assert told == ["KeyError", "KeyError", None]


def test_a_long_chain_is_cut_after_ten_and_a_circle_is_walked_once() -> None:
    body: Any = failure_of(chained(*[ValueError(str(n)) for n in range(50)]), DEFAULT)
    messages = []
    while body:
        messages.append(body["message"])
        body = body.get("cause")
    assert messages == [str(n) for n in range(10)]
    first, second = ValueError("a"), ValueError("b")
    chained(first, second, first)
    assert "cause" not in failure_of(first, DEFAULT)["cause"]


def test_long_texts_are_cut_messages_at_their_end_and_stacks_at_their_beginning() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("m" * 20_000)

    with pytest.raises(ValueError) as caught:
        deep(300)
    body = failure_of(caught.value, DEFAULT)
    assert len(body["message"]) == 10_000
    assert len(body["stack_trace"]) <= 20_000
    restored = ApplicationError("x")
    restored.stack_trace = "first\n" + "s" * 30_000 + "\nlast"
    told = failure_of(restored, DEFAULT)["stack_trace"]
    assert len(told) == 20_000
    assert told.startswith("…")
    assert told.endswith("last")


def test_text_that_no_store_takes_is_made_harmless() -> None:
    body = failure_of(ValueError("a\x00b\ud800c"), DEFAULT)
    assert body["message"] == "a\\x00b\\ud800c"
    json.dumps(body).encode()


def test_an_error_whose_message_cannot_be_made_is_told_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert failure_of(Broken(), DEFAULT)["message"] == "(its message cannot be built: RuntimeError)"
    assert failure_of(ValueError(), DEFAULT)["message"] == "ValueError"


def test_notes_and_the_members_of_a_group_are_told() -> None:
    error = ValueError("bad")
    error.add_note("while reading line 7")
    assert failure_of(error, DEFAULT)["message"] == "bad\nwhile reading line 7"
    body = failure_of(ExceptionGroup("two", [KeyError("k"), ValueError("v")]), DEFAULT)
    assert "KeyError: 'k'; ValueError: v" in body["message"]
    assert body["cause"]["type"] == "KeyError"


def test_details_that_cannot_be_sent_do_not_hide_the_error() -> None:
    body = failure_of(ApplicationError("bad", object(), type="T"), DEFAULT)
    assert body["message"] == "bad"
    assert "details" not in body
    assert body["details_left_out"].startswith("details of T: [0] is of the type object")


def test_the_details_of_a_whole_chain_are_bounded_together() -> None:
    big = "d" * 150_000
    body = failure_of(chained(ApplicationError("a", big), ApplicationError("b", big)), DEFAULT)
    assert "details" in body
    assert "details" not in body["cause"]
    assert "bytes" in body["cause"]["details_left_out"]


def test_a_body_is_bounded_whatever_the_error_is() -> None:
    worst = chained(*[ApplicationError("😀" * 50_000, "d" * 500_000) for _ in range(30)])
    for error in (worst, worst.__cause__, worst.__cause__):
        if isinstance(error, FailureError):
            error.stack_trace = "😀" * 50_000
    assert len(msgspec.json.encode(failure_of(worst, DEFAULT))) < 2_000_000


def test_an_upstream_refusal_says_how_long_to_wait() -> None:
    for rest in (1.5, timedelta(seconds=1.5)):
        body = failure_of(ActivityThrottled(rest), DEFAULT)
        assert (body["throttled"], body["retry_after_seconds"]) == (True, 1.5)
    assert "retry_after_seconds" not in failure_of(ActivityThrottled(), DEFAULT)
    assert "asks for 1.5 s" in str(ActivityThrottled(1.5))
    for wrong in (-1, float("nan"), 1e9, timedelta(days=2)):
        with pytest.raises(ValueError, match="retry_after must be from 0 s to one day"):
            ActivityThrottled(wrong)
    with pytest.raises(TypeError, match="a timedelta or seconds, not str"):
        ActivityThrottled("soon")  # type: ignore[arg-type]


# Decoding


def test_a_failed_activity_comes_back_with_what_its_code_raised() -> None:
    error = chained(raised(lambda: CardDeclined("no money")), raised(lambda: OSError("bank away")))
    restored = error_from(activity_failed(failure_of(error, DEFAULT)), DEFAULT)
    assert isinstance(restored, ActivityError)
    assert (restored.activity_type, restored.activity_id, restored.attempt) == ("charge", "r1-a1", 3)
    assert restored.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED
    cause = restored.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message, cause.non_retryable) == ("CardDeclined", "no money", False)
    assert cause.stack_trace is not None
    assert "in raised" in cause.stack_trace
    assert isinstance(cause.cause, ApplicationError)
    assert str(cause.cause) == "OSError: bank away"
    assert str(restored) == 'Activity "charge" failed: CardDeclined: no money'


def test_an_application_error_keeps_all_that_it_was_given() -> None:
    error = ApplicationError(
        "no", {"code": 7}, b"raw", type="Declined", non_retryable=True, next_retry_delay=timedelta(seconds=5)
    )
    restored = travelled(error)
    assert isinstance(restored, ApplicationError)
    assert restored.details == ({"code": 7}, b"raw")
    assert (restored.type, restored.non_retryable) == ("Declined", True)
    assert restored.next_retry_delay == timedelta(seconds=5)
    assert restored.failure["type"] == "Declined"


def test_an_application_error_without_a_type_has_none_afterwards_and_a_subclass_is_its_type() -> None:
    class Declined(ApplicationError):
        pass

    plain, named = travelled(ApplicationError("no")), travelled(Declined("no"))
    assert isinstance(plain, ApplicationError)
    assert isinstance(named, ApplicationError)
    assert (plain.type, str(plain)) == (None, "no")
    assert (named.type, str(named)) == ("Declined", "Declined: no")


@pytest.mark.parametrize(
    ("event", "payload", "kind", "told"),
    [
        (
            "ActivityTimedOut",
            {"timeout_kind": "heartbeat"},
            TimeoutError,
            'Activity "charge" timed out: gone',
        ),
        (
            "ActivityCancelled",
            {"failure_category": "cancelled"},
            CancelledError,
            'Activity "charge" was cancelled: gone',
        ),
        (None, {"failure_category": "cancelled"}, CancelledError, 'Activity "charge" was cancelled: gone'),
        ("ActivityFailed", {"exception_type": "E"}, ApplicationError, 'Activity "charge" failed: E: gone'),
    ],
)
def test_how_an_activity_ended_is_its_cause(
    event: str | None, payload: dict[str, Any], kind: type, told: str
) -> None:
    error = error_from({"activity_type": "charge", "message": "gone"} | payload, DEFAULT, event_type=event)
    assert isinstance(error, ActivityError)
    assert type(error.cause) is kind
    assert str(error) == told
    assert is_cancelled_exception(error) is (kind is CancelledError)


@pytest.mark.parametrize(
    ("event", "payload", "kind"),
    [
        ("ChildRunFailed", {"message": "m", "exception_type": "E"}, ApplicationError),
        ("ChildRunFailed", {"message": "m", "timeout_kind": "run_timeout"}, TimeoutError),
        ("ChildRunCancelled", {"reason": "why", "closed_reason": "cancelled"}, CancelledError),
        (None, {"message": "m", "closed_reason": "cancelled"}, CancelledError),
        ("ChildRunTerminated", {"reason": "why"}, TerminatedError),
        (None, {"message": "m", "closed_reason": "terminated"}, TerminatedError),
    ],
)
def test_how_a_child_ended_is_its_cause(event: str | None, payload: dict[str, Any], kind: type) -> None:
    named = {
        "child_workflow_type": "Ship",
        "child_workflow_instance_id": "ship-1",
        "child_workflow_run_id": "r2",
        "failure_category": "child_workflow",
    }
    error = error_from(named | payload, DEFAULT, event_type=event)
    assert isinstance(error, ChildWorkflowError)
    assert (error.workflow_type, error.workflow_id, error.run_id) == ("Ship", "ship-1", "r2")
    assert type(error.cause) is kind
    assert str(error).startswith('Child workflow "Ship" ')


def test_a_child_whose_id_is_in_use_has_an_error_of_its_own() -> None:
    payload = {
        "child_workflow_type": "Ship",
        "child_workflow_instance_id": "ship-1",
        "message": "The workflow id 'ship-1' is in use.",
        "exception_type": "WorkflowAlreadyStarted",
    }
    error = error_from(payload, DEFAULT, event_type="ChildRunFailed")
    assert isinstance(error, WorkflowAlreadyStartedError)
    assert (error.workflow_id, error.workflow_type) == ("ship-1", "Ship")
    again = travelled(error)
    assert isinstance(again, WorkflowAlreadyStartedError)
    assert again.workflow_id == "ship-1"


@pytest.mark.parametrize(
    ("event", "payload", "told"),
    [
        ("WorkflowFailed", {"message": "m", "exception_type": "E"}, 'Workflow "w" failed: E: m'),
        ("WorkflowTimedOut", {"message": "m", "timeout_kind": "run_timeout"}, 'Workflow "w" timed out: m'),
        ("WorkflowCancelled", {"reason": "enough"}, 'Workflow "w" was cancelled: enough'),
        ("WorkflowTerminated", {"reason": "enough"}, 'Workflow "w" was terminated: enough'),
    ],
)
def test_a_client_reads_how_a_workflow_ended(event: str, payload: dict[str, Any], told: str) -> None:
    cause = error_from(payload, DEFAULT, event_type=event)
    error = WorkflowFailureError(cause=cause, workflow_id="w")
    assert error.cause is cause
    assert str(error) == told


def test_a_workflow_that_failed_by_an_activity_tells_its_client_the_whole_story() -> None:
    body = failure_of(raised(lambda: CardDeclined("no money")), DEFAULT)
    in_workflow = error_from(activity_failed(body), DEFAULT)
    event = {"exception_type": "ActivityError", **failure_fields(in_workflow, DEFAULT)}
    for_client = error_from(event, DEFAULT, event_type="WorkflowFailed")
    assert isinstance(for_client, ActivityError)
    assert (for_client.activity_type, for_client.attempt) == ("charge", 3)
    assert for_client.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED
    assert isinstance(for_client.cause, ApplicationError)
    assert for_client.cause.type == "CardDeclined"
    assert str(for_client) == str(in_workflow) == 'Activity "charge" failed: CardDeclined: no money'
    assert str(WorkflowFailureError(for_client)) == f"Workflow failed: {in_workflow}"
    assert (
        str(ActivityFailureError(for_client.cause, activity_id="a"))
        == 'Activity "a" failed: CardDeclined: no money'
    )


def test_details_in_an_unknown_encoding_leave_the_error_readable() -> None:
    coded = DataConverter(codecs=[Scrambled()])
    restored = error_from(failure_of(ApplicationError("no", {"secret": 1}, type="T"), coded), DEFAULT)
    assert isinstance(restored, ApplicationError)
    assert str(restored) == "T: no"
    with pytest.raises(ConversionError, match='details of T: it is encoded as "scrambled"'):
        _ = restored.details


class Scrambled:
    name = "scrambled"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    decode = encode


def test_the_failures_of_another_sdk_are_read() -> None:
    exception = {
        "type": "Declined",
        "class": "shop.Declined",
        "message": "no",
        "code": 7,
        "details": DEFAULT.encode({"order": 3}, "it"),
        "details_payload_codec": "avro",
        "non_retryable": True,
    }
    payload = activity_failed({"message": "no"}, exception=exception, non_retryable=True)
    error = error_from(payload, DEFAULT)
    assert isinstance(error, ActivityError)
    assert error.retry_state is RetryState.NON_RETRYABLE_FAILURE
    assert isinstance(error.cause, ApplicationError)
    assert (error.cause.type, error.cause.details) == ("Declined", ({"order": 3},))
    assert error.cause.non_retryable


def test_workflows_of_another_sdk_that_failed_are_read() -> None:
    failed = other_errors.ActivityFailed("no", activity_type="charge", exception_type="Declined")
    command = other_sdk._fail_workflow_from_exception(failed)
    payload = {
        "message": command.message,
        "exception_type": command.exception_type,
        "exception_class": command.exception_class,
        "exception": command.exception,
    }
    error = error_from(payload, DEFAULT, event_type="WorkflowFailed")
    assert isinstance(error, ActivityError)
    assert error.activity_type == "charge"
    assert str(error) == 'Activity "charge" failed: Declined: no'
    bare = error_from({"message": "m", "exception_class": "shop.Bad"}, DEFAULT, event_type="WorkflowFailed")
    assert isinstance(bare, ApplicationError)
    assert (bare.message, bare.origin) == ("m", "shop.Bad")


def test_another_sdk_reads_our_failures() -> None:
    body = failure_of(raised(lambda: CardDeclined("no money")), DEFAULT)
    read = other_sdk._activity_failed_from_payload(activity_failed(body))
    assert (str(read), read.exception_type, read.activity_type) == ("no money", "CardDeclined", "charge")


@pytest.mark.parametrize(
    "payload", [{}, {"message": 3, "exception": "x"}, {"exception": {"cause": {"cause": 1}}}]
)
def test_a_payload_that_says_next_to_nothing_is_still_an_error(payload: dict[str, Any]) -> None:
    error = error_from(payload, DEFAULT)
    assert isinstance(error, ApplicationError)
    assert str(error)


FIELDS = st.sampled_from(
    [
        *(
            "message",
            "exception",
            "cause",
            "kind",
            "type",
            "class",
            "details",
            "details_payload_codec",
            "cancelled",
        ),
        *(
            "activity_type",
            "child_workflow_type",
            "timeout_kind",
            "closed_reason",
            "failure_category",
            "activity",
        ),
        *("retry_state", "retry_after_seconds", "next_retry_delay_seconds", "attempt_number", "retry_policy"),
        *(
            "compensation_failure",
            "initiating_failure",
            "exception_type",
            "reason",
            "codec",
            "blob",
            "stack_trace",
        ),
    ]
)
WORDS = st.sampled_from(["application", "activity", "child_workflow", "timeout", "throttled", "terminated"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=6),
    max_leaves=30,
)


@settings(deadline=None, max_examples=times(80))
@given(st.dictionaries(FIELDS, anything, max_size=10))
def test_whatever_a_history_says_of_a_failure_is_an_error_that_can_be_told_on(
    payload: dict[str, Any],
) -> None:
    error = error_from(payload, DEFAULT)
    assert str(error)
    assert str(travelled(error)) == str(error)


def test_cancellations_are_told_apart_from_failures() -> None:
    for error in (asyncio.CancelledError(), CancelledError("stop")):
        assert is_cancelled_exception(error)
        assert failure_of(error, DEFAULT)["cancelled"] is True
        assert isinstance(travelled(error), CancelledError)
    assert is_cancelled_exception(chained(ActivityError("a"), CancelledError()))
    assert is_cancelled_exception(chained(ChildWorkflowError("a"), CancelledError()))
    assert not is_cancelled_exception(ValueError())
    assert not is_cancelled_exception(chained(ApplicationError("a"), CancelledError()))


names = st.text(min_size=1, max_size=20).filter(
    lambda text: text != "ApplicationError" and "\x00" not in text
)
texts = st.text(min_size=1, max_size=50).filter(lambda text: "\x00" not in text)
pauses = st.none() | st.timedeltas(timedelta(0), timedelta(days=1))
applications = st.builds(
    lambda message, details, name, final, pause: ApplicationError(
        message, *details, type=name, non_retryable=final, next_retry_delay=pause
    ),
    texts,
    st.lists(st.integers(0, 9) | st.text(max_size=5) | st.binary(max_size=5), max_size=3),
    st.none() | names,
    st.booleans(),
    pauses,
)
our_errors = (
    applications
    | st.builds(CancelledError, texts)
    | st.builds(TerminatedError, texts)
    | st.builds(TimeoutError, texts, st.none() | names)
    | st.builds(
        lambda message, name, attempt, state: ActivityError(
            message, activity_type=name, attempt=attempt, retry_state=state
        ),
        texts,
        names,
        st.none() | st.integers(1, 9),
        st.none() | st.sampled_from(RetryState),
    )
    | st.builds(
        lambda message, name, called, run: ChildWorkflowError(
            message, workflow_type=name, workflow_id=called, run_id=run
        ),
        texts,
        names,
        st.none() | names,
        st.none() | names,
    )
    | st.builds(ActivityThrottled, pauses, st.none() | texts)
)


def chain_of(error: BaseException | None) -> list[tuple[type, str, dict[str, Any]]]:
    told = []
    while error is not None:
        facts = {
            name: value
            for name, value in vars(error).items()
            if name not in ("failure", "stack_trace", "origin", "message")
        }
        told.append((type(error), str(error), facts))
        error = error.__cause__
    return told


@settings(deadline=None)
@given(
    st.lists(our_errors, min_size=1, max_size=10),
    st.sampled_from([DEFAULT, DataConverter(codecs=[ZlibCodec()])]),
)
def test_errors_survive_the_way_with_all_their_causes(
    errors: list[FailureError], converter: DataConverter
) -> None:
    error = chained(*errors)
    restored = travelled(error, converter)
    assert chain_of(restored) == chain_of(error)
    assert chain_of(travelled(restored, converter)) == chain_of(error)


@settings(deadline=None)
@given(our_errors)
def test_errors_survive_being_copied_between_processes(error: FailureError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert chain_of(twin) == chain_of(error)


# Refusals


def test_every_reason_has_an_error_and_says_so() -> None:
    for reason in Reason:
        error = refusal(409, {"reason": str(reason), "message": "No.", "limit": 3})
        assert isinstance(error, ServerRefused)
        assert (error.reason, error.message, error.status) == (reason, "No.", 409)
        assert error.details == {"limit": 3}
        assert str(error) == f"No. [{reason}]"
        twin = pickle.loads(pickle.dumps(error))
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
    assert set(BY_REASON) <= {str(reason) for reason in Reason}


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (409, "instance_already_started", "WorkflowAlreadyStartedError"),
        (404, "instance_not_found", "WorkflowNotFoundError"),
        (409, "run_not_active", "WorkflowClosedError"),
        (404, "rejected_unknown_query", "QueryRejected"),
        (504, "query_worker_timeout", "QueryFailed"),
        (422, "update_failed", "UpdateFailedError"),
        (422, "update_validator_rejected", "UpdateRejectedError"),
        (409, "lease_expired", "LeaseLost"),
        (412, "worker_not_registered", "WorkerNotRegistered"),
        (422, "validation_failed", "InvalidRequest"),
        (401, "unauthorized", "Unauthorized"),
        (403, "forbidden", "PermissionDenied"),
        (429, "a_reason_of_tomorrow", "Busy"),
        (503, "store_unavailable", "ServerUnavailable"),
        (409, "a_reason_of_tomorrow", "ServerRefused"),
    ],
)
def test_a_refusal_is_of_the_kind_that_its_reason_says(status: int, reason: str, kind: str) -> None:
    assert type(refusal(status, {"reason": reason})) is getattr(failures, kind)


@pytest.mark.parametrize("body", [None, "<html>", [], {}, {"reason": 3, "message": None}])
def test_an_answer_that_is_not_ours_is_still_a_refusal(body: Any) -> None:
    error = refusal(418, body)
    assert (error.reason, error.status) == ("http_418", 418)
    assert "status 418" in str(error)


def test_an_update_that_failed_tells_what_its_code_raised() -> None:
    failure = {"message": "no", **failure_fields(ApplicationError("no", 7, type="Declined"), DEFAULT)}
    error = refusal(422, {"reason": "update_failed", "message": "no", "failure": failure})
    assert isinstance(error, failures.UpdateFailedError)
    assert isinstance(error.cause, ApplicationError)
    assert (error.cause.type, error.cause.details) == ("Declined", (7,))
    rejected = refusal(422, {"reason": "update_validator_rejected", "message": "too much"})
    assert isinstance(rejected, failures.UpdateRejectedError)
    assert str(rejected.cause) == "too much"


def test_how_long_to_wait_is_read_from_a_refusal() -> None:
    assert refusal(429, {"reason": "x", "retry_after_seconds": 3}).retry_after_seconds == 3.0
    assert refusal(429, {"reason": "x"}).retry_after_seconds is None


def test_an_id_in_use_is_both_a_refusal_and_a_failure() -> None:
    error = refusal(409, {"reason": "instance_already_started", "message": "In use.", "workflow_id": "w"})
    assert isinstance(error, WorkflowAlreadyStartedError)
    assert isinstance(error, FailureError)
    assert error.workflow_id == "w"
    assert str(Unreachable("away")) == "away"
