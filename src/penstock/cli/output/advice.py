"""Advice for each reason with which a server refuses a command."""

from __future__ import annotations

_CHECK_NAME = "Check the name against the workflow's code; its workers have registered others."
_CHECK_WORKERS = "See with `penstock worker list` whether the workers are busy or gone."
_GIVE_ARGUMENTS = "Give the arguments that its handler takes, one --input each."
_SAME_RELEASE = "Use a server and a command line of the same release."
_SOON = "Try again soon."

ADVICE = {
    "port_in_use": "Stop the program that listens there (a server that you started before?), or choose another port "
    "with --port or DW_PORT.",
    "unauthorized": "Pass --token or set DURABLE_WORKFLOW_AUTH_TOKEN to a token this server knows.",
    "signature_invalid": "Check that the server has this key for that id, and that no proxy changes requests.",
    "signature_stale": "Set the clock of this machine: the server's differs by more than its window allows.",
    "signature_replayed": "Send it again: each attempt is signed again.",
    "forbidden": "Use a token whose role opens this command.",
    "too_many_auth_failures": "Wait a minute, then try again with the right token.",
    "misdirected_host": "Name the server with --server as it knows itself (`DW_ALLOWED_HOSTS`).",
    "not_found": _SAME_RELEASE,
    "method_not_allowed": _SAME_RELEASE,
    "unsupported_control_plane_version": _SAME_RELEASE,
    "validation_failed": "Correct what is named, and send it again.",
    "payload_too_large": "Send less: keep large values elsewhere and send where they are.",
    "namespace_not_found": "Create it with `penstock namespace create`, or pass another --namespace.",
    "namespace_already_exists": "Reuse it, or choose another name.",
    "namespace_not_empty": "Finish or cancel what runs there first.",
    "instance_already_started": (
        "Choose another --id. Or, if its run is open: --id-conflict-policy use_existing or terminate_existing;"
        " if it is closed: --id-reuse-policy allow_duplicate."
    ),
    "schedule_already_exists": "Choose another id, or change it with `penstock schedule update`.",
    "invalid_time_range": "Give a period whose end is after its start.",
    "backfill_too_large": "Backfill it in parts, and see with --dry-run what each would start.",
    "run_not_found": "Leave out --run to mean the newest run, or see them all with `penstock workflow runs`.",
    "run_not_active": "It has ended; read it with `penstock workflow history`.",
    "run_not_closed": "Wait until it has ended, or end it with `penstock workflow cancel`.",
    "historical_run_command_rejected": "Leave out --run to mean the newest run.",
    "request_id_conflict": "Leave out --request-id to get a new one.",
    "structural_limit_exceeded": "The run has too much open at once; look with `penstock workflow debug`.",
    "unknown_signal": _CHECK_NAME,
    "invalid_signal_arguments": _GIVE_ARGUMENTS,
    "rejected_unknown_query": _CHECK_NAME,
    "query_rejected": "Read the handler's error, and send another query.",
    "query_worker_unavailable": "Start a worker for the run's task queue: its code answers, not the server.",
    "query_task_queue_full": "Too many queries wait for workers. Try again soon, or start more workers.",
    "query_task_queue_unavailable": _SOON,
    "query_worker_timeout": _CHECK_WORKERS,
    "unknown_update": _CHECK_NAME,
    "invalid_update_arguments": _GIVE_ARGUMENTS,
    "update_validator_rejected": "Nothing was changed. Correct the arguments and send it again.",
    "update_failed": "The workflow continues. Correct what the handler refused, and send a new update.",
    "update_validator_worker_unavailable": "Start a worker for the run's task queue: its code decides.",
    "update_validator_worker_incompatible": "Start a worker whose build fits the run.",
    "cooperative_cancellation_not_supported": "Start such a worker, or leave out --cleanup-timeout to end it at once.",
    "update_validation_capability_unsupported": "Start workers whose SDK can validate updates.",
    "update_validation_task_not_claimed": _CHECK_WORKERS,
    "update_validation_execution_timeout": "The validator is too slow; look at the worker's log.",
    "update_validation_worker_failed": "Look at the worker's log, then send it again.",
    "invalid_query": "Names are fields or registered attributes (`penstock search-attribute list`), "
    "texts are in quotes: --query \"WorkflowType = 'orders' AND StartTime > '24h ago'\".",
    "name_reserved": "Choose another name; this one belongs to the server.",
    "attribute_already_exists": "Use it as it is, or delete it first with `penstock search-attribute delete`.",
    "system_attribute": "It belongs to the server and stays.",
    "attribute_not_found": "See what there is with `penstock search-attribute list`.",
    "search_attribute_limit_reached": "Delete one that is not searched by: `penstock search-attribute delete`.",
    "config_version_conflict": "See them with `penstock task-queue config get`, or the `get` of what you change.",
    "too_many_fairness_keys": "Unset the values of single keys first.",
    "archive_unavailable": "Look at the directory of the archive (`DW_ARCHIVE_DIR`); nothing was deleted.",
    "external_storage_not_configured": "Configure it: penstock namespace storage NAME --driver local|s3.",
    "external_storage_disabled": "Turn it on: penstock namespace storage NAME --enable.",
    "storage_driver_unavailable": "Correct the storage or its policy; the policy was not changed.",
    "external_payload_unavailable": "Look at the external storage: penstock namespace test-storage NAME.",
    "storage_full": "Make room on the server's disk; nothing was written.",
    "store_unavailable": "The server cannot reach its database; nothing was written. Try again soon.",
    "coordination_unavailable": "The server cannot reach its Redis; nothing was written. Try again soon.",
    "outcome_unknown": "The request may have taken effect. Check before you repeat it.",
    "server_draining": "The server is shutting down. Try again soon, or use another one.",
    "server_error": "Read the server's log, then try again.",
    "schema_outdated": "Run `penstock db migrate`.",
    "schema_too_new": "Use the newer release that wrote this database.",
    "store_in_use": "Stop the other server that has this database open, or use another data directory.",
}
