"""Limits of admission in tables of the file, with budget groups that only a file can limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.limits.admission import DeclaredScope, LimitField
from penstock.core.limits.windows import Window
from penstock.errors import ConfigurationError
from penstock.settings import Settings, describe, limits_of_queue, load
from penstock.settings.reference import reference_markdown

OPEN = 'auth_driver = "none"\n'
TABLES = """
[admission]
window = "sliding"

[admission.defaults.activity_tasks]
max_active_leases_per_queue = 100

[admission.queues."production:payments".workflow_tasks]
max_active_leases_per_queue = 8
dispatch_budget_group = "downstream-openai"

[admission.groups.downstream-openai]
max_dispatches_per_minute = 600
max_active_leases = 50
max_cost_per_minute = 90000
window = "minute"

[admission.cluster]
max_active_leases = 500
activity_tasks.max_active_leases = 400
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def read(config: Path, text: str, **environ: str) -> Settings:
    config.write_text(OPEN + text, encoding="utf-8")
    return load(environ, config)


def problems_of(config: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        read(config, text, **environ)
    return [problem.replace(str(config), "FILE") for problem in refused.value.details["problems"]]


def test_tables_say_what_settings_say(config: Path):
    admission = read(config, TABLES).admission
    assert admission.window is Window.SLIDING
    assert admission.defaults == {"activity": {LimitField.QUEUE_LEASES: 100}}
    assert admission.overrides == {
        "production:payments": {
            "workflow": {LimitField.QUEUE_LEASES: 8, LimitField.GROUP: "downstream-openai"}
        }
    }
    assert admission.scopes == {
        "cluster": DeclaredScope(leases=500),
        "cluster/activity": DeclaredScope(leases=400),
        "group:*/downstream-openai": DeclaredScope(50, 600, 90_000, Window.MINUTE),
    }


def test_the_environment_wins_value_by_value(config: Path):
    admission = read(
        config, TABLES, DW_MAX_ACTIVE_LEASES_PER_CLUSTER="7", DW_DISPATCH_WINDOW="minute"
    ).admission
    assert admission.scopes["cluster"].leases == 7
    assert admission.scopes["cluster/activity"].leases == 400
    assert admission.window is Window.MINUTE


def test_limits_by_queue_are_given_in_one_place_only(config: Path):
    (problem,) = problems_of(config, TABLES, DW_TASK_QUEUE_ADMISSION_OVERRIDES="{}")
    assert problem == (
        "FILE line 9: [admission.queues] and DW_TASK_QUEUE_ADMISSION_OVERRIDES (environment) both give limits by"
        " queue, and which holds is unclear: remove one of them"
    )
    (problem,) = problems_of(config, "task_queue_admission_overrides = '{}'\n" + TABLES)
    assert "both give limits by queue" in problem


def test_a_setting_and_its_place_in_a_table_are_one(config: Path):
    (problem,) = problems_of(config, "max_active_leases_per_cluster = 3\n" + TABLES)
    assert "DW_MAX_ACTIVE_LEASES_PER_CLUSTER is given twice" in problem
    (problem,) = problems_of(
        config,
        "[admission.defaults.activity_tasks]\nmax_active_leases = 3\nmax_active_leases_per_queue = 3\n",
    )
    assert "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE is given twice" in problem


def test_a_group_is_one_budget_for_all_namespaces_or_one_in_each_that_it_names(config: Path):
    text = "[admission.groups.bank]\nmax_active_leases = 3\nnamespaces = {}\n"
    assert list(read(config, text.format('"all"')).admission.scopes) == ["group:*/bank"]
    listed = read(config, text.format('["Production", "test", "production"]')).admission.scopes
    assert list(listed) == ["group:production/bank", "group:test/bank"]


def test_a_group_that_no_queue_names_is_pointed_out(config: Path):
    (warning,) = read(config, "[admission.groups.bank]\nmax_active_leases = 3\n").warnings
    assert warning.endswith(
        "admission.groups.bank.max_active_leases: counts nothing yet: no queue names this group"
    )


def test_a_group_of_another_namespace_does_not_limit(config: Path):
    text = (
        '[admission.queues."{}".activity_tasks]\nbudget_group = "bank"\n'
        '[admission.groups.bank]\nmax_active_leases = 3\nnamespaces = ["test"]\n'
    )
    read(config, text.format("test:payments"))
    read(config, text.format("payments"))
    (problem,) = problems_of(config, text.format("production:payments"))
    assert '"bank" is a group without a limit here' in problem


def test_every_slip_is_told_with_line_and_path(config: Path):
    problems = problems_of(
        config,
        """\
[admission]
windw = "minute"
[admission.defaults.activity_tasks]
max_active_leases_per_queue = -1
max_dispatches_per_minute = 1.5
dispatch_budget_group = "x"
[admission.defaults.query_tasks]
[admission.queues."production:payments".workflow_tasks]
max_active_leases_per_queue = nan
max_active_lease = 3
[admission.groups."a/b"]
max_active_leases = 3
[admission.groups.c]
window = "slidin"
namespaces = []
[admission.groups.d]
window = "sliding"
[admission.groups.e]
max_lease = 3
namespaces = ["A b"]
[admission.cluster]
max_active_leases = 1979-05-27
activity_tasks = 4
""",
    )
    expected = [
        "line 3: admission.windw: unknown key; did you mean 'window'?",
        "line 7: admission.defaults.activity_tasks.dispatch_budget_group: unknown key; there are ",
        "line 8: admission.defaults.query_tasks: unknown key; ",
        "line 24: admission.cluster.activity_tasks: must be a table with max_active_leases, not 4",
        "line 6 (admission.defaults.activity_tasks.max_dispatches_per_minute): "
        "DW_ACTIVITY_TASK_MAX_DISPATCHES_PER_MINUTE must be a whole number",
        "line 23 (admission.cluster.max_active_leases): DW_MAX_ACTIVE_LEASES_PER_CLUSTER must be a whole number",
        "line 5 (admission.defaults.activity_tasks.max_active_leases_per_queue): "
        "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE must be a whole number",
        'line 10: admission.queues."production:payments".workflow_tasks.max_active_leases_per_queue: must be a whole'
        " number from 0 to 1000000, not nan",
        'line 11: admission.queues."production:payments".workflow_tasks.max_active_lease: unknown key; '
        "did you mean 'max_active_leases'?",
        'line 12: admission.groups."a/b": must be the name of a budget group',
        'line 15: admission.groups.c.window: must be minute or sliding, not "slidin"',
        'line 16: admission.groups.c.namespaces: must be "all" or a list of namespaces, not an empty one',
        "line 17: admission.groups.d: needs one of max_active_leases, ",
        "line 20: admission.groups.e.max_lease: unknown key; did you mean 'max_active_leases'?",
        "line 21: admission.groups.e.namespaces: a namespace is ",
    ]
    assert [
        problem.removeprefix("FILE ")[: len(begin)] for problem, begin in zip(problems, expected, strict=True)
    ] == expected


@pytest.mark.parametrize(
    "text", ["admission = 3\n", 'admission = "x"\n', "[[admission]]\nwindow = 'minute'\n"]
)
def test_what_is_no_table_is_refused(config: Path, text: str):
    (problem,) = problems_of(config, text)
    assert problem.startswith(
        "FILE line 2: admission: must be a table with window, version, defaults, cluster, queues, groups, not "
    )


@pytest.mark.parametrize("name", ["queues", "groups", "defaults", "cluster"])
def test_a_part_that_is_no_table_is_refused(config: Path, name: str):
    (problem,) = problems_of(config, f"[admission]\n{name} = 3\n")
    assert problem.startswith(f"FILE line 3: admission.{name}: must be a table with ")


def test_each_row_tells_which_line_it_came_from(config: Path):
    rows = {row.name: row for row in describe(read(config, TABLES))}
    assert rows["DW_TASK_QUEUE_ADMISSION_OVERRIDES"].value == "1 key"
    assert rows["DW_TASK_QUEUE_ADMISSION_OVERRIDES"].source == f"{config} line 9 (admission.queues)"
    cluster = rows["DW_MAX_ACTIVE_LEASES_PER_CLUSTER"]
    assert (cluster.value, cluster.source) == (
        "500",
        f"{config} line 20 (admission.cluster.max_active_leases)",
    )
    cost = rows["admission.groups.downstream-openai.max_cost_per_minute"]
    assert (cost.value, cost.source) == ("90000", f"{config} line 16")


def test_a_queue_is_shown_with_the_limits_of_its_group_and_of_the_cluster(config: Path):
    shown = limits_of_queue(read(config, TABLES), "production", "payments")
    assert [
        (each.scope, each.limit, each.value, each.window) for each in shown if each.kind == "workflow"
    ] == [
        ("queue:production/payments/workflow", "max_active_leases", 8, None),
        ("cluster", "max_active_leases", 500, None),
        ("group:*/downstream-openai", "max_active_leases", 50, None),
        ("group:*/downstream-openai", "max_dispatches_per_minute", 600, Window.MINUTE),
        ("group:*/downstream-openai", "max_cost_per_minute", 90_000, Window.MINUTE),
    ]
    assert all(each.entry is not None for each in shown)


def test_the_tables_of_the_reference_page_load(config: Path):
    page = reference_markdown()
    text = page.partition("```toml\n")[2].partition("```")[0]
    assert "[admission.groups.downstream-openai]" in text
    assert read(config, text).warnings == ()
    overrides = page.partition("```json\n")[2].partition("```")[0]
    assert load({"DW_TASK_QUEUE_ADMISSION_OVERRIDES": overrides}).admission.overrides
