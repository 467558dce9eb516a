"""Workflow runs: starts, workflow task reports, children, closing, repair and the outbox relay."""
