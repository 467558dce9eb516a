"""Namespaces, workers, task queues and the server itself at the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

NAMESPACE = {"name": "orders", "description": None, "retention_days": 90, "status": "active"}


class TestNamespaces:
    def test_create_sends_only_what_was_given(self, ask: Run, server: RecordedServer) -> None:
        server.answer("POST", "/namespaces", NAMESPACE, status=201)
        result = ask("namespace", "create", "orders", "--retention-days", "90")
        assert server.only_request.body == {"name": "orders", "retention_days": 90}
        assert "Created the namespace orders." in result.stderr

    def test_update_needs_something_to_change(self, ask: Run, server: RecordedServer) -> None:
        assert ask("namespace", "update", "orders").exit_code == 2
        assert server.requests == []

    def test_update_changes_a_field(self, ask: Run, server: RecordedServer) -> None:
        server.answer("PUT", "/namespaces/orders", NAMESPACE)
        assert ask("namespace", "update", "orders", "--description", "").exit_code == 0
        assert server.only_request.body == {"description": ""}

    @pytest.mark.parametrize("fairness", ["on", "off"])
    def test_fairness_is_switched_when_made_or_later(
        self, ask: Run, server: RecordedServer, fairness: str
    ) -> None:
        server.answer("POST", "/namespaces", NAMESPACE | {"fairness": fairness}, status=201)
        server.answer("PUT", "/namespaces/orders", NAMESPACE | {"fairness": fairness})
        made = ask("namespace", "create", "orders", "--fairness", fairness)
        changed = ask("namespace", "update", "orders", "--fairness", fairness)
        assert [request.body.get("fairness") for request in server.requests] == [fairness, fairness]
        for result in (made, changed):
            assert f"Fairness   {fairness}" in result.stdout

    def test_delete_without_a_terminal_needs_yes(self, ask: Run, server: RecordedServer) -> None:
        assert ask("namespace", "delete", "orders").exit_code == 2
        assert server.requests == []

    def test_delete_shows_what_went_with_it(self, ask: Run, server: RecordedServer) -> None:
        server.answer(
            "DELETE", "/namespaces/orders", NAMESPACE | {"status": "deleted", "deleted": {"runs": 7}}
        )
        assert "runs  7" in ask("namespace", "delete", "orders", "--yes").stdout

    def test_list_and_describe_show_the_retention(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/namespaces", {"namespaces": [NAMESPACE]})
        server.answer("GET", "/namespaces/orders", NAMESPACE)
        assert "90 days" in ask("namespace", "list").stdout
        assert "90 days" in ask("namespace", "describe", "orders").stdout


class TestWorkers:
    def test_no_workers_yet_says_how_to_start_one(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/workers", {"namespace": "default", "workers": []})
        result = ask("worker", "list")
        assert result.stdout == ""
        assert result.stderr.startswith("No workers yet. Start one")

    def test_list_filters_and_shows_free_slots(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/workers", {"workers": [bodies.WORKER]})
        output = ask("worker", "list", "--task-queue", "payments", "--status", "active").stdout
        assert server.only_request.query == {"task_queue": "payments", "status": "active"}
        assert "3 of 8 free" in output

    def test_describe_says_any_where_there_is_no_filter(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/workers/payments-python-1", bodies.WORKER)
        output = ask("worker", "describe", "payments-python-1").stdout
        assert "Workflow types  payments.PaymentWorkflow" in output
        assert "Activity types  any" in output


class TestTaskQueues:
    def test_describe_shows_the_admission_of_the_seed(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/task-queues/payments", bodies.task_queue())
        output = ask("task-queue", "describe", "payments").stdout
        for line in (
            "Workflow tasks: throttled",
            "8 of 24, 16 left",
            "8 of 8, 0 left",
            "149 of 300, 151 left",
            "120 of 120, 0 left",
            "3520 of 6000, 2480 left",
            "group downstream-openai",
            "600 of 600, 0 left",
            "server.admission.queue_overrides",
            "Activity tasks: accepting",
            "8 of 12, 4 left",
            "43 of 240, 197 left",
            "Query tasks: accepting",
            "7 of 1024, 1017 left",
        ):
            assert line in output

    def test_describe_shows_pollers_counts_and_leases(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/task-queues/payments", bodies.task_queue())
        output = ask("task-queue", "describe", "payments").stdout
        assert "payments-python-1  active" in output
        assert "12 seconds ago" in output
        assert "workflow task of p-9, waiting for 1 minute" in output
        assert "in 2 minutes" in output

    def test_describe_draws_what_waits_by_priority_and_key(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/task-queues/payments", bodies.task_queue(stats=bodies.shared()))
        output = ask("task-queue", "describe", "payments").stdout
        for line in (
            "Waiting activity tasks by priority (keys share fairly)",
            "5         3             120    7     4 seconds",
            "tenant-big  5         3             100    5 (override)  #####..... 50.0%  #####..... 48.0%  60",
            "rate_limited, opens in",
            "(no key)    5         3             20     1             #......... 10.0%  -",
            "Limit  500/s (set by the operator)",
            "queue_rps_limit  500/s  overall limit  operator",
        ):
            assert line in output, output

    def test_describe_tells_the_rate_of_the_queue_from_the_caps_of_its_workers(
        self, ask: Run, server: RecordedServer
    ) -> None:
        stats = bodies.shared()
        stats["activity_tasks"]["rate"] = {
            "limit": 20.0,
            "source": "worker",
            "next_dispatch_at": bodies.later(seconds=90),
            "burst_seconds": 0.5,
            "operator": None,
            "worker": {"value": 20.0, "worker_id": "pay-2", "lapses_at": bodies.later(minutes=5)},
            "system": 1000.0,
            "conflict": {
                "workers": [{"worker_id": "pay-1", "value": 5.0}, {"worker_id": "pay-2", "value": 20.0}],
                "since": bodies.ago(minutes=3),
            },
            "worker_caps": {"limit": 15.0, "capped_workers": 2, "uncapped_workers": 0, "tighter": "workers"},
        }
        server.answer("GET", "/task-queues/payments", bodies.task_queue(stats=stats))
        output = ask("task-queue", "describe", "payments").stdout
        for line in (
            "Limit          20/s (conveyed by its workers), for all workers together",
            "Burst          0.5 s",
            "Workers say    20/s (last pay-2, lapses in",
            "System         1000/s at most",
            "Own caps       15/s together (2 workers): tighter than the queue's limit, which is never reached",
            "Conflict       pay-1 wants 5/s and pay-2 wants 20/s, since 3 minutes ago",
        ):
            assert line in output, output

    @pytest.mark.parametrize(
        ("caps", "told"),
        [
            ((40.0, 2, 0, "queue"), "40/s together (2 workers): the queue's limit is reached first"),
            ((None, 1, 3, "queue"), "1 worker with a cap of its own, 3 without"),
            ((None, 0, 3, "queue"), "none: each worker takes what the queue gives it"),
        ],
    )
    def test_describe_says_which_of_the_two_caps_is_tighter(
        self, ask: Run, server: RecordedServer, caps: tuple[float | None, int, int, str], told: str
    ) -> None:
        named = ("limit", "capped_workers", "uncapped_workers", "tighter")
        stats = bodies.shared()
        stats["activity_tasks"]["rate"]["worker_caps"] = dict(zip(named, caps, strict=True))
        server.answer("GET", "/task-queues/payments", bodies.task_queue(stats=stats))
        assert told in ask("task-queue", "describe", "payments").stdout

    def test_describe_leaves_out_what_is_empty_and_unlimited(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/task-queues/payments", bodies.task_queue())
        output = ask("task-queue", "describe", "payments").stdout
        for words in ("by priority", "Keys with", "Rate of", "Settings"):
            assert words not in output

    def test_describe_names_the_types_that_no_worker_takes(self, ask: Run, server: RecordedServer) -> None:
        route = {"type": "other.type", "build_id": "b2", "ready_count": 3, "message": "no worker runs it"}
        section = {"status": "no_worker_for_type", "ready_count": 3, "unserved": [route]}
        body = {"name": "x", "pollers": [], "stats": {}, "current_leases": [], "repair": {}}
        server.answer("GET", "/task-queues/x", body | {"admission": {"activity_tasks": section}})
        shown = " ".join(ask("task-queue", "describe", "x").stdout.split())
        assert "no_worker_for_type" in shown
        assert "3 of type other.type, build b2: no worker runs it" in shown
        assert "Start one with their type and build." in shown

    def test_an_unknown_queue_is_an_empty_description_with_advice(
        self, ask: Run, server: RecordedServer
    ) -> None:
        empty = {"name": "x", "pollers": [], "stats": {}, "current_leases": [], "repair": {}, "admission": {}}
        server.answer("GET", "/task-queues/x", empty)
        result = ask("task-queue", "describe", "x")
        assert result.exit_code == 0
        assert "No worker polls this queue." in result.stderr

    def test_list_shows_what_waits_and_why(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/task-queues", {"namespace": "p", "task_queues": [bodies.task_queue()]})
        assert ask("task-queue", "list").stdout.splitlines()[1].split() == [
            *["payments", "5", "1", "minute", "2", "1", "active", "throttled", "accepting", "accepting"]
        ]

    @pytest.mark.parametrize("step", ["drain", "resume", "promote"])
    def test_rollout_steps_name_the_build(self, ask: Run, server: RecordedServer, step: str) -> None:
        body = {"task_queue": "payments", "build_id": "b1", "drain_intent": "active"}
        server.answer("POST", f"/task-queues/payments/build-ids/{step}", body)
        assert ask("task-queue", step, "payments", "--build-id", "b1").exit_code == 0
        assert server.only_request.body == {"build_id": "b1"}

    def test_the_unversioned_cohort_is_sent_as_null(self, ask: Run, server: RecordedServer) -> None:
        server.answer("POST", "/task-queues/payments/build-ids/drain", {"build_id": None})
        assert ask("task-queue", "drain", "payments", "--unversioned").exit_code == 0
        assert server.only_request.body == {"build_id": None}

    @pytest.mark.parametrize("flags", [[], ["--build-id", "b", "--unversioned"], ["--build-id", ""]])
    def test_a_rollout_step_needs_exactly_one_cohort(
        self, ask: Run, server: RecordedServer, flags: list[str]
    ) -> None:
        assert ask("task-queue", "promote", "payments", *flags).exit_code == 2
        assert server.requests == []

    def test_builds_are_listed_with_their_rollout(self, ask: Run, server: RecordedServer) -> None:
        cohort = {"build_id": None, "rollout_status": "stale_only", "new_start_selected": False}
        server.answer("GET", "/task-queues/payments/build-ids", {"build_ids": [cohort]})
        output = ask("task-queue", "build-ids", "payments").stdout
        assert "(unversioned)" in output
        assert "stale_only" in output


class TestServer:
    def test_info_shows_version_and_protocols(self, ask: Run, server: RecordedServer) -> None:
        body = {
            "server_id": "box-1",
            "version": "0.1.0",
            "default_namespace": "default",
            "control_plane": {"version": "2"},
            "worker_protocol": {"version": "1.20", "server_capabilities": {"poll_status": True}},
            "limits": {"max_payload_bytes": 2097152},
        }
        server.answer("GET", "/cluster/info", body)
        output = ask("server", "info").stdout
        for part in ("box-1", "1.20", "poll status  yes", "max payload bytes  2097152"):
            assert part in output

    def test_a_healthy_server_is_exit_code_0(self, ask: Run, server: RecordedServer) -> None:
        server.answer("GET", "/health", {"status": "serving", "checks": {"database": "ok"}})
        assert ask("server", "health").exit_code == 0

    def test_a_degraded_server_is_exit_code_1_and_still_shown(self, ask: Run, server: RecordedServer) -> None:
        body = {"status": "degraded", "checks": {"database": "unavailable"}}
        server.answer("GET", "/health", body, status=503)
        result = ask("server", "health", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout) == body
