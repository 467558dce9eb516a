"""Killed and frozen servers and workers."""
