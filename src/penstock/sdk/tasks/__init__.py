"""Tasks of an app: functions that are sent to workers, without a workflow."""
