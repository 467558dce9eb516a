"""The front door: the names that users import, pinned, and nothing loaded before it is used."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import penstock

NAMES = {
    *("Client", "SyncClient", "Worker", "Replayer", "workflow", "activity", "failures", "__version__"),
    *("Priority", "RetryPolicy", "DataConverter", "PayloadCodec", "WorkflowHandle", "ActivityHandle"),
    *(
        "ActivityStart",
        "TypedSearchAttributes",
        "WithStartWorkflowOperation",
        "WorkflowIDConflictPolicy",
        "WorkflowExecutionStatus",
    ),
    *("ClientInterceptor", "OutboundInterceptor", "Penstock", "WorkflowIDReusePolicy"),
    *("PayloadConverter", "Plugin", "SimplePlugin"),
    *("AppConfig", "QueueMode", "CustomQueueConfig", "PostgresConfig", "RecoveryConfig"),
    *("ConfigurationError", "MultipleValidationErrors"),
    *(
        "Schedule",
        "ScheduleSpec",
        "SchedulePolicy",
        "ScheduleState",
        "SearchAttributeIndexedValueType",
        "SearchAttributeKey",
        "SearchAttributePair",
        "SearchAttributeUpdate",
        "ScheduleOverlapPolicy",
        "ScheduleHandle",
    ),
    *("ScheduleActionStartWorkflow", "ScheduleActionStartActivity", "ScheduleCalendarSpec", "ScheduleRange"),
    "ScheduleIntervalSpec",
    *("TaskHandle", "TaskStatus", "TaskError", "TaskFailed", "TaskExpired", "TaskCancelled", "TaskTimedOut"),
}


def test_the_front_door_has_exactly_these_names_and_each_of_them_opens() -> None:
    assert set(penstock.__all__) == NAMES
    assert all(getattr(penstock, name) is not None for name in NAMES)


@pytest.mark.parametrize("name", ["activity", "failures", "workflow"])
@pytest.mark.parametrize("first", ["import penstock.{0}", "from penstock import {0}"])
def test_a_public_module_is_one_module_however_it_is_imported(name: str, first: str) -> None:
    asked = (
        f"{first.format(name)}\nimport sys, penstock.{name}\nfrom penstock import {name}\n"
        f"assert penstock.{name} is {name} is sys.modules['penstock.{name}']"
    )
    subprocess.run([sys.executable, "-c", asked], check=True)


def test_public_modules_are_modules_and_their_names_open() -> None:
    for name in ("activity", "client", "failures", "testing", "worker", "workflow"):
        module = importlib.import_module(f"penstock.{name}")
        assert all(getattr(module, each) is not None for each in module.__all__), name
    from penstock.client import Client, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from penstock.failures import ApplicationError
    from penstock.worker import Worker

    assert (Client, Worker) == (penstock.Client, penstock.Worker)
    assert WorkflowIDReusePolicy is penstock.WorkflowIDReusePolicy
    assert WorkflowIDConflictPolicy is penstock.WorkflowIDConflictPolicy
    assert ApplicationError is penstock.failures.ApplicationError


def test_every_error_of_the_front_door_is_in_the_one_module_of_errors() -> None:
    named = [getattr(penstock, name) for name in penstock.__all__]
    errors = [each for each in named if inspect.isclass(each) and issubclass(each, BaseException)]
    assert errors
    assert all(getattr(penstock.failures, each.__name__) is each for each in errors)


def test_the_server_loads_no_part_of_the_sdk() -> None:
    asked = "import sys, penstock.server.app; print([name for name in sys.modules if 'penstock.sdk' in name])"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_name_that_is_not_there_is_refused_as_by_any_module() -> None:
    asked = "import penstock; penstock.Wroker"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert "has no attribute 'Wroker'" in ran.stderr


def test_the_package_alone_loads_no_part_of_the_sdk() -> None:
    asked = "import sys, penstock; print([name for name in sys.modules if name.startswith('penstock.')])"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
