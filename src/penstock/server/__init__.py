"""The HTTP edge: one table of operations, one pipeline in front of it."""
