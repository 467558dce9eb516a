"""Runs and their histories: addressing, workflow ids, request ids, appending events."""
