"""Polls, leases, priority and fairness on real servers."""
