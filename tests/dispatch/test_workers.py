"""Queue, profile and scope of a worker: what is known, what is selected, and what is left to do."""

from __future__ import annotations

import pytest

from penstock.dispatch import (
    DispatchConfigError,
    Member,
    Selection,
    WorkerNothingToDoError,
    WorkerProfileUnknownError,
    WorkerScopeEmptyError,
    WorkerScopeUnknownError,
    WorkerTaskQueueUnknownError,
    dispatch_from,
    load_dispatch,
    plan,
)
from tests.dispatch.tables import PIPELINES

PIPELINE = load_dispatch(PIPELINES, environ={})
_KNOWN = (
    "['anthropic-queue', 'extract-azure-queue', 'extract-default-queue', 'img-gen-gpu-queue', "
    "'llm-default-queue', 'openai-queue', 'temporal_task_queue']"
)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("antrhopic-queue", "\n  Did you mean: 'anthropic-queue'?"),
        ("openai", "\n  Did you mean: 'openai-queue'?"),
        ("extract-queue", "\n  Did you mean: 'extract-azure-queue' or 'extract-default-queue'?"),
        ("ANTHROPIC-QUEUE", "\n  Did you mean: 'anthropic-queue'?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_queue_is_refused_in_three_lines(given: str, meant: str) -> None:
    with pytest.raises(WorkerTaskQueueUnknownError) as refused:
        PIPELINE.check_task_queue(given)
    assert (
        str(refused.value)
        == f"task queue {given!r} is not declared in config.\n  Known queues: {_KNOWN}{meant}"
    )


def test_an_empty_queue_is_no_queue() -> None:
    with pytest.raises(WorkerTaskQueueUnknownError, match="task queue is empty"):
        PIPELINE.check_task_queue("")


def test_a_queue_that_only_a_route_names_is_known() -> None:
    PIPELINE.check_task_queue("llm-default-queue")


def test_an_unknown_profile_or_scope_is_refused_in_the_same_shape() -> None:
    with pytest.raises(WorkerProfileUnknownError) as profile:
        PIPELINE.profile("gpuu")
    assert str(profile.value) == (
        "profile 'gpuu' is not declared in config.\n"
        "  Known profiles: ['balanced', 'gpu', 'router']\n"
        "  Did you mean: 'gpu'?"
    )
    with pytest.raises(WorkerScopeUnknownError, match="Did you mean: 'router'"):
        PIPELINE.scope("ruoter")


_FLOWS = [Member("Bill", pack="billing"), Member("Ship")]
_ACTS = [
    Member("charge", pack="billing"),
    Member("render", tags=frozenset({"gpu"})),
    Member("act_llm_gen_text"),
    Member("act_llm_gen_object"),
]


@pytest.mark.parametrize(
    ("scope", "workflows", "activities"),
    [
        ("full", {"Bill", "Ship"}, {"charge", "render", "act_llm_gen_text", "act_llm_gen_object"}),
        ("router", {"Bill", "Ship"}, set()),
        ("runner", set(), {"charge", "render", "act_llm_gen_text", "act_llm_gen_object"}),
        ("runner-llm", set(), {"act_llm_gen_text", "act_llm_gen_object"}),
        ("runner-gpu", set(), {"render"}),
        ("billing", {"Bill"}, {"charge"}),
        ("mixed", {"Bill", "Ship"}, {"render", "act_llm_gen_text"}),
        ("quiet", set(), {"charge"}),
    ],
)
def test_a_scope_selects_by_pack_tag_name_and_pattern(
    scope: str, workflows: set[str], activities: set[str]
) -> None:
    config = dispatch_from(
        {
            "worker_scopes": {
                "scopes": {
                    "billing": {"required_tasks_packs": ["billing"]},
                    "mixed": {
                        "required_workflows": ["*"],
                        "required_activities": ["act_llm_*"],
                        "excluded_activities": ["act_llm_gen_object"],
                        "tags": ["gpu"],
                    },
                    "quiet": {"required_tasks_packs": ["billing"], "disable_all_workflows": True},
                }
            }
        }
    )
    selection = config.scope(scope).select(_FLOWS, _ACTS)
    assert (set(selection.workflows), set(selection.activities)) == (workflows, activities)


def test_a_scope_of_the_file_names_every_word_that_the_program_does_not_know() -> None:
    config = dispatch_from(
        {
            "worker_scopes": {
                "scopes": {
                    "full": {
                        "required_tasks_packs": ["biling"],
                        "required_activities": ["chrge", "render"],
                        "excluded_workflows": ["Shipp"],
                    }
                }
            }
        }
    )
    with pytest.raises(WorkerScopeUnknownError) as refused:
        config.scope().select(_FLOWS, _ACTS)
    assert [problem.hint for problem in refused.value.problems] == [
        "did you mean 'billing'?",
        "did you mean 'Ship'?",
        "did you mean 'charge'?",
    ]


def test_a_preset_without_any_of_its_names_says_what_it_looked_for() -> None:
    with pytest.raises(
        WorkerScopeEmptyError, match=r"'runner-extract' selects nothing.*act_render_page_views"
    ):
        PIPELINE.scope("runner-extract").select(_FLOWS, _ACTS)


def test_a_runner_of_a_tag_that_nobody_carries_is_an_unknown_scope() -> None:
    with pytest.raises(WorkerScopeUnknownError) as refused:
        PIPELINE.scope("runner-lm").select(_FLOWS, _ACTS)
    assert "scope 'runner-lm' is not declared in config." in str(refused.value)
    assert "Did you mean: 'runner-llm'?" in str(refused.value)


_BOTH = Selection(("Bill",), ("charge",))
_ONLY_WORKFLOWS = Selection(("Bill",), ())
_ONLY_ACTIVITIES = Selection((), ("charge",))


@pytest.mark.parametrize(
    ("profile", "selection", "polls", "says"),
    [
        ("router", _ONLY_WORKFLOWS, (True, False), ""),
        ("router", _BOTH, (True, False), "registered but never polled: charge"),
        ("gpu", _ONLY_WORKFLOWS, (True, False), "4 activity slots stay idle"),
        ("gpu", _BOTH, (True, True), ""),
        ("gpu", _ONLY_ACTIVITIES, (False, True), ""),
    ],
)
def test_a_zero_is_a_zero(profile: str, selection: Selection, polls: tuple[bool, bool], says: str) -> None:
    found = plan(PIPELINE.profile(profile), selection)
    assert (found.polls_workflows, found.polls_activities) == polls
    assert says in "".join((*found.warnings, *found.notes))
    assert bool(says) == bool(found.warnings or found.notes)


def test_no_slots_and_no_workflows_leave_nothing_to_do() -> None:
    with pytest.raises(WorkerNothingToDoError, match="nothing to do"):
        plan(PIPELINE.profile("router"), _ONLY_ACTIVITIES)
    assert issubclass(WorkerNothingToDoError, DispatchConfigError)


def test_routes_for_activities_that_the_program_lacks_are_told_with_the_nearest() -> None:
    defined = ["act_llm_gen_txt", "act_img_gen_images", "act_extract_gen_extract_pages"]
    (problem,) = PIPELINE.unknown_activities(defined)
    assert problem.path == "temporal.worker_config.activity_queues.act_llm_gen_text"
    assert problem.hint == "did you mean 'act_llm_gen_txt'?"
