"""Limits of queues and scopes: admission, settings, rates, windows, declared caps."""
