"""Requests of our clients, answered from a Temporal cluster."""
