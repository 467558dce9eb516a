"""Matching polls with tasks: claims, the dispatcher, permits, sticky tasks and query tasks."""
