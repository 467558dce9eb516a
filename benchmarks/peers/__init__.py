"""Systems that are compared: a program for each, `with_…`, that is its worker or a client to be asked.

Such a program runs in the Python of its system: beside that it leans on `exchange` alone.
"""
