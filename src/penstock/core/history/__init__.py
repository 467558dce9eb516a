"""Histories: commands of workflow code, the events they produce, and the state of a run."""
