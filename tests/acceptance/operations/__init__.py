"""Namespaces, authentication, server lifecycle and the command line on real servers."""
