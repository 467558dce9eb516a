"""Errors of invalid input as the client sees them: a status, a reason, and nothing written."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from penstock.core.permissions import ACCESS
from penstock.server.operation import Operation
from penstock.server.operations.table import OPERATIONS
from tests.server.client import Client, Reply

START = {"workflow_type": "greet", "task_queue": "orders"}
ACTIVITY = {"activity_type": "charge", "task_queue": "orders"}
REGISTER = {"task_queue": "orders", "runtime": "python", "worker_id": "w-1"}
POLL = {"worker_id": "w-1", "task_queue": "orders", "timeout_seconds": 0}
LIMIT = 2 * 1024 * 1024
HUGE = 10**400

CONTROL = ["a\x00b", "a\nb", "a\rb", "a\x1b[31mb", "a\x7fb", "a\x85b", "a\u2028b", "\ufeffa"]
"""NUL, what forges log lines, what colours terminals, and what looks like nothing."""


def _named(value: object) -> str:
    return ascii(value)[:40]


def role_of(operation: Operation) -> str:
    roles = ACCESS[operation.family].roles
    return "operator" if roles is None else min(role.value for role in roles)


class TestSize:
    async def test_a_body_that_says_it_is_too_large_is_refused_before_any_of_it_is_read(
        self, penstock: Client
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/workflows", START, headers={"Content-Length": str(LIMIT + 1)})
        reply.refused(413, "payload_too_large")
        assert reply.chunks_read == 0
        assert reply.headers["connection"] == "close"
        assert reply.json["limit"] == LIMIT

    async def test_a_body_of_unknown_length_is_refused_as_soon_as_it_is_too_large(
        self, penstock: Client
    ) -> None:
        chunks = [b" " * 65_536] * 1000
        reply = await penstock.request(
            "POST", "/api/workflows", headers={"Content-Type": "application/json"}, chunks=chunks
        )
        reply.refused(413, "payload_too_large")
        assert reply.chunks_read == LIMIT // 65_536 + 1
        assert reply.headers["connection"] == "close"

    async def test_the_size_is_looked_at_before_the_credential(self, penstock: Client) -> None:
        reply = await penstock.post(
            "/api/workflows", START, role=None, headers={"Content-Length": str(LIMIT + 1)}
        )
        reply.refused(413, "payload_too_large")

    @pytest.mark.parametrize("length", ["²", "-1", "abc", "", "9" * 5000], ids=_named)
    async def test_a_length_that_is_none_never_breaks_the_server(self, penstock: Client, length: str) -> None:
        reply = await penstock.post("/api/workflows", {}, headers={"Content-Length": length})
        assert reply.status in (413, 422)

    async def test_a_caller_who_hangs_up_in_the_middle_of_the_body_starts_nothing(
        self, penstock: Client
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.request(
                "POST",
                "/api/workflows",
                headers={"Content-Type": "application/json"},
                chunks=[json.dumps(START).encode()],
                hangs_up=True,
            )
        assert reply.status == 0

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("memo", {"note": "x" * 300_000}),
            ("search_attributes", {"City": "x" * 3000}),
            ("search_attributes", {f"A{number}": 1 for number in range(101)}),
        ],
    )
    async def test_parts_of_a_body_have_limits_of_their_own(
        self, penstock: Client, field: str, value: object
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/workflows", START | {field: value})
        reply.refused(422, "validation_failed")
        assert next(iter(reply.json["errors"])).startswith(field)


NOT_JSON = {
    "nothing at all but a space": b" ",
    "words": b"hello",
    "an open object": b'{"workflow_type": "greet"',
    "garbage after the value": b'{"workflow_type": "greet"} {}',
    "a trailing comma": b'{"workflow_type": "greet",}',
    "single quotes": b"{'workflow_type': 'greet'}",
    "a comment": b'{"workflow_type": "greet"} // hello',
    "a byte order mark": b'\xef\xbb\xbf{"workflow_type": "greet"}',
    "UTF-16": '{"workflow_type": "greet"}'.encode("utf-16"),
    "invalid UTF-8": b'{"workflow_type": "gr\xff"}',
    "overlong UTF-8": b'{"workflow_type": "gr\xc0\x80"}',
    "a surrogate in UTF-8": b'{"workflow_type": "gr\xed\xa0\x80"}',
    "half of a surrogate pair": b'{"workflow_type": "gr\\ud800"}',
    "the other half": b'{"workflow_type": "gr\\udc00x"}',
    "a raw line break in a string": b'{"workflow_type": "gr\n"}',
    "a raw NUL in a string": b'{"workflow_type": "gr\x00"}',
    "a key twice": b'{"workflow_type": "greet", "workflow_type": "other"}',
    "a key twice, once escaped": b'{"workflow_type": "greet", "workflow\\u005ftype": "other"}',
    "a key twice, deep inside": b'{"workflow_type": "greet", "memo": {"a": [{"b": 1, "b": 2}]}}',
    "NaN": b'{"workflow_type": "greet", "fairness_weight": NaN}',
    "Infinity": b'{"workflow_type": "greet", "fairness_weight": Infinity}',
    "minus Infinity": b'{"workflow_type": "greet", "fairness_weight": -Infinity}',
    "a number beyond every float": b'{"workflow_type": "greet", "fairness_weight": 1e999}',
    "an integer of 5000 digits": b'{"workflow_type": "greet", "priority": ' + b"9" * 5000 + b"}",
    "an integer beyond 64 bits": b'{"workflow_type": "greet", "memo": {"n": 9223372036854775808}}',
    "a leading zero": b'{"workflow_type": "greet", "priority": 03}',
    "hexadecimal": b'{"workflow_type": "greet", "priority": 0x3}',
    "100,000 levels of lists": b"[" * 100_000,
    "100,000 levels, closed": b"[" * 100_000 + b"]" * 100_000,
    "101 levels of objects": b'{"a":' * 101 + b"1" + b"}" * 101,
    "more keys than anybody has": b"{" + b",".join(b'"%d":1' % n for n in range(100_001)) + b"}",
    "more lists than anybody has": b"[" + b",".join([b"[]"] * 100_001) + b"]",
}


class TestJson:
    @pytest.mark.parametrize("raw", NOT_JSON.values(), ids=NOT_JSON)
    async def test_what_is_not_one_unambiguous_json_text_is_refused(
        self, penstock: Client, raw: bytes
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.request("POST", "/api/workflows", raw)
        reply.refused(400, "malformed_json")
        assert reply.json["json_error"]
        assert len(reply.raw) < 3000

    @pytest.mark.parametrize("body", [[], [START], "greet", 5, True, None], ids=_named)
    @pytest.mark.parametrize(
        ("role", "target"), [("operator", "/api/workflows"), ("worker", "/api/worker/register")]
    )
    async def test_a_body_that_is_no_object_is_refused(
        self, penstock: Client, role: str, target: str, body: object
    ) -> None:
        (await penstock.post(target, body, role=role)).refused_fields("body")

    async def test_no_body_where_one_is_needed_names_what_is_missing(self, penstock: Client) -> None:
        (await penstock.request("POST", "/api/workflows")).refused_fields("workflow_type")

    @pytest.mark.parametrize(
        "media",
        [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
         "application/xml", "json", "application/jsonx", "text/plain; a=application/json", "*/*", "\xff"],
        ids=_named,
    )  # fmt: skip
    async def test_a_body_of_another_media_type_is_refused(self, penstock: Client, media: str | None) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/workflows", START, headers={"Content-Type": media})
        reply.refused(415, "unsupported_media_type")

    @pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "identity, gzip", "x"])
    async def test_a_compressed_body_is_refused(self, penstock: Client, encoding: str) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/workflows", START, headers={"Content-Encoding": encoding})
        reply.refused(415, "unsupported_content_encoding")

    async def test_json_is_looked_at_before_the_credential(self, penstock: Client) -> None:
        (await penstock.request("POST", "/api/workflows", b"{", role=None)).refused(400, "malformed_json")


NAME_FIELDS: list[tuple[str, str, dict[str, Any], str]] = [
    *(
        ("operator", "/api/workflows", START, field)
        for field in (
            "workflow_type",
            "workflow_id",
            "task_queue",
            "business_key",
            "fairness_key",
            "build_id",
            "compatibility",
        )
    ),
    *(
        ("operator", "/api/activities", ACTIVITY, field)
        for field in (
            "activity_type",
            "activity_id",
            "task_queue",
            "activity_class",
            "business_key",
            "fairness_key",
            "build_id",
        )
    ),
    *(
        ("worker", "/api/worker/register", REGISTER, field)
        for field in ("worker_id", "task_queue", "runtime", "sdk_version", "build_id")
    ),
    *(
        ("worker", f"/api/worker/{kind}-tasks/poll", POLL, field)
        for kind in ("workflow", "activity", "query")
        for field in ("worker_id", "task_queue", "poll_request_id", "build_id")
    ),
    ("worker", "/api/worker/heartbeat", {"worker_id": "w-1"}, "worker_id"),
    ("admin", "/api/namespaces", {"name": "fresh"}, "name"),
    *(
        ("operator", f"/api/task-queues/orders/build-ids/{verb}", {}, "build_id")
        for verb in ("drain", "resume", "promote")
    ),
]


class TestNames:
    @pytest.mark.parametrize("value", CONTROL, ids=_named)
    async def test_a_control_character_in_any_name_is_refused_by_every_field(
        self, everywhere: Client, value: str
    ) -> None:
        async with everywhere.unchanged():
            for role, target, body, field in NAME_FIELDS:
                reply = await everywhere.post(target, body | {field: value}, role=role)
                reply.refused_fields(field)

    @pytest.mark.parametrize("value", ["", "x" * 256, "é" * 256, 5, True, [], {}], ids=_named)
    async def test_a_name_that_is_empty_too_long_or_no_text_is_refused_by_every_field(
        self, penstock: Client, value: object
    ) -> None:
        may_be_empty = ("fairness_key", "build_id")
        async with penstock.unchanged():
            for role, target, body, field in NAME_FIELDS:
                if value == "" and field in may_be_empty:
                    continue
                (await penstock.post(target, body | {field: value}, role=role)).refused_fields(field)

    @pytest.mark.parametrize("value", ["a\x00b", "a\x1bb"], ids=_named)
    @pytest.mark.parametrize(
        ("field", "value_of"),
        [
            ("supported_workflow_types", lambda text: ["greet", text]),
            ("supported_activity_types", lambda text: [text]),
            ("capabilities", lambda text: [text]),
            ("workflow_definition_fingerprints", lambda text: {"greet": text}),
            ("workflow_definition_fingerprints", lambda text: {text: "abc"}),
        ],
    )
    async def test_a_control_character_in_a_name_inside_a_list_or_object_is_refused(
        self, penstock: Client, field: str, value_of: Any, value: str
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.post(
                "/api/worker/register", REGISTER | {field: value_of(value)}, role="worker"
            )
        reply.refused(422, "validation_failed")
        assert next(iter(reply.json["errors"])).startswith(field)

    @pytest.mark.parametrize(
        ("workflow_id", "told"),
        [
            ("a\tb", "U+0009 is not allowed; use visible characters"),
            ("a\u202eb", "U+202E is not allowed"),
            ("a\x00", "U+0000 is not allowed"),
            (".", "'.' is not allowed"),
            ("..", "'..' is not allowed"),
            ("x" * 129, "128"),
        ],
    )
    @pytest.mark.parametrize("route", ["/api/workflows", "/api/activities"])
    async def test_an_id_that_nobody_could_see_or_ask_for_is_refused_by_the_character(
        self, penstock: Client, route: str, workflow_id: str, told: str
    ) -> None:
        field = "workflow_id" if route == "/api/workflows" else "activity_id"
        body = START if field == "workflow_id" else {"activity_type": "Charge", "task_queue": "orders"}
        async with penstock.unchanged():
            reply = await penstock.post(route, body | {field: workflow_id})
        reply.refused_fields(field)
        assert told in reply.json["errors"][field][0]

    @pytest.mark.parametrize(
        "workflow_id",
        [
            "a b",
            "a/b",
            "a%2fb",
            "a*~!$&'()+,;=@",
            "é",
            "注文/1",
            "a?b#c",
            "%",
            ".../x",
            "\\",
        ],
    )
    async def test_a_printable_id_is_taken_and_found_again(
        self, everywhere: Client, workflow_id: str
    ) -> None:
        path = f"/api/workflows/{quote(workflow_id, safe='')}"
        body = START | {"workflow_id": workflow_id}
        run_id = (await everywhere.post("/api/workflows", body, namespace="quiet")).expect(201).json["run_id"]
        for found in (path, f"{path}/runs/{run_id}"):
            told = (await everywhere.get(found, namespace="quiet")).expect(200).json
            assert (told["workflow_id"], told["run_id"]) == (workflow_id, run_id)
        ended = (await everywhere.post(f"{path}/terminate", {}, namespace="quiet")).expect(200)
        assert ended.json["workflow_id"] == workflow_id

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            (".", "'.' is not allowed"),
            ("..", "'..' is not allowed"),
            ("a/b", "'/' is not allowed; use letters, digits, '.', '_' and '-'"),
            ("a~b", "'~' is not allowed; use letters"),
        ],
    )
    async def test_a_namespace_that_could_not_be_reached_cannot_be_created(
        self, penstock: Client, name: str, told: str
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/namespaces", {"name": name}, role="admin")
        reply.refused_fields("name")
        assert told in reply.json["errors"]["name"][0]

    async def test_text_that_names_nothing_may_hold_anything_and_comes_back_as_it_was(
        self, everywhere: Client
    ) -> None:
        odd = "\x00\n\x1b[31m\x7f\u2028\u202e\U0001f600"
        body = START | {"workflow_id": "odd-text", "memo": {"note": odd}, "input": [odd, {odd: odd}]}
        (await everywhere.post("/api/workflows", body, namespace="quiet")).expect(201)
        found = (await everywhere.get("/api/workflows/odd-text", namespace="quiet")).expect(200).json
        assert found["memo"] == {"note": odd}
        assert found["input"] == [odd, {odd: odd}]

    @pytest.mark.parametrize("description", ["a\x00b", "x" * 1001, 5])
    async def test_a_description_that_no_database_could_keep_is_refused(
        self, everywhere: Client, description: object
    ) -> None:
        async with everywhere.unchanged():
            body = {"name": "fresh", "description": description}
            reply = await everywhere.post("/api/namespaces", body, role="admin")
        reply.refused_fields("description")

    @pytest.mark.parametrize("reason", ["a\x00b", "x" * 1001])
    async def test_so_is_the_reason_of_a_cancellation(self, everywhere: Client, reason: str) -> None:
        body = START | {"workflow_id": "stays", "duplicate_policy": "use-existing"}
        await everywhere.post("/api/workflows", body, namespace="quiet")
        async with everywhere.unchanged("quiet"):
            reply = await everywhere.post(
                "/api/workflows/stays/cancel", {"reason": reason}, namespace="quiet"
            )
        reply.refused_fields("reason")


ODD_SEGMENTS = ["%00", "a%0ab", "%1b%5b31m", "%7f", "%c2%85", "%ff", "%ed%a0%80", "%e2%80%ae", "%f0%9f%98%80",
                "..", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a%2fb", "%25%30%30", "'%20OR%201=1--", ":", "*",
                "%20", "x" * 10_000]  # fmt: skip


READ_WITHOUT_BEING_THERE = {
    "describe_task_queue",
    "list_build_ids",
    "list_task_queue_keys",
    "read_task_queue_config",
    "read_task_queue_config_history",
    "read_task_queue_limits",
    "read_waiting_tasks",
    "read_budget_group",
    "read_budget_group_history",
    "resume_task_queue",
    "resume_fairness_key",
    "resume_budget_group",
    "change_task_queue_limits",
    "change_budget_group",
}
"""A queue or group that was never used counts as empty, and an empty change leaves it so."""
PAUSED_WITHOUT_BEING_THERE = {"pause_task_queue", "pause_fairness_key", "pause_budget_group"}
"""What will be used later can be held back before."""


class TestPaths:
    @pytest.mark.parametrize("segment", ODD_SEGMENTS, ids=lambda text: text[:30])
    async def test_no_path_segment_breaks_the_server(self, everywhere: Client, segment: str) -> None:
        async with everywhere.unchanged():
            for operation in OPERATIONS:
                if "{" not in operation.path or operation.name in PAUSED_WITHOUT_BEING_THERE:
                    continue
                target = re.sub(r"{\w+}", segment, operation.path)
                raw = b"{}" if operation.body else b""
                reply = await everywhere.request(operation.method, target, raw, role=role_of(operation))
                found = (operation.name, reply.status, reply.reason)
                if reply.status == 200:
                    assert operation.name in READ_WITHOUT_BEING_THERE, found
                else:
                    assert reply.status in (404, 405, 422), found
                    assert reply.reason, found

    @pytest.mark.parametrize("segment", ODD_SEGMENTS, ids=lambda text: text[:30])
    async def test_neither_does_one_that_is_paused(self, everywhere: Client, segment: str) -> None:
        for operation in OPERATIONS:
            if operation.name in PAUSED_WITHOUT_BEING_THERE:
                target = re.sub(r"{\w+}", segment, operation.path)
                reply = await everywhere.request(operation.method, target, namespace="quiet")
                assert reply.status in (200, 404, 422), (operation.name, reply.raw)

    @pytest.mark.parametrize("segment", ["%00", "a%0ab", "%1b%5b31m", "%7f", "%c2%85", "x" * 129])
    async def test_a_segment_that_can_be_no_id_is_named(self, everywhere: Client, segment: str) -> None:
        reply = await everywhere.get(f"/api/workflows/{segment}")
        reply.refused_fields("workflow_id")

    @pytest.mark.parametrize(
        "target",
        ["/api", "/api/", "/api/nothing", "/api/workflows/", "//api/workflows", "/api//workflows", "/API/workflows",
         "/api/workflows/a/b/c", "/api/../api/workflows", "/api/%2e%2e/etc/passwd", "/docs/../openapi.json",
         "/docs/%2e%2e/page.css", "/%00"],
    )  # fmt: skip
    async def test_a_path_that_no_route_takes_is_not_found(self, penstock: Client, target: str) -> None:
        (await penstock.get(target)).refused(404, "not_found")

    @pytest.mark.parametrize(
        ("method", "target", "allowed"),
        [
            ("DELETE", "/api/workflows", "GET, POST"),
            ("PATCH", "/api/namespaces/default", "DELETE, GET, PUT"),
            ("GET", "/api/worker/register", "POST"),
            ("HEAD", "/api/workflows", "GET, POST"),
            ("OPTIONS", "/api/workflows", "GET, POST"),
            ("BREW", "/api/health", "GET"),
        ],
    )
    async def test_a_method_that_the_path_does_not_take_is_told_which_ones_it_takes(
        self, penstock: Client, method: str, target: str, allowed: str
    ) -> None:
        reply = await penstock.request(method, target)
        reply.refused(405, "method_not_allowed")
        assert reply.headers["allow"] == allowed


class TestQueries:
    @pytest.mark.parametrize("value", ["%00", "a%0ab", "%1b", "%7f", "%c2%85"])
    @pytest.mark.parametrize(
        ("target", "field"),
        [
            ("/api/workflows", "workflow_type"),
            ("/api/workflows", "query"),
            ("/api/workflows", "status"),
            ("/api/activities", "status"),
            ("/api/workers", "task_queue"),
            ("/api/workers", "status"),
        ],
    )
    async def test_a_control_character_in_a_filter_is_refused(
        self, everywhere: Client, target: str, field: str, value: str
    ) -> None:
        (await everywhere.get(f"{target}?{field}={value}")).refused_fields(field)

    @pytest.mark.parametrize("text", ["'; DROP TABLE runs; --", "%", "_", "\\", "((a+)+)+$", "a" * 255])
    async def test_a_filter_is_text_and_never_a_pattern_or_a_statement(
        self, everywhere: Client, text: str
    ) -> None:
        async with everywhere.unchanged():
            for field in ("workflow_type", "query"):
                reply = await everywhere.get(f"/api/workflows?{field}={quote(text)}", namespace="elsewhere")
                assert reply.expect(200).json["workflows"] == []

    @pytest.mark.parametrize(
        "value", ["0", "-1", "201", "1e3", "2.5", "NaN", "true", "x", "9" * 5000, "0x10", "1_0", "٣", "null"]
    )
    async def test_a_page_size_out_of_range_is_refused(self, penstock: Client, value: str) -> None:
        for target in ("/api/workflows", "/api/activities"):
            (await penstock.get(f"{target}?page_size={quote(value)}")).refused_fields("page_size")

    @pytest.mark.parametrize(
        "token",
        ["x", "====", "%00", "AAAA", "w7w=", "LTE6eA==", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OnJ1bg==", "MTo=%0a", "4pyT",
         "MToAAA==", "Pw==", "YTpi", "%7B%7D", "A" * 1000],
    )  # fmt: skip
    async def test_a_page_token_that_we_did_not_give_out_is_refused(
        self, everywhere: Client, token: str
    ) -> None:
        for target in ("/api/workflows", "/api/activities"):
            reply = await everywhere.get(f"{target}?next_page_token={token}")
            reply.refused(400, "invalid_page_token")

    async def test_a_page_token_of_absurd_length_is_refused(self, penstock: Client) -> None:
        reply = await penstock.get(f"/api/workflows?next_page_token={'A' * 1001}")
        reply.refused_fields("next_page_token")

    async def test_a_history_page_token_beyond_the_end_is_an_empty_page_and_nonsense_is_refused(
        self, everywhere: Client
    ) -> None:
        body = START | {"workflow_id": "paged", "duplicate_policy": "use-existing"}
        run = (await everywhere.post("/api/workflows", body, namespace="quiet")).json["run_id"]
        target = f"/api/workflows/paged/runs/{run}/history?next_page_token="
        beyond = await everywhere.get(f"{target}OTk5OTk5OTk5OTk5OTk5", namespace="quiet")
        assert beyond.expect(200).json["events"] == []
        for token in ("x", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "LTE=", "MS41"):
            (await everywhere.get(target + token, namespace="quiet")).refused(400, "invalid_page_token")

    @pytest.mark.parametrize(
        "query",
        ["page_size=1&page_size=2", "namespace=default&namespace=elsewhere", "status=running&status=running",
         "a=1&" * 101, "workflow_type=%ff", "workflow_type=\xff"],
        ids=lambda text: ascii(text)[:30],
    )  # fmt: skip
    async def test_a_query_that_two_readers_could_read_differently_is_refused(
        self, penstock: Client, query: str
    ) -> None:
        (await penstock.get(f"/api/workflows?{query}")).refused(400, "malformed_request")

    @pytest.mark.parametrize(
        "name", ["token", "access_token", "api_key", "authorization", "TOKEN", "%74oken"]
    )
    async def test_a_token_in_the_url_is_refused_even_if_it_is_right(
        self, penstock: Client, name: str
    ) -> None:
        reply = await penstock.get(f"/api/workflows?{name}=operator-secret")
        reply.refused(400, "token_in_url")
        assert b"operator-secret" not in reply.raw


class TestHeaders:
    @pytest.mark.parametrize(
        "name",
        ["Host", "Authorization", "X-Namespace", "Content-Type", "Content-Length", "Content-Encoding",
         "X-Durable-Workflow-Control-Plane-Version"],
    )  # fmt: skip
    async def test_a_header_on_which_a_decision_rests_may_not_stand_twice(
        self, penstock: Client, name: str
    ) -> None:
        once = {"X-Namespace": "default", "Content-Encoding": "identity"}
        async with penstock.unchanged():
            reply = await penstock.post(
                "/api/workflows", START, headers=once, more_headers=[(name, "default")]
            )
        reply.refused(400, "malformed_request")
        assert reply.json["header"] == name.lower()

    @pytest.mark.parametrize(
        "host",
        [None, "", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
         "127.0.0.1:8080:80", "127.0.0.1@evil.example", "localhost/..", "local host", "\x00", "\xff", "[::2]",
         "localhost\r\nX-Namespace: other", "0.0.0.0", "x" * 100_000],
        ids=_named,
    )  # fmt: skip
    @pytest.mark.parametrize(
        "target", ["/api/workflows", "/api/health", "/metrics", "/openapi.json", "/docs"]
    )
    async def test_a_host_that_is_not_ours_is_misdirected(
        self, penstock: Client, target: str, host: str | None
    ) -> None:
        reply = await penstock.get(target, headers={"Host": host})
        reply.refused(421, "misdirected_host")
        assert len(reply.raw) < 3000

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "127.0.0.1:8080", "LOCALHOST", "localhost.:1", "[::1]:8080"]
    )
    async def test_our_own_names_are_answered_in_every_spelling(self, penstock: Client, host: str) -> None:
        (await penstock.get("/api/workflows", headers={"Host": host})).expect(200)

    @pytest.mark.parametrize(
        "value",
        [b"\x00", b"a\x1bb", b"\xff\xfe", b"\x85", b"no-such", b"x" * 100_000, b"../default"],
        ids=_named,
    )
    async def test_a_namespace_that_cannot_be_is_not_there(self, everywhere: Client, value: bytes) -> None:
        headers = {"X-Namespace": value}
        reply = await everywhere.get("/api/workflows", headers=headers)
        reply.refused(404, "namespace_not_found")
        reply = await everywhere.get("/api/cluster/info", headers=headers)
        assert reply.status in (200, 400)
        reply = await everywhere.get(f"/api/workflows?namespace={quote(value[:200])}")
        assert (reply.status, reply.reason) in ((404, "namespace_not_found"), (400, "malformed_request"))

    @pytest.mark.parametrize("key", [b"a\x00b", b"a\x1bb", b"x" * 256, b"\x85"], ids=_named)
    @pytest.mark.parametrize(("target", "body"), [("/api/workflows", START), ("/api/activities", ACTIVITY)])
    async def test_an_idempotency_key_that_cannot_be_kept_is_refused_and_not_forgotten(
        self, everywhere: Client, target: str, body: dict[str, Any], key: bytes
    ) -> None:
        async with everywhere.unchanged():
            reply = await everywhere.post(target, body, headers={"Idempotency-Key": key})
        reply.refused_fields("Idempotency-Key")

    @pytest.mark.parametrize("version", ["1", "2.0", "3", "", "\x00", "²", "2, 2", "x" * 100_000], ids=_named)
    async def test_a_version_that_is_not_served_is_named(self, penstock: Client, version: str) -> None:
        reply = await penstock.get(
            "/api/workflows", headers={"X-Durable-Workflow-Control-Plane-Version": version}
        )
        kind = "unsupported" if version else "missing"
        reply.refused(400, f"{kind}_control_plane_version")
        assert len(reply.raw) < 3000

    @pytest.mark.parametrize("version", ["1", "1.21", "2.0", "1.-1", "1.٣", "1.0\n", "01.0", "1.0000"])
    async def test_so_is_a_worker_protocol_version(self, penstock: Client, version: str) -> None:
        headers = {"X-Durable-Workflow-Protocol-Version": version.encode()}
        reply = await penstock.post(
            "/api/worker/heartbeat", {"worker_id": "w"}, role="worker", headers=headers
        )
        if version.strip() != version:
            reply.refused(404, "worker_not_registered")
        else:
            reply.refused(400, "unsupported_protocol_version")

    @pytest.mark.parametrize(
        "value", ["gzip;q=nan", "gzip;q=1e999", "gzip;q=²", ";;;,,q=", "\x00", "*;q=-1", "gzip;q=", "x" * 100_000],
        ids=_named,
    )  # fmt: skip
    async def test_no_accept_encoding_breaks_an_answer(self, penstock: Client, value: str) -> None:
        reply = await penstock.get("/api/cluster/info", headers={"Accept-Encoding": value})
        assert reply.status == 200

    async def test_a_forged_forwarded_address_earns_nobody_new_attempts(self, penstock: Client) -> None:
        wrong = {"Authorization": "Bearer wrong"}
        replies: list[Reply] = []
        for number in range(200):
            forged = wrong | {"X-Forwarded-For": f"10.0.{number // 250}.{number % 250}"}
            replies.append(await penstock.get("/api/workflows", headers=forged))
            if replies[-1].status == 429:
                break
        replies[0].refused(401, "unauthorized")
        replies[-1].refused(429, "too_many_auth_failures")
        assert int(replies[-1].headers["retry-after"]) >= 1
        (await penstock.get("/api/workflows")).expect(200)


TIMEOUTS = [0, -1, 1.5, True, "5", 315_360_001, 10**18, 2**63 - 1, [], {}]
WEIGHTS = [0, -1, 0.0009, 1e-300, 1000.1, 2**53, 2**63 - 1, "5", True, [], {}]


class TestNumbers:
    @pytest.mark.parametrize("value", TIMEOUTS, ids=_named)
    async def test_a_timeout_is_a_whole_number_of_seconds_within_ten_years(
        self, penstock: Client, value: object
    ) -> None:
        async with penstock.unchanged():
            for field in ("execution_timeout_seconds", "run_timeout_seconds"):
                (await penstock.post("/api/workflows", START | {field: value})).refused_fields(field)
            for field in ("start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat"):
                name = f"{field}_timeout_seconds"
                (await penstock.post("/api/activities", ACTIVITY | {name: value})).refused_fields(name)

    @pytest.mark.parametrize("value", WEIGHTS, ids=_named)
    async def test_a_weight_is_a_finite_number_within_its_bounds(
        self, penstock: Client, value: object
    ) -> None:
        async with penstock.unchanged():
            for target, body in (("/api/workflows", START), ("/api/activities", ACTIVITY)):
                reply = await penstock.post(target, body | {"fairness_weight": value})
                reply.refused_fields("fairness_weight")

    @pytest.mark.parametrize("literal", ["1e-400", "-0.0", "1e308", "0.00099999"])
    async def test_a_weight_too_small_or_large_for_its_bounds_is_refused_however_it_is_written(
        self, penstock: Client, literal: str
    ) -> None:
        raw = json.dumps(START)[:-1] + f', "fairness_weight": {literal}}}'
        async with penstock.unchanged():
            reply = await penstock.request("POST", "/api/workflows", raw.encode())
        reply.refused_fields("fairness_weight")

    @pytest.mark.parametrize(
        "literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", str(2**63), str(HUGE)]
    )
    async def test_a_number_that_is_none_is_not_even_json(self, penstock: Client, literal: str) -> None:
        raw = json.dumps(START)[:-1] + f', "fairness_weight": {literal}}}'
        async with penstock.unchanged():
            reply = await penstock.request("POST", "/api/workflows", raw.encode())
        reply.refused(400, "malformed_json")

    @pytest.mark.parametrize("weight", [0.001, 1, 1000, 0.0014])
    async def test_a_weight_at_its_bounds_is_kept_in_thousandths(
        self, everywhere: Client, weight: float
    ) -> None:
        body = START | {"workflow_id": f"w-{weight}", "fairness_weight": weight}
        reply = await everywhere.post("/api/workflows", body, namespace="quiet")
        assert reply.expect(201).json["fairness_weight"] == pytest.approx(weight, abs=0.0005)

    @pytest.mark.parametrize("value", [10, -1, 3.5, "3", True, 2**62, [1]], ids=_named)
    async def test_a_priority_is_a_whole_number_from_0_to_9(self, penstock: Client, value: object) -> None:
        async with penstock.unchanged():
            for target, body in (("/api/workflows", START), ("/api/activities", ACTIVITY)):
                (await penstock.post(target, body | {"priority": value})).refused_fields("priority")

    @pytest.mark.parametrize("key", ["é" * 33, "\U0001f600" * 17, "x" * 65])
    async def test_a_fairness_key_is_counted_in_bytes(self, penstock: Client, key: str) -> None:
        async with penstock.unchanged():
            for target, body in (("/api/workflows", START), ("/api/activities", ACTIVITY)):
                (await penstock.post(target, body | {"fairness_key": key})).refused_fields("fairness_key")

    @pytest.mark.parametrize("key", ["é" * 32, "\U0001f600" * 16, "x" * 64])
    async def test_a_fairness_key_of_exactly_64_bytes_is_kept(self, everywhere: Client, key: str) -> None:
        reply = await everywhere.post("/api/workflows", START | {"fairness_key": key}, namespace="quiet")
        assert reply.expect(201).json["fairness_key"] == key

    @pytest.mark.parametrize("value", [-1, 601, 1.5, True, "5", 10**9, 10**18, []], ids=_named)
    async def test_a_poll_waits_a_whole_number_of_seconds_within_bounds(
        self, penstock: Client, value: object
    ) -> None:
        for kind in ("workflow", "activity", "query"):
            reply = await penstock.post(
                f"/api/worker/{kind}-tasks/poll", POLL | {"timeout_seconds": value}, role="worker"
            )
            reply.refused_fields("timeout_seconds")

    @pytest.mark.parametrize("value", [0, -1, 101, 10**9, 1.5, True, "1"], ids=_named)
    async def test_a_poll_asks_for_1_to_100_tasks(self, penstock: Client, value: object) -> None:
        for kind in ("workflow", "activity"):
            reply = await penstock.post(
                f"/api/worker/{kind}-tasks/poll", POLL | {"max_tasks": value}, role="worker"
            )
            reply.refused_fields("max_tasks")

    @pytest.mark.parametrize("value", [0, -1, 1_000_001, 10**9, 1.5, True, "1"], ids=_named)
    async def test_a_worker_has_a_positive_bounded_number_of_slots(
        self, penstock: Client, value: object
    ) -> None:
        async with penstock.unchanged():
            for field in ("max_concurrent_workflow_tasks", "max_concurrent_activity_tasks"):
                reply = await penstock.post("/api/worker/register", REGISTER | {field: value}, role="worker")
                reply.refused_fields(field)

    @pytest.mark.parametrize("value", [0, -1, 86_401, "5", True], ids=_named)
    async def test_a_heartbeat_interval_is_positive_and_at_most_a_day(
        self, penstock: Client, value: object
    ) -> None:
        body = REGISTER | {"heartbeat_interval_seconds": value}
        async with penstock.unchanged():
            reply = await penstock.post("/api/worker/register", body, role="worker")
        reply.refused_fields("heartbeat_interval_seconds")

    @pytest.mark.parametrize("value", [0, -1, 366, 1.5, True, "30", 2**62], ids=_named)
    async def test_retention_is_1_to_365_days(self, penstock: Client, value: object) -> None:
        async with penstock.unchanged():
            body = {"name": "fresh", "retention_days": value}
            (await penstock.post("/api/namespaces", body, role="admin")).refused_fields("retention_days")

    @pytest.mark.parametrize(
        ("policy", "field"),
        [
            ({"max_attempts": 0}, "retry_policy.max_attempts"),
            ({"max_attempts": 2_147_483_648}, "retry_policy.max_attempts"),
            ({"max_attempts": True}, "retry_policy.max_attempts"),
            ({"backoff_seconds": [1, -1]}, "retry_policy.backoff_seconds.1"),
            ({"backoff_seconds": [10**18]}, "retry_policy.backoff_seconds.0"),
            ({"backoff_seconds": [0] * 1001}, "retry_policy.backoff_seconds"),
            ({"non_retryable_error_types": ["a\x00"]}, "retry_policy.non_retryable_error_types.0"),
            (5, "retry_policy"),
        ],
    )
    async def test_a_retry_policy_out_of_bounds_is_refused_by_the_name_of_the_part(
        self, penstock: Client, policy: object, field: str
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/activities", ACTIVITY | {"retry_policy": policy})
        reply.refused(422, "validation_failed")
        assert [name.replace("...", "0") for name in reply.json["errors"]] in ([field], [field[:-1] + "0"])

    async def test_a_clock_may_not_outlast_the_one_around_it(self, penstock: Client) -> None:
        async with penstock.unchanged():
            body = START | {"run_timeout_seconds": 10, "execution_timeout_seconds": 5}
            (await penstock.post("/api/workflows", body)).refused_fields("run_timeout_seconds")
            outlasting = ACTIVITY | {"heartbeat_timeout_seconds": 10, "start_to_close_timeout_seconds": 5}
            (await penstock.post("/api/activities", outlasting)).refused(422, "validation_failed")


class TestPayloads:
    @pytest.mark.parametrize(
        ("value", "field"),
        [
            ("text", "input"),
            (5, "input"),
            (True, "input"),
            ({"codec": "avro"}, "input"),
            ({"codec": "json", "blob": "e30="}, "input.codec"),
            ({"codec": "avro", "blob": "not base64!"}, "input.blob"),
            ({"codec": "avro", "blob": "AAAA"}, "input.blob"),
            ({"codec": "avro", "blob": 5}, "input.blob"),
            ({"codec": "avro", "blob": "AAAA", "more": 1}, "input"),
            ({"codec": "avro", "external_storage": {"uri": "file:///etc/passwd"}}, "input"),
        ],
    )
    async def test_arguments_in_no_known_form_are_refused(
        self, penstock: Client, value: object, field: str
    ) -> None:
        async with penstock.unchanged():
            for target, body in (("/api/workflows", START), ("/api/activities", ACTIVITY)):
                (await penstock.post(target, body | {"input": value})).refused_fields(field)

    async def test_an_envelope_with_damage_inside_is_carried_and_does_not_break_its_readers(
        self, everywhere: Client
    ) -> None:
        damaged = {"codec": "avro", "blob": "wwHioz3/VYAiN/8="}
        body = START | {"workflow_id": "damaged", "input": damaged}
        run_id = (await everywhere.post("/api/workflows", body, namespace="quiet")).expect(201).json["run_id"]
        for target in ("", f"/runs/{run_id}", f"/runs/{run_id}/history", "/runs"):
            (await everywhere.get(f"/api/workflows/damaged{target}", namespace="quiet")).expect(200)

    @pytest.mark.parametrize(
        "name", ["workflow_execution_timeout", "retry_policy", "idempotency_key", "request_id"]
    )
    async def test_a_field_that_would_be_ignored_at_somebodys_cost_is_refused(
        self, penstock: Client, name: str
    ) -> None:
        async with penstock.unchanged():
            (await penstock.post("/api/workflows", START | {name: "x"})).refused_fields(name)

    @pytest.mark.parametrize("name", ["", "1a", "a-b", "a\x00", "a" * 129, "é"])
    async def test_a_search_attribute_has_a_plain_name(self, penstock: Client, name: str) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/workflows", START | {"search_attributes": {name: 1}})
        reply.refused(422, "validation_failed")

    @pytest.mark.parametrize("value", [{}, {"a": 1}, [[1]], [{"a": 1}]])
    async def test_and_a_plain_value(self, penstock: Client, value: object) -> None:
        async with penstock.unchanged():
            reply = await penstock.post("/api/workflows", START | {"search_attributes": {"City": value}})
        reply.refused_fields("search_attributes.City")

    async def test_every_wrong_field_is_named_at_once(self, penstock: Client) -> None:
        body = {"priority": 10, "fairness_weight": -1, "workflow_id": "a\tb"}
        reply = await penstock.post("/api/workflows", body)
        reply.refused_fields("workflow_type", "priority", "fairness_weight", "workflow_id")
        assert reply.json["outcome"] == "none"


class TestBatches:
    async def test_each_item_has_an_outcome_of_its_own_and_the_good_ones_are_written(
        self, everywhere: Client
    ) -> None:
        items = [
            START | {"workflow_id": "good-1"},
            START | {"workflow_id": "bad\tone"},
            {},
            START | {"workflow_id": "good-1"},
            START | {"idempotency_key": "a\x00b"},
            START | {"idempotency_key": 5},
            START | {"idempotency_key": "x" * 256},
            START | {"fairness_weight": -1},
            START | {"workflow_id": "good-2", "idempotency_key": "once"},
        ]
        reply = (
            await everywhere.post("/api/workflows/batch", {"items": items}, namespace="elsewhere")
        ).expect(200)
        found = [(each["http_status"], each.get("reason")) for each in reply.json["items"]]
        refused = (422, "validation_failed")
        assert sorted((found[0], found[3])) == [(201, None), (409, "instance_already_started")]
        assert found[1:3] == [refused] * 2
        assert found[4:] == [*[refused] * 4, (201, None)]
        assert (reply.json["accepted"], reply.json["refused"]) == (2, 7)
        for each in reply.json["items"]:
            assert each.get("errors") == each.get("validation_errors")
        listed = (await everywhere.get("/api/workflows", namespace="elsewhere")).json["workflows"]
        assert {each["workflow_id"] for each in listed} >= {"good-1", "good-2"}
        assert not {each["workflow_id"] for each in listed} & {"bad one"}

    async def test_activities_are_started_the_same_way(self, everywhere: Client) -> None:
        items = [
            ACTIVITY | {"activity_id": "a-1"},
            ACTIVITY | {"idempotency_key": "\x00"},
            {"activity_id": "a-2"},
        ]
        reply = (
            await everywhere.post("/api/activities/batch", {"items": items}, namespace="elsewhere")
        ).expect(200)
        assert [each["http_status"] for each in reply.json["items"]] == [201, 422, 422]
        assert (await everywhere.get("/api/activities/a-2", namespace="elsewhere")).status == 404

    @pytest.mark.parametrize("target", ["/api/workflows/batch", "/api/activities/batch"])
    @pytest.mark.parametrize(
        ("items", "field"),
        [
            ([], "items"),
            ([{}] * 101, "items"),
            ({}, "items"),
            (None, "items"),
            ([5], "items.0"),
            ("x", "items"),
        ],
        ids=_named,
    )
    async def test_a_batch_that_is_none_is_refused_as_a_whole(
        self, penstock: Client, target: str, items: object, field: str
    ) -> None:
        async with penstock.unchanged():
            reply = await penstock.post(target, {"items": items})
        reply.refused(422, "validation_failed")
        assert [name.replace("...", "0") for name in reply.json["errors"]] == [field]

    @pytest.mark.parametrize("kind", ["workflow", "activity"])
    async def test_reports_about_tasks_that_are_not_there_are_refused_one_by_one(
        self, everywhere: Client, kind: str
    ) -> None:
        lease = {"lease_owner": "w-1", "workflow_task_attempt": 1, "activity_attempt_id": "x"}
        complete = lease | {"commands": [{"type": "complete_workflow", "result": None}], "result": None}
        items: list[dict[str, Any]] = [
            {"task_id": "none"} | complete,
            {"task_id": "a\x00b"} | complete,
            {"task_id": 5} | complete,
            complete,
            {"task_id": "none", "action": "explode"},
            {"task_id": "none", "action": ["complete"]} | complete,
            {"task_id": "none"},
        ]
        reply = await everywhere.post(f"/api/worker/{kind}-tasks/batch", {"items": items}, role="worker")
        found = [each["http_status"] for each in reply.expect(200).json["items"]]
        assert found == [404, 422, 422, 422, 422, 422, 422]


class Leased:
    """A workflow task in a worker's hands."""

    def __init__(self, client: Client, task: dict[str, Any], namespace: str) -> None:
        self.client, self.task, self.namespace = client, task, namespace

    async def complete(self, commands: object, namespace: str | None = None) -> Reply:
        body = {
            "lease_owner": self.task["lease_owner"],
            "workflow_task_attempt": self.task["workflow_task_attempt"],
            "commands": commands,
        }
        target = f"/api/worker/workflow-tasks/{self.task['task_id']}/complete"
        return await self.client.post(target, body, role="worker", namespace=namespace or self.namespace)

    async def history(self) -> list[str]:
        target = f"/api/workflows/{self.task['workflow_id']}/runs/{self.task['run_id']}/history?derived=false"
        events = (await self.client.get(target, namespace=self.namespace)).expect(200).json["events"]
        return [each["event_type"] for each in events]


async def lease(client: Client, workflow_id: str, namespace: str = "quiet") -> Leased:
    queue = f"q-{workflow_id}"
    worker = {"task_queue": queue, "runtime": "python", "worker_id": f"w-{workflow_id}"}
    types = {"supported_workflow_types": ["greet"], "supported_activity_types": ["charge"]}
    (await client.post("/api/worker/register", worker | types, role="worker", namespace=namespace)).expect(
        201
    )
    body = {"workflow_type": "greet", "workflow_id": workflow_id, "task_queue": queue}
    (await client.post("/api/workflows", body, namespace=namespace)).expect(201)
    poll = {"worker_id": worker["worker_id"], "task_queue": queue, "timeout_seconds": 1}
    reply = await client.post("/api/worker/workflow-tasks/poll", poll, role="worker", namespace=namespace)
    return Leased(client, reply.expect(200).json["task"], namespace)


SCHEDULE = {"type": "schedule_activity", "activity_type": "charge", "queue": "orders"}
END = {"type": "complete_workflow", "result": None}
CHILD = {"type": "start_child_workflow", "workflow_type": "Kid", "queue": "orders"}


SELECTED = {
    "parallel_group_mode": "select",
    "selection_member_index": 0,
    "selection_member_base_sequence": 1,
    "selection_member_size": 1,
    "selection_member_kind": "activity",
}
GIVE_UP = {
    "type": "cancel_selection_operation",
    "selection_group_id": "select-calls:1:1",
    "member_index": 0,
    "member_base_sequence": 1,
    "member_size": 1,
    "operation_kind": "activity",
    "operation_identity": "a-1",
}


def group_entry(base: int, size: int, index: int) -> dict[str, Any]:
    return {
        "parallel_group_id": f"parallel-activities:{base}:{size}",
        "parallel_group_base_sequence": base,
        "parallel_group_size": size,
        "parallel_group_index": index,
    }


BAD_COMMANDS: dict[str, tuple[object, str]] = {
    "no commands": ([], "commands"),
    "no list": ({}, "commands"),
    "too many": ([SCHEDULE] * 1001, "commands"),
    "no object": ([5], "commands.0"),
    "no type": ([{}], "commands.0.type"),
    "unknown type": ([SCHEDULE, {"type": "launch_rocket"}], "commands.1.type"),
    "a type that is no text": ([{"type": {"a": ["b"]}}], "commands.0.type"),
    "a type of absurd length": ([{"type": "\x00" * 100_000}], "commands.0.type"),
    "an end that is not last": ([END, SCHEDULE], "commands.0.type"),
    "two ends": ([END, END], "commands.0.type"),
    "a NUL in a type": ([SCHEDULE | {"activity_type": "a\x00b"}], "commands.0.activity_type"),
    "a NUL in a queue": ([SCHEDULE | {"queue": "a\x00b"}], "commands.0.queue"),
    "a negative delay": ([{"type": "start_timer", "delay_seconds": -1}], "commands.0.delay_seconds"),
    "a delay beyond all calendars": (
        [{"type": "start_timer", "delay_seconds": 10**18}],
        "commands.0.delay_seconds",
    ),
    "half a second": ([{"type": "start_timer", "delay_seconds": 0.5}], "commands.0.delay_seconds"),
    "a timeout of zero": ([SCHEDULE | {"start_to_close_timeout": 0}], "commands.0.start_to_close_timeout"),
    "a timeout that is true": ([SCHEDULE | {"heartbeat_timeout": True}], "commands.0.heartbeat_timeout"),
    "no attempts": (
        [SCHEDULE | {"retry_policy": {"max_attempts": 0}}],
        "commands.0.retry_policy.max_attempts",
    ),
    "a damaged payload": ([END | {"result": {"codec": "avro", "blob": "x"}}], "commands.0.result.blob"),
    "a failure without a message": ([{"type": "fail_workflow"}], "commands.0.message"),
    "a continuation that is not last": ([{"type": "continue_as_new"}, SCHEDULE], "commands.0.type"),
    "a child without a type": ([{"type": "start_child_workflow"}], "commands.0.workflow_type"),
    "a child with an unknown policy": (
        [CHILD | {"parent_close_policy": "adopt"}],
        "commands.0.parent_close_policy",
    ),
    "a child that outlasts itself": (
        [CHILD | {"execution_timeout_seconds": 5, "run_timeout_seconds": 6}],
        "commands.0.run_timeout_seconds",
    ),
    "a child with an endless id": ([CHILD | {"workflow_id": "x" * 10_001}], "commands.0.workflow_id"),
    "a marker out of range": (
        [
            {
                "type": "record_version_marker",
                "change_id": "c",
                "version": 3,
                "min_supported": 1,
                "max_supported": 2,
            }
        ],
        "commands.0.version",
    ),
    "a marker that is no number": (
        [
            {
                "type": "record_version_marker",
                "change_id": "c",
                "version": "1",
                "min_supported": 1,
                "max_supported": 2,
            }
        ],
        "commands.0.version",
    ),
    "attributes under odd names": (
        [{"type": "upsert_search_attributes", "attributes": {"1; DROP TABLE runs": 1}}],
        "commands.0.attributes.1; DROP TABLE runs",
    ),
    "attributes that are no object": (
        [{"type": "upsert_search_attributes", "attributes": ["customer"]}],
        "commands.0.attributes",
    ),
    "a memo that is no map": ([{"type": "upsert_memo", "entries": [1]}], "commands.0.entries"),
    "a memo with a number for a name": (
        [{"type": "upsert_memo", "entries": {"12": 1}}],
        "commands.0.entries.12",
    ),
    "a memo with too large a value": (
        [{"type": "upsert_memo", "entries": {"big": "x" * 10_241}}],
        "commands.0.entries.big",
    ),
    "a wait that ends before it begins": (
        [{"type": "open_condition_wait", "timeout_seconds": -1}],
        "commands.0.timeout_seconds",
    ),
    "a local activity with an unknown outcome": (
        [{"type": "record_local_activity", "activity_type": "a", "outcome": "maybe"}],
        "commands.0.outcome",
    ),
    "a local failure without a message": (
        [{"type": "record_local_activity", "activity_type": "a", "outcome": "failed"}],
        "commands.0.message",
    ),
    "an update without an id": ([{"type": "complete_update"}], "commands.0.update_id"),
    "an update that fails without a message": (
        [{"type": "fail_update", "update_id": "u"}],
        "commands.0.message",
    ),
    "a member outside its group": (
        [SCHEDULE | {"parallel_group_path": [group_entry(1, 2, 2)]}],
        "commands.0.parallel_group_path",
    ),
    "a selection without its member": (
        [SCHEDULE | {"parallel_group_path": [group_entry(1, 1, 0) | SELECTED]}],
        "commands.0.selection_member_key",
    ),
    "a member of a selection that is not named": (
        [GIVE_UP],
        "commands.0.member_key",
    ),
}
WRONG_STEPS: dict[str, list[dict[str, Any]]] = {
    "a member far ahead of the run": [SCHEDULE | {"parallel_group_path": [group_entry(99, 1, 0)]}],
    "a member behind the run": [
        {"type": "record_side_effect", "result": 1},
        SCHEDULE | {"parallel_group_path": [group_entry(1, 1, 0)]},
    ],
    "members out of order": [
        SCHEDULE | {"parallel_group_path": [group_entry(1, 2, 1)]},
        SCHEDULE | {"parallel_group_path": [group_entry(1, 2, 0)]},
    ],
    "a path whose entries disagree": [
        SCHEDULE | {"parallel_group_path": [group_entry(2, 2, 0), group_entry(1, 1, 0)]}
    ],
    "an update that the task is not for": [{"type": "complete_update", "update_id": "u", "result": 1}],
}


class TestCommands:
    @pytest.mark.parametrize("name", BAD_COMMANDS)
    async def test_one_bad_command_and_none_of_them_is_applied(self, penstock: Client, name: str) -> None:
        commands, field = BAD_COMMANDS[name]
        leased = await lease(penstock, re.sub(r"\W", "-", f"bad-{name}"))
        before = await leased.history()
        reply = await leased.complete(commands)
        reply.refused(422, "validation_failed")
        assert [key.replace("...", "0") for key in reply.json["errors"]] == [field]
        assert len(reply.raw) < 5000
        assert await leased.history() == before
        (await leased.complete([END])).expect(200)

    @pytest.mark.parametrize("name", WRONG_STEPS)
    async def test_wrong_numbers_of_steps_are_refused_and_nothing_is_written(
        self, penstock: Client, name: str
    ) -> None:
        leased = await lease(penstock, re.sub(r"\W", "-", f"steps-{name}"))
        before = await leased.history()
        (await leased.complete(WRONG_STEPS[name])).refused(409, "invalid_commands")
        assert await leased.history() == before
        (await leased.complete([END])).expect(200)

    async def test_odd_text_in_failures_is_kept_and_breaks_no_database(self, everywhere: Client) -> None:
        leased = await lease(everywhere, "odd-failure")
        odd = "a\x00b\x1b[31m\n\u2028"
        commands = [
            {
                "type": "fail_workflow",
                "message": odd,
                "exception_type": odd,
                "exception_class": odd,
                "exception": {odd: odd},
            }
        ]
        (await leased.complete(commands)).expect(200)
        found = await everywhere.get("/api/workflows/odd-failure", namespace="quiet")
        assert found.expect(200).json["status"] == "failed"
        assert (await leased.history())[-1] == "WorkflowFailed"

    async def test_odd_text_in_the_failure_of_a_workflow_task_breaks_no_database(
        self, everywhere: Client
    ) -> None:
        leased = await lease(everywhere, "odd-task-failure")
        odd = "a\x00b\x1b[31m\n"
        body = {
            "lease_owner": leased.task["lease_owner"],
            "workflow_task_attempt": leased.task["workflow_task_attempt"],
            "failure": {"message": odd, "reason": odd, "stack_trace": odd},
        }
        target = f"/api/worker/workflow-tasks/{leased.task['task_id']}/fail"
        (await everywhere.post(target, body, role="worker", namespace="quiet")).expect(200)
        (await everywhere.get("/api/workflows/odd-task-failure", namespace="quiet")).expect(200)

    async def test_odd_text_in_an_activitys_reports_breaks_no_database(self, everywhere: Client) -> None:
        odd = "a\x00b\x1b[31m\n"
        queue = "odd-activities"
        worker = {
            "task_queue": queue,
            "runtime": "python",
            "worker_id": queue,
            "supported_activity_types": ["charge"],
        }
        body = {"activity_type": "charge", "task_queue": queue, "activity_id": "odd-activity"}
        await everywhere.post("/api/worker/register", worker, role="worker", namespace="quiet")
        (await everywhere.post("/api/activities", body, namespace="quiet")).expect(201)
        poll = {"worker_id": queue, "task_queue": queue, "timeout_seconds": 1}
        polled = await everywhere.post(
            "/api/worker/activity-tasks/poll", poll, role="worker", namespace="quiet"
        )
        task = polled.json["task"]
        target = f"/api/worker/activity-tasks/{task['task_id']}"
        held = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": queue}
        beat = held | {"details": {odd: odd}, "message": odd, "current": odd, "total": 1e300, "unit": odd}
        (await everywhere.post(f"{target}/heartbeat", beat, role="worker", namespace="quiet")).expect(200)
        failure = {
            "message": odd,
            "type": odd,
            "class": odd,
            "code": odd,
            "stack_trace": odd,
            "details": [odd],
        }
        failed = held | {"failure": failure}
        (await everywhere.post(f"{target}/fail", failed, role="worker", namespace="quiet")).expect(200)
        (await everywhere.get("/api/activities/odd-activity/result", namespace="quiet")).expect(200)


class TestReservedNames:
    async def test_names_that_the_protocol_keeps_for_itself_are_refused(self, penstock: Client) -> None:
        body = START | {"workflow_id": "reserved"}
        (await penstock.post("/api/workflows", body, namespace="quiet")).expect(201)
        name = "__durable_workflow_message_stream"
        async with penstock.unchanged("quiet"):
            for verb in ("signal", "update"):
                reply = await penstock.post(f"/api/workflows/reserved/{verb}/{name}", {}, namespace="quiet")
                reply.refused(422, "validation_failed")
            started = START | {"workflow_id": "reserved", "signal_name": name}
            reply = await penstock.post("/api/workflows/signal-with-start", started, namespace="quiet")
            reply.refused(422, "validation_failed")
            batch = {"operation": "signal", "query": "Status = 'running'", "signal_name": name}
            reply = await penstock.post("/api/workflows/batch-operations", batch, namespace="quiet")
            reply.refused(422, "validation_failed")


class TestOtherNamespaces:
    """A reference into another namespace is not found; the error does not reveal that it exists."""

    async def test_a_task_of_another_namespace_is_not_there_for_any_report(self, everywhere: Client) -> None:
        leased = await lease(everywhere, "guarded")
        before = await leased.history()
        (await leased.complete([END], namespace="elsewhere")).refused(404, "task_not_found")
        item = {
            "task_id": leased.task["task_id"],
            "lease_owner": leased.task["lease_owner"],
            "workflow_task_attempt": leased.task["workflow_task_attempt"],
            "commands": [END],
        }
        batch = await everywhere.post(
            "/api/worker/workflow-tasks/batch", {"items": [item]}, role="worker", namespace="elsewhere"
        )
        assert [each["reason"] for each in batch.json["items"]] == ["task_not_found"]
        for verb, more in (
            ("heartbeat", {}),
            ("fail", {"failure": {"message": "no"}}),
            ("history", {"next_history_page_token": "MQ=="}),
        ):
            target = f"/api/worker/workflow-tasks/{leased.task['task_id']}/{verb}"
            reply = await everywhere.post(target, item | more, role="worker", namespace="elsewhere")
            reply.refused(404, "task_not_found")
        assert await leased.history() == before
        (await leased.complete([END])).expect(200)

    async def test_a_run_of_another_namespace_is_not_there_for_any_reader(self, everywhere: Client) -> None:
        body = START | {"workflow_id": "shared-id"}
        ours = (await everywhere.post("/api/workflows", body, namespace="quiet")).expect(201).json["run_id"]
        theirs = (
            (await everywhere.post("/api/workflows", body, namespace="elsewhere")).expect(201).json["run_id"]
        )
        assert ours != theirs
        async with everywhere.unchanged("quiet", "elsewhere"):
            for target in ("", "/history"):
                reply = await everywhere.get(
                    f"/api/workflows/shared-id/runs/{theirs}{target}", namespace="quiet"
                )
                reply.refused(404, "run_not_found")
            for verb in ("cancel", "terminate"):
                reply = await everywhere.post(
                    f"/api/workflows/shared-id/runs/{theirs}/{verb}", {}, namespace="quiet"
                )
                reply.refused(404, "run_not_found")

    async def test_a_namespace_named_in_a_body_reaches_nothing_there(self, everywhere: Client) -> None:
        body = START | {"workflow_id": "stays-here", "namespace": "elsewhere"}
        async with everywhere.unchanged("elsewhere"):
            reply = await everywhere.post("/api/workflows", body, namespace="quiet")
            assert reply.expect(201).json["namespace"] == "quiet"

    async def test_a_command_that_names_another_namespace_is_refused_and_nothing_is_written(
        self, everywhere: Client
    ) -> None:
        child = {"type": "start_child_workflow", "workflow_type": "Kid", "queue": "orders"}
        for number, command in enumerate((SCHEDULE, child)):
            leased = await lease(everywhere, f"commands-stay-here-{number}")
            before = await leased.history()
            async with everywhere.unchanged("elsewhere"):
                refused = await leased.complete([command | {"namespace": "elsewhere"}])
                refused.refused(422, "validation_failed")
                assert "commands.0.namespace" in refused.json["errors"]
            assert await leased.history() == before
            (await leased.complete([command | {"namespace": leased.namespace}])).expect(200)

    async def test_a_page_token_of_another_namespace_shows_nothing_of_it(self, everywhere: Client) -> None:
        for number in range(2):
            body = START | {"workflow_id": f"page-{number}"}
            (await everywhere.post("/api/workflows", body, namespace="elsewhere")).expect(201)
        first = await everywhere.get("/api/workflows?page_size=1", namespace="elsewhere")
        token = quote(first.expect(200).json["next_page_token"])
        page = await everywhere.get(
            f"/api/workflows?page_size=200&next_page_token={token}", namespace="quiet"
        )
        assert {each["namespace"] for each in page.expect(200).json["workflows"]} <= {"quiet"}

    async def test_a_worker_of_another_namespace_is_not_there(self, everywhere: Client) -> None:
        worker = {"task_queue": "orders", "runtime": "python", "worker_id": "ours"}
        (await everywhere.post("/api/worker/register", worker, role="worker", namespace="quiet")).expect(201)
        async with everywhere.unchanged("quiet"):
            beat = await everywhere.post(
                "/api/worker/heartbeat", {"worker_id": "ours"}, role="worker", namespace="elsewhere"
            )
            beat.refused(404, "worker_not_registered")
            poll = {"worker_id": "ours", "task_queue": "orders", "timeout_seconds": 0}
            polled = await everywhere.post(
                "/api/worker/workflow-tasks/poll", poll, role="worker", namespace="elsewhere"
            )
            polled.refused(412, "worker_not_registered")
            gone = await everywhere.request(
                "DELETE", "/api/workers/ours", role="admin", namespace="elsewhere"
            )
            gone.refused(404, "worker_not_found")
