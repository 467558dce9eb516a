"""Wakeups inside a node, and between nodes over PostgreSQL or Redis."""
