"""The front door: the names that users import, pinned, and nothing loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import penstock

NAMES = {
    *("Client", "SyncClient", "Worker", "Replayer", "workflow", "activity", "failures", "__version__"),
    *("Priority", "RetryPolicy", "DataConverter", "PayloadCodec", "WorkflowHandle", "ActivityHandle"),
    *("ActivityStart", "WithStartWorkflowOperation", "WorkflowIDConflictPolicy", "WorkflowExecutionStatus"),
    *("ClientInterceptor", "OutboundInterceptor", "Penstock", "WorkflowIDReusePolicy"),
    *("AppConfig", "QueueMode", "CustomQueueConfig", "PostgresConfig", "RecoveryConfig"),
    *("ConfigurationError", "MultipleValidationErrors"),
    *("TaskHandle", "TaskStatus", "TaskError", "TaskFailed", "TaskExpired", "TaskCancelled", "TaskTimedOut"),
}


def test_the_front_door_has_exactly_these_names_and_each_of_them_opens() -> None:
    assert set(penstock.__all__) == NAMES
    assert all(getattr(penstock, name) is not None for name in NAMES)


def test_a_name_that_is_not_there_is_refused_as_by_any_module() -> None:
    asked = "import penstock; penstock.Wroker"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert "has no attribute 'Wroker'" in ran.stderr


def test_the_package_alone_loads_no_part_of_the_sdk() -> None:
    asked = "import sys, penstock; print([name for name in sys.modules if name.startswith('penstock.')])"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
