"""Why something waits: what binds it now, what would free it, who is ahead, and when it may start."""
