"""Schedules on the wire."""
