"""Limits on real servers."""
