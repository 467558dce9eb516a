"""The limits of admission as a configuration declares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits.admission import NOTHING_DECLARED, Declaration, DeclaredScope, LimitField, declared
from penstock.core.limits.windows import Window
from penstock.errors import ConfigurationError
from penstock.settings import Settings, describe, limits_of_queue, load
from penstock.settings.limits.admission import OVERRIDES
from tests.support.seed_admission import seed_environment

OPEN = {"DW_AUTH_DRIVER": "none"}


def declare(overrides: Any = None, **environ: str) -> Settings:
    text = {} if overrides is None else {OVERRIDES: json.dumps(overrides)}
    return load(OPEN | environ | text)


def value(settings: Settings, what: LimitField, line: str, kind: str) -> int | str | None:
    namespace, _, queue = line.partition(":")
    found = declared(settings.admission, what, namespace, queue, kind)
    return None if found is None else found.value


def test_nothing_given_limits_nothing():
    settings = load({})
    assert settings.admission == NOTHING_DECLARED
    assert (settings.journal, settings.journal_hours) == (False, 24)


def test_the_block_of_the_documentation_loads_verbatim():
    settings = load(OPEN | seed_environment())
    assert settings.warnings == ()
    assert settings.limits.pending_query_tasks_max == 1024
    assert settings.admission == Declaration(
        defaults={
            "workflow": {
                LimitField.QUEUE_LEASES: 25,
                LimitField.NAMESPACE_LEASES: 500,
                LimitField.QUEUE_DISPATCHES: 600,
                LimitField.NAMESPACE_DISPATCHES: 12_000,
            },
            "activity": {
                LimitField.QUEUE_LEASES: 100,
                LimitField.NAMESPACE_LEASES: 2_000,
                LimitField.QUEUE_DISPATCHES: 1_200,
                LimitField.NAMESPACE_DISPATCHES: 24_000,
            },
        },
        overrides={
            "production:payments": {
                "workflow": {
                    LimitField.QUEUE_LEASES: 8,
                    LimitField.QUEUE_DISPATCHES: 120,
                    LimitField.GROUP: "downstream-openai",
                    LimitField.GROUP_DISPATCHES: 600,
                },
                "activity": {LimitField.QUEUE_LEASES: 12, LimitField.QUEUE_DISPATCHES: 240},
            },
            "production:*": {
                "workflow": {LimitField.NAMESPACE_LEASES: 300, LimitField.NAMESPACE_DISPATCHES: 6_000},
                "activity": {LimitField.NAMESPACE_LEASES: 1_200, LimitField.NAMESPACE_DISPATCHES: 12_000},
            },
            "email": {
                "activity": {
                    LimitField.QUEUE_LEASES: 4,
                    LimitField.QUEUE_DISPATCHES: 60,
                    LimitField.GROUP: "downstream-sendgrid",
                    LimitField.GROUP_DISPATCHES: 300,
                }
            },
            "*": {"workflow": {LimitField.QUEUE_LEASES: 50}},
        },
        scopes={},
        window=Window.MINUTE,
    )


def test_what_is_declared_comes_back_from_a_store_as_it_went_in():
    admission = load(OPEN | seed_environment() | {"DW_MAX_ACTIVE_LEASES_PER_CLUSTER": "7"}).admission
    assert msgspec.json.decode(msgspec.json.encode(admission), type=Declaration) == admission


def test_the_cluster_is_a_scope_for_each_kind_and_for_both():
    settings = declare(
        DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER="1",
        DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER="2",
        DW_MAX_ACTIVE_LEASES_PER_CLUSTER="3",
        DW_DISPATCH_WINDOW="Sliding",
        DW_JOURNAL="on",
        DW_JOURNAL_HOURS="720",
    )
    assert settings.admission.scopes == {
        "cluster/workflow": DeclaredScope(leases=1),
        "cluster/activity": DeclaredScope(leases=2),
        "cluster": DeclaredScope(leases=3),
    }
    assert settings.admission.window is Window.SLIDING
    assert (settings.journal, settings.journal_hours) == (True, 720)


def test_the_declared_limits_have_a_version():
    assert declare().admission.version == 0
    assert declare(DW_ADMISSION_VERSION="3").admission == Declaration(version=3)


def test_the_most_of_any_queue_is_declared_for_all_servers_and_how_long_a_conveyed_rate_holds_is_not():
    settings = declare(DW_QUEUE_RATE_MAX="250", DW_QUEUE_RATE_TTL="20")
    assert settings.admission == Declaration(rate_max_micro=250_000_000)
    assert not settings.admission.is_empty
    assert settings.polls.queue_rate_ttl_ms == 20_000
    assert (declare().admission.rate_max_micro, declare().polls.queue_rate_ttl_ms) == (None, 300_000)


def test_short_names_mean_the_same_as_long_ones():
    short = {
        "max_active_leases": 3,
        "budget_group": "g",
        "max_dispatches_per_minute_per_budget_group": 9,
    }
    full = {
        "max_active_leases_per_queue": 3,
        "dispatch_budget_group": "g",
        "max_dispatches_per_minute_per_budget_group": 9,
    }
    one, other = (declare({"email": {"activity_tasks": section}}) for section in (short, full))
    assert one.admission == other.admission
    assert declare({"email": {"activity_tasks": short | full}}).admission == one.admission


def test_a_null_goes_by_the_default_whatever_wider_keys_say():
    settings = declare(
        {
            "email": {"activity_tasks": {"max_active_leases": None}},
            "*": {"activity_tasks": {"max_active_leases": 7}},
        },
        DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE="100",
    )
    assert value(settings, LimitField.QUEUE_LEASES, "default:email", "activity") == 100
    assert value(settings, LimitField.QUEUE_LEASES, "default:other", "activity") == 7


@pytest.mark.parametrize("nothing", [{"email": None}, {"email": {}}, {"email": {"activity_tasks": None}}, {}])
def test_a_key_that_says_nothing_declares_nothing(nothing: Any):
    assert declare(nothing).admission == NOTHING_DECLARED


def test_a_namespace_in_a_key_is_lower_case_as_every_namespace_is():
    settings = declare({"Production:Payments": {"activity_tasks": {"max_active_leases": 3}}})
    assert list(settings.admission.overrides) == ["production:Payments"]


def test_what_follows_the_first_colon_is_the_queue_with_all_its_colons():
    settings = declare({"production:eu:mail": {"activity_tasks": {"max_active_leases": 3}}})
    assert value(settings, LimitField.QUEUE_LEASES, "production:eu:mail", "activity") == 3
    assert value(settings, LimitField.QUEUE_LEASES, "staging:production:eu:mail", "activity") is None


def test_zero_is_a_limit_and_is_pointed_out():
    settings = declare(
        {"email": {"activity_tasks": {"max_active_leases": 0}}},
        DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE="0",
    )
    assert value(settings, LimitField.QUEUE_LEASES, "default:email", "activity") == 0
    assert value(settings, LimitField.QUEUE_DISPATCHES, "default:email", "workflow") == 0
    assert [warning.partition(": is 0, which closes")[0] for warning in settings.warnings] == [
        "environment: DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE",
        f"environment: {OVERRIDES}.email.activity_tasks.max_active_leases",
    ]


def test_a_queue_that_may_do_more_than_its_namespace_is_pointed_out():
    settings = declare(
        {"production:*": {"activity_tasks": {"max_active_leases_per_namespace": 50}}},
        DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE="100",
        DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE="100",
    )
    assert settings.warnings == (
        "environment: DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE: is 100 and can never bind: "
        f'{OVERRIDES}."production:*".activity_tasks.max_active_leases_per_namespace allows 50 together with'
        " other queues",
    )


def test_a_star_inside_a_name_is_no_pattern_and_is_pointed_out():
    (warning,) = declare({"mail-*": {"activity_tasks": {"max_active_leases": 3}}}).warnings
    assert warning.startswith(f'environment: {OVERRIDES}."mail-*": is for the one queue of this very name')


class TestShown:
    def test_each_limit_has_a_row_of_its_own(self):
        rows = {row.name: row for row in describe(load(OPEN | seed_environment()))}
        assert rows[OVERRIDES].value == "4 keys"
        group = rows[f'{OVERRIDES}."production:payments".workflow_tasks.dispatch_budget_group']
        assert (group.value, group.source) == ("downstream-openai", "environment")
        assert rows["DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE"].value == "100"

    def test_a_queue_is_shown_with_every_limit_that_holds_for_it_and_where_it_was_said(self):
        found = [
            (each.kind, each.scope, each.limit, each.value, each.entry and each.entry.path)
            for each in limits_of_queue(load(OPEN | seed_environment()), "production", "payments")
            if each.kind == "workflow"
        ]
        own, shared = (f'{OVERRIDES}."production:{queue}".workflow_tasks' for queue in ("payments", "*"))
        assert found == [
            (
                "workflow",
                "queue:production/payments/workflow",
                "max_active_leases",
                8,
                f"{own}.max_active_leases_per_queue",
            ),
            (
                "workflow",
                "queue:production/payments/workflow",
                "max_dispatches_per_minute",
                120,
                f"{own}.max_dispatches_per_minute",
            ),
            (
                "workflow",
                "group:production/downstream-openai/workflow",
                "max_dispatches_per_minute",
                600,
                f"{own}.max_dispatches_per_minute_per_budget_group",
            ),
            (
                "workflow",
                "namespace:production/workflow",
                "max_active_leases",
                300,
                f"{shared}.max_active_leases_per_namespace",
            ),
            (
                "workflow",
                "namespace:production/workflow",
                "max_dispatches_per_minute",
                6_000,
                f"{shared}.max_dispatches_per_minute_per_namespace",
            ),
        ]

    def test_a_queue_without_an_override_is_shown_with_the_defaults(self):
        found = limits_of_queue(load(OPEN | seed_environment()), "staging", "refunds")
        assert {each.entry.path for each in found if each.entry is not None} >= {
            "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE",
            "DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE_PER_NAMESPACE",
        }

    def test_a_queue_without_limits_has_nothing_to_show(self):
        assert limits_of_queue(load(OPEN), "default", "email") == []


keys = st.sampled_from(["production:payments", "production:*", "payments", "*", "email", "staging:a:b"])
limits = st.none() | st.integers(0, 9)
sections = st.fixed_dictionaries(
    {}, optional={"max_active_leases_per_queue": limits, "max_dispatches_per_minute": limits}
)


@given(
    st.dictionaries(keys, st.fixed_dictionaries({}, optional={"activity_tasks": sections})),
    st.none() | st.integers(0, 9),
    st.sampled_from(["production", "staging", "default"]),
    st.sampled_from(["payments", "email", "a:b", "other", "production:payments"]),
)
def test_what_is_shown_of_a_queue_is_what_the_core_goes_by(
    overrides: dict[str, Any], default: int | None, namespace: str, queue: str
):
    environ = {} if default is None else {"DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE": str(default)}
    settings = declare(overrides, **environ)
    for what in (LimitField.QUEUE_LEASES, LimitField.QUEUE_DISPATCHES):
        core = declared(settings.admission, what, namespace, queue, "activity")
        said = settings.declared.of_line(what, namespace, queue, "activity")
        assert (said and said.value) == (core and core.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
likely_names = st.sampled_from([*LimitField, "max_active_leases", "budget_group", "oops"])
likely = st.dictionaries(
    keys | st.text(max_size=5),
    st.dictionaries(
        st.sampled_from(["workflow_tasks", "activity_tasks", "query_tasks"]),
        st.dictionaries(likely_names, st.integers(-1, 3) | st.sampled_from(["g", "", "a/b"]) | json_values)
        | json_values,
    )
    | json_values,
)


@given(likely | json_values)
def test_any_json_is_either_taken_or_refused_line_by_line_with_its_path(value: Any):
    text = json.dumps(value)
    try:
        load({OVERRIDES: text})
    except ConfigurationError as refused:
        for problem in refused.details["problems"]:
            assert problem.startswith(f"environment: {OVERRIDES}")
            assert problem.isprintable()


def test_the_same_text_in_the_file_means_the_same(tmp_path: Path):
    config = tmp_path / "penstock.toml"
    config.write_text(f"task_queue_admission_overrides = '''{seed_environment()[OVERRIDES]}'''\n")
    assert load({}, config).admission.overrides == load(seed_environment()).admission.overrides
