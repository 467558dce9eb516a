"""The simulator: the server's own decisions on a virtual clock."""
