"""The public API for workflow code: `from penstock import workflow`.

Workflow code is ordinary async Python on a deterministic event loop. It is replayed from its history whenever a
worker needs it, so it must be deterministic: time, randomness and everything external come from the functions below
and from activities.
"""

from penstock.sdk.replay.continue_as_new import ContinueAsNewError
from penstock.sdk.replay.errors import (
    DeterminismViolationError,
    NonDeterminismError,
    NotInWorkflowError,
    ReadOnlyError,
)
from penstock.sdk.replay.info import Info, ParentInfo
from penstock.sdk.workflow_api.activities import (
    ActivityCancellationType,
    ActivityHandle,
    ActivityOptions,
    execute_activity,
    execute_activity_method,
    execute_local_activity,
    start_activity,
    start_activity_method,
    start_local_activity,
)
from penstock.sdk.workflow_api.children import (
    ChildWorkflowCancellationType,
    ChildWorkflowHandle,
    ChildWorkflowOptions,
    ExternalWorkflowHandle,
    ParentClosePolicy,
    execute_child_workflow,
    get_external_workflow_handle,
    get_external_workflow_handle_for,
    start_child_workflow,
)
from penstock.sdk.workflow_api.current_run import (
    continue_as_new,
    deprecate_patch,
    in_workflow,
    info,
    instance,
    memo,
    memo_value,
    now,
    patched,
    random,
    time,
    time_ns,
    upsert_memo,
    upsert_search_attributes,
    uuid4,
)
from penstock.sdk.workflow_api.decorators import UpdateMethod, defn, init, query, run, signal, update
from penstock.sdk.workflow_api.logger import logger
from penstock.sdk.workflow_api.runtime_handlers import (
    set_query_handler,
    set_signal_handler,
    set_update_handler,
)
from penstock.sdk.workflow_api.unsafe import unsafe
from penstock.sdk.workflow_api.waits import (
    all_handlers_finished,
    as_completed,
    current_update_info,
    sleep,
    wait_condition,
)

__all__ = [
    "ActivityCancellationType",
    "ActivityHandle",
    "ActivityOptions",
    "ChildWorkflowCancellationType",
    "ChildWorkflowHandle",
    "ChildWorkflowOptions",
    "ContinueAsNewError",
    "DeterminismViolationError",
    "ExternalWorkflowHandle",
    "Info",
    "NonDeterminismError",
    "NotInWorkflowError",
    "ParentClosePolicy",
    "ParentInfo",
    "ReadOnlyError",
    "UpdateMethod",
    "all_handlers_finished",
    "as_completed",
    "continue_as_new",
    "current_update_info",
    "defn",
    "deprecate_patch",
    "execute_activity",
    "execute_activity_method",
    "execute_child_workflow",
    "execute_local_activity",
    "get_external_workflow_handle",
    "get_external_workflow_handle_for",
    "in_workflow",
    "info",
    "init",
    "instance",
    "logger",
    "memo",
    "memo_value",
    "now",
    "patched",
    "query",
    "random",
    "run",
    "set_query_handler",
    "set_signal_handler",
    "set_update_handler",
    "signal",
    "sleep",
    "start_activity",
    "start_activity_method",
    "start_child_workflow",
    "start_local_activity",
    "time",
    "time_ns",
    "unsafe",
    "update",
    "upsert_memo",
    "upsert_search_attributes",
    "uuid4",
    "wait_condition",
]
