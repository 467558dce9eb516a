"""Deterministic replay of workflow code: its commands must follow from the recorded history and from nothing else."""
