"""Workflow code, run again and again: what it asked for must follow from what is recorded, and from nothing else."""
