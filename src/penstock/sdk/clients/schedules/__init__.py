"""Schedules: values, handles and calls, with the names of Temporal's SDK."""
