"""Limits, pauses and the journal at the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

QUEUE = "/task-queues/payments/limits"
SET = ("task-queue", "limits", "set", "payments")


def limit(
    value: object = None, declared: object = None, live: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"value": value, "source": None, "declared": declared, "live": live}


def made(value: object, reason: str | None = None, ends_at: str | None = None) -> dict[str, Any]:
    return bodies.made(value, reason) | {"ends_at": ends_at}


def scope(version: int = 0, **limits: Any) -> dict[str, Any]:
    return {
        "scope": "group:prod/stripe",
        "version": version,
        "limits": {
            "max_active_leases": limit(),
            "max_dispatches_per_minute": limit(),
            "max_cost_per_minute": limit(),
            "dispatch_window": limit("minute", "minute"),
            "paused": limit(False),
        }
        | limits,
        "counts": {"active_leases": 2, "remaining_active_leases": 3, "dispatches_this_minute": 7},
        "cooling": None,
        "holders": [],
    }


def parts(**changes: Any) -> dict[str, Any]:
    return {"all": scope(), "workflow_tasks": scope(), "activity_tasks": scope()} | changes


def line(**changes: Any) -> dict[str, Any]:
    return {
        "task_queue": "payments",
        "task_queue_type": "activity",
        "namespace": "prod",
        "version": 4,
        "limits": {
            "max_active_leases_per_queue": limit(5, 20, made(5, "slow database", bodies.later(hours=2))),
            "max_dispatches_per_minute": limit(0, 0),
            "dispatch_window": limit("minute", "minute"),
            "dispatch_budget_group": limit("stripe", "stripe"),
            "paused": limit(True, None, made(True)),
        },
        "counts": {"active_leases": 2, "remaining_active_leases": 3},
        "holders": [
            {
                "task_id": "t-1",
                "task_type": "activity",
                "workflow_id": "order-1",
                "task_queue": "payments",
                "worker": "w1",
                "age_seconds": 95,
                "expires_at": bodies.later(seconds=30),
            }
        ],
        "scopes": [
            {
                "scope": "group:prod/stripe",
                "max_active_leases": 10,
                "max_dispatches_per_minute": 0,
                "max_cost_per_minute": None,
                "paused": True,
                "counts": {"active_leases": 10},
                "cooling": {"until": bodies.later(minutes=3)},
            }
        ],
    } | changes


class TestQueues:
    def test_get_shows_each_limit_in_its_layers(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", QUEUE, line())
        output = ask("task-queue", "limits", "get", "payments", "--type", "workflow").stdout
        assert server.only_request.query == {"task_queue_type": "workflow"}
        rows = {row.split()[0]: row.split() for row in output.splitlines() if row}
        assert rows["max_active_leases_per_queue"][1:9] == [
            "5",
            "20",
            "5",
            "operator",
            "in",
            "2",
            "hours",
            "2",
        ]
        assert rows["max_active_leases_per_queue"][9:] == ["3", "slow", "database"]
        assert rows["max_dispatches_per_minute"][1:3] == ["closed", "closed"]
        assert rows["paused"][1:4] == ["yes", "-", "yes"]
        assert rows["t-1"][1:7] == ["activity", "order-1", "payments", "w1", "1", "minute"]
        assert rows["group:prod/stripe"][1:6] == ["10", "of", "10", "closed", "-"]

    def test_the_colon_form_means_the_same(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", QUEUE, line())
        assert json.loads(ask("task-queue:limits:get", "payments", "--json").stdout)["version"] == 4

    def test_flags_are_sent_under_the_names_of_the_fields(self, ask: Run, server: RecordedServer) -> None:
        server.answer("PATCH", QUEUE, line())
        result = ask(
            *SET,
            *["--max-active-leases", "5", "--max-dispatches-per-minute", "default", "--if-version", "3"],
            *["--unset", "dispatch-window", "--dispatch-budget-group", "stripe", "--reason", "slow"],
        )
        assert result.exit_code == 0, result.output
        assert server.only_request.body == {
            "task_queue_type": "activity",
            "max_active_leases_per_queue": 5,
            "max_dispatches_per_minute": "default",
            "dispatch_budget_group": "stripe",
            "dispatch_window": "default",
            "reason": "slow",
            "if_version": 3,
        }
        assert "have limits of version 4" in result.stderr

    def test_a_limit_for_a_while_is_sent_in_seconds(self, ask: Run, server: RecordedServer) -> None:
        server.answer("PATCH", QUEUE, line())
        assert ask(*SET, "--max-active-leases", "0", "--for", "30m").exit_code == 0
        assert server.only_request.body["expires_in_seconds"] == 1800
        assert server.only_request.body["max_active_leases_per_queue"] == 0

    @pytest.mark.parametrize(
        "flags",
        [
            [],
            ["--reason", "because"],
            ["--for", "30m"],
            ["--max-active-leases", "-1"],
            ["--max-active-leases", "1.5"],
            ["--max-active-leases", "nan"],
            ["--max-active-leases", "many"],
            ["--max-active-leases", "1000001"],
            ["--max-dispatches-per-minute", "1000000001"],
            ["--max-active-leases", "1", "--for", "soon"],
            ["--max-active-leases", "1", "--for", "0"],
            ["--max-active-leases", "1", "--unset", "max-active-leases"],
            ["--unset", "max-cost-per-minute"],
            ["--dispatch-window", "hour"],
            ["--max-cost-per-minute", "5"],
        ],
    )
    def test_what_cannot_be_meant_is_a_usage_error_and_nothing_is_sent(
        self, ask: Run, server: RecordedServer, flags: list[str]
    ) -> None:
        assert ask(*SET, *flags).exit_code == 2
        assert server.requests == []


class TestScopes:
    @pytest.mark.parametrize(
        ("words", "path"),
        [
            (("namespace", "limits", "set", "prod"), "/namespaces/prod/limits"),
            (("cluster", "limits", "set"), "/cluster/limits"),
            (("budget-group", "set", "stripe"), "/budget-groups/stripe"),
        ],
        ids=lambda text: text[0] if isinstance(text, tuple) else "",
    )
    def test_limits_are_set_for_both_kinds_or_for_one(
        self, ask: Run, server: RecordedServer, words: tuple[str, ...], path: str
    ) -> None:
        server.answer("PATCH", path, parts())
        flags = ["--max-active-leases", "5", "--max-cost-per-minute", "9000", "--for", "2h"]
        assert ask(*words, *flags).exit_code == 0
        assert ask(*words, "--type", "workflow", "--unset", "max-active-leases").exit_code == 0
        first, second = (dict(each.body) for each in server.requests)
        if path.startswith("/budget-groups"):
            assert first.pop("scope") == second.pop("scope") == "namespace"
        assert first == {
            "kind": "all",
            "max_active_leases": 5,
            "max_cost_per_minute": 9000,
            "expires_in_seconds": 7200,
        }
        assert second == {"kind": "workflow_tasks", "max_active_leases": "default"}

    def test_only_the_parts_that_limit_something_are_shown(self, ask: Run, server: RecordedServer) -> None:
        limited = scope(2, max_active_leases=limit(5, None, made(5, "small database")))
        server.answer("GET", "/namespaces/prod/limits", parts(activity_tasks=limited))
        output = ask("namespace", "limits", "get", "prod").stdout
        assert "Activity tasks (version 2)" in output
        assert "Workflow tasks" not in output
        assert "max_active_leases          5          -         5    operator" in output

    def test_what_nobody_limits_says_so(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/cluster/limits", parts())
        assert ask("cluster", "limits", "get").stderr.startswith("Nothing is limited here")

    def test_a_cooling_group_says_until_when(self, ask: Run, server: RecordedServer) -> None:
        cooling = {"until": bodies.later(minutes=2), "opens_fully_at": bodies.later(minutes=3)}
        view = scope(1, max_dispatches_per_minute=limit(60)) | {"cooling": cooling}
        server.answer("GET", "/budget-groups/stripe", parts(all=view, scope="global"))
        result = ask("budget-group", "get", "stripe", "--global")
        assert server.only_request.query == {"scope": "global"}
        assert "Cooling down until  in 2 minutes" in result.stdout
        assert "Shared by     all namespaces" in result.stdout

    def test_groups_are_listed_with_what_is_used(self, ask: Run, server: RecordedServer) -> None:
        group = {
            "budget_group": "stripe",
            "scope": "namespace",
            "task_queues": [{"task_queue": "payments", "task_queue_type": "activity"}],
        } | parts(
            all=scope(1, max_active_leases=limit(2), paused=limit(True)),
            activity_tasks=scope(1, max_dispatches_per_minute=limit(60)),
        )
        server.answer("GET", "/budget-groups", {"namespace": "prod", "budget_groups": [group]})
        lines = ask("budget-group", "list").stdout.splitlines()
        assert [line.split() for line in lines[1:]] == [
            ["stripe", "namespace", "all", "2", "of", "2", "-", "-", "yes", "payments"],
            ["stripe", "namespace", "activity", "-", "7", "of", "60", "-", "-", "payments"],
        ]

    def test_no_groups_at_all_says_how_to_make_one(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/budget-groups", {"budget_groups": []})
        assert "penstock budget-group set" in ask("budget-group", "list").stderr

    def test_history_shows_which_declared_limits_changed_when_servers_started(
        self, ask: Run, server: RecordedServer
    ) -> None:
        row = {
            "version": 3,
            "at": bodies.ago(minutes=1),
            "by": "server-2",
            "setting": "defaults.activity_tasks.max_active_leases_per_queue",
            "before": "9",
            "after": None,
            "reason": "declared by the configuration of server-2, DW_ADMISSION_VERSION 4",
        }
        server.answer("GET", "/cluster/declared-limits/history", {"changes": [row]})
        result = ask("cluster", "limits", "history", "--declared", "--limit", "7")
        assert server.only_request.query["limit"] == "7"
        assert "DW_ADMISSION_VERSION 4" in result.stdout

    @pytest.mark.parametrize(
        ("words", "path"),
        [
            (("namespace", "limits", "history", "prod"), "/namespaces/prod/limits/history"),
            (("cluster", "limits", "history"), "/cluster/limits/history"),
            (("budget-group", "history", "stripe"), "/budget-groups/stripe/history"),
        ],
        ids=lambda text: text[0] if isinstance(text, tuple) else "",
    )
    def test_history_shows_what_became_of_each_limit(
        self, ask: Run, server: RecordedServer, words: tuple[str, ...], path: str
    ) -> None:
        row = {
            "version": 3,
            "at": bodies.ago(minutes=1),
            "by": "admin",
            "setting": "max_active_leases",
            "before": None,
            "after": 5,
            "reason": "small",
        }
        server.answer("GET", path, {"changes": [row]})
        result = ask(*words, "--type", "activity", "--limit", "7")
        assert server.only_request.query["kind"] == "activity_tasks"
        assert server.only_request.query["limit"] == "7"
        assert "3        1 minute ago  admin  max_active_leases  -    -       5      small" in result.stdout


class TestPauses:
    def test_a_queue_is_paused_for_a_while(self, ask: Run, server: RecordedServer) -> None:
        paused = {"paused": True, "live": made(True, ends_at=bodies.later(minutes=30))}
        server.answer(
            "POST",
            "/task-queues/payments/pause",
            {"task_queue": "payments", "workflow_tasks": {"paused": False}, "activity_tasks": paused},
        )
        flags = ["--type", "activity", "--for", "30m", "--reason", "stuck"]
        result = ask("task-queue", "pause", "payments", *flags)
        assert server.only_request.body == {
            "task_queue_type": "activity",
            "expires_in_seconds": 1800,
            "reason": "stuck",
        }
        assert "Paused the activity tasks of payments for 30 minutes." in result.stderr
        assert "Activity tasks  paused, ends in 30 minutes" in result.stdout
        assert "Workflow tasks  go" in result.stdout

    def test_a_key_is_paused_and_resumed(self, ask: Run, server: RecordedServer) -> None:
        for step in ("pause", "resume"):
            server.answer("POST", f"/task-queues/payments/keys/a%2Fb/{step}", {"fairness_key": "a/b"})
        result = ask("task-queue", "pause", "payments", "--fairness-key", "a/b")
        assert "`penstock task-queue resume payments --fairness-key a/b`" in result.stderr
        assert ask("task-queue", "resume", "payments", "--fairness-key", "a/b").exit_code == 0
        assert [each.body for each in server.requests] == [{}, {}]

    def test_resume_is_for_the_queue_unless_a_build_is_named(self, ask: Run, server: RecordedServer) -> None:
        server.answer("POST", "/task-queues/payments/resume", {"task_queue": "payments"})
        result = ask("task-queue", "resume", "payments", "--reason", "mended")
        assert server.only_request.body == {"reason": "mended"}
        assert "Resumed the tasks of payments." in result.stderr

    @pytest.mark.parametrize(
        "words",
        [
            ["pause", "payments", "--fairness-key", "a", "--for", "30m"],
            ["resume", "payments", "--build-id", "b", "--fairness-key", "a"],
            ["resume", "payments", "--unversioned", "--type", "activity"],
            ["pause", "payments", "--type", "query"],
        ],
    )
    def test_what_cannot_be_meant_together_is_a_usage_error(
        self, ask: Run, server: RecordedServer, words: list[str]
    ) -> None:
        assert ask("task-queue", *words).exit_code == 2
        assert server.requests == []

    @pytest.mark.parametrize(
        ("noun", "target", "path", "more"),
        [
            ("namespace", "prod", "/namespaces/prod", {}),
            ("budget-group", "stripe", "/budget-groups/stripe", {"scope": "namespace"}),
        ],
    )
    def test_a_namespace_or_a_group_is_paused_and_resumed(
        self, ask: Run, server: RecordedServer, noun: str, target: str, path: str, more: dict[str, str]
    ) -> None:
        for step in ("pause", "resume"):
            server.answer("POST", f"{path}/{step}", parts())
        result = ask(noun, "pause", target, "--for", "1h", "--reason", "down")
        assert "for 1 hour. Running tasks continue." in result.stderr
        assert ask(noun, "resume", target).exit_code == 0
        assert [each.body for each in server.requests] == [
            {"expires_in_seconds": 3600, "reason": "down"} | more,
            more,
        ]


class TestTheJournal:
    def test_export_writes_every_page_as_lines(self, ask: Run, server: RecordedServer) -> None:
        first = [{"seq": 1, "event": "granted"}, {"seq": 2, "event": "ended"}]
        server.answer("GET", "/system/journal", {"lines": first, "next_after": 2})
        server.answer("GET", "/system/journal", {"lines": [{"seq": 5, "event": "ended"}], "next_after": None})
        result = ask("journal", "export")
        assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [1, 2, 5]
        assert [each.query["after"] for each in server.requests] == ["0", "2"]
        assert result.stderr.strip() == "Wrote 3 lines."

    def test_a_server_that_repeats_a_page_is_left(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/system/journal", {"lines": [], "next_after": 3})
        assert ask("journal", "export", "--after", "3").exit_code == 1
