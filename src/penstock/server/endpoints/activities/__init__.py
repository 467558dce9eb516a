"""Standalone activities and reports on activity tasks."""
