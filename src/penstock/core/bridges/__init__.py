"""Bridge adapters: webhooks of other systems that start, signal or update workflows."""
