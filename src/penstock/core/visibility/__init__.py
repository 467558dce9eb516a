"""Visibility: the query language, the indexed values of runs, and index planning."""
