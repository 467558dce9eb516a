"""Rows of the fault catalogue and of the fault table."""
