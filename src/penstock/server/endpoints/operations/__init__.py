"""Namespaces, batch operations, history export, journal, system operations and discovery."""
