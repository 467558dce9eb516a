"""The settings of a task queue at the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

PATH = "/task-queues/payments/config"
SET = ("task-queue", "config", "set", "--task-queue", "payments")


def sent(ask: Run, server: RecordedServer, *flags: str) -> dict[str, Any]:
    """The body of one change, without the kind of tasks."""
    server.answer("PATCH", PATH, bodies.queue_config())
    result = ask(*SET, *flags)
    assert result.exit_code == 0, result.output
    body: dict[str, Any] = server.requests[-1].body
    assert body.pop("task_queue_type") == "activity"
    return body


def test_the_change_that_the_seed_shows_is_understood(ask: Run, server: RecordedServer) -> None:
    server.answer("PATCH", "/task-queues/my-task-queue/config", bodies.queue_config())
    result = ask(
        *["task-queue", "config", "set", "--task-queue", "my-task-queue", "--task-queue-type", "activity"],
        *["--namespace", "my-namespace", "--queue-rps-limit", "500"],
        *["--queue-rps-limit-reason", "overall limit", "--fairness-key-rps-limit-default", "33.3"],
        *["--fairness-key-rps-limit-reason", "per-key limit"],
    )
    assert result.exit_code == 0, result.output
    assert server.only_request.headers["x-namespace"] == "my-namespace"
    assert server.only_request.body == {
        "task_queue_type": "activity",
        "queue_rps_limit": 500,
        "queue_rps_limit_reason": "overall limit",
        "fairness_key_rps_limit_default": 33.3,
        "fairness_key_rps_limit_reason": "per-key limit",
    }


def test_weights_are_set_unset_and_cleared_with_the_flags_of_the_seed(
    ask: Run, server: RecordedServer
) -> None:
    flags = ["--fairness-key-weight", "tenant-big=5.0", "--fairness-key-weight", "a=b=0.25"]
    assert sent(ask, server, *flags, "--fairness-key-weight", "tenant-mid=default") == {
        "set_fairness_weight_overrides": {"tenant-big": 5, "a=b": 0.25},
        "unset_fairness_weight_overrides": ["tenant-mid"],
    }
    assert sent(ask, server, "--fairness-key-weight-clear-all") == {"clear_fairness_weight_overrides": True}


def test_the_word_default_unsets_a_setting(ask: Run, server: RecordedServer) -> None:
    names = (
        *("queue-rps-limit", "queue-rps-burst-seconds", "fairness-key-rps-limit-default"),
        *("fairness-key-rps-burst-seconds", "worker-rps-limit", "fairness", "fairness-counts"),
        *("max-running", "fairness-key-max-running-default", "aging-every"),
    )
    flags = [word for each in names for word in (f"--{each}", "default")]
    body = sent(ask, server, *flags, "--aging-wait", "default")
    assert body == dict.fromkeys(
        [*(each.replace("-", "_") for each in names), "aging_wait_seconds"], "default"
    )


def test_limits_order_and_aging_are_sent_as_they_are_meant(ask: Run, server: RecordedServer) -> None:
    body = sent(
        ask,
        server,
        *["--max-running", "0", "--fairness-key-max-running-default", "2", "--fairness", "off"],
        *["--fairness-counts", "running", "--aging-wait", "0.5", "--aging-every", "20"],
        *["--queue-rps-burst-seconds", "0", "--reason", "spring sale", "--if-version", "7"],
    )
    assert body == {
        "max_running": 0,
        "fairness_key_max_running_default": 2,
        "fairness": "off",
        "fairness_counts": "running",
        "aging_wait_seconds": 0.5,
        "aging_every": 20,
        "queue_rps_burst_seconds": 0,
        "reason": "spring sale",
        "if_version": 7,
    }


def test_what_is_said_of_one_key_is_put_together(ask: Run, server: RecordedServer) -> None:
    body = sent(
        ask,
        server,
        *["--key-rps-limit", "big=5", "--key-max-running", "big=default", "--pause-key", "big"],
        *["--resume-key", "small", "--key-rps-limit", "small=default"],
    )
    assert body == {
        "keys": {
            "big": {"rps_limit": 5, "max_running": "default", "paused": True},
            "small": {"rps_limit": "default", "paused": False},
        }
    }


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--reason", "because"],
        ["--if-version", "3"],
        ["--queue-rps-limit", "nan"],
        ["--queue-rps-limit", "inf"],
        ["--queue-rps-limit", "-1"],
        ["--queue-rps-limit", "1000001"],
        ["--queue-rps-limit", "many"],
        ["--queue-rps-limit", "1_000"],
        ["--queue-rps-burst-seconds", "3601"],
        ["--fairness-key-weight", "tenant-big"],
        ["--fairness-key-weight", "=5"],
        ["--fairness-key-weight", "tenant-big=0"],
        ["--fairness-key-weight", "tenant-big=1001"],
        ["--fairness-key-weight", "a=1", "--fairness-key-weight", "a=default"],
        ["--key-max-running", "a=1.5"],
        ["--pause-key", "a", "--resume-key", "a"],
        ["--max-running", "-1"],
        ["--aging-every", "1"],
        ["--fairness", "maybe"],
        ["--worker-rps-limit", "5"],
        ["--task-queue-type", "nexus", "--max-running", "1"],
        ["--if-version", "-1", "--max-running", "1"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_and_nothing_is_sent(
    ask: Run, server: RecordedServer, flags: list[str]
) -> None:
    assert ask(*SET, *flags).exit_code == 2
    assert server.requests == []


def test_a_number_out_of_bounds_is_told_what_would_be_right(ask: Run) -> None:
    result = ask(*SET, "--queue-rps-limit", "-1")
    assert "'-1' is not a number from 0 to 1,000,000 or the word default." in result.stderr


def test_get_shows_each_setting_with_its_reason_and_author(ask: Run, server: RecordedServer) -> None:
    body = bodies.queue_config(
        queue_rps_limit=bodies.made(500.0, "overall limit"),
        aging_wait_seconds=bodies.made(30.0),
        worker_rps_limit={"value": 50.0, "worker_id": "w1", "updated_at": bodies.ago(seconds=5)},
        effective={
            "queue_rps_limit": 500.0,
            "queue_rps_limit_source": "operator",
            "fairness": False,
            "fairness_source": "queue",
        },
    )
    server.answer("GET", PATH, body)
    output = ask("task-queue", "config", "get", "-t", "payments", "--task-queue-type", "workflow").stdout
    assert server.only_request.query == {"task_queue_type": "workflow"}
    for line in (
        "Version     3",
        "Order       order of arrival (set by the queue)",
        "Rate        500/s (set by the operator)",
        "queue_rps_limit     500/s  overall limit  operator  3 minutes ago",
        "aging_wait_seconds  30 s   -              operator  3 minutes ago",
        "worker_rps_limit    50/s   -              w1        5 seconds ago",
    ):
        assert line in output, output


def test_get_shows_the_keys_that_have_settings(ask: Run, server: RecordedServer) -> None:
    key = {"fairness_key": "big", "weight_override": 2.5, "rps_limit": 0.0, "max_running": 1, "paused": True}
    server.answer("GET", PATH, bodies.queue_config(keys=[key], key_count=2_000))
    result = ask("task-queue", "config", "get", "-t", "payments")
    assert "big  2.5     closed  1            yes" in result.stdout
    assert "The first 1 of 2000 keys are shown." in result.stderr


def test_get_of_a_queue_without_settings_says_so(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", PATH, bodies.queue_config(version=0))
    result = ask("task-queue", "config", "get", "-t", "payments")
    assert "Rate        no limit" in result.stdout
    assert result.stderr.startswith("Nothing is set")


def test_with_json_the_answer_is_printed_as_it_came(ask: Run, server: RecordedServer) -> None:
    body = bodies.queue_config()
    server.answer("GET", PATH, body)
    assert json.loads(ask("task-queue", "config", "get", "-t", "payments", "--json").stdout) == body


def test_history_shows_what_became_of_each_setting(ask: Run, server: RecordedServer) -> None:
    changes = [
        {
            "version": 4,
            "at": bodies.ago(minutes=1),
            "by": "operator",
            "reason": "spring sale",
            "setting": "queue_rps_limit",
            "fairness_key": None,
            "before": 500.0,
            "after": None,
        },
        {
            "version": 3,
            "at": bodies.ago(minutes=2),
            "by": "admin",
            "reason": None,
            "setting": "paused",
            "fairness_key": "big",
            "before": False,
            "after": True,
        },
    ]
    server.answer("GET", f"{PATH}/history", {"changes": changes})
    output = ask("task-queue", "config", "history", "-t", "payments", "--limit", "2").stdout
    assert server.only_request.query == {"task_queue_type": "activity", "limit": "2"}
    assert "4        1 minute ago   operator  queue_rps_limit  -    500/s   -      spring sale" in output
    assert "3        2 minutes ago  admin     paused           big  no      yes    -" in output


def test_a_version_that_has_passed_is_told_what_to_do(ask: Run, server: RecordedServer) -> None:
    refusal = {"message": "The settings are at version 4, not 3.", "reason": "config_version_conflict"}
    server.answer("PATCH", PATH, refusal, status=409)
    result = ask(*SET, "--max-running", "5", "--if-version", "3")
    assert result.exit_code == 1
    assert "config_version_conflict: The settings are at version 4" in result.stderr
    assert "penstock task-queue config get" in result.stderr


class TestSetRate:
    def told(self, ask: Run, server: RecordedServer, limit: float | None, source: str, *flags: str) -> str:
        effective = {"queue_rps_limit": limit, "queue_rps_limit_source": source, "fairness": True}
        server.answer("PATCH", PATH, bodies.queue_config(effective=effective))
        result = ask("task-queue", "set-rate", "payments", *flags)
        assert result.exit_code == 0, result.output
        return result.output

    def test_a_rate_is_set_with_its_reason_and_its_burst(self, ask: Run, server: RecordedServer) -> None:
        flags = ("20", "--reason", "their quota", "--burst-seconds", "0.05")
        told = self.told(ask, server, 20.0, "operator", *flags)
        assert "payments gives out at most 20/s, set by the operator." in told
        assert server.only_request.body == {
            "task_queue_type": "activity",
            "queue_rps_limit": 20,
            "queue_rps_burst_seconds": 0.05,
            "reason": "their quota",
        }

    @pytest.mark.parametrize(
        ("limit", "source", "sentence"),
        [
            (5.0, "worker", "payments gives out at most 5/s, conveyed by its workers."),
            (100.0, "system", "payments gives out at most 100/s, the most of any queue."),
            (None, "none", "Nothing limits how fast payments gives out activities."),
        ],
    )
    def test_default_unsets_it_and_says_whose_rate_holds_then(
        self, ask: Run, server: RecordedServer, limit: float | None, source: str, sentence: str
    ) -> None:
        assert sentence in self.told(ask, server, limit, source, "default")
        assert server.only_request.body == {"task_queue_type": "activity", "queue_rps_limit": "default"}

    def test_nothing_goes_at_a_rate_of_zero(self, ask: Run, server: RecordedServer) -> None:
        told = self.told(ask, server, 0.0, "operator", "0")
        assert "payments gives out no activities until its rate is set again." in told

    @pytest.mark.parametrize("rate", ["fast", "nan", "1000001", ""])
    def test_what_is_no_rate_is_a_usage_error(self, ask: Run, server: RecordedServer, rate: str) -> None:
        result = ask("task-queue", "set-rate", "payments", rate)
        assert result.exit_code == 2
        assert "is not a number from 0 to 1,000,000 or the word default" in result.stderr
        assert server.requests == []
