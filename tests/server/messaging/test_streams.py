"""Streams over HTTP: validation before anything is written, and reads."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock.wire import payloads
from tests.server.client import Client

_numbers = itertools.count(1)


async def a_run(client: Client) -> tuple[str, str]:
    """The paths of a new workflow, and of the streams of its run."""
    workflow_id = f"writer-{next(_numbers)}"
    asked = {"workflow_id": workflow_id, "workflow_type": "writer", "task_queue": "streams"}
    begun = (await client.post("/api/workflows", asked)).expect(201)
    path = f"/api/workflows/{workflow_id}"
    return path, f"{path}/runs/{begun.json['run_id']}/streams"


async def test_a_message_has_its_place_and_a_repeated_one_the_same(everywhere: Client):
    path, _ = await a_run(everywhere)
    target = f"{path}/message-streams/orders.v1:a-b/messages"
    first = await everywhere.post(target, {"message_id": "größe-1", "input": [1, {"a": None}]})
    assert first.status == 202
    again = (await everywhere.post(target, {"message_id": "größe-1", "input": [1, {"a": None}]})).expect(200)
    assert first.json["position"] == again.json["position"] == 1
    assert (first.json["outcome"], again.json["outcome"]) == ("message_appended", "message_deduplicated")
    assert (await everywhere.post(target, {"message_id": "2"})).json["position"] == 2
    other = await everywhere.post(target, {"message_id": "größe-1", "input": [2]})
    other.refused(409, "request_id_conflict")
    assert (other.json["position"], other.json["conflict"]) == (1, ["input"])


@pytest.mark.parametrize("stream", ["a%20b", "a%2Fb", "%C3%BC", "x" * 129, "a,b"])
async def test_the_name_of_a_message_stream_has_an_alphabet(penstock: Client, stream: str):
    path, _ = await a_run(penstock)
    reply = await penstock.post(f"{path}/message-streams/{stream}/messages", {"message_id": "m1"})
    reply.refused_fields("stream")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message_id"),
        ({"message_id": ""}, "message_id"),
        ({"message_id": "x" * 256}, "message_id"),
        ({"message_id": 7}, "message_id"),
        ({"message_id": "m1", "input": {"codec": "json", "blob": ""}}, "input.codec"),
        ({"message_id": "m1", "input": "text"}, "input"),
    ],
)
async def test_a_message_that_is_malformed_is_refused(penstock: Client, body: Any, field: str):
    path, _ = await a_run(penstock)
    (await penstock.post(f"{path}/message-streams/s/messages", body)).refused_fields(field)
    assert (await penstock.post(f"{path}/message-streams/s/messages", {"message_id": "m"})).json[
        "position"
    ] == 1


async def test_items_are_added_read_and_counted(everywhere: Client):
    _, streams = await a_run(everywhere)
    items = [
        {"payload": {"a": 1}, "item_type": "step", "content_type": "text/plain", "idempotency_key": "k"},
        {"payload_reference": "s3://bucket/key", "payload_codec": "avro"},
        {"payload": None},
    ]
    added = (await everywhere.post(f"{streams}/progress%2F1/items", {"items": items})).expect(200).json
    assert (added["accepted_offsets"], added["accepted"], added["deduped"]) == ([0, 1, 2], 3, 0)
    page = (await everywhere.get(f"{streams}/progress%2F1/items?max_items=2")).expect(200).json
    assert (page["next_offset"], page["terminal"]) == (2, False)
    first, second = page["items"]
    assert payloads.decode(first["payload"]["blob"]) == {"a": 1}
    assert (first["offset"], first["item_type"], first["origin"]) == (0, "step", "client")
    assert (second["payload"], second["payload_reference"], second["payload_codec"]) == (
        None,
        "s3://bucket/key",
        None,
    )
    rest = (await everywhere.get(f"{streams}/progress%2F1/items?from=2")).expect(200).json
    assert [payloads.decode(item["payload"]["blob"]) for item in rest["items"]] == [None]
    shown = (await everywhere.get(f"{streams}/progress%2F1")).expect(200).json["stream"]
    assert (shown["stream_name"], shown["pending_items"], shown["last_offset"]) == ("progress/1", 1, 2)
    assert (await everywhere.get(streams)).expect(200).json["streams"] == [shown]


async def test_who_only_looks_leaves_the_items_unread(everywhere: Client):
    _, streams = await a_run(everywhere)
    items = {"items": [{"payload": 1}, {"payload": 2}, {"payload": 3}]}
    (await everywhere.post(f"{streams}/log/items", items)).expect(200)
    seen = (await everywhere.get(f"{streams}/log/items?from=2&acknowledge=false")).expect(200).json
    assert [each["offset"] for each in seen["items"]] == [2]
    assert (await everywhere.get(f"{streams}/log")).expect(200).json["stream"]["pending_items"] == 3


async def test_a_stream_ends_with_a_reason_and_a_time_to_live(everywhere: Client):
    _, streams = await a_run(everywhere)
    body = {"error_reason": "boom", "retention_seconds": 60}
    ended = (await everywhere.post(f"{streams}/log/close", body)).expect(200).json["stream"]
    assert (ended["status"], ended["error_reason"], ended["retention_seconds"]) == ("errored", "boom", 60)
    page = (await everywhere.get(f"{streams}/log/items?wait_seconds=60")).expect(200).json
    assert (page["items"], page["terminal"], page["stream"]["status"]) == ([], True, "errored")
    (await everywhere.post(f"{streams}/log/close", {})).refused(409, "workflow_stream_closed")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "items"),
        ({"items": []}, "items"),
        ({"items": [{"payload": 1}] * 1001}, "items"),
        ({"items": [{"payload": 1}], "max_pending_items": 0}, "max_pending_items"),
        ({"items": [{"payload": 1, "payload_codec": "json"}]}, "items.0.payload_codec"),
        ({"items": [{"payload": {"codec": "avro", "blob": "!"}}]}, "items.0.payload.blob"),
        ({"items": [{"payload_reference": ""}]}, "items.0.payload_reference"),
    ],
)
async def test_items_that_are_malformed_are_refused_together(penstock: Client, body: Any, field: str):
    _, streams = await a_run(penstock)
    (await penstock.post(f"{streams}/log/items", body)).refused_fields(field)
    (await penstock.get(f"{streams}/log")).refused(404, "workflow_stream_not_found")


@pytest.mark.parametrize("query", ["from=-1", "max_items=0", "max_items=501", "wait_seconds=61", "from=x"])
async def test_a_reader_asks_within_bounds(penstock: Client, query: str):
    _, streams = await a_run(penstock)
    (await penstock.get(f"{streams}/log/items?{query}")).refused_fields(query.partition("=")[0])


async def test_streams_of_runs_that_are_not_there_are_not_found(penstock: Client):
    path, _ = await a_run(penstock)
    (await penstock.get(f"{path}/runs/nothing/streams")).refused(404, "run_not_found")
    (await penstock.get("/api/workflows/nothing/runs/nothing/streams")).refused(404, "instance_not_found")
    body = {"items": [{"payload": 1}]}
    (await penstock.post(f"{path}/runs/nothing/streams/log/items", body)).refused(404, "run_not_found")
    message = {"message_id": "m1"}
    missing = await penstock.post("/api/workflows/nothing/message-streams/s/messages", message)
    missing.refused(404, "instance_not_found")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"operation": "drop"}, "operation"),
        ({"stream_name": ""}, "stream_name"),
        ({"items": []}, "items"),
        ({"items": None}, "items"),
        ({"command_ordinal": -1}, "command_ordinal"),
        ({"operation": "error"}, "error_reason"),
        ({"operation": "close", "retention_seconds": 0}, "retention_seconds"),
    ],
)
async def test_what_a_command_does_with_a_stream_is_checked(penstock: Client, changes: Any, field: str):
    directive = {
        "operation": "append",
        "stream_name": "log",
        "command_identity": "t1",
        "command_ordinal": 0,
        "items": [{"payload": 1}],
    } | changes
    command = {"type": "record_side_effect", "result": None, "workflow_stream": directive}
    body = {"lease_owner": "w1", "workflow_task_attempt": 1, "commands": [command]}
    reply = await penstock.post("/api/worker/workflow-tasks/nothing/complete", body, role="worker")
    reply.refused_fields(f"commands.0.workflow_stream.{field}")


@pytest.mark.parametrize(
    ("cursors", "field"),
    [
        ([{"stream_name": "s"}], "message_stream_cursors.0"),
        ([{"stream_name": "s", "through_position": -1}], "message_stream_cursors.0.through_position"),
        ("s", "message_stream_cursors"),
    ],
)
async def test_how_far_was_read_is_checked(penstock: Client, cursors: Any, field: str):
    command = {"type": "complete_workflow", "result": None}
    body = {"lease_owner": "w1", "workflow_task_attempt": 1, "commands": [command]}
    reply = await penstock.post(
        "/api/worker/workflow-tasks/nothing/complete",
        body | {"message_stream_cursors": cursors},
        role="worker",
    )
    reply.refused_fields(field)
