"""Workflows on real servers."""
