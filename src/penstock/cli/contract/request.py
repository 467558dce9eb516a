"""Commands of the contract that are one request of the protocol, declared as rows: for diagnosis and smoke tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from penstock.cli.grammar import VerbCommand
from penstock.cli.inputs import JsonParam
from penstock.cli.output.screen import Screen, plain
from penstock.cli.transport.connection import ANSWER_SECONDS, ServerConnection, ServerResponse
from penstock.cli.transport.session import CliSession

POLL_SECONDS = 60
"""Longest time that a server holds a poll."""


@dataclass(frozen=True, slots=True)
class RequestField:
    """An option, or an argument if the spelling has no dash, and the place of its value in the body.

    An empty place is for values of the path, and for those that `finish` puts into the body.
    """

    spelling: str
    place: str = ""
    kind: Any = str
    default: Any = None
    is_required: bool = False
    is_multiple: bool = False

    @property
    def name(self) -> str:
        return self.spelling.partition("/")[0].lstrip("-").replace("-", "_").lower()

    def param(self) -> click.Parameter:
        if not self.spelling.startswith("-"):
            return click.Argument([self.name], type=self.kind, required=self.is_required)
        return click.Option(
            self.spelling.split("/"),
            type=None if self.kind is bool else self.kind,
            is_flag=self.kind is bool,
            default=self.default,
            required=self.is_required,
            multiple=self.is_multiple,
        )


Finish = Callable[[dict[str, Any], Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A command that sends one request and prints the answer."""

    method: str
    path: str
    help: str
    fields: tuple[RequestField, ...]
    finish: Finish | None = None
    """Completes the body from the values that have no place of their own."""
    differs: str = ""

    def command(self, name: str) -> VerbCommand:
        """The command under this name."""

        @click.pass_obj
        def send(session: CliSession, /, **values: Any) -> None:
            connection = replace(session.connect(), answer_seconds=POLL_SECONDS + ANSWER_SECONDS)
            session.show(self._sent(connection, values), _draw)

        params = [field.param() for field in self.fields]
        noun, _, verb = name.partition(":")
        return VerbCommand(
            name, params=params, callback=send, help=self.help, example=f"dw {noun}:{verb} --help"
        )

    def _sent(self, connection: ServerConnection, values: Mapping[str, Any]) -> ServerResponse:
        parts = [values[part[1:-1]] if part.startswith("{") else part for part in self.path.split("/")]
        send = connection.put if self.method == "PUT" else connection.post
        return send(*parts, body=self._body(values))

    def _body(self, values: Mapping[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for field in self.fields:
            value = values[field.name]
            if field.place and value is not None and value != ():
                _put(body, field.place, list(value) if field.is_multiple else value)
        if self.finish is not None:
            self.finish(body, values)
        return body


def envelope(value: object) -> dict[str, Any]:
    """A payload in the contract's codec."""
    from penstock.core.payload_codec import Unencodable, encode

    try:
        return {"codec": "avro", "blob": encode(value)}
    except Unencodable as error:
        raise click.UsageError(f"The value {error}.") from error


def _put(body: dict[str, Any], place: str, value: Any) -> None:
    *above, last = place.split(".")
    for each in above:
        body = body.setdefault(each, {})
    body[last] = value


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    task = body.get("task", body)
    if task is None:
        screen.line(plain("No task."))
        return
    screen.facts(
        [
            (str(key).replace("_", " "), plain(value))
            for key, value in task.items()
            if not isinstance(value, dict | list)
        ]
    )


_OWNER = RequestField("--lease-owner", "lease_owner", default="cli")
_QUEUE = RequestField("--task-queue", "task_queue", default="default")
_WORKER = RequestField("worker_id", "worker_id", is_required=True)
_TASK = RequestField("task_id", is_required=True)
_QUERY_TASK = RequestField("query_task_id", is_required=True)
_ATTEMPT = click.IntRange(1)
_WORKFLOW_ATTEMPT = RequestField("attempt", "workflow_task_attempt", _ATTEMPT, is_required=True)
_QUERY_ATTEMPT = RequestField("attempt", "query_task_attempt", _ATTEMPT, is_required=True)
_ACTIVITY_ATTEMPT = RequestField("attempt_id", "activity_attempt_id", is_required=True)
_FAILURE = (
    RequestField("--message/-m", "failure.message", is_required=True),
    RequestField("--type/-t", "failure.type"),
)
_STACK = RequestField("--stack-trace", "failure.stack_trace")
_SLOTS = click.IntRange(1)


def _commands(body: dict[str, Any], values: Mapping[str, Any]) -> None:
    """The commands as given, or one that completes the workflow."""
    result = values["complete_result"]
    if values["command"] and result is not None:
        raise click.UsageError("--command and --complete-result contradict each other; give one of them.")
    completed = {"type": "complete_workflow"} | ({} if result is None else {"result": envelope(result)})
    body["commands"] = list(values["command"]) or [completed]


def _result(body: dict[str, Any], values: Mapping[str, Any]) -> None:
    body["result"] = envelope(values["result"])


def _input_as_result(body: dict[str, Any], values: Mapping[str, Any]) -> None:
    from penstock.cli.contract.translations import read_inputs

    found = read_inputs(values["input"], values["input_file"], values["input_encoding"])
    if found:
        body["result"] = envelope(found[0])


def _enabled(body: dict[str, Any], values: Mapping[str, Any]) -> None:
    body["enabled"] = not values["disable"]


REQUESTS: Mapping[str, RequestRow] = {
    "worker:register": RequestRow(
        "POST", "worker/register", "Register a worker that this command line plays.",
        (
            RequestField("worker_id", "worker_id"), _QUEUE,
            RequestField("--runtime", "runtime", default="php"),
            RequestField("--sdk-version", "sdk_version", default="dw-cli"),
            RequestField("--build-id", "build_id"),
            RequestField("--workflow-type", "supported_workflow_types", is_multiple=True),
            RequestField("--activity-type", "supported_activity_types", is_multiple=True),
            RequestField("--max-workflow-tasks", "max_concurrent_workflow_tasks", _SLOTS),
            RequestField("--max-activity-tasks", "max_concurrent_activity_tasks", _SLOTS),
        ),
    ),
    "workflow-task:poll": RequestRow(
        "POST", "worker/workflow-tasks/poll", "Lease one workflow task.",
        (
            _WORKER, _QUEUE, RequestField("--build-id", "build_id"),
            RequestField("--poll-request-id", "poll_request_id"),
            RequestField("--history-page-size", "history_page_size", click.IntRange(1)),
            RequestField("--accept-history-encoding", "accept_history_encoding"),
        ),
    ),
    "workflow-task:history": RequestRow(
        "POST", "worker/workflow-tasks/{task_id}/history", "Read the next page of a leased task's history.",
        (
            _TASK, RequestField("page_token", "next_history_page_token", is_required=True), _OWNER,
            RequestField("--attempt", "workflow_task_attempt", _ATTEMPT, is_required=True),
        ),
    ),
    "workflow-task:complete": RequestRow(
        "POST", "worker/workflow-tasks/{task_id}/complete", "Complete a leased workflow task.",
        (
            _TASK, _WORKFLOW_ATTEMPT, _OWNER, RequestField("--complete-result", kind=JsonParam()),
            RequestField("--command", kind=JsonParam(), is_multiple=True),
        ),
        _commands,
    ),
    "workflow-task:fail": RequestRow(
        "POST", "worker/workflow-tasks/{task_id}/fail", "Fail a leased workflow task, which is then tried again.",
        (_TASK, _WORKFLOW_ATTEMPT, _OWNER, *_FAILURE, _STACK),
    ),
    "query-task:poll": RequestRow(
        "POST", "worker/query-tasks/poll", "Lease one query of a workflow.", (_WORKER, _QUEUE)
    ),
    "query-task:complete": RequestRow(
        "POST", "worker/query-tasks/{query_task_id}/complete", "Answer a leased query.",
        (_QUERY_TASK, _QUERY_ATTEMPT, _OWNER, RequestField("--result", kind=JsonParam(), is_required=True)),
        _result,
    ),
    "query-task:fail": RequestRow(
        "POST", "worker/query-tasks/{query_task_id}/fail", "Fail a leased query.",
        (
            _QUERY_TASK, _QUERY_ATTEMPT, _OWNER, *_FAILURE, _STACK,
            RequestField("--reason", "failure.reason", default="query_rejected"),
        ),
    ),
    "activity:complete": RequestRow(
        "POST", "worker/activity-tasks/{task_id}/complete", "Complete a leased activity task.",
        (
            _TASK, _ACTIVITY_ATTEMPT, _OWNER, RequestField("--input/-i", is_multiple=True),
            RequestField("--input-file"),
            RequestField("--input-encoding", kind=click.Choice(["json", "raw", "base64"]), default="json"),
        ),
        _input_as_result,
    ),
    "activity:fail": RequestRow(
        "POST", "worker/activity-tasks/{task_id}/fail", "Fail a leased activity task.",
        (_TASK, _ACTIVITY_ATTEMPT, _OWNER, *_FAILURE, RequestField("--non-retryable", "failure.non_retryable", bool)),
    ),
    "namespace:set-storage-driver": RequestRow(
        "PUT", "namespaces/{name}/external-storage", "Configure where large payloads of a namespace are kept.",
        (
            RequestField("name", is_required=True),
            RequestField("driver", "driver", click.Choice(["local", "s3", "gcs", "azure"]), is_required=True),
            RequestField("--threshold-bytes", "threshold_bytes", click.IntRange(1)),
            *(
                RequestField(f"--{each}", f"config.{each.replace('-', '_')}")
                for each in ("uri", "bucket", "prefix", "region", "endpoint", "auth-profile")
            ),
            RequestField("--disable", kind=bool),
        ),
        _enabled,
    ),
    "storage:test": RequestRow(
        "POST", "storage/test", "Write, read back and delete a small and a large object in external storage.",
        (
            RequestField("--driver", "driver", click.Choice(["local", "s3", "gcs", "azure"])),
            RequestField("--small-bytes", "small_payload_bytes", click.IntRange(1, 1_048_576)),
            RequestField("--large-bytes", "large_payload_bytes", click.IntRange(1, 16_777_216)),
        ),
    ),
}  # fmt: skip
"""The rows, by the contract's name of the command."""
