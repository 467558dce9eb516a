"""Failures of databases, disks and Redis."""
