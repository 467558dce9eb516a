"""Finding runs: a small query language, the values that runs are found by, and the order in which to look."""
