"""Commands of workflow tasks."""
