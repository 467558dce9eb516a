"""A history at the command line: read whole, from either end, and followed."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from penstock.wire.payloads import encode
from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run
from tests.cli.terminal import on_a_terminal
from tests.support.patience import PATIENCE_S

RUN = "/workflows/order-1001/runs/01RUN"
HISTORY = f"{RUN}/history"
NEXT_RUN = "/workflows/order-1001/runs/02RUN"


def page(events: list[dict[str, Any]], token: str | None = None) -> dict[str, Any]:
    return {"workflow_id": "order-1001", "run_id": "01RUN", "events": events, "next_page_token": token}


def event(sequence: int, kind: str, second: float, /, **payload: Any) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "event_type": kind,
        "timestamp": f"2026-04-22T10:00:{second:06.3f}Z",
        "payload": payload,
    }


STARTED = event(1, "WorkflowStarted", 0, workflow_type="orders.fulfillment")
COMPLETED = event(2, "WorkflowCompleted", 3, output=encode("done").envelope())
CONTINUED = event(2, "WorkflowContinuedAsNew", 3, continued_to_run_id="02RUN", closed_reason="continued")


def token(sequence: int) -> str:
    return base64.b64encode(str(sequence).encode()).decode()


def test_a_history_is_a_timeline(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page(bodies.HISTORY))
    lines = ask("workflow", "history", "order-1001").stdout.splitlines()
    numbered = [line for line in lines if line[:1].isdigit()]
    assert lines[0].split() == ["#", "AFTER", "EVENT", "DETAIL"]
    assert 'arguments ["order-1001"]' in numbered[0]
    assert "+0.012 s" in numbered[1]
    assert "+1 m 06 s" in numbered[2]
    assert "payments.capture  took 1 m 05 s, 3 attempts" in numbered[2]
    assert "+2 h 03 m" in numbered[3]


def test_an_error_stands_below_its_event(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page(bodies.HISTORY))
    lines = ask("workflow", "history", "order-1001").stdout.splitlines()
    below = lines[lines.index(next(line for line in lines if "ActivityFailed" in line)) + 1]
    assert below.strip() == "CardDeclined: card declined"
    assert below.startswith(" " * 10)


def test_a_history_ends_with_where_the_run_stands(ask: Run, server: RecordedServer) -> None:
    described = bodies.workflow(pending={"activities": 1, "timers": 2, "children": 0})
    server.answer("GET", "/workflows/order-1001", described)
    server.answer("GET", HISTORY, page(bodies.HISTORY[:2]))
    result = ask("workflow", "history", "order-1001")
    assert "running" in result.stdout
    assert "Waiting for activity payments.capture" in result.stdout
    assert "1 activity, 2 timers" in result.stdout
    assert "penstock workflow history order-1001 --follow" in result.stderr


def test_a_closed_run_tells_how_long_it_took(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RUN, bodies.completed("done"))
    server.answer("GET", HISTORY, page([STARTED, COMPLETED]))
    result = ask("workflow", "history", "order-1001", "--run", "01RUN")
    facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines()[-3:])
    assert facts == {"Status": "completed", "Took": "3.000 s", "Events": "2"}
    assert result.stderr == ""


def test_a_continued_run_tells_where_to_read_on(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RUN, bodies.completed(None) | {"closed_reason": "continued"})
    server.answer("GET", HISTORY, page([STARTED, CONTINUED]))
    result = ask("workflow", "history", "order-1001", "--run", "01RUN")
    assert "continues as run 02RUN" in result.stdout
    assert "`penstock workflow history order-1001 --run 02RUN`" in result.stderr


def test_a_run_that_replay_blocks_says_so_with_both_sides_and_what_to_do(
    ask: Run, server: RecordedServer
) -> None:
    blocked = {
        "reason": "non_determinism",
        "sequence": 3,
        "recorded": ["ActivityScheduled", "ActivityCompleted"],
        "yielded": "timer",
        "message": "A long message.",
    }
    described = bodies.workflow(blocked=blocked, wait_reason="A long message.", workflow_task_failures=4)
    server.answer("GET", "/workflows/order-1001", described)
    server.answer("GET", HISTORY, page([STARTED]))
    output = ask("workflow", "history", "order-1001").stdout
    assert "the code does not fit the history at step 3" in output
    assert "ActivityScheduled, ActivityCompleted" in output
    assert "timer" in output
    assert "it then continues by itself" in output
    assert "A long message." not in output


def test_a_run_whose_workflow_task_fails_says_how_often_and_why(ask: Run, server: RecordedServer) -> None:
    failing = {"workflow_task_failures": 4, "last_workflow_task_error": "KeyError: 'x'"}
    server.answer("GET", "/workflows/order-1001", bodies.workflow(**failing))
    server.answer("GET", HISTORY, page([STARTED]))
    assert "failed 4 times in a row: KeyError: 'x'" in ask("workflow", "history", "order-1001").stdout


def test_a_history_of_many_pages_is_shown_whole(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RUN, bodies.workflow())
    server.answer("GET", HISTORY, page(bodies.HISTORY[:2], "Mg=="))
    server.answer("GET", HISTORY, page(bodies.HISTORY[2:]))
    lines = ask("workflow", "history", "order-1001", "--run-id", "01RUN").stdout.splitlines()
    assert [line[0] for line in lines if line[:1].isdigit()] == ["1", "2", "3", "4"]
    assert server.requests[2].query["next_page_token"] == "Mg=="


def test_an_empty_history_says_to_look_again(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RUN, bodies.workflow())
    server.answer("GET", HISTORY, page([]))
    result = ask("workflow", "history", "order-1001", "--run", "01RUN")
    assert result.stdout == ""
    assert "no events yet" in result.stderr


def test_the_last_events_come_first_in_reverse(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RUN, bodies.workflow(started_at="2026-04-22T10:00:00Z"))
    server.answer("GET", HISTORY, page(list(reversed(bodies.HISTORY[1:3])), "x"))
    result = ask("workflow", "history", "order-1001", "--run", "01RUN", "--reverse", "--limit", "2")
    lines = [line for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert [line[0] for line in lines] == ["3", "2"]
    assert "took 1 m 05 s" in lines[0]
    assert "+0.012 s" in lines[1]
    assert server.requests[1].query == {"order": "desc", "page_size": "2", "derived": "false"}
    assert "The last 2 events are shown" in result.stderr


def test_json_is_the_page_as_it_came_and_costs_one_request(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", HISTORY, page([STARTED, COMPLETED]))
    result = ask("workflow", "history", "order-1001", "--run", "01RUN", "--json")
    assert json.loads(result.stdout) == page([STARTED, COMPLETED])
    assert len(server.requests) == 1


@pytest.mark.parametrize(("how", "shown"), [("short", True), ("full", True), ("none", False)])
def test_payloads_are_shown_as_much_as_wanted(
    ask: Run, server: RecordedServer, how: str, shown: bool
) -> None:
    server.answer("GET", RUN, bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED, COMPLETED]))
    output = ask("workflow", "history", "order-1001", "--run", "01RUN", "--payloads", how).stdout
    assert ('output "done"' in output) is shown


def test_a_long_payload_is_cut_and_shown_whole_on_request(ask: Run, server: RecordedServer) -> None:
    value = {"text": "x" * 300, "end": "the-end"}
    server.answer("GET", RUN, bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED, event(2, "WorkflowCompleted", 3, output=value)]))
    history = ["workflow", "history", "order-1001", "--run", "01RUN"]
    short, full = ask(*history).stdout, ask(*history, "--payloads", "full").stdout
    assert "the-end" not in short
    assert "…" in short
    assert "the-end" in full


def test_what_happened_in_a_child_stands_below_its_start(ask: Run, server: RecordedServer) -> None:
    child = {"sequence": 1, "child_workflow_type": "ship"}
    ids = {"child_workflow_instance_id": "ship-1", "child_workflow_run_id": "01SHIP"}
    gone = {"child_workflow_instance_id": "ship-2", "child_workflow_run_id": "02SHIP"}
    events = [STARTED, event(2, "ChildRunStarted", 1, **child, **ids), event(3, "ChildRunStarted", 1, **gone)]
    server.answer("GET", RUN, bodies.workflow())
    server.answer("GET", HISTORY, page(events))
    shipped = [event(1, "WorkflowStarted", 2, workflow_type="ship"), event(2, "WorkflowCompleted", 5)]
    server.answer("GET", "/workflows/ship-1/runs/01SHIP/history", page(shipped))
    result = ask("workflow", "history", "order-1001", "--run", "01RUN", "--children")
    assert result.exit_code == 0, result.output
    lines = [line.split()[:4] for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert [line[0] for line in lines] == ["1", "2", "2.1", "2.2", "3"]
    assert lines[3] == ["2.2", "+5.000", "s", "WorkflowCompleted"]


def test_following_ends_when_the_run_is_closed(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow(started_at="2026-04-22T10:00:00Z"))
    server.answer("GET", HISTORY, page([STARTED]))
    server.answer("GET", HISTORY, page([COMPLETED]))
    result = ask("workflow", "history", "order-1001", "--follow")
    assert result.exit_code == 0, result.output
    assert [line[0] for line in result.stdout.splitlines() if line[:1].isdigit()] == ["1", "2"]
    assert "Took    3.000 s" in result.stdout
    first, second = server.requests[1:]
    assert first.query == {"page_size": "1000", "wait_new_event": "true", "derived": "false"}
    assert second.query == {
        "page_size": "1000",
        "wait_new_event": "true",
        "next_page_token": token(1),
        "derived": "false",
    }


def test_following_a_closed_run_reads_it_and_ends_though_its_end_is_not_its_last_event(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.completed("done"))
    server.answer("GET", HISTORY, page([STARTED, COMPLETED, event(3, "WorkflowArchived", 9)]))
    assert ask("workflow", "history", "order-1001", "--follow").exit_code == 0
    server.answers[("GET", f"/api{HISTORY}")].clear()
    server.answer("GET", HISTORY, page([event(3, "WorkflowArchived", 9)]))
    result = ask("workflow", "history", "order-1001", "--follow", "--limit", "1")
    assert result.exit_code == 0
    assert "Events  3" in result.stdout
    assert not any("wait_new_event" in request.query for request in server.requests)


def test_following_as_json_prints_one_raw_event_a_line(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED]))
    server.answer("GET", HISTORY, page([COMPLETED]))
    result = ask("workflow", "history", "order-1001", "--follow", "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [STARTED, COMPLETED]


def test_following_goes_on_with_the_run_that_continues(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED, CONTINUED]))
    server.answer("GET", NEXT_RUN, bodies.workflow(run_id="02RUN", run_number=2))
    server.answer("GET", f"{NEXT_RUN}/history", page([STARTED, COMPLETED]))
    result = ask("workflow", "history", "order-1001", "--follow")
    assert result.exit_code == 0, result.output
    assert "now following run 02RUN" in result.stderr
    assert [line[0] for line in result.stdout.splitlines() if line[:1].isdigit()] == ["1", "2", "1", "2"]


def test_following_outlives_a_restart_of_the_server(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED]))
    server.drop("GET", HISTORY)
    server.answer("GET", HISTORY, {"message": "Not now.", "reason": "store_unavailable"}, status=503)
    server.answer("GET", HISTORY, page([]))
    server.answer("GET", HISTORY, page([COMPLETED]))
    result = ask("workflow", "history", "order-1001", "--follow", "--json")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == [1, 2]
    assert "Retrying" in result.stderr
    assert "The server answers again." in result.stderr
    assert {request.query.get("next_page_token") for request in server.requests[2:]} == {token(1)}


def test_following_a_server_that_never_answered_is_exit_code_3(run: Run) -> None:
    result = run("workflow", "history", "x", "--follow", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 3


def test_following_something_that_is_not_there_is_refused_at_once(ask: Run, server: RecordedServer) -> None:
    missing = {"message": "No.", "reason": "instance_not_found"}
    server.answer("GET", "/workflows/x", missing, status=404)
    result = ask("workflow", "history", "x", "--follow", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == missing


def test_following_can_begin_with_the_last_events(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    last = event(8, "TimerFired", 2)
    server.answer("GET", HISTORY, page([last]))
    server.answer("GET", HISTORY, page([last, event(9, "WorkflowCompleted", 3)]))
    result = ask("workflow", "history", "order-1001", "--follow", "--limit", "1", "--json")
    assert result.exit_code == 0
    assert server.requests[1].query == {"order": "desc", "page_size": "1", "derived": "false"}
    assert server.requests[2].query["next_page_token"] == token(7)


@pytest.mark.parametrize("flag", ["--reverse", "--children"])
def test_following_backwards_or_with_children_is_a_usage_error(
    ask: Run, server: RecordedServer, flag: str
) -> None:
    assert ask("workflow", "history", "x", "--follow", flag).exit_code == 2
    assert server.requests == []


def test_a_terminal_cuts_details_at_its_width_and_shows_errors_whole(server: RecordedServer) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    failed = event(2, "WorkflowFailed", 3, exception_type="E", message=words, result=words)
    server.answer("GET", RUN, bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED, failed]))
    output = on_a_terminal(server, "workflow", "history", "order-1001", "--run", "01RUN", COLUMNS="80")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.splitlines()]
    assert max(len(line) for line in lines if "penstock workflow" not in line) <= 80
    assert next(line for line in lines if "WorkflowFailed" in line).endswith("…")
    told = " ".join(line.strip() for line in lines)
    assert f"E: {words}" in told
    assert "\x1b[31m" in output


def test_ctrl_c_stops_the_following_with_exit_code_130(server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED]))
    server.answer("GET", HISTORY, page([]))
    program = [sys.executable, "-c", "from penstock.cli import main; main()", "--server", server.url]
    process = subprocess.Popen(
        [*program, "workflow", "history", "order-1001", "--follow", "--json"],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == STARTED
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "the workflow continues" in said
    assert "Traceback" not in said


def test_an_audit_shows_what_follows_from_the_events_and_who_asked(ask: Run, server: RecordedServer) -> None:
    asked_by = {"principal": {"type": "auth:token", "id": "anna"}}
    accepted = STARTED | asked_by | {"event_type": "StartAccepted", "derived": True}
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page([accepted, STARTED]))
    result = ask("workflow", "history", "order-1001", "--audit")
    (line,) = [line for line in result.stdout.splitlines() if "StartAccepted" in line]
    assert "by anna" in line
    assert re.search(r"Events +1\b", result.stdout)
    assert "derived" not in server.requests[1].query


def test_a_token_that_everybody_shares_names_nobody(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    server.answer("GET", HISTORY, page([STARTED | {"principal": {"type": "auth:token", "id": "shared"}}]))
    assert "by shared" not in ask("workflow", "history", "order-1001").stdout
