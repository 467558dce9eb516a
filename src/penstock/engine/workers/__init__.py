"""Workers: registration, build-id cohorts, and unblocking runs."""
