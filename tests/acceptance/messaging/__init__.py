"""Queries and updates on real servers."""
