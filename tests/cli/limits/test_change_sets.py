"""`penstock change` at the command line: what is sent, what is shown, and which mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

PATH = "/change-sets"
CAP = "queue:orders.max_active_leases=5"
WHY = ("--reason", "slow database")


def change_set(state: str = "proposed", **changes: Any) -> dict[str, Any]:
    item = {"path": "queue:orders.max_active_leases", "before": None, "after": 5, "now": None}
    return {
        "change_set_id": "cs-1",
        "state": state,
        "change_reason": "slow database",
        "author": "ada",
        "created_at": bodies.later(hours=-1),
        "items": [item],
        "moved": [],
    } | changes


@pytest.fixture
def proposing(server: RecordedServer) -> RecordedServer:
    server.answer("POST", PATH, change_set(), 201)
    server.answer("POST", f"{PATH}/cs-1/apply", change_set("applied"))
    return server


def test_settings_of_a_file_and_of_options_are_proposed_together(
    proposing: RecordedServer, ask: Run, tmp_path: Path
) -> None:
    file = tmp_path / "evening.toml"
    file.write_text(
        '[queues."eu.orders"]\nmax_active_leases = 2\nweights = { acme = 3 }\n[namespace]\npaused = false\n'
    )
    more = (
        "--set",
        CAP,
        "--set",
        "queue:eu.orders.weights.zeta.ltd=2",
        "--set",
        "group:llm.max_active_leases=null",
    )
    result = ask("change", "new", "--file", str(file), *more, *WHY, "--for", "2h")
    assert result.exit_code == 0, result.output
    assert "Nothing is changed yet. Apply it with `penstock change apply cs-1`." in result.stderr
    assert proposing.only_request.body == {
        "queues": {
            "eu.orders": {"max_active_leases": 2, "weights": {"acme": 3, "zeta.ltd": 2}},
            "orders": {"max_active_leases": 5},
        },
        "groups": {"llm": {"max_active_leases": None}},
        "namespace_limits": {"paused": False},
        "reason": "slow database",
        "expires_in_seconds": 7_200,
    }


def test_with_apply_it_is_proposed_and_applied_and_a_program_reads_what_became_of_it(
    proposing: RecordedServer, ask: Run
) -> None:
    result = ask("change", "new", "--set", CAP, *WHY, "--apply", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["state"] == "applied"
    assert [each.raw_path for each in proposing.requests] == [f"/api{PATH}", f"/api{PATH}/cs-1/apply"]


def test_what_is_in_the_way_is_shown_with_its_author(server: RecordedServer, ask: Run) -> None:
    moved = {"path": "queue:orders.max_active_leases", "now": 9, "by": "eve", "at": bodies.later(hours=-1)}
    server.answer("GET", f"{PATH}/cs-1", change_set(moved=[moved]))
    shown = ask("change", "show", "cs-1").stdout
    assert "Not as this change set expects" in shown
    assert "eve" in shown


def test_a_rollback_is_proposed_with_its_reason_and_applied_on_request(
    server: RecordedServer, ask: Run
) -> None:
    server.answer("POST", f"{PATH}/cs-0/rollback", change_set(undoes="cs-0"), 201)
    server.answer("POST", f"{PATH}/cs-1/apply", change_set("applied", undoes="cs-0"))
    assert "penstock change apply cs-1" in ask("change", "rollback", "cs-0", *WHY).stderr
    assert "applied" in ask("change", "rollback", "cs-0", *WHY, "--apply").stdout
    assert [each.body for each in server.requests] == [{"reason": "slow database"}] * 2 + [{}]


def test_a_change_set_without_its_approvals_says_how_to_get_them(server: RecordedServer, ask: Run) -> None:
    given = {"by": "ben", "at": bodies.later(), "state": "outdated", "expires_at": bodies.later(hours=9)}
    since = {"changed_since": ["queue:default/orders/activity"]}
    lacking = {"wanted": 2, "missing": 2, "given": [given | since]}
    server.answer("POST", PATH, change_set(approvals=lacking, plan="0123456789abcdef"), 201)
    result = ask("change", "new", "--set", CAP, *WHY)
    assert "approval of 2 other people: `penstock change approve cs-1`" in " ".join(result.stderr.split())
    assert "Approvals: 2 wanted, 2 missing" in result.stdout
    assert "no, outdated: queue:default/orders/activity changed since" in result.stdout


def test_approvals_and_applies_name_the_plan_that_was_reviewed(server: RecordedServer, ask: Run) -> None:
    for verb in ("approve", "unapprove", "apply"):
        server.answer("POST", f"{PATH}/cs-1/{verb}", change_set())
    ask("change", "approve", "cs-1", "--plan", "0123456789abcdef")
    ask("change", "unapprove", "cs-1")
    ask("change", "apply", "cs-1", "--plan", "0123456789abcdef", "--at", "2099-01-01T00:00:00Z")
    ask("change", "apply", "cs-1", "--break-glass", "the database burns")
    assert [each.body for each in server.requests] == [
        {"plan": "0123456789abcdef"},
        {},
        {"apply_at": "2099-01-01T00:00:00Z", "plan": "0123456789abcdef"},
        {"break_glass": "the database burns"},
    ]


def test_a_broken_glass_is_the_first_thing_that_is_shown(server: RecordedServer, ask: Run) -> None:
    glass = {"by": "root", "reason": "fire", "missing_approvals": 1, "at": bodies.later()}
    server.answer("GET", f"{PATH}/cs-1", change_set("applied", break_glass=glass))
    first = ask("change", "show", "cs-1").stdout.splitlines()[0]
    assert "BREAK-GLASS: applied by root without 1 of its approvals: fire" in first


def test_a_plan_is_shown_in_words_with_what_stops_it(server: RecordedServer, ask: Run) -> None:
    checks = [{"check": "closes", "stops": False, "path": CAP, "message": "It closes the task queue orders."}]
    plan = change_set(plan="0123456789abcdef", summary=["The cap falls from 5 to 0."], checks=checks)
    server.answer("GET", f"{PATH}/cs-1/plan", plan)
    shown = ask("change", "plan", "cs-1").stdout
    for text in ("The cap falls from 5 to 0.", "It closes the task queue orders.", "0123456789abcdef"):
        assert text in shown


def test_an_edit_sends_all_that_the_change_set_does_then(server: RecordedServer, ask: Run) -> None:
    server.answer("PUT", f"{PATH}/cs-1", change_set())
    ask("change", "edit", "cs-1", "--set", CAP, *WHY)
    assert server.only_request.body == {
        "queues": {"orders": {"max_active_leases": 5}},
        "reason": "slow database",
    }


def test_what_was_granted_under_an_applied_change_set_is_shown_beside_the_hour_before(
    server: RecordedServer, ask: Run
) -> None:
    server.answer("GET", f"{PATH}/cs-1", change_set("applied", applied_at=bodies.later(hours=-1)))
    grants = {"version": 3, "grants": 7, "wait_p50_ms": 90_000, "wait_p95_ms": None, "wait_max_ms": None}
    scopes = [
        {"scope": "queue:default/orders/activity", "is_current": False, "before": grants, "under": grants}
    ]
    gaps = ["The journal begins after the apply: earlier grants are not counted."]
    server.answer("GET", f"{PATH}/cs-1/effect", {"scopes": scopes, "is_complete": False, "gaps": gaps})
    result = ask("change", "show", "cs-1")
    assert "1 minute" in result.stdout
    assert "until its next change" in result.stdout
    assert "The journal begins after the apply" in result.stderr


def test_a_list_marks_change_sets_for_which_the_glass_was_broken(server: RecordedServer, ask: Run) -> None:
    glass = {"by": "root", "reason": "fire", "missing_approvals": 1, "at": bodies.later()}
    found = [change_set("applied", break_glass=glass), change_set("withdrawn", change_set_id="cs-2")]
    server.answer("GET", PATH, {"change_sets": found, "next_page_token": None})
    first, second = ask("change", "list").stdout.splitlines()[1:3]
    assert "applied, BREAK-GLASS" in first
    assert "BREAK-GLASS" not in second


@pytest.mark.parametrize("verb", ["new", "rollback"])
def test_the_glass_is_broken_only_to_apply(server: RecordedServer, ask: Run, verb: str) -> None:
    what = ["--set", CAP] if verb == "new" else ["cs-1"]
    result = ask("change", verb, *what, *WHY, "--break-glass", "fire")
    assert (result.exit_code, server.requests) == (2, [])
    assert "give --apply too" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Name what to change"),
        (["queue:orders"], "has no value"),
        (["queue:orders.weights=3"], "names no setting"),
        (["queue:orders.max_active_lease=3"], "did you mean max_active_leases?"),
        (["queue:.max_active_leases=3"], "names no queue"),
        (["orders=3"], "names no limit"),
        (["queue:orders.max_active_leases=NaN"], "queues.orders.max_active_leases is nan"),
        ([CAP, CAP], "is set twice"),
    ],
)
def test_a_mistake_in_an_option_is_named_and_nothing_is_sent(
    server: RecordedServer, ask: Run, options: list[str], said: str
) -> None:
    given = [part for each in options for part in ("--set", each)]
    result = ask("change", "new", *given, *WHY)
    assert (result.exit_code, server.requests) == (2, [])
    assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[queues.orders", "is not valid TOML: line 1"),
        ("[tenants.acme]\nweight = 3", "has a table 'tenants'"),
        ("queues = 3", "queues is no table in the file"),
        ("[queues]\norders = 3", "orders is no table in the file"),
        ("[queues.orders]\nweights = 2026-01-01", "queues.orders.weights is 2026-01-01"),
        ("[queues.orders]\nmax_active_leases = 5", "is set twice"),
    ],
)
def test_a_mistake_in_a_file_is_named_and_nothing_is_sent(
    server: RecordedServer, ask: Run, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "evening.toml"
    file.write_text(text)
    result = ask("change", "new", "--file", str(file), "--set", CAP, *WHY)
    assert (result.exit_code, server.requests) == (2, [])
    assert said in " ".join(result.stderr.split())
