"""Workflows at the command line."""

from __future__ import annotations

import json

import pytest

from penstock.wire.payloads import encode
from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

STARTED = {
    "workflow_id": "order-1001",
    "run_id": "01RUN",
    "workflow_type": "orders.fulfillment",
    "status": "pending",
    "outcome": "started_new",
}
HISTORY_PATH = "/workflows/order-1001/runs/01RUN/history"


def test_a_start_sends_what_was_given_and_nothing_else(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    assert ask("workflow", "start", "--type", "orders.fulfillment").exit_code == 0
    assert server.only_request.body == {
        "workflow_type": "orders.fulfillment",
        "input": [],
        "deliver_cancel": True,
    }


def test_a_start_can_say_everything_the_contract_knows(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    result = ask(
        *[
            "workflow",
            "start",
            "--type",
            "orders.fulfillment",
            "--id",
            "order-1001",
            "--task-queue",
            "orders",
        ],
        *["--input", '"order-1001"', "--input", "3", "--business-key", "b", "--memo", '{"owner": "billing"}'],
        *["--search-attribute", "customer=acme", "--search-attribute", "size=3"],
        *["--duplicate-policy", "use-existing", "--execution-timeout", "2h", "--run-timeout", "90"],
        *["--priority", "2", "--fairness-key", "acme", "--fairness-weight", "2.5", "--build-id", "b1"],
    )
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {
        "workflow_type": "orders.fulfillment",
        "workflow_id": "order-1001",
        "task_queue": "orders",
        "input": ["order-1001", 3],
        "business_key": "b",
        "memo": {"owner": "billing"},
        "search_attributes": {"customer": "acme", "size": 3},
        "duplicate_policy": "use-existing",
        "execution_timeout_seconds": 7200,
        "run_timeout_seconds": 90,
        "priority": 2,
        "fairness_key": "acme",
        "fairness_weight": 2.5,
        "build_id": "b1",
        "deliver_cancel": True,
    }


def test_the_start_that_the_seed_shows_is_understood(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    result = ask(
        *["workflow", "start", "--type", "ChargeCustomer", "--task-queue", "my-task-queue"],
        *["--workflow-id", "my-workflow-id", "--input", '{"customerId":"12345"}', "--priority-key", "1"],
        *["--fairness-key", "a-key", "--fairness-weight", "3.14", "--namespace", "my-namespace"],
    )
    assert result.exit_code == 0, result.output
    assert server.only_request.headers["x-namespace"] == "my-namespace"
    assert server.only_request.body == {
        "workflow_type": "ChargeCustomer",
        "workflow_id": "my-workflow-id",
        "id_reuse_policy": "allow_duplicate",
        "task_queue": "my-task-queue",
        "input": [{"customerId": "12345"}],
        "priority_key": 1,
        "fairness_key": "a-key",
        "fairness_weight": 3.14,
        "deliver_cancel": True,
    }


@pytest.mark.parametrize("level", ["0", "9"])
def test_levels_beyond_the_five_are_reached_with_priority(
    ask: Run, server: RecordedServer, level: str
) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    assert ask("workflow", "start", "--type", "t", "--priority", level).exit_code == 0
    assert server.only_request.body["priority"] == int(level)


@pytest.mark.parametrize(
    ("inputs", "sent"),
    [
        (["[1, 2]"], [1, 2]),
        (["[[1, 2]]"], [[1, 2]]),
        (["[1]", "[2]"], [[1], [2]]),
        (['{"a": 1}'], [{"a": 1}]),
        (["null"], [None]),
    ],
)
def test_one_json_list_is_the_argument_list_and_anything_else_is_one_argument(
    ask: Run, server: RecordedServer, inputs: list[str], sent: list[object]
) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    ask("workflow", "start", "--type", "t", *[word for value in inputs for word in ("--input", value)])
    assert server.only_request.body["input"] == sent


@pytest.mark.parametrize(
    "flags",
    [
        ["--input", "order-1001"],
        ["--input", "NaN"],
        ["--input", "1e999"],
        ["--input", "[" * 100_000],
        ["--memo", "[]"],
        ["--search-attribute", "customer"],
        ["--search-attribute", "a=1", "--search-attribute", "a=2"],
        ["--priority-key", "0"],
        ["--priority-key", "6"],
        ["--priority", "-1"],
        ["--priority", "10"],
        ["--priority-key", "2", "--priority", "2"],
        ["--fairness-weight", "0"],
        ["--fairness-weight", "inf"],
        ["--fairness-weight", "nan"],
        ["--run-timeout", "0"],
        ["--run-timeout", "1.5h"],
        ["--duplicate-policy", "use_existing"],
    ],
)
def test_a_value_out_of_bounds_is_a_usage_error_and_nothing_is_sent(
    ask: Run, server: RecordedServer, flags: list[str]
) -> None:
    assert ask("workflow", "start", "--type", "t", *flags).exit_code == 2
    assert server.requests == []


def test_text_that_is_not_json_is_answered_with_how_to_quote_it(ask: Run) -> None:
    assert """'"order-1001"'""" in ask("workflow", "start", "--type", "t", "--input", "order-1001").stderr


def test_a_duplicate_start_is_told_about_the_policy(ask: Run, server: RecordedServer) -> None:
    body = {"message": "It runs.", "reason": "instance_already_started", "outcome": "rejected_duplicate"}
    server.answer("POST", "/workflows", body, status=409)
    result = ask("workflow", "start", "--type", "t", "--id", "x")
    assert result.exit_code == 1
    assert "--id-conflict-policy use_existing" in result.stderr
    assert "--id-reuse-policy allow_duplicate" in result.stderr


def test_a_start_says_what_to_do_with_a_known_id(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    said = ["--id-reuse-policy", "allow_duplicate_failed_only", "--id-conflict-policy", "terminate_existing"]
    assert ask("workflow", "start", "--type", "t", "--id", "orders/7", *said).exit_code == 0
    body = server.only_request.body
    assert body["workflow_id"] == "orders/7"
    assert (body["id_reuse_policy"], body["id_conflict_policy"]) == (
        "allow_duplicate_failed_only",
        "terminate_existing",
    )


def test_a_start_without_an_id_or_in_the_words_of_the_contract_adds_no_policy(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    ask("workflow", "start", "--type", "t")
    ask("workflow", "start", "--type", "t", "--id", "x", "--duplicate-policy", "fail")
    assert [sorted(each.body) for each in server.requests] == [
        ["deliver_cancel", "input", "workflow_type"],
        ["deliver_cancel", "duplicate_policy", "input", "workflow_id", "workflow_type"],
    ]


def test_an_id_with_a_slash_is_one_segment_of_the_path(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/orders%2F7%20%25", {"workflow_id": "orders/7 %", "status": "running"})
    assert ask("workflow", "describe", "orders/7 %").exit_code == 0


def test_a_list_sends_its_filters(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", {"workflows": [], "workflow_count": 0, "next_page_token": None})
    ask("workflow", "list", "--type", "t", "--status", "failed", "--query", "a b", "--limit", "7")
    assert server.only_request.query == {
        "workflow_type": "t",
        "status": "failed",
        "query": "a b",
        "page_size": "7",
    }


def test_an_empty_list_says_what_to_do_next(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", {"workflows": [], "workflow_count": 0, "next_page_token": None})
    result = ask("workflow", "list")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "penstock workflow start" in result.stderr


def test_a_long_list_is_read_page_by_page_up_to_the_limit(ask: Run, server: RecordedServer) -> None:
    rows = [bodies.workflow(workflow_id=f"w{number}") for number in range(250)]
    server.answer(
        "GET", "/workflows", {"workflows": rows[:200], "workflow_count": 200, "next_page_token": "A"}
    )
    server.answer(
        "GET", "/workflows", {"workflows": rows[200:], "workflow_count": 50, "next_page_token": "B"}
    )
    result = ask("workflow", "list", "--limit", "250", "--json")
    body = json.loads(result.stdout)
    assert [row["workflow_id"] for row in body["workflows"]] == [f"w{number}" for number in range(250)]
    assert body["workflow_count"] == 250
    assert body["next_page_token"] == "B"
    assert [request.query["page_size"] for request in server.requests] == ["200", "50"]
    assert server.requests[1].query["next_page_token"] == "A"


def test_a_server_that_repeats_a_page_does_not_hold_the_command_forever(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows", {"workflows": [bodies.workflow()], "next_page_token": "A"})
    result = ask("workflow", "list", "--limit", "5000")
    assert result.exit_code == 1
    assert "repeated_page_token" in result.stderr


def test_json_is_the_body_as_the_server_sent_it(ask: Run, server: RecordedServer) -> None:
    raw = b'{"workflow_id":"x","n":1.0,"big":12345678901234567890,\n "z":"\xc3\xa9"}'
    server.answer("GET", "/workflows/x", raw)
    assert ask("workflow", "describe", "x", "--json").stdout == raw.decode() + "\n"


def test_json_never_carries_a_raw_control_character_and_still_means_the_same(
    ask: Run, server: RecordedServer
) -> None:
    said = {"workflow_id": "x", "memo": "\x1b[2J \x7f \x9b31m \u202e \U000e0041"}
    server.answer("GET", "/workflows/x", json.dumps(said, ensure_ascii=False).encode())
    output = ask("workflow", "describe", "x", "--json").stdout
    assert not any(char in output for char in "\x1b\x7f\x9b\u202e\U000e0041")
    assert json.loads(output) == said


def test_a_description_shows_times_relative_to_now_and_payloads_opened(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows/order-1001", bodies.workflow())
    output = ask("workflow", "describe", "order-1001").stdout
    assert "3 minutes ago" in output
    assert '["order-1001"]' in output
    assert "Waiting for activity payments.capture" in output


def test_a_workflow_with_the_name_of_a_route_is_described(ask: Run, server: RecordedServer) -> None:
    """`GET /workflows/count` counts; the workflow of that name has another path."""
    server.answer("GET", "/workflows/%63ount", {"workflow_id": "count", "run_id": "r"})
    server.answer("GET", "/workflows/count", {"count": 3})
    assert "Workflow  count" in ask("workflow", "describe", "count").stdout
    assert "3" in ask("workflow", "count").stdout


def test_one_run_can_be_described(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001/runs/01RUN", bodies.workflow())
    assert ask("workflow", "describe", "order-1001", "--run-id", "01RUN").exit_code == 0


ENDED = {
    "workflow_id": "order-1001",
    "run_id": "01RUN",
    "workflow_type": "orders.fulfillment",
    "status": "cancelled",
    "outcome": "cancelled",
}


@pytest.mark.parametrize(("verb", "said"), [("cancel", "Cancelled"), ("terminate", "Terminated")])
def test_a_workflow_is_ended_with_a_reason(ask: Run, server: RecordedServer, verb: str, said: str) -> None:
    server.answer("POST", f"/workflows/order-1001/{verb}", ENDED)
    result = ask("workflow", verb, "order-1001", "--reason", "ordered twice")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"reason": "ordered twice"}
    assert result.stderr == f"{said} order-1001.\n"
    assert "01RUN" in result.stdout


def test_a_workflow_is_given_time_to_clean_up(ask: Run, server: RecordedServer) -> None:
    asked = ENDED | {"status": "waiting", "outcome": "cancel_requested"}
    server.answer("POST", "/workflows/order-1001/request-cancellation", asked)
    result = ask("workflow", "cancel", "order-1001", "--reason", "ordered twice", "--cleanup-timeout", "5m")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"reason": "ordered twice", "cleanup_timeout_seconds": 300}
    assert result.stderr == "Asked order-1001 to end.\n"


@pytest.mark.parametrize(
    "more", [["--cleanup-timeout", "2h"], ["--cleanup-timeout", "1m", "--request-id", "a"]]
)
def test_a_time_to_clean_up_is_an_hour_at_most_and_has_no_request_id(ask: Run, more: list[str]) -> None:
    assert ask("workflow", "cancel", "order-1001", *more).exit_code == 2


def test_a_workflow_whose_code_decides_was_only_asked_to_end(ask: Run, server: RecordedServer) -> None:
    asked = ENDED | {"status": "running", "outcome": "cancel_requested"}
    server.answer("POST", "/workflows/order-1001/cancel", asked)
    result = ask("workflow", "cancel", "order-1001")
    assert result.exit_code == 0, result.output
    assert result.stderr == "Asked order-1001 to end.\n"
    server.answer("POST", "/workflows/order-1001/cancel", asked)
    result = ask("workflow", "cancel", "order-1001", "--json")
    assert json.loads(result.stdout) == asked


@pytest.mark.parametrize("flag", ["--run", "--run-id"])
@pytest.mark.parametrize("verb", ["cancel", "terminate"])
def test_one_run_can_be_ended_without_a_reason(
    ask: Run, server: RecordedServer, verb: str, flag: str
) -> None:
    server.answer("POST", f"/workflows/order-1001/runs/01RUN/{verb}", ENDED)
    assert ask("workflow", verb, "order-1001", flag, "01RUN").exit_code == 0
    assert server.only_request.body == {}


def test_ending_a_workflow_that_has_ended_is_exit_code_1(ask: Run, server: RecordedServer) -> None:
    body = {"message": "The run is completed already.", "reason": "run_not_active"}
    server.answer("POST", "/workflows/order-1001/cancel", body, status=409)
    result = ask("workflow", "cancel", "order-1001", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == body
    assert "Cancelled" not in result.stderr


@pytest.mark.parametrize(
    ("inputs", "sent"), [([], []), (["5"], [5]), (["5", '"a"'], [5, "a"]), (["[1, 2]"], [1, 2])]
)
def test_a_query_sends_its_arguments_and_prints_the_answer_opened(
    ask: Run, server: RecordedServer, inputs: list[str], sent: list[object]
) -> None:
    answer = {"query_name": "status", "result": None, "result_envelope": encode({"open": 2}).envelope()}
    server.answer("POST", "/workflows/order-1001/query/status", answer)
    flags = [word for value in inputs for word in ("--input", value)]
    result = ask("workflow", "query", "order-1001", "status", *flags)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"open": 2}
    assert server.only_request.body == {"input": sent}


def test_one_run_can_be_queried_and_an_answer_without_an_envelope_is_printed(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("POST", "/workflows/order-1001/runs/01RUN/query/a%20b", {"result": [1]})
    result = ask("workflow", "query", "order-1001", "a b", "--run", "01RUN")
    assert json.loads(result.stdout) == [1]


def test_a_query_that_nobody_answers_is_exit_code_1(ask: Run, server: RecordedServer) -> None:
    body = {"message": "No worker answered within 30 s.", "reason": "query_worker_timeout"}
    server.answer("POST", "/workflows/order-1001/query/status", body, status=504)
    result = ask("workflow", "query", "order-1001", "status")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "query_worker_timeout: No worker answered within 30 s." in result.stderr


def test_a_query_with_text_that_is_not_json_is_a_usage_error_and_nothing_is_sent(
    ask: Run, server: RecordedServer
) -> None:
    assert ask("workflow", "query", "order-1001", "status", "--input", "lines").exit_code == 2
    assert server.requests == []


def test_the_runs_of_a_workflow_are_listed(ask: Run, server: RecordedServer) -> None:
    first = bodies.workflow(run_id="01OLD", status="completed", closed_reason="completed")
    second = bodies.workflow(run_number=2)
    server.answer(
        "GET",
        "/workflows/order-1001/runs",
        {"workflow_id": "order-1001", "run_count": 2, "runs": [first, second]},
    )
    lines = ask("workflow", "runs", "order-1001").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1", "01OLD", "completed"],
        ["2", "01RUN", "running"],
    ]


def test_what_to_type_next_stays_in_the_namespace_that_was_given(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    server.answer("GET", "/workflows", {"workflows": [], "next_page_token": None})
    missing = {"message": "No.", "reason": "instance_not_found"}
    server.answer("GET", "/workflows/x", missing, status=404)
    for args, hint in (
        (["start", "--type", "t"], "`penstock workflow history order-1001 --follow --namespace orders`"),
        (["list"], "`penstock workflow start --type TYPE --task-queue QUEUE --namespace orders`"),
        (["describe", "x"], "`penstock workflow list --namespace orders`"),
    ):
        assert hint in ask("workflow", *args, "--namespace", "orders").stderr
        assert hint in ask("--namespace", "orders", "workflow", *args).stderr
        assert hint.replace(" --namespace orders", "") in ask("workflow", *args).stderr


def test_a_hint_quotes_an_id_that_a_shell_would_obey(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED | {"workflow_id": "a$(b) c"}, status=201)
    assert "`penstock workflow history 'a$(b) c' --follow`" in ask("workflow", "start", "--type", "t").stderr


def test_hostile_ids_and_payloads_cannot_drive_the_terminal(ask: Run, server: RecordedServer) -> None:
    evil = "\x1b]8;;http://evil\x07[red]x[/red]\u202e\r\n"
    event = {
        "sequence": 1,
        "event_type": evil,
        "timestamp": evil,
        "payload": {
            "workflow_type": evil,
            "output": encode(evil).envelope(),
            "message": evil,
            "exception": {"stack_trace": f"{evil}\n{evil}", "cause": {"type": evil, "message": evil}},
        },
    }
    server.answer("GET", "/workflows", {"workflows": [bodies.workflow(workflow_id=evil, status=evil)]})
    server.answer("GET", HISTORY_PATH, {"events": [event], "next_page_token": None})
    server.answer(
        "GET", "/workflows/x", bodies.workflow(workflow_id=evil, memo={evil: evil}, started_at=evil)
    )
    server.answer("GET", "/workflows/order-1001/runs/01RUN", bodies.workflow(wait_reason=evil))
    history = ["history", "order-1001", "--run-id", "01RUN"]
    for args in (["list"], history, [*history, "--payloads", "full"], ["describe", "x"]):
        for env in ({}, {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}):
            output = ask("workflow", *args, env=env).output
            assert "\x1b]" not in output
            assert "\x07" not in output
            assert "\r" not in output
            assert "\u202e" not in output
            assert "[red]" in output.replace("\n", "")
