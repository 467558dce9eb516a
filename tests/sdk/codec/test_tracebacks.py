"""Bugs in user code: file, line and traceback wherever a person looks for them."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.program import program
from penstock.core.last_error import STACK_CHARS_MAX, join_error, split_error
from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.converters import DEFAULT
from penstock.sdk.errors.tracebacks import (
    failure_text,
    frames_text,
    traceback_text,
    user_frames,
    with_source_lines,
    without_tracebacks,
)
from penstock.sdk.failures import (
    ActivityError,
    ApplicationError,
    ConversionError,
    QueryRejected,
    WorkflowFailureError,
    error_from,
    failure_of,
)
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.support.sdk import Watched

QUEUE = "q"
ONCE = RetryPolicy(maximum_attempts=1)
HERE = "test_tracebacks.py"


def price_of(cart: dict[str, int], item: str) -> int:
    return cart[item]


@workflow.defn(name="Buggy")
class Buggy:
    """Fails its task, never its run."""

    @workflow.run
    async def run(self) -> int:
        return price_of({}, "apples")


@activity.defn
async def charge(amount: int) -> int:
    return amount // 0


@workflow.defn
class Charging:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            charge, 7, start_to_close_timeout=timedelta(seconds=30), retry_policy=ONCE
        )


@workflow.defn
class Failing:
    @workflow.run
    async def run(self) -> int:
        raise ApplicationError("sold out", type="SoldOut")


async def command(scene: Cluster, *words: str) -> Result:
    """The command line against the server of the scene."""
    environment = {
        "DURABLE_WORKFLOW_SERVER_URL": scene.first.url,
        "DURABLE_WORKFLOW_AUTH_TOKEN": "operator-secret",
        "DURABLE_WORKFLOW_NAMESPACE": scene.namespace,
        "COLUMNS": "200",
    }
    return await asyncio.to_thread(CliRunner().invoke, program, list(words), env=environment)


async def fail_a_task(client: Client, **options: Any) -> Watched:
    """Let a worker run the buggy code until the server has recorded the failure."""
    watched = Watched(client.transport)
    own = Client(watched, namespace=client.namespace)
    async with Worker(own, task_queue=QUEUE, workflows=[Buggy], **options):
        await client.start_workflow(Buggy.run, id="buggy", task_queue=QUEUE)
        await watched.until("/fail")
    return watched


class TestAMistakeInAWorkflow:
    async def test_the_log_of_the_worker_shows_its_file_and_line_once(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "penstock"):
            await fail_a_task(client)
        told = [each for each in caplog.records if "Traceback" in each.getMessage()]
        assert len(told) == 1
        assert told[0].levelno == logging.ERROR
        text = told[0].getMessage()
        assert HERE in text
        assert "in price_of" in text
        assert "KeyError: 'apples'" in text
        assert "penstock/sdk/" not in text, "frames of the SDK are left out"

    async def test_debug_describe_and_history_show_the_traceback(
        self, scene: Cluster, client: Client
    ) -> None:
        await fail_a_task(client)
        for verb in ("debug", "describe", "history"):
            shown = await command(scene, "workflow", verb, "buggy")
            assert shown.exit_code == 0, shown.output
            assert "in price_of" in shown.stdout, verb
            assert "return cart[item]" in shown.stdout, verb
        described = (await scene.get("/api/workflows/buggy", role="operator")).body
        assert described["last_workflow_task_error"] == "KeyError: 'apples'"
        assert "Stack trace" not in described["wait_reason"]
        assert "in price_of" in described["last_workflow_task_stack_trace"]

    async def test_a_worker_that_is_told_to_sends_the_lines_around_each_frame(self, client: Client) -> None:
        watched = await fail_a_task(client, report_source_lines=True)
        lines = watched.of("/fail")[0]["failure"]["stack_trace"].splitlines()
        (raised,) = (each for each in lines if each.startswith("    >") and "return cart[item]" in each)
        assert "def price_of" in lines[lines.index(raised) - 1]

    async def test_a_worker_that_reports_no_tracebacks_logs_them_all_the_same(
        self, scene: Cluster, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "penstock"):
            watched = await fail_a_task(client, report_tracebacks=False)
        assert "stack_trace" not in watched.of("/fail")[0]["failure"]
        described = (await scene.get("/api/workflows/buggy", role="operator")).body
        assert described["last_workflow_task_stack_trace"] is None
        assert any("in price_of" in each.getMessage() for each in caplog.records)


@workflow.defn
class Refused:
    """Issues a command that the server refuses."""

    @workflow.run
    async def run(self, how: str) -> None:
        queue, count = "q", 3 if how == "size" else 1
        timeout = timedelta(days=100_000) if how == "timeout" else timedelta(seconds=1)
        big = "x" * 700_000 if how == "size" else ""
        for _ in range(count):
            workflow.start_activity("charge", big, task_queue=queue, start_to_close_timeout=timeout)
        await workflow.sleep(60)


@pytest.mark.parametrize(
    ("how", "says"), [("timeout", "commands.0.start_to_close_timeout"), ("size", "Start them in portions")]
)
async def test_a_command_that_the_server_refuses_is_logged_with_the_line_that_asked_for_it(
    client: Client, caplog: pytest.LogCaptureFixture, how: str, says: str
) -> None:
    watched = Watched(client.transport)
    own = Client(watched, namespace=client.namespace)
    with caplog.at_level(logging.INFO, "penstock"):
        async with Worker(own, task_queue=QUEUE, workflows=[Refused]):
            await client.start_workflow(Refused.run, how, id="refused", task_queue=QUEUE)
            await watched.until("/fail")
    [told] = [each.getMessage() for each in caplog.records if "A workflow task of" in each.getMessage()]
    assert says in told
    assert "schedule_activity 'charge' at " in told
    assert f"{HERE}:" in told
    assert "in Refused.run" in told
    assert "penstock/sdk/" not in told, "frames of the SDK say nothing"
    assert "in Refused.run" in watched.of("/fail")[0]["failure"]["message"]


class NotFoundError(Exception):
    """A user's error with the name of an SDK error."""


@activity.defn
async def look_up() -> None:
    raise NotFoundError("no such customer")


@workflow.defn
class LookingUp:
    @workflow.run
    async def run(self) -> str:
        retries = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=1))
        try:
            await workflow.execute_local_activity(
                look_up, start_to_close_timeout=timedelta(seconds=30), retry_policy=retries
            )
        except ActivityError as error:
            return str(error.cause)
        return "found"


async def test_a_local_activity_that_fails_thrice_is_logged_with_its_traceback_once_whatever_its_error_is_named(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        async with Worker(client, task_queue=QUEUE, workflows=[LookingUp], activities=[look_up]):
            async with asyncio.timeout(20):
                found = await client.execute_workflow(LookingUp.run, id="look", task_queue=QUEUE)
    assert found == "NotFoundError: no such customer"
    told = [
        each.getMessage() for each in caplog.records if 'Local activity "look_up" failed' in each.getMessage()
    ]
    assert len(told) == 3
    assert ["Traceback" in each for each in told] == [True, False, False]


@workflow.defn
class Asked:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def price(self) -> int:
        return price_of({}, "pears")


async def test_a_query_that_fails_shows_where_to_the_caller_and_in_the_log(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        async with Worker(client, task_queue=QUEUE, workflows=[Asked]):
            handle = await client.start_workflow(Asked.run, id="asked", task_queue=QUEUE)
            with pytest.raises(QueryRejected) as raised:
                await handle.query(Asked.price)
    assert "in price_of" in "".join(traceback.format_exception(raised.value))
    assert sum("in price_of" in each.getMessage() for each in caplog.records) == 1


class TestAFailedRun:
    async def test_the_client_is_shown_where_the_activity_raised(self, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, workflows=[Charging], activities=[charge]):
            with pytest.raises(WorkflowFailureError) as raised:
                await client.execute_workflow(Charging.run, id="charging", task_queue=QUEUE)
        shown = "".join(traceback.format_exception(raised.value))
        assert "return amount // 0" in shown
        assert "in charge" in shown

    async def test_history_and_debug_show_where_activity_and_workflow_raised(
        self, scene: Cluster, client: Client
    ) -> None:
        async with Worker(client, task_queue=QUEUE, workflows=[Charging], activities=[charge]):
            with pytest.raises(WorkflowFailureError):
                await client.execute_workflow(Charging.run, id="charging", task_queue=QUEUE)
        for verb in ("history", "debug"):
            shown = await command(scene, "workflow", verb, "charging")
            assert "return amount // 0" in shown.stdout, verb
            assert "penstock/sdk/" not in shown.stdout, verb

    async def test_each_failure_is_in_the_log_once(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "penstock"):
            async with Worker(client, task_queue=QUEUE, workflows=[Charging, Failing], activities=[charge]):
                for code in (Charging, Failing):
                    with pytest.raises(WorkflowFailureError):
                        await client.execute_workflow(code, id=code.__name__, task_queue=QUEUE)
        told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert [text.splitlines()[0].split('"')[0] for text in told] == [
            "Activity ",
            "A run has failed: workflow ",
            "A run has failed: workflow ",
        ]
        assert "in charge" in told[0]
        assert "SoldOut: sold out" in told[2]

    async def test_an_activity_that_is_tried_again_shows_its_traceback_in_debug(
        self, scene: Cluster, client: Client
    ) -> None:
        watched = Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, activities=[charge]):
            await client.start_activity(
                charge,
                7,
                id="again",
                task_queue=QUEUE,
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(initial_interval=timedelta(hours=1)),
            )
            await watched.until("/fail")
        shown = await command(scene, "why", "activity", "again", "--json")
        assert "Stack trace" not in shown.stdout, "a reason to wait is one line"


# Traceback texts


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_error_of_the_sdk_keeps_its_frames() -> None:
    with pytest.raises(ConversionError) as caught:
        DEFAULT.decode({"codec": "none", "blob": "x"})
    whole = traceback.extract_tb(caught.value.__traceback__)
    assert [each.name for each in user_frames(whole)] == ["test_an_error_of_the_sdk_keeps_its_frames"]
    inner = traceback.StackSummary.from_list(whole[1:])
    assert user_frames(inner) == inner
    assert frames_text(ValueError("never raised")) is None


def test_values_of_variables_are_not_part_of_a_traceback() -> None:
    def login(password: str) -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError) as caught:
        login("hunter" + "2")
    assert "in login" in traceback_text(caught.value)
    assert "hunter2" not in traceback_text(caught.value)


def test_a_deep_recursion_is_cut_at_its_outer_end() -> None:
    def down(left: int) -> int:
        return 1 // left if left == 0 else down(left - 1)

    with pytest.raises(ZeroDivisionError) as caught:
        down(900)
    text = traceback_text(caught.value)
    assert len(text) <= 20_000
    assert text.rstrip().endswith("ZeroDivisionError: integer division or modulo by zero")


def test_a_remote_traceback_is_sent_on_once() -> None:
    body = failure_of(raised(ValueError("first")), DEFAULT)
    restored = error_from(body, DEFAULT)
    again = failure_of(raised(restored), DEFAULT)
    assert again["stack_trace"] == body["stack_trace"]
    assert again["message"] == "first"


def test_tracebacks_are_taken_out_of_failures_causes_and_commands() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ApplicationError("outer") from inner
    except ApplicationError as error:
        failure = failure_of(error, DEFAULT)
    assert "stack_trace" in failure["cause"]
    report = {"commands": [{"type": "fail_workflow", "exception": failure}], "failure": failure}
    assert "stack_trace" not in str(without_tracebacks(report))
    assert "Caused by:" in failure_text(failure)


@given(st.text(), st.none() | st.text(min_size=1))
def test_a_stored_error_is_read_as_it_was_written(message: str, stack: str | None) -> None:
    """For any text that is not longer than what is stored."""
    stored = join_error(message, stack)
    read = split_error(stored)
    assert read == (message, stack if stack and stack.strip() else None) or "Stack trace:" in message


def test_a_stored_stack_that_is_too_long_keeps_its_end() -> None:
    _, stack = split_error(join_error("m", "x" * 100_000 + "last line"))
    assert stack is not None
    assert len(stack) == STACK_CHARS_MAX
    assert stack.endswith("last line")


def test_a_failure_has_the_lines_around_each_frame_where_they_are_asked_for(tmp_path: Path) -> None:
    shop = tmp_path / "shop.py"
    shop.write_text("".join(f"line {number}\n" for number in range(1, 21)))
    stack = f'  File "{shop}", line 12, in charge\n    line 12\n    ^^^^^^^\n  File "/gone.py", line 3, in x\n    y()\n'
    sent = with_source_lines({"action": "fail", "failure": {"stack_trace": stack, "cause": {"message": "m"}}})
    lines = sent["failure"]["stack_trace"].splitlines()
    assert lines[1:8] == [f"    {'>' if n == 12 else ' '} {n} |line {n}" for n in range(9, 16)]
    assert lines[8:] == ['  File "/gone.py", line 3, in x', "    y()"], "its file cannot be read"
    assert without_tracebacks(sent)["failure"] == {"cause": {"message": "m"}}
