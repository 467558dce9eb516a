"""Endpoints of bridge adapters."""
