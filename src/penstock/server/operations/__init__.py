"""The table of operations, in parts by subject."""
