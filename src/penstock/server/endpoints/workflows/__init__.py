"""Workflow executions and reports on workflow tasks."""
