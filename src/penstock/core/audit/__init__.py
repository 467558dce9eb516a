"""The audit trail of a run: who asked for what, and the events that follow from those that are recorded."""
