"""Matching: open polls meet ready tasks. `dispatcher` holds the polls, `claim` serves them."""
