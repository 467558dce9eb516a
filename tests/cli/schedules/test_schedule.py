"""Schedules at the command line, against a real server."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from click.testing import Result

from tests.cli.recorded_server import Run
from tests.support.live import TOKENS, LiveServer

NIGHTLY = ("--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
REPORT = ("--type", "reports.nightly", "--task-queue", "reports")
_numbers = itertools.count(1)


@pytest.fixture
def penstock(run: Run, live: LiveServer) -> Run:
    """Runs a command in a namespace of the test's own."""
    around = {
        "DURABLE_WORKFLOW_SERVER_URL": live.url,
        "DURABLE_WORKFLOW_AUTH_TOKEN": TOKENS["DW_ADMIN_TOKEN"],
        "DURABLE_WORKFLOW_NAMESPACE": f"cli-{next(_numbers)}",
    }
    assert run("namespace", "create", around["DURABLE_WORKFLOW_NAMESPACE"], env=around).exit_code == 0

    def invoke(*args: str, env: dict[str, str] | None = None) -> Result:
        return run(*args, env=around | (env or {}))

    return invoke


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def answered(result: Result) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(done(result).stdout)
    return body


def described(penstock: Run, schedule_id: str = "nightly") -> dict[str, Any]:
    return answered(penstock("schedule", "describe", schedule_id, "--json"))


def test_a_schedule_is_created_with_its_warnings_and_next_moments(penstock: Run) -> None:
    result = done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    assert "02:30 does not exist on" in result.stderr
    assert "No worker serves the task queue 'reports' now." in result.stderr
    assert "Created the schedule nightly." in result.stderr
    assert "Next" in result.stdout
    body = answered(penstock("schedule", "create", "again", *NIGHTLY, *REPORT, "--json"))
    assert len(body["next_fire_times"]) == 3
    assert {"shared_minute", "no_worker"} <= {each["reason"] for each in body["warnings"]}


def test_every_flag_of_a_creation_reaches_the_server(penstock: Run) -> None:
    done(
        penstock(
            *(
                "schedule",
                "create",
                "nightly",
                "--cron",
                "@daily",
                "--cron",
                "0 12 * * SUN",
                "--every",
                "1d+6h",
            ),
            *(
                "--calendar",
                '{"hour": [8], "day_of_week": [{"start": 1, "end": 5}]}',
                "--skip",
                '{"month": [12]}',
            ),
            *("--timezone", "Europe/Berlin", "--start-at", "2026-01-01", "--end-at", "2046-01-01T00:00:00Z"),
            *("--gap", "skip", "--repeat", "both", "--jitter", "5m", "--overlap", "buffer_all"),
            *("--catchup-window", "2d", "--pause-on-failure", "--start-by", "10m", "--max-runs", "7"),
            *("--note", "by finance", "--memo", '{"team": "a"}', "--paused", *REPORT, "--input", '"all"'),
            *("--run-timeout", "1h", "--business-key", "b", "--priority-key", "2", "--fairness-key", "acme"),
        )
    )
    body = described(penstock)
    assert body["spec"] == {
        "cron_expressions": ["@daily", "0 12 * * SUN"],
        "intervals": [{"every": "PT86400S", "offset": "PT21600S"}],
        "calendars": [{"hour": [8], "day_of_week": [{"start": 1, "end": 5}]}],
        "skip": [{"month": [12]}],
        "timezone": "Europe/Berlin",
        "start_at": "2026-01-01T00:00:00Z",
        "end_at": "2046-01-01T00:00:00Z",
        "gap": "skip",
        "repeat": "both",
    }
    assert body["action"].items() >= {"run_timeout_seconds": 3600, "business_key": "b"}.items()
    policies = ("overlap_policy", "jitter_seconds", "catchup_window_seconds", "pause_on_failure")
    assert [body[name] for name in policies] == ["buffer_all", 300, 172_800, True]
    assert [body[name] for name in ("start_by_seconds", "max_runs", "paused")] == [600, 7, True]
    assert (body["memo"], body["note"]) == ({"team": "a"}, "by finance")
    shown = done(penstock("schedule", "describe", "nightly")).stdout
    assert "workflow reports.nightly" in shown
    assert "@daily, 0 12 * * SUN, every PT86400S+PT21600S, 1 calendar (Europe/Berlin)" in shown


def test_an_update_keeps_what_it_does_not_name(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT, "--input", '"all"'))
    done(penstock("schedule", "update", "nightly", "--timezone", "Asia/Tokyo", "--overlap", "allow_all"))
    assert described(penstock)["spec"] == {"cron_expressions": ["30 2 * * *"], "timezone": "Asia/Tokyo"}
    done(penstock("schedule", "update", "nightly", "--every", "1h", "--task-queue", "other"))
    body = described(penstock)
    assert body["spec"] == {"intervals": [{"every": "PT3600S"}], "timezone": "Asia/Tokyo"}
    assert (body["overlap_policy"], body["action"]["task_queue"]) == ("allow_all", "other")
    assert body["workflow_type"] == "reports.nightly"
    refused = penstock("schedule", "update", "nightly")
    assert (refused.exit_code, "Name what to change" in refused.stderr) == (2, True)


def test_a_schedule_is_paused_resumed_and_listed(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    assert (
        answered(penstock("schedule:pause", "nightly", "--note", "migration", "--json"))["outcome"]
        == "paused"
    )
    listed = answered(penstock("schedule", "list", "--status", "paused", "--json"))
    assert [(each["schedule_id"], each["note"]) for each in listed["schedules"]] == [("nightly", "migration")]
    done(penstock("schedule", "resume", "nightly"))
    shown = done(penstock("schedule", "list")).stdout
    assert "30 2 * * * (Europe/Berlin)" in shown
    assert "No schedules here." in done(penstock("schedule", "list", "--type", "other")).stderr


def test_a_trigger_shows_what_it_started(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    assert "triggered" in done(penstock("schedule", "trigger", "nightly")).stdout
    assert answered(penstock("schedule", "trigger", "nightly", "--json"))["outcome"] == "skipped"
    again = answered(penstock("schedule", "trigger", "nightly", "--overlap", "allow_all", "--json"))
    assert again["workflow_id"].startswith("nightly-")
    shown = done(penstock("schedule", "describe", "nightly")).stdout
    assert again["workflow_id"] in shown
    events = answered(penstock("schedule", "history", "nightly", "--limit", "1", "--after", "1", "--json"))
    assert [each["event_type"] for each in events["events"]] == ["ScheduleTriggered"]
    history = done(penstock("schedule", "history", "nightly", "--limit", "3"))
    assert "ScheduleTriggerSkipped" in history.stdout
    assert "See more with --after 3." in history.stderr


def test_a_schedule_explains_itself(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    done(penstock("schedule", "pause", "nightly", "--note", "migration"))
    assert "It is paused since" in done(penstock("schedule", "why", "nightly")).stdout
    assert answered(penstock("schedule", "why", "nightly", "--json"))["waits_for"] == "paused"


def test_a_backfill_is_rehearsed_and_done(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    period = ("--from", "2026-03-02", "--to", "2026-03-05", "--overlap", "allow_all")
    planned = done(penstock("schedule", "backfill", "nightly", *period, "--dry-run"))
    assert "3 fires would be made." in planned.stderr
    body = answered(penstock("schedule", "backfill", "nightly", *period, "--json"))
    assert [each["outcome"] for each in body["results"]] == ["started"] * 3
    empty = done(
        penstock("schedule", "backfill", "nightly", "--from", "2026-03-02", "--to", "2026-03-02T01:00:00Z")
    )
    assert "no moment in that period" in empty.stderr


def test_a_deletion_asks_and_leaves_the_events(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    assert "pass --yes" in penstock("schedule", "delete", "nightly").stderr
    done(penstock("schedule", "delete", "nightly", "--yes"))
    gone = penstock("schedule", "describe", "nightly")
    assert gone.exit_code == 1
    assert "List what exists with `penstock schedule list`." in gone.stderr
    assert "ScheduleDeleted" in done(penstock("schedule", "history", "nightly")).stdout


def test_an_activity_is_scheduled(penstock: Run) -> None:
    starts = ("--activity", "reports.clean", "--task-queue", "reports", "--start-to-close", "2m")
    done(penstock("schedule", "create", "preview", "--every", "1h", *starts, "--max-attempts", "3"))
    body = described(penstock, "preview")
    assert body["action"]["activity_type"] == "reports.clean"
    assert body["action"]["retry_policy"]["max_attempts"] == 3
    assert "activity reports.clean" in done(penstock("schedule", "describe", "preview")).stdout


def test_a_preview_saves_nothing(penstock: Run) -> None:
    result = done(
        penstock("schedule", "preview", *NIGHTLY, "--count", "2", "--after", "2026-10-24T12:00:00Z")
    )
    assert "2026-10-25T00:30:00.000Z" in result.stdout
    assert "Mon 2026-10-26 02:30:00 CET  2026-10-26T01:30:00.000Z" in result.stdout
    assert "02:30 happens twice on 2026-10-25" in result.stderr
    assert len(answered(penstock("schedule", "preview", "--every", "30m", "--json"))["next_fire_times"]) == 10
    assert answered(penstock("schedule", "list", "--json"))["schedules"] == []


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (("create", "x", *REPORT), 2, "Say when it fires"),
        (("create", "x", *NIGHTLY), 2, "Say what it starts"),
        (("create", "x", *NIGHTLY, *REPORT, "--activity", "a"), 2, "--type and --activity are alternatives"),
        (("create", "x", "--cron", "* * * * * *", *REPORT), 1, "spec.cron_expressions.0"),
        (("create", "x", "--cron", "0 0 31 2 *", *REPORT), 1, "spec.cron_expressions.0"),
        (("create", "x", *NIGHTLY, "--timezone", "Europe/Berln", *REPORT), 1, "spec.timezone"),
        (("create", "x", "--every", "soon", *REPORT), 2, "'soon' is not a length of time"),
        (("create", "x", *NIGHTLY, *REPORT, "--jitter", "2h"), 2, "is more than 3600 seconds"),
        (("create", "x", *NIGHTLY, "--activity", "a"), 1, "action.task_queue"),
        (("backfill", "x", "--from", "yesterday", "--to", "2026-01-01"), 2, "'yesterday' is not a time"),
        (("trigger", "x"), 1, "schedule_not_found"),
        (("preview", "--timezone", "UTC"), 1, "never fire"),
        (("preview",), 2, "Say when it fires"),
    ],
)
def test_what_is_wrong_is_named(penstock: Run, given: tuple[str, ...], code: int, message: str) -> None:
    result = penstock("schedule", *given)
    assert (result.exit_code, message in result.stderr) == (code, True), result.output


def test_a_taken_id_and_a_wrong_period_are_refused(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT))
    taken = penstock("schedule", "create", "nightly", *NIGHTLY, *REPORT)
    assert "change it with `penstock schedule update`" in taken.stderr
    backwards = penstock("schedule", "backfill", "nightly", "--from", "2026-03-05", "--to", "2026-03-02")
    assert "invalid_time_range" in backwards.stderr
    large = penstock("schedule", "backfill", "nightly", "--from", "1990-03-05", "--to", "2026-03-02")
    assert "backfill_too_large" in large.stderr


def test_all_schedules_of_a_query_are_paused_after_a_rehearsal(penstock: Run) -> None:
    for name in ("a", "b"):
        done(penstock("schedule", "create", name, "--cron", "@daily", *REPORT))
    query = ("--query", "TaskQueue = 'reports'")
    assert penstock("schedule", "batch", "pause", *query).exit_code == 2
    rehearsed = done(penstock("schedule", "batch", "pause", *query, "--dry-run"))
    assert "Found 2 schedules to pause." in rehearsed.stderr
    body = answered(penstock("schedule", "batch", "pause", *query, "--note", "away", "--yes", "--json"))
    assert (body["matched"], body["acted"], body["failed"]) == (2, 2, 0)
    listed = answered(penstock("schedule", "list", "--query", "Note = 'away'", "--json"))
    assert [each["schedule_id"] for each in listed["schedules"]] == ["b", "a"]
    assert answered(penstock("schedule", "batch", "resume", *query, "--yes", "--json"))["acted"] == 2


def test_an_update_of_an_older_version_is_refused_with_what_moved(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", "--cron", "@daily", *REPORT))
    done(penstock("schedule", "update", "nightly", "--note", "first", "--if-version", "1"))
    refused = penstock("schedule", "update", "nightly", "--note", "second", "--if-version", "1")
    assert refused.exit_code == 1
    assert "Since then note changed." in refused.stderr


def test_all_events_of_a_schedule_are_read_in_pages(penstock: Run) -> None:
    done(penstock("schedule", "create", "nightly", "--cron", "@daily", *REPORT))
    for verb in ("pause", "resume"):
        done(penstock("schedule", verb, "nightly"))
    body = answered(penstock("schedule", "history", "nightly", "--limit", "1", "--all", "--json"))
    assert ([each["sequence"] for each in body["events"]], body["has_more"]) == ([1, 2, 3], False)
