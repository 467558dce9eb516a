"""`dw`: the command line of the public contract, as aliases of our own commands."""
