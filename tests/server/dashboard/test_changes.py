"""Changes from pages: only from our own, only by those who may, and never over somebody else's."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click
import pytest

from penstock.cli.program import program
from penstock.core.operations.ui_sessions import IDLE_MS_MAX
from penstock.server.dashboard.pages import ACTIONS
from penstock.server.dashboard.pages.fleet import task_commands
from tests.conventions.test_dashboard_verbs import verbs_with_a_dialog
from tests.server.client import Client
from tests.server.dashboard.conftest import QUEUE
from tests.server.dashboard.visitors import Visitor
from tests.support.clock import ManualClock

CAP = f"/ui/queues/{QUEUE}/cap"
TO_THREE = {"kind": "activity", "to": "3", "reason": "it has recovered", "for": "3600"}


async def _cap(api: Client) -> Mapping[str, Any]:
    limits = (await api.get(f"/api/task-queues/{QUEUE}/limits")).expect(200).json
    found: Mapping[str, Any] = limits["limits"]["max_active_leases_per_queue"]
    return found


async def _ready(visitor: Visitor) -> None:
    await visitor.page(f"/ui/queues/{QUEUE}")


async def test_a_change_has_the_name_of_the_visitor_its_reason_and_its_end(
    api: Client, operator: Visitor
) -> None:
    await _ready(operator)
    reply = await operator.post(CAP, TO_THREE)
    assert reply.status == 200
    assert b"the cap is 3" in reply.raw
    cap = await _cap(api)
    live = cap["live"]
    assert (cap["value"], live["updated_by"], live["reason"]) == (3, "ops-on-call", "it has recovered")
    assert live["ends_at"] is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"x-csrf-token": ""},
        {"x-csrf-token": "0" * 64},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_a_change_that_no_page_of_ours_sent_changes_nothing(
    api: Client, operator: Visitor, headers: Mapping[str, str]
) -> None:
    await _ready(operator)
    reply = await operator.post(CAP, TO_THREE, **headers)
    assert reply.status == 403
    assert (await _cap(api))["value"] == 1


async def test_the_token_of_one_session_is_worthless_in_another(
    api: Client, operator: Visitor, somebody: Callable[[], Visitor]
) -> None:
    other = somebody()
    await other.sign_in("operator-secret")
    await _ready(other)
    operator.csrf = other.csrf
    assert (await operator.post(CAP, TO_THREE)).status == 403
    assert (await _cap(api))["value"] == 1


@pytest.mark.parametrize("action", [each.path for each in ACTIONS])
async def test_a_viewer_changes_nothing_whatever_is_posted(api: Client, viewer: Visitor, action: str) -> None:
    await _ready(viewer)
    target = "/ui" + action.replace("{name}", QUEUE).replace("{key}", "acme")
    before = (await api.get(f"/api/task-queues/{QUEUE}/config")).json
    reply = await viewer.post(target, TO_THREE | {"scope": "cluster", "leases": "1"})
    assert reply.status == 403
    assert (await api.get(f"/api/task-queues/{QUEUE}/config")).json == before


async def test_a_session_that_ends_while_a_form_is_open_changes_nothing_and_says_so(
    api: Client, operator: Visitor, clock: ManualClock
) -> None:
    await _ready(operator)
    clock.advance(IDLE_MS_MAX)
    reply = await operator.post(CAP, TO_THREE)
    assert reply.status == 401
    assert b"nothing was changed" in reply.raw
    assert b"/ui/sign-in" in reply.raw
    assert (await _cap(api))["value"] == 1


async def test_the_second_of_two_people_who_change_one_limit_sees_what_moved(
    api: Client, operator: Visitor
) -> None:
    await _ready(operator)
    dialog = await operator.page(f"{CAP}?kind=activity")
    assert 'name="if_version" value="1"' in dialog
    change = {"max_active_leases_per_queue": 2, "reason": "month end"}
    (await api.patch(f"/api/task-queues/{QUEUE}/limits", change)).expect(200)
    reply = await operator.post(CAP, TO_THREE | {"if_version": "1"})
    assert reply.status == 409
    assert b"config_version_conflict" in reply.raw
    text = html.unescape(reply.raw.decode())
    assert "Nothing was changed" in text
    assert "operator changed max running: 1 → 2 (“month end”)" in text
    assert 'data-version="2"' in text, "what the form goes on from"
    assert (await _cap(api))["value"] == 2


@pytest.mark.parametrize("given", ["-1", "many", "1e9", "99999999999999999999"])
async def test_a_value_that_is_none_is_explained_beside_its_field(
    api: Client, operator: Visitor, given: str
) -> None:
    await _ready(operator)
    reply = await operator.post(CAP, TO_THREE | {"to": given})
    assert reply.status == 422
    assert reply.headers["content-type"].startswith("text/html"), "a fragment, never JSON"
    assert (await _cap(api))["value"] == 1


async def test_a_change_is_undone_from_the_list_of_changes(api: Client, operator: Visitor) -> None:
    await _ready(operator)
    assert (await operator.post(CAP, TO_THREE)).status == 200
    assert (await _cap(api))["value"] == 3
    (undo,) = set(re.findall(r'hx-get="([^"]*reason=back[^"]*)"', await operator.page("/ui/changes")))
    dialog = await operator.page(html.unescape(undo))
    assert 'name="to" value="1"' in dialog
    assert 'value="back to before v2"' in dialog
    assert '<option value="" selected>' in dialog, "what is undone stays so"


async def test_each_dialog_gives_its_change_as_a_command_that_the_command_line_takes(
    api: Client, operator: Visitor
) -> None:
    """And each verb of the command line that changes such a thing has a dialog: see `tests/conventions`."""
    run, closed = await _run(api, "order-1"), await _run(api, "order-2")
    (await api.post("/api/workflows/order-2/terminate", {})).expect(200)
    queue, key, build = f"/ui/queues/{QUEUE}", f"/ui/queues/{QUEUE}/keys/acme", f"/ui/builds/{QUEUE}"
    schedule = {
        "schedule_id": "nightly",
        "spec": {"cron_expressions": ["0 2 * * *"]},
        "action": {"workflow_type": "orders", "task_queue": QUEUE},
    }
    (await api.post("/api/schedules", schedule)).expect(201)
    (await api.patch("/api/budget-groups/bank", {"max_active_leases": 9})).expect(200)
    (await api.post("/api/budget-groups/shut/pause", {})).expect(200)
    (await api.post("/api/namespaces", {"name": "idle"}, role="admin")).expect(201)
    (await api.post("/api/namespaces/idle/pause", {})).expect(200)
    proposal = {"reason": "a slow bank", "queues": {QUEUE: {"max_active_leases": 2}}}
    proposed = (await api.post("/api/change-sets", proposal)).expect(201).json["change_set_id"]
    change_set = f"/ui/change-sets/{proposed}/do"
    filled = "reason=a+slow+bank&for=900"
    scope, caps, task = "/ui/limits/change?scope", "/ui/run-limits/change?", "/ui/tasks/charge-2/act"
    commands = {
        f"{queue}/cap?to=3&dispatches=90&{filled}": ["--max-active-leases", "3", "900s", "a slow bank"],
        f"{queue}/cap?to=none&for=900": ["--max-active-leases", "default"],
        f"{queue}/group?to=bank&{filled}": ["--dispatch-budget-group", "bank", "a slow bank"],
        f"{queue}/settings?fairness=off&key_rate=2.5&aging_every=9&{filled}": ["--fairness", "off", "2.5"],
        f"{queue}/rate?to=2.5&{filled}": ["2.5", "a slow bank"],
        f"{queue}/pause?{filled}": ["900s", "a slow bank"],
        f"{queue}/resume?{filled}": ["a slow bank"],
        f"{key}?weight=5&cap=2&paused=yes&{filled}": ["acme=5", "acme=2", "--pause-key"],
        f"{key}?rate=2.5&{filled}": ["--key-rps-limit", "acme=2.5"],
        f"{build}/drain?build=": ["--unversioned"],
        f"{build}/promote?build=v2": ["v2"],
        f"{scope}=namespace:default&leases=7&{filled}": ["--max-active-leases", "7"],
        f"{scope}=namespace:default&paused=yes&{filled}": ["pause", "900s", "a slow bank"],
        f"{scope}=namespace:idle&paused=no&{filled}": ["resume", "idle"],
        f"{scope}=group:default/shut&paused=no&{filled}": ["budget-group", "resume", "shut"],
        f"{scope}=cluster/activity&cost=9&{filled}": ["--type", "activity"],
        f"{scope}=group:default/bank&dispatches=60&window=minute&{filled}": ["bank", "60", "minute"],
        f"{scope}=group:default/bank&paused=yes&{filled}": ["budget-group", "pause", "bank"],
        f"{caps}scope=workflow_type&name=orders&most=5&surplus=refuse&{filled}": [
            "--type",
            "orders",
            "5",
            "refuse",
        ],
        f"{caps}scope=each_concurrency_key&most=1": ["--each-key", "1"],
        f"{caps}new=yes&scope=task_queue&name=q&most=0": ["--task-queue", "q", "0"],
        f"/ui/schedules/nightly/act/pause?{filled}": ["--note", "a slow bank"],
        f"/ui/schedules/nightly/act/resume?{filled}": ["--note", "a slow bank"],
        "/ui/schedules/nightly/act/trigger?overlap=skip": ["--overlap", "skip"],
        "/ui/schedules/nightly/act/backfill?start=2026-01-31T00:00:00Z&end=2026-02-01T00:00:00Z": ["--from"],
        "/ui/schedules/nightly/act/delete": ["nightly", "--yes"],
        f"/ui/schedules/bulk/pause?query=TaskQueue+%3D+%27payments%27&{filled}": ["TaskQueue = 'payments'"],
        "/ui/schedules/bulk/resume": ["QUERY"],
        "/ui/workers/render-1/deregister": ["render-1"],
        **{f"{task}/{act}?{filled}": ["charge-2", "a slow bank"] for act in task_commands.ACTS},
        f"{task}/update-options?queue=slow&start_to_close=25&attempts=3": ["slow", "25s", "3"],
        **{
            f"{run}/{act}?{filled}": ["--run-id", "a slow bank"]
            for act in ("pause", "resume", "cancel", "terminate")
        },
        **{
            f"{run}/{act}?name=approve&input=[1]": ["approve", "[1]"] for act in ("signal", "update", "query")
        },
        f"{run}/repair": ["--run-id"],
        **{f"{closed}/{act}?{filled}": ["a slow bank"] for act in ("rerun", "archive", "delete")},
        f"{closed}/redrive": ["--run-id"],
        f"{closed}/reset?event=4&reapply=none&{filled}": ["--event", "4", "none"],
        f"{closed}/fork?event=4&id=copy": ["--event", "4", "--id", "copy"],
        f"/ui/runs/bulk/cancel?{filled}": ["--query", "a slow bank"],
        f"/ui/runs/bulk/terminate?q=WorkflowType+%3D+%27orders%27&{filled}": ["--query", "a slow bank"],
        "/ui/runs/bulk/signal?signal_name=go": ["go"],
        **{
            f"{change_set}/{act}?reason=slow": [act]
            for act in ("approve", "unapprove", "apply", "withdraw", "rollback")
        },
    }
    made = set()
    for address, expected in commands.items():
        text = await operator.page(address)
        (command,) = re.findall(r'id="as-cli" data-copy="([^"]+)"', text)
        words = shlex.split(html.unescape(command))
        assert words[0] == "penstock"
        assert set(expected) <= set(words), command
        made.add(_parsed(words[1:]))
    assert made == set(verbs_with_a_dialog())


async def _run(api: Client, workflow_id: str) -> str:
    body = {"workflow_id": workflow_id, "workflow_type": "orders", "task_queue": QUEUE}
    run_id = (await api.post("/api/workflows", body)).expect(201).json["run_id"]
    return f"/ui/runs/{workflow_id}/{run_id}/act"


def _parsed(words: list[str]) -> str:
    """The command line takes these words: each command and option is there, and each value is of its type."""
    command: click.Command = program
    context, verb = None, []
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=words[0], obj=None)
        found = command.get_command(context, words[0])
        assert found is not None, words
        verb.append(words[0])
        command, words = found, words[1:]
    with click.Context(command, parent=context) as last:
        command.parse_args(last, list(words))
    return " ".join(verb)


async def test_a_dialog_shows_the_effect_before_anything_is_done(api: Client, operator: Visitor) -> None:
    await _ready(operator)
    dialog = await operator.page(f"{CAP}?kind=activity&to=3")
    assert "2 tasks of 3 that wait may start at once" in dialog
    assert "the bank is slow" in dialog, "what the change replaces"
    assert (await _cap(api))["value"] == 1


async def test_a_key_gets_a_weight_and_a_pause_from_its_dialog(api: Client, operator: Visitor) -> None:
    await _ready(operator)
    form = {"kind": "activity", "was": "1||no", "weight": "5", "cap": "", "paused": "yes", "reason": "audit"}
    assert (await operator.post(f"/ui/queues/{QUEUE}/keys/acme", form)).status == 200
    keys = (await api.get(f"/api/task-queues/{QUEUE}/config")).json["keys"]
    (acme,) = (each for each in keys if each["fairness_key"] == "acme")
    assert (acme["weight_override"], acme["paused"], acme["updated_by"]) == (5, True, "ops-on-call")


async def test_a_key_gets_a_cap_and_a_rate_whose_effect_is_shown_before_and_which_are_undone(
    api: Client, operator: Visitor, clock: ManualClock
) -> None:
    await _ready(operator)
    key = f"/ui/queues/{QUEUE}/keys/acme"
    clock.advance(1_000)
    shown = await operator.page(f"{key}?kind=activity&cap=5&rate=0.5")
    assert "1 of 1 task that wait may start, as other limits allow" in shown
    assert "At most 0.5 tasks start in a second" in shown
    form = {"kind": "activity", "was": "1||no|", "weight": "1", "cap": "5", "paused": "no", "rate": "0.5"}
    assert (await operator.post(key, form | {"reason": "a small bank"})).status == 200
    (acme,) = (await api.get(f"/api/task-queues/{QUEUE}/keys?key=acme")).json["keys"]
    assert (acme["max_running"], acme["rps_limit"], acme["weight_source"]) == (5, 0.5, "default")
    assert 'name="rate" value="0.5"' in await operator.page(key)
    undo = set(re.findall(r'hx-get="([^"]*rate=none[^"]*)"', await operator.page("/ui/changes")))
    assert 'name="rate" value=""' in await operator.page(html.unescape(undo.pop()))


async def test_a_key_beyond_the_largest_shows_what_waits_for_it(api: Client, operator: Visitor) -> None:
    items = [
        {"activity_type": "charge", "task_queue": QUEUE, "fairness_key": f"big-{number // 3}"}
        for number in range(60)
    ]
    (await api.post("/api/activities/batch", {"items": items})).expect(200)
    shown = await operator.page(f"/ui/queues/{QUEUE}/keys/initech?kind=activity&paused=yes")
    assert "1 task that wait" in shown


async def test_a_queue_is_paused_and_resumed(api: Client, operator: Visitor) -> None:
    await _ready(operator)
    assert (
        await operator.post(f"/ui/queues/{QUEUE}/pause", {"kind": "activity", "for": "900"})
    ).status == 200
    text = await operator.page(f"/ui/queues/{QUEUE}")
    assert "queue paused" in text.lower()
    assert "Resume…" in text
    assert (await operator.post(f"/ui/queues/{QUEUE}/resume", {"kind": "activity"})).status == 200
    assert "Pause…" in await operator.page(f"/ui/queues/{QUEUE}")


async def test_the_limits_of_a_namespace_are_changed_and_those_of_the_cluster_by_administrators_only(
    api: Client, operator: Visitor, somebody: Callable[[], Visitor], clock: ManualClock
) -> None:
    await _ready(operator)
    clock.advance(1_000)
    form = {
        "leases": "7",
        "was": '{"paused": "no"}',
        "paused": "no",
        "dispatches": "",
        "cost": "",
    }
    assert (await operator.post("/ui/limits/change", form | {"scope": "namespace:default"})).status == 200
    limits = (await api.get("/api/namespaces/default/limits")).json["all"]["limits"]
    assert limits["max_active_leases"]["value"] == 7
    assert (await operator.post("/ui/limits/change", form | {"scope": "cluster"})).status == 403
    admin = somebody()
    await admin.sign_in("admin-secret")
    await _ready(admin)
    clock.advance(1_000)
    assert (await admin.post("/ui/limits/change", form | {"scope": "cluster"})).status == 200
    log = (await api.get("/api/limits/changes")).json["changes"]
    assert [(each["scope"], each["by"]) for each in log[:2]] == [
        ("cluster", "admin"),
        ("namespace:default", "ops-on-call"),
    ]
