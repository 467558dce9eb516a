"""`penstock worker` with a dispatch configuration: what it would be, and what is wrong, before it connects."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded_server import Run
from tests.support.live import free_port
from tests.support.patience import PATIENCE_S

PIPELINES = Path(__file__).parents[2] / "dispatch" / "pipelines.toml"
"""The configuration of the document pipelines, as people have it."""
APP = """
    from penstock import Penstock, activity, workflow

    app = Penstock("pipelines")

    @activity.defn
    async def act_llm_gen_text(handle: str) -> str:
        return handle

    @activity.defn
    async def act_img_gen_images(prompt: str) -> str:
        return prompt

    @activity.defn
    async def act_extract_gen_extract_pages(name: str) -> str:
        return name

    @activity.defn
    async def act_render_page_views(name: str) -> str:
        return name

    @activity.defn(pack="billing", tags={"money"})
    async def act_charge(name: str) -> str:
        return name

    @workflow.defn
    class Router:
        @workflow.run
        async def run(self) -> None: ...

    @workflow.defn(pack="billing")
    class Bill:
        @workflow.run
        async def run(self) -> None: ...

    app.add(
        workflows=[Router, Bill],
        activities=[
            act_llm_gen_text,
            act_img_gen_images,
            act_extract_gen_extract_pages,
            act_render_page_views,
            act_charge,
        ],
    )
"""
SCOPES = """
    [penstock.worker_scopes.scopes.billing]
    required_tasks_packs = ["billing"]
    [penstock.worker_scopes.scopes.pages]
    required_activities = ["act_*_page*", "act_extract_*"]
    excluded_activities = ["act_render_page_views"]
    [penstock.worker_scopes.scopes.wrong]
    required_activities = ["act_chrage"]
    required_tasks_packs = ["biling"]
"""
EVERYTHING = {
    *("act_llm_gen_text", "act_img_gen_images", "act_extract_gen_extract_pages"),
    *("act_render_page_views", "act_charge"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "pipelines_app.py").write_text(textwrap.dedent(APP))
    (folder / "pipelines.toml").write_text(PIPELINES.read_text())
    (folder / "scopes.toml").write_text(textwrap.dedent(SCOPES))
    (folder / "never_imported.py").write_text("raise AssertionError('it was imported')\n")
    return folder


@pytest.fixture
def at_home(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PENSTOCK_APP", "pipelines_app:app")
    return run


def checked(at_home: Run, *args: str, file: str = "pipelines.toml") -> dict[str, Any]:
    said = at_home("worker", "--config", file, *args, "--check", "--json")
    assert said.exit_code == 0, said.output
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def refused(at_home: Run, *args: str) -> str:
    """What is told of it; the app is not imported for that, and no server is asked."""
    away = {"PENSTOCK_APP": "never_imported:app", "DURABLE_WORKFLOW_SERVER_URL": "http://127.0.0.1:1"}
    said = at_home("worker", "--config", "pipelines.toml", *args, env=away)
    assert said.exit_code == 2, said.output
    assert said.stdout == ""
    return said.stderr


def test_c1_without_a_word_it_is_the_defaults_of_the_file(at_home: Run) -> None:
    plan = checked(at_home)
    assert (plan["task_queue"], plan["profile"], plan["scope"]) == (
        "temporal_task_queue",
        "balanced",
        "full",
    )
    assert set(plan["registered_activities"]) == EVERYTHING
    assert plan["registered_workflows"] == ["Router", "Bill"]
    assert (plan["concurrency"], plan["queue_cap_per_second"]) == (100, 1000)


def test_c3_a_queue_that_only_a_route_names_is_known(at_home: Run) -> None:
    plan = checked(at_home, "--task-queue", "llm-default-queue")
    assert plan["routes"] == ["act_llm_gen_text.default"]


@pytest.mark.parametrize(
    ("queue", "hint"),
    [
        ("antrhopic-queue", "Did you mean: 'anthropic-queue'?"),
        ("openai", "Did you mean: 'openai-queue'?"),
        ("extract-queue", "Did you mean: 'extract-azure-queue' or 'extract-default-queue'?"),
        ("ANTHROPIC-QUEUE", "Did you mean: 'anthropic-queue'?"),
    ],
    ids=["c2", "c4", "c5", "c6"],
)
def test_a_queue_that_is_not_declared_is_refused_with_the_nearest_names(
    at_home: Run, queue: str, hint: str
) -> None:
    first, second, third = refused(at_home, "--task-queue", queue).splitlines()[-3:]
    assert first == f"WorkerTaskQueueUnknownError: task queue '{queue}' is not declared in config."
    assert second.startswith("  Known queues: ['anthropic-queue', 'extract-azure-queue', ")
    assert third == f"  {hint}"


def test_c7_and_c8_nothing_near_and_nothing_at_all(at_home: Run) -> None:
    told = refused(at_home, "--task-queue", "xyz")
    assert "'xyz' is not declared" in told
    assert "Did you mean" not in told
    assert "empty" in refused(at_home, "--task-queue", "")


def test_c9_to_c11_profiles_and_scopes_are_checked_as_well_and_all_is_told_together(at_home: Run) -> None:
    told = refused(at_home, "--profile", "gpuu")
    assert "WorkerProfileUnknownError: profile 'gpuu' is not declared in config." in told
    assert "  Known profiles: ['balanced', 'gpu', 'router']" in told
    assert "  Did you mean: 'gpu'?" in told
    told = refused(at_home, "--task-queue", "zzz", "--profile", "zzz", "--scope", "zzz")
    for kind in ("TaskQueue", "Profile", "Scope"):
        assert f"Worker{kind}UnknownError: " in told
    said = at_home("worker", "--config", "pipelines.toml", "--scope", "runner-lm", "--check")
    assert said.exit_code == 2
    assert "WorkerScopeUnknownError: scope 'runner-lm' is not declared in config." in said.stderr
    assert "Did you mean: 'runner-llm'?" in said.stderr


def test_c13_a_server_that_is_down_ends_it_with_exit_code_1_after_some_tries(at_home: Run) -> None:
    away = {"DURABLE_WORKFLOW_SERVER_URL": f"http://127.0.0.1:{free_port()}"}
    said = at_home("worker", "--config", "pipelines.toml", env=away)
    assert said.exit_code == 1
    assert "server_unreachable" in said.stderr


def test_c14_to_c17_a_zero_is_a_zero(at_home: Run) -> None:
    plan = checked(at_home, "--profile", "router", "--scope", "router")
    assert (plan["concurrency"], plan["registered_activities"]) == (0, [])
    assert plan["profile_values"]["max_concurrent_workflow_tasks"] == 200
    said = at_home(
        "worker", "--config", "pipelines.toml", "--profile", "router", "--scope", "runner-llm", "--check"
    )
    assert said.exit_code == 2
    assert "WorkerNothingToDoError: nothing to do" in said.stderr
    said = at_home(
        "worker", "--config", "pipelines.toml", "--profile", "router", "--scope", "full", "--check"
    )
    assert said.exit_code == 0
    assert "registered but never polled: act_llm_gen_text, " in said.stderr
    said = at_home("worker", "--config", "pipelines.toml", "--profile", "gpu", "--scope", "router", "--check")
    assert said.exit_code == 0
    assert "the 4 activity slots stay idle" in said.stderr


@pytest.mark.parametrize("flag", ["--processes", "--concurrency"])
def test_a_profile_without_activity_slots_is_given_no_number_of_them(at_home: Run, flag: str) -> None:
    said = at_home(
        "worker", "--config", "pipelines.toml", "--profile", "router", "--scope", "full", "--check", flag, "2"
    )
    assert said.exit_code == 2
    assert f"{flag} cannot be meant: the profile 'router' has no activity slots" in said.stderr


def test_c18_the_gpu_worker_is_what_its_three_words_say(at_home: Run) -> None:
    plan = checked(
        at_home, "--task-queue", "img-gen-gpu-queue", "--profile", "gpu", "--scope", "runner-img-gen"
    )
    assert plan["registered_activities"] == ["act_img_gen_images", "act_render_page_views"]
    assert (plan["queue_cap_per_second"], plan["concurrency"]) == (10, 4)
    assert plan["profile_values"]["max_activities_per_second"] == 10
    assert plan["profile_values"]["graceful_shutdown_timeout"] == "0:01:00"


def test_c19_strict_refuses_the_four_queues_that_have_no_options(at_home: Run) -> None:
    told = refused(at_home, "--strict")
    for queue in ("llm-default-queue", "openai-queue", "extract-default-queue", "extract-azure-queue"):
        assert queue in told
    assert "4 problems" in told


@pytest.mark.parametrize(
    ("scope", "workflows", "activities"),
    [
        ("billing", ["Bill"], ["act_charge"]),
        ("pages", [], ["act_extract_gen_extract_pages"]),
        ("runner-money", [], ["act_charge"]),
        ("runner-extract", [], ["act_extract_gen_extract_pages", "act_render_page_views"]),
        ("router", ["Router", "Bill"], []),
    ],
)
def test_a_scope_is_made_of_packs_tags_and_patterns(
    at_home: Run, scope: str, workflows: list[str], activities: list[str]
) -> None:
    plan = checked(at_home, "--scope", scope, file="scopes.toml")
    assert (plan["registered_workflows"], plan["registered_activities"]) == (workflows, activities)


def test_a_scope_that_names_what_the_app_lacks_is_refused_word_by_word(at_home: Run) -> None:
    said = at_home("worker", "--config", "scopes.toml", "--scope", "wrong", "--check")
    assert said.exit_code == 2
    assert "did you mean 'act_charge'?" in said.stderr
    assert "did you mean 'billing'?" in said.stderr
    said = at_home("worker", "--config", "scopes.toml", "--scope", "runner-jinja2", "--check")
    assert said.exit_code == 2
    assert "It looked for 'jinja2', 'act_jinja2_gen_text'" in said.stderr


def test_a_route_of_an_activity_that_the_app_lacks_is_a_warning(at_home: Run, place: Path) -> None:
    routes = '[penstock.worker_config.activity_queues.act_charg]\ndefault = "default"\n'
    (place / "routes.toml").write_text(routes)
    said = at_home("worker", "--config", "routes.toml", "--check")
    assert said.exit_code == 0
    assert "the app has no such activity; did you mean 'act_charge'?" in said.stderr


def test_a_bad_file_is_told_whole_and_one_queue_is_enough(at_home: Run, place: Path) -> None:
    (place / "bad.toml").write_text("[penstock.worker_config]\ntask_timeout = true\nstrat_delay = 3\n")
    said = at_home("worker", "--config", "bad.toml", "--check")
    assert said.exit_code == 2
    assert "2 problems" in said.stderr
    assert "worker_config.strat_delay" in said.stderr
    said = at_home("worker", "--config", "pipelines.toml", "--queues", "anthropic-queue,openai-queue")
    assert said.exit_code == 2
    assert "serves one queue" in said.stderr


def test_a_configuration_in_the_directory_is_found_and_values_may_be_set_on_the_way(
    at_home: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text('[penstock.worker_config]\ndefault_task_queue = "home"\n')
    said = at_home(
        "worker",
        *("--set", "worker_runtime_profiles.profiles.balanced.max_concurrent_activities=3"),
        *("--check", "--json"),
    )
    plan = json.loads(said.stdout)
    assert (plan["task_queue"], plan["concurrency"]) == ("home", 3)


def test_c12_a_misspelt_queue_is_told_by_the_real_program_with_the_server_down(place: Path) -> None:
    command = [sys.executable, "-m", "penstock", "worker", "never_imported:app"]
    asked = [*command, "--config", "pipelines.toml", "--task-queue", "antrhopic-queue"]
    ran = subprocess.run(asked, cwd=place, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == "  Did you mean: 'anthropic-queue'?"


@pytest.fixture
def homeless(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A place with a configuration, where nobody has said which app is meant."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("PENSTOCK_APP", raising=False)
    return run


def test_without_an_app_a_misspelt_queue_is_told_first(homeless: Run) -> None:
    said = homeless("worker", "--config", "pipelines.toml", "--task-queue", "antrhopic-queue")
    assert said.exit_code == 2
    assert "Did you mean: 'anthropic-queue'?" in said.stderr
    assert "MODULE:APP" not in said.stderr


def test_without_an_app_the_plan_shows_what_the_file_says(homeless: Run) -> None:
    said = homeless("worker", "--config", "pipelines.toml", "--profile", "gpu", "--check", "--json")
    assert said.exit_code == 0
    assert json.loads(said.stdout)["profile_values"]["max_concurrent_activities"] == 4
    assert "No app was named" in said.stderr


def test_without_an_app_nothing_runs(homeless: Run) -> None:
    said = homeless("worker", "--config", "pipelines.toml")
    assert said.exit_code == 2
    assert "Missing argument 'MODULE:APP'" in said.stderr


def test_what_is_odd_about_the_file_is_told_when_a_worker_begins(homeless: Run) -> None:
    said = homeless("worker", "--config", "pipelines.toml", "--check")
    assert said.stderr.count("has no queue_options") == 4


def test_a_file_may_be_checked_by_its_name_alone(homeless: Run) -> None:
    assert homeless("config", "check", "pipelines.toml").exit_code == 0
    assert homeless("config", "check", "pipelines.toml", "--strict").exit_code == 2


def test_a_scope_that_is_nearly_one_of_the_known_is_told_beside_other_mistakes(at_home: Run) -> None:
    told = refused(at_home, "--task-queue", "zzz", "--scope", "runner-lm")
    assert "task queue 'zzz' is not declared" in told
    assert "Did you mean: 'runner-llm'?" in told


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_c10_without_an_app_a_misspelt_scope_is_told_too(homeless: Run, check: tuple[str, ...]) -> None:
    said = homeless("worker", "--config", "pipelines.toml", "--scope", "runner-lm", *check)
    assert said.exit_code == 2
    assert "Did you mean: 'runner-llm'?" in said.stderr
