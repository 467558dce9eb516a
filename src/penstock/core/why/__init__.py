"""Why something waits: the binding constraint, its remedies, its position, and when it may start."""
