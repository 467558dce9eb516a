"""Limits that are malformed, unknown or contradictory: every slip is refused with its path, all at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import ConfigurationError
from penstock.settings import load
from penstock.settings.limits.admission import OVERRIDES

OPEN = {"DW_AUTH_DRIVER": "none"}
GROUP_LIMIT = "max_dispatches_per_minute_per_budget_group"


def problems_of(overrides: Any, **environ: str) -> list[str]:
    """The lines without what all of them begin with."""
    text = overrides if isinstance(overrides, str) else json.dumps(overrides)
    with pytest.raises(ConfigurationError) as refused:
        load(OPEN | environ | {OVERRIDES: text})
    problems: list[str] = refused.value.details["problems"]
    assert all(problem.isprintable() for problem in problems)
    return [problem.removeprefix(f"environment: {OVERRIDES}") for problem in problems]


def of_queue(**limits: Any) -> dict[str, Any]:
    return {"payments": {"activity_tasks": limits}}


def group(name: str | None = None, limit: int | None = None) -> dict[str, Any]:
    said = {"dispatch_budget_group": name, GROUP_LIMIT: limit}
    return {"activity_tasks": {field: value for field, value in said.items() if value is not None}}


class TestJson:
    @pytest.mark.parametrize(
        ("text", "place", "pointed"),
        [
            ('{"a": {}\n "b": {}}', "line 2, column 2", '>>>"b": {}}'),
            ('{"a": ', "line 1, column 7", '{"a":  >>> (nothing more)'),
            ('{"a": {}} x', "line 1, column 11", '{"a": {}}  >>>x'),
            ("{a: 1}", "line 1, column 2", "{ >>>a: 1}"),
            ('{"a": 01}', "line 1, column 8", '{"a": 0 >>>1}'),
            ('{"a\n": 1}', "line 1, column 4", '{"a >>> (nothing more)'),
            ("\ufeff{}", "line 1, column 1", ">>>?{}"),
        ],
    )
    def test_what_is_no_json_is_refused_with_line_and_column_and_a_mark(
        self, text: str, place: str, pointed: str
    ):
        (problem,) = problems_of(text)
        assert problem.startswith(f" is not valid JSON: {place}: ")
        assert problem.endswith(pointed)

    def test_a_comma_too_many_is_refused(self):
        (problem,) = problems_of('{"a": {"activity_tasks": {"max_active_leases": 3,}}}')
        assert problem.startswith(" is not valid JSON: line 1, column ")

    def test_a_long_line_is_shown_around_the_slip_only(self):
        (problem,) = problems_of('{"a": "' + "x" * 500 + '" y' + "z" * 500)
        assert len(problem) < 200
        assert 'xxx"  >>>yzzz' in problem

    def test_the_quotes_of_a_shell_are_recognised(self):
        (problem,) = problems_of("'{}'")
        assert "quotes around the whole belong to the shell" in problem

    @pytest.mark.parametrize("text", ["[]", "null", "5", '"x"', "true"])
    def test_what_is_no_object_is_refused(self, text: str):
        (problem,) = problems_of(text)
        assert problem == f" must be a JSON object, {{...}}, not {json.dumps(text)}"

    @pytest.mark.parametrize("text", ["", " ", "\n"])
    def test_a_blank_text_is_refused(self, text: str):
        (problem,) = problems_of(text)
        assert problem.startswith(" is empty: it must be a JSON object")

    def test_a_json_bomb_is_refused(self):
        assert len(problems_of('{"a":' * 100_000)) == 1
        assert len(problems_of('{"a": ' + "9" * 10_000 + "}")) == 1

    def test_a_name_that_stands_twice_is_refused_wherever_it_is(self):
        problems = problems_of(
            '{"a": {}, "a": {"activity_tasks": {"max_active_leases": 1, "max_active_leases": 1}}}'
        )
        assert problems == [
            ".a: stands here more than once: keep one of them",
            ".a.activity_tasks.max_active_leases: stands here more than once: keep one of them",
        ]


class TestNames:
    @pytest.mark.parametrize(
        ("wrong", "right"),
        [
            ("max_active_lease", "max_active_leases"),
            ("max_active_leases_per_que", "max_active_leases_per_queue"),
            ("max_dispatch_per_minute", "max_dispatches_per_minute"),
            ("dispatch_group", "dispatch_budget_group"),
            ("Max_Active_Leases", "max_active_leases"),
        ],
    )
    def test_an_unknown_limit_is_refused_with_the_one_that_was_meant(self, wrong: str, right: str):
        problems = problems_of({"production:payments": {"workflow_tasks": {wrong: 3}}})
        assert problems == [
            f'."production:payments".workflow_tasks.{wrong}: unknown key; did you mean {right!r}?',
        ]

    def test_an_unknown_limit_without_neighbours_is_refused_with_all_there_are(self):
        (problem,) = problems_of(of_queue(qqq=1))
        assert problem.startswith(
            ".payments.activity_tasks.qqq: unknown key; there are max_active_leases_per_queue, "
        )

    @pytest.mark.parametrize(
        ("kind", "told"),
        [
            ("workflow_task", "unknown key; did you mean 'workflow_tasks'?"),
            ("activities", "unknown key; there are workflow_tasks, activity_tasks"),
            ("xyz", "unknown key; there are workflow_tasks, activity_tasks"),
            ("max_active_leases", "belongs one level deeper, into workflow_tasks or activity_tasks"),
            (
                "query_tasks",
                "query tasks have one limit, for every queue: DW_QUERY_TASK_MAX_PENDING_PER_QUEUE",
            ),
        ],
    )
    def test_an_unknown_kind_is_refused_with_the_one_that_was_meant(self, kind: str, told: str):
        assert problems_of({"payments": {kind: 3}}) == [f".payments.{kind}: {told}"]

    @pytest.mark.parametrize(
        ("key", "told"),
        [
            ("", "a task queue is "),
            (" ", "a task queue is "),
            (" payments", "a task queue is "),
            ("q" * 256, "a task queue is "),
            ("a\x07b", "a task queue is "),
            ("production:", "a task queue is "),
            ("production: payments", "a task queue is "),
            (":payments", "a namespace is "),
            ("two words:payments", "a namespace is "),
            ("..:payments", "a namespace is "),
            ("prod*:payments", "a namespace is "),
            ("*:payments", 'for a queue in every namespace write "payments"'),
        ],
    )
    def test_a_key_of_another_form_is_refused(self, key: str, told: str):
        (problem,) = problems_of({key: {"activity_tasks": {"max_active_leases": 3}}})
        assert f": {told}" in problem
        assert problem.endswith('a key is "namespace:queue", "namespace:*", "queue" or "*"')

    def test_two_spellings_of_one_key_are_refused(self):
        assert problems_of({"prod:a": {}, "Prod:a": {}}) == [
            '."Prod:a": is the same key as "prod:a": keep one of them'
        ]

    @pytest.mark.parametrize("value", [5, "x", [1], True, 1.5])
    def test_a_value_where_names_are_expected_is_refused(self, value: Any):
        (problem,) = problems_of({"payments": value})
        assert problem.startswith(".payments: must be an object with workflow_tasks, activity_tasks, not ")
        (problem,) = problems_of({"payments": {"activity_tasks": value}})
        assert problem.startswith(
            ".payments.activity_tasks: must be an object with max_active_leases_per_queue, "
        )


class TestValues:
    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            ("-1", "-1"),
            ("1.5", "1.5"),
            ("1.0", "1.0"),
            ("1e3", "1e3"),
            ("NaN", "NaN"),
            ("Infinity", "Infinity"),
            ("-Infinity", "-Infinity"),
            ("true", "true"),
            ('"8"', '"8"'),
            ('""', '""'),
            ("[]", "a list"),
            ("{}", "an object"),
            ("1000001", "1000001"),
            ("9" * 30, "9" * 30),
        ],
    )
    def test_a_limit_is_a_whole_number_within_bounds(self, written: str, shown: str):
        (problem,) = problems_of(f'{{"payments": {{"activity_tasks": {{"max_active_leases": {written}}}}}}}')
        assert problem == (
            ".payments.activity_tasks.max_active_leases: must be a whole number from 0 to 1000000,"
            f" not {shown}"
        )

    def test_dispatches_may_be_more(self):
        load({OVERRIDES: json.dumps(of_queue(max_dispatches_per_minute=1_000_000_000))})
        (problem,) = problems_of(of_queue(max_dispatches_per_minute=1_000_000_001))
        assert "from 0 to 1000000000, not 1000000001" in problem

    @pytest.mark.parametrize(
        "name", ["", " ", " g", "g\n", "a/b", "a:b", "g" * 129, "\ud800", "a\x00b", 5, []]
    )
    def test_a_group_has_a_plain_name(self, name: Any):
        (problem,) = problems_of(of_queue(budget_group=name, **{GROUP_LIMIT: 3}))
        assert problem.startswith(
            ".payments.activity_tasks.budget_group: must be the name of a budget group: "
        )

    @pytest.mark.parametrize(
        "limits",
        [
            {"max_active_leases": 3, "max_active_leases_per_queue": 4},
            {"max_active_leases": None, "max_active_leases_per_queue": 4},
            {"budget_group": "a", "dispatch_budget_group": "b", GROUP_LIMIT: 3},
        ],
    )
    def test_two_names_for_one_limit_must_not_differ(self, limits: dict[str, Any]):
        (problem,) = problems_of(of_queue(**limits))
        assert "though they are one limit: keep one of them" in problem

    def test_every_problem_is_told_at_once(self):
        problems = problems_of(
            {
                "production:payments": {
                    "workflow_tasks": {"max_active_lease": 3, "max_dispatches_per_minute": -1},
                    "activity_task": {},
                },
                "a:b:": {"activity_tasks": {"max_active_leases": "many"}},
                ":x": {},
                "email": {**group("mail", 5), "workflow_tasks": {"budget_group": "mail"}},
            },
            DW_PORT="x",
            DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE="-5",
        )
        beginnings = [
            "environment: DW_PORT ",
            "environment: DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE ",
            '."production:payments".workflow_tasks.max_active_lease: unknown',
            '."production:payments".workflow_tasks.max_dispatches_per_minute: must be',
            '."production:payments".activity_task: unknown',
            '."a:b:".activity_tasks.max_active_leases: must be',
            '.":x": a namespace is',
            '.email.workflow_tasks.budget_group: "mail" is a group without a limit',
        ]
        assert [
            problem[: len(begin)] for problem, begin in zip(problems, beginnings, strict=True)
        ] == beginnings

    @pytest.mark.parametrize("text", ["", "-1", "1.5", "NaN", "many", "1000001"])
    def test_a_setting_of_its_own_is_as_strict(self, text: str):
        with pytest.raises(ConfigurationError, match="must be a whole number of leases from 0 to 1000000"):
            load({"DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER": text})


class TestGroups:
    def test_a_group_without_a_limit_is_refused(self):
        (problem,) = problems_of({"payments": group("bank-api")})
        assert problem == (
            '.payments.activity_tasks.dispatch_budget_group: "bank-api" is a group without a limit here: say'
            f" {GROUP_LIMIT} beside it, or give it limits in [admission.groups.bank-api] of the file"
        )

    def test_the_limit_of_another_kind_does_not_count(self):
        (problem,) = problems_of(
            {"payments": {**group("g"), "workflow_tasks": group("g", 5)["activity_tasks"]}}
        )
        assert "a group without a limit" in problem

    def test_a_limit_of_a_wider_key_counts(self):
        load({OVERRIDES: json.dumps({"prod:payments": group("g"), "prod:*": group(limit=5)})})
        load({OVERRIDES: json.dumps({"prod:payments": group("g"), "*": group(limit=0)})})

    def test_one_queue_of_a_group_without_the_limit_of_the_others_is_refused(self):
        (problem,) = problems_of({"prod:a": group("g", 600), "prod:b": group("g")})
        assert problem.startswith(
            '."prod:b".activity_tasks.dispatch_budget_group: "g" is a group without a limit'
        )
        assert f'{OVERRIDES}."prod:a".activity_tasks.{GROUP_LIMIT} says 600' in problem

    def test_a_limit_without_any_group_is_refused(self):
        (problem,) = problems_of({"payments": group(limit=5), "email": group("g", 5)})
        assert problem.startswith(f".payments.activity_tasks.{GROUP_LIMIT}: a group limit without a group: ")

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("prod:a", "prod:b"),
            ("prod:a", "prod:*"),
            ("prod:a", "b"),
            ("a", "b"),
            ("a", "*"),
            ("prod:*", "*"),
        ],
    )
    def test_a_group_with_two_limits_is_refused_with_both_paths(self, one: str, other: str):
        overrides = {one: group("g", 600), other: group("g", 300)}
        if (one, other) == ("prod:*", "*"):
            load({OVERRIDES: json.dumps(overrides)})  # another namespace is another budget
            return
        (problem,) = problems_of(overrides)
        assert "for the same group" in problem
        for key in (one, other):
            assert f'."{key}".' in problem or f".{key}." in problem

    def test_one_group_in_two_namespaces_may_have_two_limits(self):
        load({OVERRIDES: json.dumps({"prod:a": group("g", 600), "test:a": group("g", 3)})})

    def test_a_misspelt_limit_is_no_reason_to_miss_it_too(self):
        (problem,) = problems_of(of_queue(budget_group="g", max_dispatches_per_minute_per_budget_grup=3))
        assert "did you mean" in problem
        (problem,) = problems_of(of_queue(budget_gruop="g", **{GROUP_LIMIT: 3}))
        assert "did you mean" in problem


class TestNamespaces:
    def test_a_namespace_whose_queues_go_by_two_limits_is_refused(self):
        (problem,) = problems_of(
            {
                "prod:a": {"activity_tasks": {"max_active_leases_per_namespace": 3}},
                "prod:*": {"activity_tasks": {"max_active_leases_per_namespace": 5}},
            }
        )
        assert problem == (
            '."prod:a".activity_tasks.max_active_leases_per_namespace: means 3 for one queue, and the other'
            f' queues of the namespace go by 5 ({OVERRIDES}."prod:*".activity_tasks'
            '.max_active_leases_per_namespace): a namespace has one limit, so say it under "prod:*"'
        )

    @pytest.mark.parametrize(("key", "where"), [("prod:a", '"prod:*"'), ("a", '"*"')])
    def test_a_limit_that_would_count_one_queue_of_a_namespace_only_is_refused(self, key: str, where: str):
        (problem,) = problems_of({key: {"activity_tasks": {"max_dispatches_per_minute_per_namespace": 3}}})
        assert "means 3 for one queue, and the other queues of the namespace go by no limit" in problem
        assert problem.endswith(f"so say it under {where}")

    def test_a_queue_that_opts_out_of_the_limit_of_its_namespace_is_refused(self):
        (problem,) = problems_of(
            {
                "prod:a": {"activity_tasks": {"max_active_leases_per_namespace": None}},
                "prod:*": {"activity_tasks": {"max_active_leases_per_namespace": 5}},
            }
        )
        assert "means no limit for one queue" in problem

    def test_saying_the_same_twice_is_no_contradiction(self):
        limit = {"activity_tasks": {"max_active_leases_per_namespace": 5}}
        load({OVERRIDES: json.dumps({"prod:a": limit, "prod:*": limit})})
        load(
            {
                OVERRIDES: json.dumps({"prod:a": limit}),
                "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE": "5",
            }
        )


@pytest.mark.parametrize("key", ["*:payments", "", "ns :q", "é:é"])
def test_a_bad_key_is_refused_also_where_it_says_null(key: str):
    assert problems_of(json.dumps({key: None}))
