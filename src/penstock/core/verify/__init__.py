"""Offline verification: laws over the server's journal and the observations of its clients."""
